"""What a person sees: stdout and stderr are a terminal."""

import os
import pty
import re
import subprocess
import sys

import pytest


@pytest.fixture
def on_terminal():
    def run(*arguments, columns=100, raw=False, **variables):
        ours, theirs = pty.openpty()
        environment = os.environ | {"COLUMNS": str(columns), "TERM": "xterm"} | variables
        process = subprocess.Popen(
            [sys.executable, "-m", "oz", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
        )
        os.close(theirs)
        with os.fdopen(ours, "rb", buffering=0) as screen:
            shown = read_all(screen)
        assert process.wait(60) == 0, shown
        return shown if raw else re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)

    return run


def read_all(screen):
    shown = b""
    try:
        while chunk := screen.read(65_536):
            shown += chunk
    except OSError:  # how Linux says that the other side is closed
        pass
    return shown.decode()


def test_explain_frames_each_pattern_and_takes_it_literally(on_terminal):
    shown = on_terminal("explain", "redis:flight.[EL]*", "*.a")
    assert "╭─ flight.[EL]* ─" in shown
    assert re.search(r"prefix +flight\.E ", shown)
    assert re.search(r"warning +the prefix is empty", shown)


def test_doctor_uses_colour_unless_it_is_turned_off(on_terminal):
    assert "\x1b[" in on_terminal("doctor", raw=True, NO_COLOR="")
    assert "\x1b[" not in on_terminal("doctor", raw=True, NO_COLOR="1")
    assert "\x1b[" not in on_terminal("doctor", raw=True, NO_COLOR="", TERM="dumb")
