"""The one thread of a node that touches its sockets, and how others have it do something."""

from __future__ import annotations

import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from oz.errors import ClosedError, OwnershipError
from oz.logs import peer_logger
from oz.sync.answer_line import EagerWaiter
from oz.sync.waiting import InterruptionCheck
from oz.system import POLLIN, make_poll

_log = peer_logger("oz.node")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
"""Seconds before the next turn after one that failed, doubled while they go on failing."""

_MOST_DOUBLED = 6
"""Failures in a row after which the pause grows no more."""

_Result = TypeVar("_Result")


class IOThread:
    """Runs the turns of a node, and between two of them what other threads want done.

    Attributes:
        commands: what other threads want done.
        is_stopped: whether it is to end.
        failures: turns that failed since the last that did not; whoever takes turns begins anew at 0.
    """

    __slots__ = ("_bell", "_ringer", "_rung", "_take_turns", "_thread", "commands", "failures", "is_stopped")

    def __init__(self, name: str, take_turns: Callable[[], None]) -> None:
        """Start no thread yet.

        Args:
            name: of the thread.
            take_turns: waits for something to do and does it, again and again until there are commands, or
                this is stopped.
        """
        self._take_turns = take_turns
        self.commands: deque[Callable[[], None]] = deque()
        self.is_stopped = False
        self.failures = 0
        self._rung = False
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._ringer.setblocking(False)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start."""
        self._thread.start()

    def abandon(self) -> None:
        """Never start; release what it has."""
        self._bell.close()
        self._ringer.close()

    @property
    def bell(self) -> int:
        """The descriptor that becomes readable when there is something to do."""
        return self._bell.fileno()

    def is_current(self) -> bool:
        """Tell whether the caller is this thread."""
        return threading.current_thread() is self._thread

    def ring(self) -> None:
        """Wake it."""
        if self._rung:
            return
        try:
            self._rung = True
            self._ringer.send(b"!")
        except OSError:
            # Full, so that it is rung anyway; or it has ended.
            pass
        except BaseException:
            # A signal handler raised, perhaps before it was rung; those who ring later must not think it was.
            self._rung = False
            raise

    def hear(self) -> None:
        """Record that the bell was rung; look after that at what it was rung for."""
        with suppress(OSError):
            self._bell.recv(4096)
        # Only now: a ring in between would be taken out with the others, and no later one be sent.
        self._rung = False

    def call(self, work: Callable[[], _Result]) -> _Result:
        """Run something there, and return its result.

        Raises:
            ClosedError: the thread has ended.
            OwnershipError: a signal handler waits, which holds others up; see `InterruptionCheck`.
        """
        if self.is_current():
            return work()
        if sys.is_finalizing():
            raise ClosedError("the program ends, and the thread of the node with it")
        # Not a future: a signal handler that raises as its lock is taken leaves it so, for this thread.
        outcome: list[tuple[_Result, None] | tuple[None, BaseException]] = []
        done, check = EagerWaiter(), InterruptionCheck()

        def run() -> None:
            try:
                outcome.append((work(), None))
            except BaseException as error:
                outcome.append((None, error))
            done.tell()

        # Without a lock, which a signal handler may find taken: the thread looks once more after it is told
        # to end, and what comes later is taken back.
        self.commands.append(run)
        if self.is_stopped and self._take_back(run):
            raise ClosedError("the node is closed")
        self.ring()
        try:
            while not outcome:
                done.wait(check.bound(None))
        except OwnershipError:
            self._take_back(run)
            raise
        result, error = outcome[0]
        if error is not None:
            raise error
        return result  # type: ignore[return-value]

    def _take_back(self, command: Callable[[], None]) -> bool:
        """Take a command back, if that has not begun."""
        try:
            self.commands.remove(command)
        except ValueError:
            return False
        return True

    def stop(self, timeout: float | None) -> bool:
        """End it after its present work; tell whether it has ended within the time."""
        self.is_stopped = True
        self.ring()
        if not self.is_current():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        with self._bell, self._ringer:
            while True:
                if self.commands:
                    self.work_off()
                # In this order: what is added behind the second look finds that this has stopped.
                if self.is_stopped and not self.commands:
                    return
                try:
                    self._take_turns()
                except Exception:
                    _log.exception("a node failed at its work; it goes on")
                    # Whatever it is, it must not burn the processor. Nothing tells when it is over: what the
                    # turn waits for may be readable all the time. A command ends the pause at once.
                    pause = min(_FIRST_PAUSE * 2**self.failures, _LONGEST_PAUSE)
                    self.failures = min(self.failures + 1, _MOST_DOUBLED)
                    # Not `select`, which takes no descriptor from 1,024 on.
                    poll = make_poll()
                    poll.register(self._bell, POLLIN)
                    poll.poll(pause * 1000)

    def work_off(self) -> None:
        """Do what others have given it to do."""
        while self.commands:
            command: Any = self.commands.popleft()
            command()
