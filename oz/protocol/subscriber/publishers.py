"""The publishers that a subscriber has heard: when, and what they have answered and left unanswered."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from math import inf
from typing import Any

from oz.protocol.subscriber.sequences import Source
from oz.protocol.subscriber.stream import Interest, Stream
from oz.wire.denials import Denial, restored
from oz.wire.keys import DeliveryOptions

SILENCE = 3.5
"""Seconds behind the others after which a publisher counts as gone; its heart beats every second."""

_NS = 1_000_000_000


class Publishers:
    """The publishers that all streams of one subscriber know."""

    __slots__ = ("_by_key", "_interests")

    def __init__(self, interests: Mapping[DeliveryOptions, Interest], by_key: Mapping[bytes, Stream]) -> None:
        """Look at streams that others change.

        Args:
            interests: what is declared; publishers answer on their streams.
            by_key: all streams.
        """
        self._interests = interests
        self._by_key = by_key

    def origins(self) -> set[bytes]:
        """Return the publishers that have answered something and have not said goodbye."""
        return {origin for interest in self._interests.values() for origin in interest.stream.sources}

    def met(self) -> set[bytes]:
        """Return the publishers that have answered something, those too that have said goodbye since."""
        ended = {origin for interest in self._interests.values() for origin in interest.stream.ended}
        return self.origins() | ended

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

    def answering(self) -> dict[bytes, int]:
        """Return the time at which each publisher that answers was heard last on a stream of its own."""
        heard: dict[bytes, int] = {}
        for interest in self._interests.values():
            for origin, source in interest.stream.sources.items():
                heard[origin] = max(heard.get(origin, 0), source.heard_at)
        return heard

    def alive(self, time_ns: int | None = None) -> list[bytes]:
        """Find the publishers that were heard about as lately as any other, or lately."""
        heard = self.answering()
        newest = time_ns or max(heard.values(), default=0)
        return [origin for origin, at in heard.items() if newest - at <= SILENCE * _NS]

    def unanswered(self, interest: Interest, alive: list[bytes]) -> set[int]:
        """Return the chunks of an interest that one of these publishers has not answered yet."""
        return set(self.owed(interest, dict.fromkeys(alive, 0.0)))

    def owed(self, interest: Interest, met: Mapping[bytes, float]) -> dict[int, float]:
        """Return the chunks of an interest that some publishers have not answered, and since when.

        Args:
            interest: which.
            met: when each of the publishers was found to be there.
        """
        standing = interest.declarations.chunks.keys()
        owed: dict[int, float] = {}
        for origin, met_at in met.items():
            source = interest.stream.sources.get(origin)
            missing: Iterable[int] = standing
            if source is not None:
                if standing <= source.answered:
                    continue
                missing = standing - source.answered - source.refused.keys()
            for number in missing:
                owed[number] = min(owed.get(number, inf), met_at)
        return owed

    def refusals(self) -> list[str]:
        """Return the reasons of publishers that will not serve something."""
        return [
            reason
            for interest in self._interests.values()
            for source in interest.stream.sources.values()
            for number, reason in source.refused.items()
            if number in interest.declarations.chunks
        ]


LONGEST_REASON, MOST_CHARACTERS = 1_024, 16_384
"""Characters of a reason for which a chunk is refused, and of all reasons, that are kept of a publisher."""

_REFUSED_TOO = "refused, as others are"
DENIED_TOO = Denial("denied, as so many others that their reasons are not kept; unsubscribe what is denied")
"""Kept in place of the reasons for which there is no room."""


class Answers:
    """Takes in what publishers say of declarations, and remembers what they deny.

    Attributes:
        denials: what publishers deny, and nobody was told yet.
        on_denial: called when there is one more; None where nobody is to be told.
    """

    __slots__ = ("denials", "on_denial")

    def __init__(self) -> None:
        """Begin with none."""
        self.denials: deque[Denial] = deque()
        self.on_denial: Callable[[], object] | None = None

    def take(self, stream: Stream, source: Source, body: dict[Any, Any]) -> None:
        """Record what a publisher has answered; what was never declared is not, however much is said.

        Args:
            stream: what it came on.
            source: the publisher.
            body: of the control record, which has `live`.
        """
        last = stream.last_declared
        refused = ((number, reason) for number, reason in body.get("refused", {}).items() if number <= last)
        source.answer(
            frozenset(number for number in body["live"] if number <= last),
            dict(_bounded(refused, body.get("denied", {}))),
        )
        source.paths = body.get("paths", 0)
        if self.on_denial is not None:
            self._take_denials(stream, source, self.on_denial)

    def _take_denials(self, stream: Stream, source: Source, on_denial: Callable[[], object]) -> None:
        """Pass on each denial once, though a chunk may be declared and denied again, also in parts."""
        before, source.denials = source.denials, {}
        if before and stream.declarations is not None:
            # What is declared again is not answered for a while, and then denied as before.
            chunks = stream.declarations.chunks.items()
            unanswered = {one.denied_as for number, one in chunks if number not in source.answered}
            source.denials = {first: [*said] for first, said in before.items() if first in unanswered}
        for number, reason in source.refused.items():
            if isinstance(reason, Denial):
                chunk = stream.chunk(number)
                first = number if chunk is None else chunk.denied_as
                told = source.denials.setdefault(first, [])
                if not _is_known(reason, told):
                    told.append(reason)
                # Of what was undone meanwhile nobody knows any more what it was a part of.
                known = chain.from_iterable(before.values()) if chunk is None else before.get(first, ())
                if not _is_known(reason, known):
                    self.denials.append(reason)
                    on_denial()


def _bounded(refused: Iterable[tuple[int, str]], denied: Mapping[int, Any]) -> Iterator[tuple[int, str]]:
    """Keep the reasons for which there is room, and of the others that there are some."""
    left = MOST_CHARACTERS
    for number, said in refused:
        reason = restored(said[:LONGEST_REASON], number, denied)
        if isinstance(reason, Denial):
            left -= len(reason.rule or "") + len(reason.subject or "")
        left -= len(reason)
        if left < 0:
            reason = DENIED_TOO if isinstance(reason, Denial) else _REFUSED_TOO
        yield number, reason


def _is_known(reason: Denial, before: Iterable[Denial]) -> bool:
    """Tell whether a denial was passed on: it may be shortened as others come, here or at the publisher."""
    return any(
        reason is DENIED_TOO or one is DENIED_TOO or reason.startswith(one) or one.startswith(reason)
        for one in before
    )
