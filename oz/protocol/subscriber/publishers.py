"""The publishers of one subscriber: what they have answered, and which are gone without a goodbye."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from oz.protocol.publisher.lifetimes import GRACE
from oz.protocol.subscriber.stream import Interest, Stream
from oz.wire.keys import DeliveryOptions

SILENCE = 3.5
"""Seconds behind the others after which a publisher counts as gone; its heart beats every second."""

LOOK_EVERY = 0.25
"""Seconds between two looks."""

QUIET = 1.25
"""Seconds without anything from anybody after which to look: a heart beats every second."""

LOOKS = 4
"""Looks in a row at which nothing has come, at least. A process that stood still itself has not read yet."""

UNCOUNTED = GRACE + 2.0
"""Seconds after which a publisher does not count on any more for one whose connection was cut."""

_NS = 1_000_000_000


class Publishers:
    """The publishers that one subscriber has heard: what each has answered, and when it was heard."""

    __slots__ = ("_by_key", "_interests")

    def __init__(self, interests: Mapping[DeliveryOptions, Interest], by_key: Mapping[bytes, Stream]) -> None:
        """Look at the streams of a subscriber.

        Args:
            interests: what it asks for, as it stands at any time.
            by_key: all its streams, as they stand.
        """
        self._interests = interests
        self._by_key = by_key

    def next_silence(self, time_ns: int) -> float | None:
        """Return in how many seconds a publisher does not count any more for `is_ready`, if it stays silent.

        Args:
            time_ns: now, in nanoseconds since 1970.

        Returns:
            Seconds; None when there is none that counts.
        """
        ends = [heard_at / _NS + SILENCE for heard_at in self.heard().values()]
        return min((left for at in ends if (left := at - time_ns / _NS) >= 0), default=None)

    def is_ready(self, paths: int, time_ns: int | None = None) -> bool:
        """Tell whether every publisher known has answered everything.

        Args:
            paths: the connections over which publishers are expected; at least one is.
            time_ns: now; publishers that have been silent for long do not count. None: silent only when
                others are not.
        """
        if self._is_collecting():
            return False
        alive = self.alive(time_ns)
        for interest in self._interests.values():
            sources = interest.stream.sources
            served = sum(sources[origin].paths for origin in alive if origin in sources)
            if served < max(1, paths) or self.missing(interest, alive):
                return False
        # Without knowing where a shared pattern stood, its first loss would go unseen.
        return all(origin in stream.sources for stream in self._by_key.values() for origin in alive)

    def has_answered(self, origin: bytes) -> bool:
        """Tell whether one publisher has answered everything that is declared."""
        if not self._interests or self._is_collecting():
            return False
        return all(
            (source := interest.stream.sources.get(origin)) is not None
            and interest.declarations.chunks.keys() <= source.answered | source.refused.keys()
            for interest in self._interests.values()
        )

    def refusals(self) -> list[str]:
        """Return the reasons of publishers that will not serve something."""
        return [
            reason
            for interest in self._interests.values()
            for source in interest.stream.sources.values()
            for number, reason in source.refused.items()
            if number in interest.declarations.chunks
        ]

    def unready(self) -> dict[str, Any]:
        """Say for a message what is still to come: publishers heard, and chunks without an answer."""
        alive = self.alive()
        missing = sum(
            len(self.missing(interest, alive) if alive else interest.declarations.chunks)
            for interest in self._interests.values()
        )
        return {"publishers": len(alive), "unanswered": missing}

    def _is_collecting(self) -> bool:
        return any(interest.declarations.is_collecting for interest in self._interests.values())

    def missing(self, interest: Interest, alive: list[bytes]) -> set[int]:
        """Return the declarations of an interest that some of these publishers have not answered."""
        standing = interest.declarations.chunks.keys()
        missing: set[int] = set()
        for origin in alive:
            source = interest.stream.sources.get(origin)
            if source is None:
                return set(standing)
            if not standing <= source.answered:
                missing |= standing - source.answered - source.refused.keys()
        return missing

    def alive(self, time_ns: int | None = None) -> list[bytes]:
        """Find the publishers that were heard about as lately as any other, or lately."""
        heard = self.heard()
        newest = time_ns or max(heard.values(), default=0)
        return [origin for origin, at in heard.items() if newest - at <= SILENCE * _NS]

    def heard(self) -> dict[bytes, int]:
        """Return when each publisher that has answered something was heard last, in nanoseconds."""
        heard: dict[bytes, int] = {}
        for interest in self._interests.values():
            for origin, source in interest.stream.sources.items():
                heard[origin] = max(heard.get(origin, 0), source.heard_at)
        return heard

    def origins(self) -> set[bytes]:
        """Return the publishers that have answered something and have not said goodbye."""
        return {origin for interest in self._interests.values() for origin in interest.stream.sources}

    def heard_at(self, origin: bytes) -> int | None:
        """Return the time at which a publisher was heard last, in nanoseconds; None once it is not known.

        It is not known before it was heard, and after it said goodbye on each stream.
        """
        newest = None
        for stream in self._by_key.values():
            source = stream.sources.get(origin)
            if source is not None and (newest is None or source.heard_at > newest):
                newest = source.heard_at
        return newest

    def last_heard(self) -> dict[bytes, int]:
        """Return the time at which each publisher was heard last, in nanoseconds."""
        newest: dict[bytes, int] = {}
        for stream in self._by_key.values():
            for origin, source in stream.sources.items():
                if source.heard_at > newest.get(origin, 0):
                    newest[origin] = source.heard_at
        return newest


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
        ended = {origin for origin, link in self._links.items() if has_ended(link)}
        self._absent = {origin: one for origin, one in self._absent.items() if origin in ended}
        # The first answers tell it, so that no time is lost.
        self.is_curious = bool(ended) or self.find_curious()
        return [origin for origin in ended if self._is_gone(origin, now, is_idle=is_idle)]

    def find_curious(self) -> bool:
        """Find out whether `is_curious` still holds, and return it."""
        origins, known = self._publishers.origins(), self._links.keys() | self._reported.keys()
        self.is_curious = bool(not origins or self._absent or not origins <= known or self._has_returned())
        return self.is_curious

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
        if absence.heard_at != heard_at:
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
        return any(heard[origin] != at for origin, at in self._reported.items())
