"""Runs somebody's command for each request: the payload on its stdin, the answer on its stdout.

What comes from the bus never becomes part of a command line: it is a file and environment variables, and
every variable's name begins with OZ_.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from math import ceil
from typing import Any

from oz.system import POLLIN, make_poll

MOST_OUTPUT = 64 << 20
"""Bytes that a command may write for one request."""

_CHUNK = 1 << 16


class CommandFailed(Exception):
    """There is no answer; says why, in a few words."""


class ShellCommand:
    """A command of the user's, to be run by `sh` any number of times, also at once."""

    def __init__(self, text: str, timeout: float) -> None:
        """Take what `sh -c` gets.

        Args:
            text: the command.
            timeout: seconds that one run may take.
        """
        if os.name != "posix":
            raise CommandFailed(f"a command needs sh and its processes, and {os.name} is no POSIX system")
        self._text = text
        self._timeout = timeout
        self._guard = threading.Lock()
        self._running: set[int] = set()
        self._is_ended = False

    def run(self, payload: bytes, environment: Mapping[bytes, bytes]) -> bytes:
        """Run it once; give what it wrote.

        Args:
            payload: is its stdin.
            environment: variables beside those of this process.

        Raises:
            CommandFailed: it cannot be started, takes too long, writes too much, or ends with another code
                than 0.
        """
        ends = time.monotonic() + self._timeout
        with tempfile.TemporaryFile() as stdin:
            stdin.write(payload)
            stdin.seek(0)
            process = self._start(stdin, environment)
        try:
            written = self._collect(process, ends)
            code = self._wait(process, ends)
        except BaseException:
            _kill(process.pid)
            process.wait()
            raise
        finally:
            with self._guard:
                self._running.discard(process.pid)
            process.stdout.close()  # type: ignore[union-attr]
        if code:
            how = f"ended with {code}" if code > 0 else f"was ended by {_signal_name(-code)}"
            raise CommandFailed(f"the command {how}")
        return written

    def end(self) -> None:
        """Kill those that run, and start no more."""
        with self._guard:
            self._is_ended = True
            for pid in self._running:
                _kill(pid)

    def _start(self, stdin: Any, environment: Mapping[bytes, bytes]) -> subprocess.Popen[bytes]:
        with self._guard:
            if self._is_ended:
                raise CommandFailed("this service ends")
            try:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", self._text],
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    env={**os.environb, **environment},
                    # All that it starts is killed with it, and Ctrl-C is for this process only.
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or error
                raise CommandFailed(f"the command cannot be started: {reason}") from None
            self._running.add(process.pid)
            return process

    def _collect(self, process: subprocess.Popen[bytes], ends: float) -> bytes:
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        poll = make_poll()
        poll.register(descriptor, POLLIN)
        chunks: list[bytes] = []
        left = MOST_OUTPUT
        while True:
            if not poll.poll(max(0, ceil(1000 * (ends - time.monotonic())))):
                raise self._too_long()
            chunk = os.read(descriptor, _CHUNK)
            if not chunk:
                return b"".join(chunks)
            chunks.append(chunk)
            left -= len(chunk)
            if left < 0:
                raise CommandFailed(f"the command wrote more than {MOST_OUTPUT >> 20} MiB, and was killed")
            if time.monotonic() >= ends:
                raise self._too_long()

    def _wait(self, process: subprocess.Popen[bytes], ends: float) -> int:
        try:
            return process.wait(max(0.0, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise self._too_long() from None

    def _too_long(self) -> CommandFailed:
        return CommandFailed(f"the command took longer than {self._timeout:g} s, and was killed")


def environment_of(subject: str, headers: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Give subject and headers as variables: OZ_SUBJECT, and OZ_HEADER_TRACE_ID for a header trace-id.

    Raises:
        CommandFailed: one of them holds a zero byte, which no variable can.
    """
    named: dict[str, Any] = {"OZ_SUBJECT": subject}
    named |= {f"OZ_HEADER_{re.sub('[^A-Z0-9]', '_', name.upper())}": headers[name] for name in headers}
    variables = {name.encode(): _bytes(value) for name, value in named.items()}
    for name, value in variables.items():
        if b"\0" in value:
            raise CommandFailed(f"{name.decode()} would hold a zero byte, which no variable can")
    return variables


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if value is None or isinstance(value, bool):
        return {None: b"", True: b"true", False: b"false"}[value]
    return str(value).encode(errors="surrogateescape")


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
