"""Signals that come while a command starts."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
import oz.command

class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "oz.cli":
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Interrupting())
oz.command.main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_during_the_start_ends_a_command_without_a_traceback(number, code):
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(number=int(number))], capture_output=True, timeout=60
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, b"", b"")
