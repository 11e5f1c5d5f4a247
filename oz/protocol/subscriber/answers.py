"""Answers: what publishers say of declarations: which they take on, which they refuse and which they deny."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from oz.protocol.subscriber.sequences import Source
from oz.protocol.subscriber.stream import Stream
from oz.wire.denials import Denial, restored

LONGEST_REASON, MOST_REASONS = 1_024, 16
"""Characters of a reason for which a chunk is refused, and reasons, that are kept of each publisher."""


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
        refused = [one for one in body.get("refused", {}).items() if one[0] <= last]
        denied = body.get("denied", {})
        source.answer(
            frozenset(number for number in body["live"] if number <= last),
            {
                number: restored(reason[:LONGEST_REASON], number, denied)
                if place < MOST_REASONS
                else "refused, as others are"
                for place, (number, reason) in enumerate(refused)
            },
        )
        source.paths = body.get("paths", 0)
        if self.on_denial is not None:
            self._take_denials(stream, source, self.on_denial)

    def _take_denials(self, stream: Stream, source: Source, on_denial: Callable[[], object]) -> None:
        """Pass on each denial once, though a chunk may be declared and denied again."""
        before, source.denials = source.denials, {}
        for number, reason in source.refused.items():
            if isinstance(reason, Denial):
                chunk = stream.chunk(number)
                first = number if chunk is None else chunk.root
                source.denials[first] = reason
                if before.get(first) != reason:
                    # Not again where one of several that were denied together asks by itself.
                    if reason not in before.values():
                        self.denials.append(reason)
                    on_denial()
