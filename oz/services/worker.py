"""Multicast process of a gateway. If the process ends, the gateway starts it again.

The process writes its output to a temporary file. A PAIR socket, the *link*, connects the process and the gateway. The
standard input of the process is a pipe that the gateway keeps open. If the process or the gateway ends, the system
closes one end of the pipe, and the other side detects it.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import IO, Any

import zmq

from oz.errors import OzError
from oz.logs import peer_logger
from oz.services.link import CLOSE, READY, pack, unpack
from oz.services.multicast_process import FAILED
from oz.system import is_reader_gone
from oz.transport.backoff import Backoff

_log = peer_logger("oz.gateway")

HANGS_AFTER = 10.0
"""A ready process that sends no frame for this number of seconds is killed."""

CLOSE_TIMEOUT = 4.0
"""Maximum seconds that `close` waits for the end of a process before it kills the process."""

_MODULE = "oz.services.multicast_process"
_START_TIMEOUT = 20.0  # A process must send READY within this number of seconds after its start.
_OUTPUT_BYTES = 500  # Errors and the log show this number of bytes from the end of the output.
_EXIT_TIMEOUT = 0.1  # Maximum seconds between the end of standard input and the exit of the process.


class WorkerError(OzError):
    """A multicast process cannot start. The text ends with the output of the process."""


class Worker:
    """Multicast process, and the gateway's end of the link to the process.

    Attributes:
        role: `"receiver"` or `"sender"`.
        socket: socket of the link; None without a process. Each start of the process creates a new socket.
        is_ready: whether the process has opened its endpoints.
        down_since: time in monotonic seconds since which no process is ready.
        backoff: object that decides when the process may start again.
        heard_at: time in monotonic seconds of the last frame or of the start.
    """

    def __init__(self, role: str, task: Callable[[], dict[str, Any]], directory: Path) -> None:
        """Create the worker. `watch` starts its process.

        Args:
            role: `"receiver"` or `"sender"`.
            task: function that returns the arguments of the process. It is called at each start.
            directory: private directory for the socket of the link.
        """
        self.role = role
        self.backoff = Backoff()
        self.is_ready = False
        self.down_since = time.monotonic()
        self.socket: zmq.Socket[Any] | None = None
        self._task = task
        self._directory = directory
        self._context: zmq.Context[Any] = zmq.Context()
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self.heard_at = 0.0
        self._was_ready = False

    @property
    def pid(self) -> int | None:
        """Id of the process, or None without a process."""
        return None if self._process is None else self._process.pid

    @property
    def restarts(self) -> int:
        """Number of starts of the process after the first start."""
        return max(0, self.backoff.starts - 1)

    def watch(self, now: float) -> Iterator[tuple[int, Any]]:
        """Start the process if a start is due. Yield the kind and body of each frame. Handle the end of the process.

        Args:
            now: time of the monotonic clock in seconds.

        Raises:
            WorkerError: the process could not open its endpoints at its first start.
        """
        if self._process is None:
            if self.backoff.may_start(now):
                self._start(now)
            return
        has_ended = self._has_ended(self._process)
        yield from self._heard(now)
        if has_ended:
            # Handle the end only now, after the last frames of the process.
            self._handle_end(now)
        elif now >= self._hangs_at():
            _log.warning(
                "the %s sent no sign of life for %.1f s, and is killed and started again; if this repeats, the machine "
                "is too busy",
                self.role,
                now - self.heard_at,
            )
            self._process.kill()
            self.heard_at = now

    def _hangs_at(self) -> float:
        return self.heard_at + (HANGS_AFTER if self.is_ready else _START_TIMEOUT)

    def next_deadline(self) -> float:
        """Return the time in monotonic seconds at which `watch` must be called if no frame arrives before."""
        return self.backoff.next_start if self._process is None else self._hangs_at()

    def register(self, poller: zmq.Poller, *, wants_room: bool) -> None:
        """Register the link and the pipe in a poller. The poller reports the pipe when the process has ended.

        Args:
            poller: poller of the gateway.
            wants_room: whether the poller also reports when a frame can be sent.
        """
        if self.socket is not None:
            poller.register(self.socket, zmq.POLLIN | (zmq.POLLOUT if wants_room else 0))
        if self._process is not None and self._process.stdin is not None:
            # POLLERR means that the process has ended and the reading end of the pipe is closed.
            poller.register(self._process.stdin.fileno(), zmq.POLLERR)

    @staticmethod
    def _has_ended(process: subprocess.Popen[bytes]) -> bool:
        if process.poll() is None and process.stdin is not None and is_reader_gone(process.stdin.fileno()):
            # A process closes its descriptors shortly before its exit code is available. Wait for the exit code.
            with suppress(subprocess.TimeoutExpired):
                process.wait(_EXIT_TIMEOUT)
        return process.returncode is not None

    def _heard(self, now: float) -> Iterator[tuple[int, Any]]:
        assert self.socket is not None
        while True:
            try:
                kind, body = unpack(self.socket.recv(zmq.NOBLOCK))
            except zmq.Again:
                return
            self.heard_at = now
            if kind == READY:
                self.is_ready = self._was_ready = True
            yield kind, body

    def send(self, frame: bytes) -> bool:
        """Send a frame; return False if the process is not ready, or if the queue of the link is full."""
        if self.socket is None or not self.is_ready:
            return False
        try:
            self.socket.send(frame, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def has_room(self) -> bool:
        """Return whether a frame can be sent."""
        return self.is_ready and self.socket is not None and bool(self.socket.poll(0, zmq.POLLOUT))

    def _start(self, now: float) -> None:
        self.backoff.started(now)
        address = f"ipc://{self._directory}/{self.role}{self.backoff.starts}"
        self.socket = self._context.socket(zmq.PAIR)
        self.socket.set(zmq.SNDHWM, 20)
        self.socket.set(zmq.RCVHWM, 20)
        self.socket.set(zmq.LINGER, 0)
        self.socket.bind(address)
        # The output goes to a file, because a full pipe would block the process.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        argument = json.dumps({"role": self.role, "link": address, **self._task()})
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, argument],
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=self._output,
        )
        self.heard_at = now

    def _handle_end(self, now: float) -> None:
        assert self._process is not None
        ending, output = _ending_text(self._process.returncode), self._last_output()
        is_refusal = self._process.returncode == FAILED and not self._was_ready
        self._release()
        if self.is_ready:
            self.down_since = now
        self.is_ready = False
        if is_refusal:
            raise WorkerError(f"the {self.role} cannot start: {output}")
        pause = self.backoff.ended(now)
        _log.warning(
            "the %s %s; starting it again in %g s%s", self.role, ending, pause, output and f": {output}"
        )

    def _last_output(self) -> str:
        assert self._output is not None
        size = self._output.seek(0, 2)
        self._output.seek(max(0, size - _OUTPUT_BYTES))
        return " ".join(self._output.read().decode(errors="replace").split())

    def _release(self) -> None:
        if self.socket is not None:
            self.socket.close(0)
            self.socket = None
        if self._process is not None:
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process = None
        if self._output is not None:
            self._output.close()
            self._output = None

    def begin_close(self) -> None:
        """Send CLOSE to the process. If no frame can be sent, close the standard input of the process instead."""
        if self._process is not None and not self.send(pack(CLOSE)) and self._process.stdin is not None:
            self._process.stdin.close()

    def close(self, timeout: float = inf) -> None:
        """Wait until the process ends. Kill the process after `timeout` or `CLOSE_TIMEOUT`, whichever is shorter."""
        process = self._process
        if process is not None:
            try:
                process.wait(min(timeout, CLOSE_TIMEOUT))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._release()
        self._context.destroy(0)


def _ending_text(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
