"""A stream as a publisher keeps it: who asked, with which delivery options, and where its sequence stands."""

from __future__ import annotations

from collections import Counter, deque
from math import inf
from typing import Any

from oz.errors import PatternTimeout, SubjectError
from oz.subjects.pattern import Pattern
from oz.wire import batch
from oz.wire.batch import head_end, head_start
from oz.wire.keys import DeliveryOptions

NAME_SIZE = 14
"""The part of a stream's id that all streams of one subscriber have in common."""

PLAIN, RICH, CONTROL, LAST_VALUES, LAST_VALUES_RICH = range(5)
"""Places in `OutStream.heads`."""

_FLAGS = (batch.MESSAGES, batch.RICH, batch.CONTROL, batch.LAST_VALUES, batch.LAST_VALUES | batch.RICH)


class AcceptedChunk:
    """One declaration as it stands.

    Attributes:
        patterns: what it asks for.
        holders: the connections over which it was declared and not taken back.
        ends_at: monotonic seconds at which it ends, once nobody holds it.
        wants_last_value: whether it asked for last values.
        shared: the streams of its patterns, where those are shared.
    """

    __slots__ = ("ends_at", "holders", "patterns", "shared", "wants_last_value")

    def __init__(self, patterns: tuple[Pattern, ...], wants_last_value: bool, holders: int = 0) -> None:
        """Begin."""
        self.patterns = patterns
        self.wants_last_value = wants_last_value
        self.holders = holders
        self.ends_at = 0.0
        self.shared: tuple[OutStream, ...] = ()


class OutStream:
    """One key on which messages go out.

    Attributes:
        answer_from: the number up to which what waited when it was last declared goes out before the answer.
        name: the id that its subscriber gave it; the key itself for a shared pattern.
        key: the ZeroMQ subscription.
        delivery: how its messages are to be treated.
        epoch: which life of its numbering this is: what it counts under on the wire.
        heads: what frames begin with: plain, rich, control, last values and rich last values.
        sequence: the number of the next message.
        recorded: where it stood by the record that was made last; -1 before.
        joined: its place among all streams, by age.
        chunks: what is declared, by number.
        ending: what was, and nobody holds any more; it is served until its time is over.
        refused: the chunks that were not accepted, and why.
        patterns: how often each pattern was declared.
        newest: the highest number of a chunk that was declared on it, whatever became of that.
        listeners: the connections over which the key itself is subscribed to.
        vanished_at: when the last connection was cut, in monotonic seconds.
        is_closing: it said goodbye.
        is_full: what was last sent on it found no room.
        is_gone: it is forgotten.
        left_out_at: when one of several connections was last left out of what was sent, in monotonic seconds.
        refused_at: since when a record of where it stands finds no room, in monotonic seconds.
        unsent: frames that are to be sent as soon as there is room.
        send_buffer: the messages of an `overflow` that found no room: subjects and payloads.
        is_shared: whether it is that of a shared pattern.
    """

    __slots__ = (
        "answer_from",
        "chunks",
        "delivery",
        "ending",
        "epoch",
        "heads",
        "is_closing",
        "is_full",
        "is_gone",
        "is_shared",
        "joined",
        "key",
        "left_out_at",
        "listeners",
        "name",
        "newest",
        "patterns",
        "recorded",
        "refused",
        "refused_at",
        "send_buffer",
        "sequence",
        "unsent",
        "vanished_at",
    )

    def __init__(
        self, name: bytes, key: bytes, delivery: DeliveryOptions, origin: bytes, number: int
    ) -> None:
        """Begin at sequence 0.

        Args:
            name: the id of the stream.
            key: its key.
            delivery: its delivery options.
            origin: the publisher.
            number: counts the streams of this publisher; a stream that was forgotten and comes back has
                a higher one, which is its epoch on the wire at first.
        """
        self.name = name
        self.key = key
        self.delivery = delivery
        self.is_shared = name == key
        self.number(origin, number)
        self.joined = number
        self.chunks: dict[int, AcceptedChunk] = {}
        self.ending: dict[int, AcceptedChunk] = {}
        self.refused: dict[int, str] = {}
        self.patterns: dict[Pattern, int] = {}
        self.newest = 0
        self.recorded = -1
        self.listeners = 0
        self.vanished_at: float | None = None
        self.is_closing = False
        self.is_full = False
        self.is_gone = False
        self.left_out_at = -inf
        self.refused_at = inf
        self.unsent: deque[tuple[bytes, ...]] = deque()
        self.send_buffer: Any = None

    def wants(self, subject: bytes) -> bool:
        """Tell whether one of its patterns matches; one that runs out of time does not."""
        for pattern in self.patterns:
            try:
                if pattern.matches(subject):
                    return True
            except (SubjectError, PatternTimeout):
                continue
        return False

    def still_wants(self, subject: bytes) -> bool:
        """Tell whether one of those patterns matches that were not taken back; some pattern of its does."""
        ending = Counter(pattern for chunk in self.ending.values() for pattern in chunk.patterns)
        matching = [pattern for pattern in ending if _matches(pattern, subject)]
        if not matching or any(self.patterns[pattern] > ending[pattern] for pattern in matching):
            return True
        return any(
            count > ending[pattern] and _matches(pattern, subject) for pattern, count in self.patterns.items()
        )

    def number(self, origin: bytes, epoch: int, sequence: int = 0) -> None:
        """Count under an epoch, from 0 or where that had come to."""
        self.epoch = epoch
        self.heads = tuple(head_start(self.key, one, origin, epoch) for one in _FLAGS)
        self.sequence = sequence
        self.answer_from = 0

    def head(self, kind: int, sequence: int, count: int) -> bytes:
        """Return what a frame begins with: its kind is a place in `heads`."""
        return self.heads[kind] + head_end(sequence, count)

    @property
    def has_messages(self) -> bool:
        """Whether messages go out on it: who shares patterns is given them on those of the patterns."""
        return self.is_shared or not self.delivery.is_shared

    @property
    def has_several(self) -> bool:
        """Whether more than one connection may listen on the key."""
        # Who shares a pattern declares it too, and is counted for both.
        return self.listeners > (2 if self.is_shared else 1)

    @property
    def is_held(self) -> bool:
        """Whether any connection has a part of it."""
        return self.listeners > 0 or bool(self.chunks)


def _matches(pattern: Pattern, subject: bytes) -> bool:
    try:
        return pattern.matches(subject)
    except SubjectError:
        # It is not text, and the dialect knows nothing else.
        return False
    except PatternTimeout:
        return True
