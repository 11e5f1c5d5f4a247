"""Processes that answer on stdout, a JSON object a line, and end when their stdin does."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from oz.cli.measuring.plan import BenchFailed
from oz.system import sigint_blocked

_END_SECONDS = 2.0


class Child:
    """A child process, which never outlives its parent."""

    def __init__(self, what: str, module: str, argument: str) -> None:
        """Start a module of this package.

        Args:
            what: it is, for messages.
            module: its name.
            argument: the only one it gets.
        """
        self._what = what
        # The process inherits the mask, and so leaves Ctrl-C to us.
        with sigint_blocked():
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.{module}", argument],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
            )
        self._said = b""

    def hear(self, seconds: float) -> dict[str, Any] | None:
        """Wait so long for an answer.

        Raises:
            BenchFailed: the process has ended.
        """
        deadline = time.monotonic() + seconds
        out = self._process.stdout
        assert out is not None
        while b"\n" not in self._said:
            readable, _, _ = select.select([out], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                return None
            more = os.read(out.fileno(), 65_536)
            if not more:
                raise BenchFailed(self._last_words())
            self._said += more
        line, _, self._said = self._said.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def finish(self) -> None:
        """Ask it for what it has, and to end; `hear` waits for that."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def end(self) -> None:
        """End it, whatever it does."""
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _last_words(self) -> str:
        assert self._process.stderr is not None
        status = self._process.wait()
        lines = self._process.stderr.read().decode(errors="replace").strip().splitlines()
        return f"{self._what} ended with status {status}: {lines[-1] if lines else 'it said nothing'}"


def answer(value: dict[str, Any]) -> None:
    """Write one line to the parent, which may be gone."""
    line = memoryview(json.dumps(value).encode() + b"\n")
    while line:
        line = line[os.write(1, line) :]


def end_with_parent(report: Callable[[], dict[str, Any]] | None = None) -> None:
    """End this process when its parent has gone, or has no more use for it.

    Args:
        report: is asked for a last answer, whatever else goes on.
    """

    def wait() -> None:
        sys.stdin.read()
        with suppress(OSError):
            if report is not None:
                answer(report())
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
