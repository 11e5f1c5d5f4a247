"""Child processes of `oz demo` and `oz bench`. A child ends with its parent."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from oz.errors import OzError


class ChildError(OzError):
    """A child process has ended too early, or sends nothing."""


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
        """Wait for a line of the output, and return it. The call has no timeout, because a process may start slowly.

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
        # The child ends when this pipe is closed. If the parent is killed, the system closes the pipe.
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # In a new session, Ctrl-C does not reach the child. The parent ends the child.
        start_new_session=True,
    )
    try:
        yield Child(name, process)
    finally:
        process.kill()
        process.communicate()


def end_with_parent() -> None:
    """End this process when its standard input is closed. The end of the parent closes the standard input."""

    def wait() -> None:
        # Do not read from sys.stdin: at its end, the interpreter would wait for the lock of sys.stdin, and abort.
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
