"""Child processes of `oz demo` and `oz bench`. A child ends with its parent."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from oz.errors import OzError


class ChildError(OzError):
    """A child process has ended or sends nothing."""


class Child:
    """Running child process that writes lines of text to its standard output."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        """Wrap a process; `name` is the name of the process in errors."""
        self.name, self.process = name, process

    def is_done(self) -> bool:
        """Return whether the process has ended with status 0.

        Raises:
            ChildError: the process has ended with another status.
        """
        if self.process.poll():
            raise self._failure()
        return self.process.returncode is not None

    def read_line(self) -> str:
        """Wait for a line of the output. The wait has no timeout, because a busy machine may start a process slowly.

        Raises:
            ChildError: the process has ended without another line.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            raise self._failure()
        return line.strip()

    def _failure(self) -> ChildError:
        assert self.process.stderr is not None
        lines = self.process.stderr.read().strip().splitlines() or ["it wrote no error"]
        return ChildError(f"the {self.name} process ended with status {self.process.returncode}: {lines[-1]}")


@contextmanager
def child_process(name: str, command: Sequence[str]) -> Iterator[Child]:
    """Start a program for a `with` block, and kill its process at the end of the block."""
    process = subprocess.Popen(
        command,
        # The child ends when this pipe is closed. The system closes the pipe also if the parent is killed.
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Ctrl-C must reach only the parent, which ends the child.
        start_new_session=True,
    )
    try:
        yield Child(name, process)
    finally:
        process.kill()
        process.communicate()


def end_with_parent() -> None:
    """End this process when its standard input is closed, which shows that the parent has ended."""

    def wait() -> None:
        # Not sys.stdin, because the interpreter would wait at its end for the lock of sys.stdin, and abort.
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
