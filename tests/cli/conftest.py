"""The command `oz`, in the process of a test or in its own process."""

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from oz.cli import main
from oz.cli.stop_signals import StopSignals
from support.waiting import DEADLINE, Thread, until


@dataclass
class Ended:
    code: int
    stdout: bytes
    stderr: str

    @property
    def lines(self):
        return self.stdout.decode().splitlines()


class Running:
    """Process of `oz`, with a deadline for each wait."""

    def __init__(self, *arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE):
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "oz", *arguments],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            bufsize=0,
        )

    def ready_line(self):
        return self.line_with(self.process.stderr, b"ready")

    def line_with(self, stream, word):
        deadline = time.monotonic() + DEADLINE
        line = b""
        while not (line.endswith(b"\n") and word in line):
            readable, _, _ = select.select([stream], [], [], max(0.0, deadline - time.monotonic()))
            byte = os.read(stream.fileno(), 1) if readable else b""
            assert byte, f"oz said only {line!r}"
            line = byte if line.endswith(b"\n") else line + byte
        return line.decode().rstrip("\n")

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def end(self, stdin=None):
        try:
            out, err = self.process.communicate(stdin, timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            _, err = self.process.communicate(timeout=DEADLINE)
            raise AssertionError(f"not ended after {DEADLINE:g} s:\n{err.decode()}") from None
        return Ended(self.process.returncode, out, err.decode())


@pytest.fixture
def oz_start():
    started = []

    def start(*arguments, **options):
        running = Running(*arguments, **options)
        started.append(running)
        return running

    yield start
    for running in started:
        process = running.process
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


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
            until(condition)
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
