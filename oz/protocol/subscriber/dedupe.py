"""Deduplication: what was here before, in bounded memory: messages by ids, and frames by their bytes."""

from __future__ import annotations

from bisect import bisect_right

from oz.message import MessageId

SINGLES = 262_144
"""Ids without a number that are remembered."""

SERIES = 16_384
"""Series that are remembered."""

SPANS = 262_144
"""Spans of consecutive numbers that are remembered, of all series together."""

FRAMES = 16_384
"""Frames after which those before the last so many are forgotten."""


class Repeats:
    """Remembers ids, the newest ones: those of a series as spans, so that a million in a row cost nothing.

    Attributes:
        spans: how many spans of numbers are remembered.
    """

    __slots__ = ("_series", "_singles", "spans")

    def __init__(self) -> None:
        """Remember none."""
        self._singles: dict[bytes, None] = {}
        self._series: dict[bytes, Spans] = {}
        self.spans = 0

    def __len__(self) -> int:
        """Count what is remembered: ids without a number, and spans."""
        return len(self._singles) + self.spans

    def add(self, message_id: MessageId) -> bool:
        """Take an id in; tell whether it is new."""
        if isinstance(message_id, bytes):
            return self._add_single(message_id)
        series, number = message_id
        spans = self._series.pop(series, None)
        if spans is None:
            spans = Spans()
        self.spans -= len(spans)
        is_new = spans.add(number)
        # The series that was used last is forgotten last.
        self._series[series] = spans
        self.spans += len(spans)
        while len(self._series) > SERIES or (self.spans > SPANS and len(self._series) > 1):
            self.spans -= len(self._series.pop(next(iter(self._series))))
        return is_new

    def _add_single(self, message_id: bytes) -> bool:
        if message_id in self._singles:
            return False
        self._singles[message_id] = None
        if len(self._singles) > SINGLES:
            del self._singles[next(iter(self._singles))]
        return True


class GivenFrames:
    """The newest frames whose messages were given, of all publishers together.

    A frame that comes by a second way is the same to the last byte. Somebody else's with the same numbers is
    another one.

    Attributes:
        recent: hashes of those since the last turn: of each frame its `fingerprint` or, if alone, its hash.
    """

    __slots__ = ("_before", "recent")

    def __init__(self) -> None:
        """Remember none."""
        self.recent: set[int] = set()
        self._before: set[int] = set()

    def __len__(self) -> int:
        """Count what is remembered."""
        return len(self.recent) + len(self._before)

    def __contains__(self, content: int) -> bool:
        """Tell whether a frame was given."""
        return content in self.recent or content in self._before

    def turn(self) -> None:
        """Forget those that came before the last turn."""
        # Whoever has bound a method of `recent` goes on with it.
        self._before = self.recent.copy()
        self.recent.clear()


def fingerprint(frames: list[bytes]) -> int:
    """Return what a frame, with those behind it, is known by; nobody outside this process can foresee it."""
    return hash(frames[0]) if len(frames) == 1 else hash(tuple(frames))


class Spans:
    """A set of numbers, as spans of consecutive ones; of more than `SPANS` spans it forgets the lowest."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        """Begin empty."""
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __len__(self) -> int:
        """Count the spans."""
        return len(self._starts)

    def add(self, number: int) -> bool:
        """Take a number in; tell whether it is new."""
        starts, ends = self._starts, self._ends
        if ends and number == ends[-1]:
            ends[-1] = number + 1
            return True
        # The spans before `at` begin at the number or below it.
        at = bisect_right(starts, number)
        if at and number < ends[at - 1]:
            return False
        joins_left = at > 0 and ends[at - 1] == number
        joins_right = at < len(starts) and starts[at] == number + 1
        if joins_left and joins_right:
            ends[at - 1] = ends[at]
            del starts[at], ends[at]
        elif joins_left:
            ends[at - 1] = number + 1
        elif joins_right:
            starts[at] = number
        else:
            starts.insert(at, number)
            ends.insert(at, number + 1)
            if len(starts) > SPANS:
                del starts[0], ends[0]
        return True
