"""Publishers that are gone without a goodbye: their connection has ended, and nothing more comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from oz.protocol.publisher.lifetimes import GRACE
from oz.protocol.subscriber.publishers import SILENCE, Publishers

LOOK_EVERY = 0.25
"""Seconds between two looks."""

QUIET = 1.25
"""Seconds without anything from anybody after which to look: a heart beats every second."""

LOOKS = 4
"""Looks in a row at which nothing has come, at least. A process that stood still itself has not read yet."""

UNCOUNTED = GRACE + 2.0
"""Seconds after which a publisher does not count on any more for one whose connection was cut."""


class Link(NamedTuple):
    """One connection.

    Attributes:
        descriptor: what the process has it by; None where there is none, as with `inproc://`.
        inode: which socket that is; None if it had been closed already.
        is_local: it is one of `ipc://`, which no network can cut: it ends when either side does.
    """

    descriptor: int | None
    inode: int | None = None
    is_local: bool = False


class _Absence:
    """A publisher whose connection has ended."""

    __slots__ = ("heard_at", "is_read_out", "looks", "since")

    def __init__(self) -> None:
        self.is_read_out = False
        self.heard_at = -1
        self.since = 0.0
        self.looks = 0


class Absences:
    """Watches the connections by which the publishers of one subscriber are heard.

    Attributes:
        is_curious: some publisher is heard by a connection that is not known yet.
    """

    __slots__ = ("_absent", "_links", "_look_at", "_publishers", "_reported", "is_curious")

    def __init__(self, publishers: Publishers) -> None:
        """Start without knowing any.

        Args:
            publishers: those of the subscriber.
        """
        self._publishers = publishers
        self._links: dict[bytes, Link] = {}
        self._absent: dict[bytes, _Absence] = {}
        self._reported: dict[bytes, int] = {}
        self._look_at = 0.0
        self.is_curious = True

    def note(self, origin: bytes, link: Link) -> None:
        """Record the connection by which a publisher has just been heard."""
        known, absence = self._links.get(origin), self._absent.get(origin)
        if (
            known is not None
            and absence is not None
            and not absence.is_read_out
            and known.descriptor == link.descriptor
        ):
            # Perhaps what had come before the end. Another connection may have its number by now.
            return
        self._links[origin] = link
        self._reported.pop(origin, None)

    def forgive(self, has_ended: Callable[[Link], bool]) -> None:
        """Forget the connections that stand: this subscriber itself is about to end one of them."""
        self._links = {origin: link for origin, link in self._links.items() if has_ended(link)}
        self.is_curious = True

    def look(self, now: float, has_ended: Callable[[Link], bool], *, is_idle: bool) -> list[bytes]:
        """Return the publishers that are gone, and have not said that nothing more comes.

        Args:
            now: monotonic seconds.
            has_ended: tells whether a connection has.
            is_idle: all that has come was read. Otherwise something is read between any two calls.
        """
        if now < self._look_at:
            return []
        self._look_at = now + LOOK_EVERY
        # In one order, whatever the hashes.
        ended = {origin: None for origin, link in self._links.items() if has_ended(link)}
        self._absent = {origin: one for origin, one in self._absent.items() if origin in ended}
        # The first answers tell it, so that no time is lost.
        self.is_curious = bool(ended) or self.find_curious()
        return [origin for origin in ended if self._is_gone(origin, now, is_idle=is_idle)]

    def find_curious(self) -> bool:
        """Find out whether `is_curious` still holds, and return it."""
        origins, known = self._publishers.origins(), self._links.keys() | self._reported.keys()
        self.is_curious = bool(not origins or self._absent or not origins <= known or self._has_returned())
        return self.is_curious

    def is_alone(self, has_ended: Callable[[Link], bool]) -> bool:
        """Tell whether nobody is there that was heard: not one, or all of their connections have ended.

        Args:
            has_ended: tells whether a connection has.
        """
        return all(
            has_ended(self._links[one])
            if one in self._links
            else (self._publishers.heard_at(one) or 0) <= self._reported.get(one, -1)
            for one in self._publishers.origins()
        )

    def next_deadline(self) -> float | None:
        """Return when to look next, if nothing is read before.

        Nobody tells that a connection has ended. A publisher that is there says so every second, and whoever
        reads that looks then: so while all are heard there is no other look.

        Returns:
            Monotonic seconds; None when no connection is known.
        """
        if not self._links:
            return None
        return self._look_at if self._absent else self._look_at - LOOK_EVERY + QUIET

    def _is_gone(self, origin: bytes, now: float, *, is_idle: bool) -> bool:
        """Look at one whose connection has ended; tell whether nothing has come of it for long enough."""
        link, heard_at = self._links[origin], self._publishers.heard_at(origin)
        if heard_at is None:
            # It has said goodbye.
            del self._links[origin]
            return False
        absence = self._absent.setdefault(origin, _Absence())
        # It is less than before where it was heard on a stream that has ended since.
        if heard_at > absence.heard_at:
            absence.heard_at, absence.since, absence.looks = heard_at, now, 0
        absence.looks += 1
        absence.is_read_out |= is_idle
        # ZeroMQ reads from all connections in turn: where there is always something, each has its own.
        looks = LOOKS if is_idle else LOOKS + 2 * len(self._links)
        patience = SILENCE if link.is_local else UNCOUNTED
        if absence.looks <= looks or now - absence.since < patience:
            return False
        self._reported[origin] = heard_at
        del self._links[origin]
        return True

    def _has_returned(self) -> bool:
        """Tell whether anything has come of a publisher that was told of as gone; forget those that ended."""
        heard = {origin: self._publishers.heard_at(origin) for origin in self._reported}
        self._reported = {origin: at for origin, at in self._reported.items() if heard[origin] is not None}
        return any((heard[origin] or 0) > at for origin, at in self._reported.items())
