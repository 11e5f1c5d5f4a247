"""Python programs in processes of their own, each with a deadline."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

from support.waiting import DEADLINE

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@contextmanager
def started(*arguments):
    """Start `python arguments…` for a `with` block, and kill the process at the end.

    With `-c` and `-m` it imports the installed oz, as the tests do, and not the one of the current directory.
    """
    safe_path = ["-P"] if arguments[0] in ("-c", "-m") else []
    process = subprocess.Popen(
        [sys.executable, *safe_path, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finished(process, send=None, timeout=DEADLINE * 2):
    """Wait for the end of a process; return its output. A failure is an assertion error."""
    try:
        out, err = process.communicate(send, timeout=timeout)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        _, err = process.communicate(timeout=DEADLINE)
        raise AssertionError(f"not ended after {timeout:g} s:\n{err}") from None
    assert process.returncode == 0, err
    assert not err
    return out


def run(*arguments, timeout=DEADLINE * 2):
    with started(*arguments) as process:
        return finished(process, timeout=timeout)
