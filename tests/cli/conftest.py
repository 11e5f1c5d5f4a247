"""The command `oz` in the process of a test."""

import os
import signal
import tempfile
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from oz.cli import main
from oz.cli.stop_signals import StopSignals
from support.waiting import Thread, until


@dataclass
class Ended:
    code: int
    stdout: bytes
    stderr: str

    @property
    def lines(self):
        return self.stdout.decode().splitlines()


def invoke(*arguments, stdin=None):
    """Run a command in this process, and return the result of click's CliRunner."""
    words = [os.fsdecode(argument) for argument in arguments]
    return CliRunner().invoke(main, words, input=stdin, prog_name="oz", catch_exceptions=False)


@pytest.fixture
def oz():
    """Run a command in this process; `exit_code`, `stdout` and `stderr` are text."""
    return invoke


@pytest.fixture
def oz_run():
    """Run a command in this process; the output is bytes, as from a process."""

    def run(*arguments, stdin=None):
        result = invoke(*arguments, stdin=stdin)
        return Ended(result.exit_code, result.stdout_bytes, result.stderr)

    return run


@pytest.fixture(autouse=True)
def _signals():
    """Restore the signal handlers after a command in this process that a signal has ended."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, action in before.items():
        signal.signal(number, action)


@pytest.fixture
def signal_when(_signals):
    """Function that sends a signal to the command in this process, once a condition holds."""
    threads = []

    def start(condition, number=signal.SIGINT):
        def send():
            try:
                until(condition)
            finally:
                # Without the handler of a command, the signal would end the tests.
                until(lambda: isinstance(signal.getsignal(number), StopSignals))
                os.kill(os.getpid(), number)

        threads.append(Thread(send))

    yield start
    for thread in threads:
        thread.outcome()


@pytest.fixture
def stdin():
    """Pipe for the input of a command in this process: its end for reading, and its end for writing."""
    ends = os.pipe()
    with open(ends[0], "rb") as reading, open(ends[1], "wb", buffering=0) as writing:
        yield reading, writing


@pytest.fixture
def endpoint(tmp_path):
    return f"ipc://{tmp_path}/feed"


@pytest.fixture
def directory(monkeypatch):
    """Directory of nodes. The path of a socket has at most 107 bytes."""
    for name in list(os.environ):
        if name.startswith("OZ_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OZ_CONFIG", os.devnull)
    with tempfile.TemporaryDirectory(prefix="oz", dir="/tmp", ignore_cleanup_errors=True) as made:
        monkeypatch.setenv("OZ_DIRECTORY", made)
        yield made
