import subprocess
import sys

import pytest

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


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_shows_examples(oz, command):
    result = oz(command, "--help")
    assert result.exit_code == 0
    assert "Examples:" in result.stdout
    assert result.stdout.count(f"oz {command}") >= 2


@pytest.mark.parametrize("command", ["", *COMMANDS])
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
