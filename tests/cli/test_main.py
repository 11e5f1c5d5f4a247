import os
import subprocess
import sys

import click
import pytest

from oz.cli import main
from oz.journal import Writer
from support import scripts
from support.cases import each

COMMANDS = main.list_commands(click.Context(main))


def test_help_lists_the_commands_and_the_exit_codes(oz):
    text = oz("--help").stdout
    assert all(f"\n  {command} " in text for command in COMMANDS)
    assert "130  ended by Ctrl-C" in text


@each("command", [one for one in COMMANDS if one not in ("auth", "config", "keys")])
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


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("oz match a <&-", 1, "oz: standard input, output or error is closed: redirect it"),
        ("oz --version >/dev/full", 1, "No space left on device\n"),
        ("oz explain a | true", 0, ""),
        # `oz sub` waits for a message.
        ("oz sub a --quiet --bind ipc://$PWD/feed | true", 0, ""),
    ],
)
def test_a_fault_of_a_standard_stream_is_one_line(tmp_path, line, code, message):
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f'oz() {{ {sys.executable} -m oz "$@"; }}; {line}'],
        capture_output=True,
        cwd=tmp_path,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert ran.returncode == code, ran
    assert message in ran.stderr
    assert ran.stderr.count("\n") == bool(message)


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


def test_the_name_of_a_directory_that_is_not_utf8_is_shown(oz, tmp_path):
    directory = tmp_path / os.fsdecode(b"j\xff")
    Writer(directory).close()
    assert "j\\udcff" in oz("journal", "info", directory).stdout


def test_a_command_loads_no_other_and_the_help_needs_neither_rich_nor_pyarrow():
    program = """
import sys
from oz.cli import main

main(["match", "a", "a"], standalone_mode=False)
print("oz.cli.match" in sys.modules, "oz.cli.bench" in sys.modules)
main(["--help"], standalone_mode=False)
print([name for name in ("rich", "pyarrow", "pyspark", "oz.cli.spark.archive") if name in sys.modules])
"""
    lines = scripts.run("-c", program).splitlines()
    assert (lines[:2], lines[-1]) == (["a", "True False"], "[]")
