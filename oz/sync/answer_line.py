"""The line of threads whose answers have come, which a node's I/O thread wakes.

Whoever is woken needs the lock of the interpreter. With many at once each finds it taken, and waits for it:
the compiled part has each wake the next as it goes to wait again, once that lock is free. Those who do not go
to wait hold up nobody for long: after 0.2 ms all are woken. Here all are woken at once.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from math import ceil
from typing import Protocol

from oz.compiled import HOT
from oz.system import POLLIN, make_poll

PATIENCE = 0.0002
"""Seconds for which those stand in the line whom nobody wakes: as long as a request takes, about."""


class Waiter(Protocol):
    """One thread that waits for an answer."""

    def tell(self) -> None:
        """Say that one has come, or that none will; any thread may say so."""

    def wait(self, seconds: float | None, /) -> None:
        """Wait until that is said, for so many seconds; None is for ever.

        It may return for what was said before, so that whoever calls looks for what has come.
        """


class Line(Protocol):
    """Those whose answers have come, and the waiting of the thread that takes these in."""

    def waiter(self) -> Waiter:
        """Make one who waits, for one thread at a time."""

    def watch(self, descriptor: int, /) -> None:
        """Wait for a descriptor, too, in `poll`."""

    def poll(self, seconds: float | None, /) -> list[int]:
        """Wait until something can be read; for the one thread that takes answers in.

        Args:
            seconds: how long at most; None is for ever.

        Returns:
            The descriptors that can be read.
        """

    def look(self) -> None:
        """Wake all who stand in the line, if those who were woken do other things."""

    def wake_all(self) -> None:
        """Wake all who stand in the line, as this thread goes to do other things."""

    def leave(self) -> None:
        """Do the same, as this thread does not go on to `poll`."""


class EagerWaiter:
    """One who is woken at once: also by a signal handler, wherever that interrupts."""

    __slots__ = ("_untold",)

    def __init__(self) -> None:
        """Begin with nothing said."""
        # Not a `SimpleQueue`, whose `get` with a timeout never ends where that is over before it waits, as on
        # a busy machine or behind a signal handler (Python 3.11, 3.12; decision 073). Nor an `Event`: a
        # handler may find its lock taken.
        self._untold = threading.Lock()
        self._untold.acquire()

    def tell(self) -> None:
        """Say that what it waits for has come."""
        # It was said before, and nobody has heard that yet.
        with suppress(RuntimeError):
            self._untold.release()

    def wait(self, seconds: float | None, /) -> None:
        """Wait until that is said."""
        self._untold.acquire(timeout=-1 if seconds is None else seconds)


class EagerLine:
    """The line where all are woken at once: the twin of the compiled one."""

    __slots__ = ("_poll",)

    waiter = EagerWaiter

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._poll = make_poll()

    def watch(self, descriptor: int, /) -> None:
        """Wait for a descriptor, too, in `poll`."""
        self._poll.register(descriptor, POLLIN)

    def poll(self, seconds: float | None, /) -> list[int]:
        """Wait until something can be read."""
        return [one for one, _ in self._poll.poll(None if seconds is None else ceil(1000 * seconds))]

    def look(self) -> None:
        """Do nothing: nobody stands in it."""

    wake_all = leave = look


def make_line(patience: float = PATIENCE) -> Line:
    """Make a line, compiled where that is there: it needs calls that only Linux has.

    Args:
        patience: seconds in which nobody goes to wait, after which all in the line are woken.
    """
    if HOT is None or not hasattr(HOT, "AnswerLine"):
        return EagerLine()
    line: Line = HOT.AnswerLine(patience)
    return line
