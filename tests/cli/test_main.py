import os
import subprocess
import sys
from functools import partial

import click
import pytest

from oz.cli import main
from support.cases import each
from support.forking import command_of
from support.sizes import in_suite

COMMANDS = (
    "demo",
    "pub",
    "sub",
    "explain",
    "match",
    "translate",
    "bench",
    "record",
    "replay",
    "journal",
    "spark",
    "doctor",
    "multicast",
    "gateway",
    "nameserver",
    "peers",
    "request",
    "reply",
)


def test_help_lists_the_commands_and_the_exit_codes(oz):
    text = oz("--help").stdout
    assert all(f"\n  {command} " in text for command in COMMANDS)
    assert "130  ended by Ctrl-C" in text


@each("command", COMMANDS)
def test_each_command_shows_examples(oz, command):
    result = oz(command, "--help")
    assert result.exit_code == 0
    assert "Examples:" in result.stdout
    assert result.stdout.count(f"oz {command}") >= 2


@each("command", ["", *COMMANDS])
def test_wildcards_are_quoted_in_every_example(oz, command):
    for line in oz(*command.split(), "--help").stdout.splitlines():
        if line.startswith("    oz ") or line.startswith("  oz "):
            unquoted = "".join(line.split("'")[::2]).replace(" > ", " ")
            assert not set(unquoted) & set("*>?["), line


def test_the_version(oz):
    result = oz("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("oz ")


def test_an_unknown_command_exits_2(oz):
    assert oz("subscribe").exit_code == 2


def test_help_needs_no_rich():
    script = (
        "import sys; sys.argv = ['oz', '--help']\n"
        "import atexit; atexit.register(lambda: print('rich' in sys.modules))\n"
        "import runpy; runpy.run_module('oz', run_name='__main__')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.splitlines()[-1] == "False"


def test_a_closed_stdout_is_said_in_one_line():
    ran = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m oz explain a >&-"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 1
    assert "no standard output" in ran.stderr
    assert "Traceback" not in ran.stderr


def in_shell(line, **options):
    """Run a line of bash in which `oz` is the command."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
        **options,
    )


@pytest.fixture
def in_forking_shell(tmp_path):
    """Run a line of bash in which `oz` is a fork: what an interpreter does at its start is not looked at."""
    inherited, more = command_of("oz", tmp_path)
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"} | more
    return partial(in_shell, env=environment, pass_fds=[inherited])


@pytest.mark.parametrize(
    ("line", "code", "said"),
    in_suite(
        [
            ("oz match a <&-", 1, "oz match: there is no standard input to read from\n"),
            ("oz --help >&-", 1, "oz: there is no standard output to write to\n"),
            ("oz --version >/dev/full", 1, "No space left on device\n"),
            ("oz explain a >/dev/full", 1, "No space left on device\n"),
            ("oz explain a | true", 0, ""),
            ("oz explain a..b 2>/dev/full", 2, ""),
            ("oz nothing <&- >&- 2>&-", 2, ""),
        ],
        [
            ("oz explain a --against - <&-", 1, "oz explain: there is no standard input to read from\n"),
            ("oz pub - --bind 'tcp://127.0.0.1:*' <&- 2>&1 | tail -1 >&2", 1, "there is no standard input"),
            ("oz match a b <&-", 1, ""),
            ("oz --help >/dev/full", 1, "No space left on device\n"),
            ("oz pub --help >/dev/full", 1, "No space left on device\n"),
            ("oz --help | true", 0, ""),
            ("oz pub --help | true", 0, ""),
            ("oz nothing 2>/dev/full", 2, ""),
            ("oz explain a..b 2>&-", 2, ""),
            ("oz --help >&- 2>&-", 1, ""),
            ("oz match a a 2>&- >/dev/null", 0, ""),
        ],
    ),
)
def test_a_stream_that_is_closed_or_full_is_said_in_one_line(in_forking_shell, line, code, said):
    if "&-" in line:  # an interpreter has no stream then, from its start on
        ran = in_shell(f'oz() {{ {sys.executable} -m oz "$@"; }}; {line}')
    else:
        ran = in_forking_shell(line)
    assert ran.returncode == code, ran
    assert said in ran.stderr
    assert ran.stderr.count("\n") == bool(said)


def commands(command=main, *path):
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), *path, name)
    else:
        yield path, command


NUMBERS = [
    pytest.param(path, option, id=f"{'-'.join(path)}{option.opts[0]}")
    for path, command in commands()
    for option in command.params
    if isinstance(option.type, (click.types.FloatParamType, click.types.IntParamType))
]


@each(("path", "option"), NUMBERS)
def test_each_number_is_a_number_within_bounds(path, option):
    context = click.Context(dict(commands())[path])
    for value in ["nan", "-nan", "inf", "-inf", "-1", "1e400", "9" * 400, "", " ", "x", "\udcff"]:
        print(repr(value))  # which a failure shows last
        with pytest.raises(click.BadParameter):
            option.type.convert(value, option, context)


def test_numbers_are_looked_for_in_many_commands():
    assert len(NUMBERS) > 30


@pytest.mark.parametrize(
    "arguments",
    [
        ("record", "a", "--journal", "nowhere", "--segment-seconds", "nan"),
        ("record", "a", "--journal", "nowhere", "--segment-bytes", "9" * 5_000),
        ("record", "a", "--journal", "nowhere", "--retain-bytes", "9" * 18 + "T"),
        ("replay", "nowhere", "--speed", "nan"),
        ("replay", "nowhere", "--speed", "1e-300"),
        ("replay", "nowhere", "--from", "9" * 5_000),
        ("pub", "a", "b", "--wait", "nan"),
        ("sub", "a", "--timeout", "nan"),
        ("explain", "a", "--against", "ipc://nobody", "--seconds", "nan"),
    ],
)
def test_a_number_that_is_none_is_wrong_usage(oz, arguments):
    result = oz(*arguments)
    assert result.exit_code == 2
    assert "Error: Invalid value for" in result.stderr


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (r"oz sub a --group $'\xff' --timeout 0.1 --connect ipc://nobody", 2),
        (r"oz explain $'\xff'", 2),
        (r"oz pub $'\xff' b", 2),
        (r"oz journal info $'\xff'", 1),
        (r"oz peers --bus $'\xff'", 2),
        (r"OZ_CONFIG=$'\xff' oz config show", 1),
        (r"oz doctor --require $'\xff'", 2),
        (r"oz $'\xff'", 2),
    ],
)
def test_arguments_that_are_not_utf8_need_no_traceback(in_forking_shell, line, code):
    ran = in_forking_shell(line)
    assert ran.returncode == code, ran
    assert "Traceback" not in ran.stderr


def test_the_name_of_a_file_that_is_not_utf8_is_shown(in_forking_shell, tmp_path):
    ran = in_forking_shell(
        f"cd {tmp_path}; mkdir $'j\\xff'; {sys.executable} -c 'from oz.journal import Writer; import os;"
        " Writer(os.fsdecode(bytes([106, 255]))).close()'; oz journal info $'j\\xff'"
    )
    assert ran.returncode == 0, ran
    assert "j\\udcff" in ran.stdout


def test_a_command_loads_no_other():
    program = """
import sys
from oz.cli import main

main(["match", "a", "a"], standalone_mode=False)
print("oz.cli.match" in sys.modules, "oz.cli.bench" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.stdout.splitlines() == ["a", "True False"], ran.stderr
