"""Output of `oz` on a terminal."""

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress


def on_terminal(*arguments, **variables):
    """Run `oz` on a terminal; return what it shows."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"COLUMNS": "100", "TERM": "xterm"} | variables
    process = subprocess.Popen(
        [sys.executable, "-m", "oz", *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    shown = b""
    with os.fdopen(ours, "rb", buffering=0) as screen, suppress(OSError):  # The other side is closed.
        while chunk := screen.read(65_536):
            shown += chunk
    assert process.wait(60) == 0, shown
    return shown.decode()


def test_explain_frames_each_pattern_in_colour_unless_it_is_turned_off():
    shown = on_terminal("explain", "redis:flight.[EL]*", "*.a", NO_COLOR="")
    plain = on_terminal("explain", "redis:flight.[EL]*", "*.a", NO_COLOR="1")
    assert "\x1b[3" in shown
    assert "\x1b[3" not in plain
    for text in (shown, plain):
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
        assert "╭─ flight.[EL]* ─" in text
        assert re.search(r"prefix +flight\.E ", text)
        assert re.search(r"warning +the prefix is empty", text)
