"""A process that is watched over, and started again when it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
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
"""Seconds without a sign of life after which a process is killed."""

_MODULE = "oz.services.multicast_process"
_STARTS_WITHIN = 20.0
_CLOSE_TIMEOUT = 4.0
_LAST_WORDS = 500
_MOMENT = 0.1


class WorkerError(OzError):
    """A process cannot do what it was told to do; its own words say why."""


class Worker:
    """One process, and this end of the link to it.

    Attributes:
        role: `"receiver"` or `"sender"`.
        socket: the link; another one after each start. None while there is no process.
        is_ready: whether it has opened its endpoints.
        down_since: when it was last seen to work, in monotonic seconds, while it does not.
        backoff: when it may be started again.
        heard_at: when its process was heard last, in monotonic seconds.
    """

    def __init__(self, role: str, task: Callable[[], dict[str, Any]], directory: Path) -> None:
        """Prepare; `watch` starts it.

        Args:
            role: what it is to be.
            task: gives what it is told at each start.
            directory: where its link is; nobody else can get at it.
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
        self._words: IO[bytes] | None = None
        self.heard_at = 0.0
        self._was_ready = False

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return None if self._process is None else self._process.pid

    @property
    def restarts(self) -> int:
        """The number of times it was started again."""
        return max(0, self.backoff.starts - 1)

    def watch(self, now: float) -> Iterator[tuple[int, Any]]:
        """Start it when it is time, and record its end; return what it said: kind and body.

        Args:
            now: monotonic seconds.

        Raises:
            WorkerError: it could not begin its work, the first time it was started.
        """
        if self._process is None:
            if self.backoff.may_start(now):
                self._start(now)
            return
        has_ended = self._has_ended(self._process)
        yield from self._heard(now)
        if has_ended:
            # What it said before it died counts.
            self._bury(now)
        elif now >= self._hangs_at():
            _log.warning("the %s has not been heard for %.1f s: killing it", self.role, now - self.heard_at)
            self._process.kill()
            self.heard_at = now

    def _hangs_at(self) -> float:
        return self.heard_at + (HANGS_AFTER if self.is_ready else _STARTS_WITHIN)

    def next_deadline(self) -> float:
        """Return when to `watch` at the latest, though nothing comes, in monotonic seconds."""
        return self.backoff.next_start if self._process is None else self._hangs_at()

    def register(self, poller: zmq.Poller, *, wants_room: bool) -> None:
        """Have a poller tell when there is something to `watch`: it has spoken, or ended.

        Args:
            poller: the poller.
            wants_room: tell also when a frame can be sent.
        """
        if self.socket is not None:
            poller.register(self.socket, zmq.POLLIN | (zmq.POLLOUT if wants_room else 0))
        if self._process is not None and self._process.stdin is not None:
            # Nobody reads it any more: the process has ended.
            poller.register(self._process.stdin.fileno(), zmq.POLLERR)

    @staticmethod
    def _has_ended(process: subprocess.Popen[bytes]) -> bool:
        if process.poll() is None and process.stdin is not None and is_reader_gone(process.stdin.fileno()):
            # It closes its descriptors first: the rest takes a moment.
            with suppress(subprocess.TimeoutExpired):
                process.wait(_MOMENT)
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
        """Send a frame; tell whether there was room."""
        if self.socket is None or not self.is_ready:
            return False
        try:
            self.socket.send(frame, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def has_room(self) -> bool:
        """Tell whether a frame can be sent."""
        return self.is_ready and self.socket is not None and bool(self.socket.poll(0, zmq.POLLOUT))

    def _start(self, now: float) -> None:
        self.backoff.started(now)
        address = f"ipc://{self._directory}/{self.role}{self.backoff.starts}"
        self.socket = self._context.socket(zmq.PAIR)
        self.socket.set(zmq.SNDHWM, 20)
        self.socket.set(zmq.RCVHWM, 20)
        self.socket.set(zmq.LINGER, 0)
        self.socket.bind(address)
        # A file and not a pipe: nobody has to read it while the process runs.
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        argument = json.dumps({"role": self.role, "link": address, **self._task()})
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, argument],
            stdin=subprocess.PIPE,
            stdout=self._words,
            stderr=self._words,
        )
        self.heard_at = now

    def _bury(self, now: float) -> None:
        assert self._process is not None
        how, words = _how_it_ended(self._process.returncode), self._last_words()
        is_refusal = self._process.returncode == FAILED and not self._was_ready
        self._let_go()
        if self.is_ready:
            self.down_since = now
        self.is_ready = False
        if is_refusal:
            raise WorkerError(f"the {self.role} cannot start: {words}")
        pause = self.backoff.ended(now)
        _log.warning("the %s %s; starting it again in %g s%s", self.role, how, pause, words and f": {words}")

    def _last_words(self) -> str:
        assert self._words is not None
        size = self._words.seek(0, 2)
        self._words.seek(max(0, size - _LAST_WORDS))
        return " ".join(self._words.read().decode(errors="replace").split())

    def _let_go(self) -> None:
        if self.socket is not None:
            self.socket.close(0)
            self.socket = None
        if self._process is not None:
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process = None
        if self._words is not None:
            self._words.close()
            self._words = None

    def begin_close(self) -> None:
        """Tell it to end."""
        if self._process is not None and not self.send(pack(CLOSE)) and self._process.stdin is not None:
            # It ends when its standard input does.
            self._process.stdin.close()

    def close(self) -> None:
        """End it: in order if it was told in time and will, or else by force."""
        process = self._process
        if process is not None:
            try:
                process.wait(_CLOSE_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._let_go()
        self._context.destroy(0)


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
