"""Contradictions: records under a publisher's name that contradict what it has said before.

A publisher's name is no secret, and without keys whoever is heard can use it. So nothing that is said in a
name is obeyed for ever. What a publisher cannot have reached is passed over. What it can have reached is
believed at once, since losses are told by it; but when the publisher goes on from where it stood before, for
some seconds, or gives other messages with numbers that were given, two of one name are heard. From then on
each of them is followed by its own numbers: nobody is shut out by what another one says.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from oz.wire.batch import Head

NS: Final = 1_000_000_000

PATIENCE = 3.0
"""Seconds for which a publisher goes on from an earlier place before that counts as a contradiction; and for
which nothing else of it is heard before a place is believed that it cannot have reached."""

CALM = 600.0
"""Seconds without a contradiction after which a publisher is believed as any other."""

MOST_MESSAGES = 10_000_000
"""Messages that a publisher numbers in a second at most."""

SLACK, LONGEST = 10.0, 3_600.0
"""Seconds that are granted for a clock that was set; and after which no more are granted."""

MOST_EPOCHS = 1 << 20
"""How far an epoch rises at once at most: it counts the streams of a publisher."""

MOST_RIVALS = 33
"""Places that are followed besides the first."""

MOST_RUNS = 32
"""Runs of numbers, with losses between them, that are remembered; then those that are nearest are joined."""

_PATIENCE_NS, _CALM_NS = round(PATIENCE * NS), round(CALM * NS)
_EVERY_NS = NS
_NEVER = -_CALM_NS


class StreamPlace:
    """A place where a numbering stands, and the run of numbers that has led there.

    Attributes:
        epoch: the life of the key.
        began: the first number of the run.
        expected: the number that comes next.
        heard_at: when anything came of it, in nanoseconds.
        since: when that began, with no pause of some seconds.
        is_announced: the run was begun by a control record.
        is_joined: nobody remembers any more what was lost in the run.
        left_at: when the publisher was said to be farther on.
    """

    __slots__ = ("began", "epoch", "expected", "heard_at", "is_announced", "is_joined", "left_at", "since")

    def __init__(
        self, epoch: int, began: int, expected: int, heard_at: int, *, is_announced: bool = False
    ) -> None:
        """Begin with what was heard."""
        self.epoch = epoch
        self.began = began
        self.expected = expected
        self.heard_at = self.since = heard_at
        self.is_announced = is_announced
        self.is_joined = False
        self.left_at = _NEVER

    def holds(self, head: Head) -> bool:
        """Tell whether a record goes on from here, or repeats what was here."""
        return head.epoch == self.epoch and self.began <= head.sequence <= self.expected

    def has_given(self, head: Head) -> bool:
        """Tell whether some message of a batch has a number that was given here."""
        end = head.sequence + head.count
        return (
            bool(head.count)
            and head.epoch == self.epoch
            and self.began < end
            and head.sequence < self.expected
        )

    def is_before(self, head: Head) -> bool:
        """Tell whether a record says more than was known when the publisher stood here."""
        end = head.sequence + head.count + (not head.count)
        return (self.epoch, self.expected) < (head.epoch, end)

    def take(self, head: Head, time_ns: int) -> None:
        """Go on by a record."""
        self.hear(time_ns)
        self.expected = max(self.expected, head.sequence + head.count)

    def hear(self, time_ns: int) -> bool:
        """Record that something has come of it; tell whether that has gone on for some seconds."""
        if self.is_silent(time_ns):
            self.since = time_ns
        self.heard_at = time_ns
        return time_ns - self.since >= _PATIENCE_NS

    def is_silent(self, time_ns: int) -> bool:
        """Tell whether nothing has come of it for some seconds."""
        return time_ns - self.heard_at >= _PATIENCE_NS


class Doubt:
    """All that speaks against one publisher, on one key.

    Attributes:
        began: the first number of the run in which it is.
        rivals: the other places, once it has contradicted itself.
        is_contested: it has.
        believes_records: control records are believed that say that it is farther on in its epoch.
        news: contradictions that nobody has counted yet.
        runs: runs of numbers that came before.
    """

    __slots__ = (
        "_answered", "_claim", "_ends_at", "_first_at", "_hasty", "_is_announced", "_reported_at",
        "began", "believes_records", "is_contested", "news", "rivals", "runs",
    )  # fmt: skip

    def __init__(self, first_at: int, began: int = 0) -> None:
        """Nothing speaks against it yet.

        Args:
            first_at: when the publisher was first heard, in nanoseconds.
            began: the first number of the run in which it is.
        """
        self._first_at = first_at
        self.began = began
        self.runs: list[StreamPlace] = []
        self._claim = self._hasty = StreamPlace(-1, 0, 0, _NEVER)
        self._answered: dict[int, frozenset[int]] = {}
        self.rivals: list[StreamPlace] = []
        self.is_contested = self._is_announced = False
        self.believes_records = True
        self.news = 0
        self._reported_at = _NEVER
        self._ends_at = first_at + _CALM_NS

    def present(self, epoch: int, expected: int, heard_at: int) -> StreamPlace:
        """Return where the publisher stands."""
        return StreamPlace(epoch, self.began, expected, heard_at, is_announced=self._is_announced)

    def fork(self, present: StreamPlace, head: Head, answered: frozenset[int], time_ns: int) -> None:
        """Record that a publisher is believed to be farther on than where it stood.

        Args:
            present: where it stood.
            head: of the record that says so.
            answered: the chunks that it had answered.
            time_ns: now.
        """
        self._extend(time_ns)
        present.left_at = time_ns
        self.runs.append(present)
        if len(self.runs) > MOST_RUNS:
            self._join_runs()
        if head.epoch != present.epoch:
            self._answered = {present.epoch: answered}
        self.began, self._is_announced = head.sequence, not head.count

    def has_given(self, head: Head, present: StreamPlace) -> bool:
        """Tell whether some message of a batch has a number that was given."""
        return any(one.has_given(head) for one in (present, *self.runs) if not one.is_joined)

    def may_have_given(self, head: Head) -> bool:
        """Tell whether some message of a batch has a number that was given, or lost in a run."""
        return any(one.has_given(head) for one in self.runs)

    def contradicts(self, head: Head, present: StreamPlace, time_ns: int) -> bool:
        """Take in a record from before the present place; tell whether it cannot be of the same publisher.

        Of a loss a slower path may bring what was lost, but not for long: whoever goes on from before has
        not been farther on at all.
        """
        self._extend(time_ns)
        before = [one for one in self.runs if one.is_before(head)]
        following = (*self.runs, present)[len(before)]
        if (following.epoch, following.began) <= (head.epoch, head.sequence):
            # It was here, on another path.
            return False
        if following.is_announced and self._hasty.hear(time_ns):
            self.believes_records = False
        if before:
            return time_ns - before[-1].left_at >= _PATIENCE_NS
        return time_ns - self._first_at >= _PATIENCE_NS

    def _join_runs(self) -> None:
        """Join two runs into one, and forget no number: many claimed places must not hide the publisher."""
        pairs = [(one, other) for one, other in pairwise(self.runs) if one.epoch == other.epoch]
        if not pairs:
            # The first of them may be where the publisher really is.
            del self.runs[1]
            return
        one, other = min(pairs, key=lambda pair: pair[1].began - pair[0].expected)
        one.expected, one.heard_at, one.left_at = other.expected, other.heard_at, other.left_at
        one.is_joined = True
        self.runs.remove(other)

    def contest(self, head: Head, present: StreamPlace, time_ns: int) -> StreamPlace:
        """Begin to follow more than one place; return that of a record that contradicts the present one."""
        self.rivals = [present, *self.runs]
        self.runs = []
        self.is_contested = True
        place = self.find(head) or StreamPlace(head.epoch, head.sequence, head.sequence, time_ns)
        self.rivals = [one for one in self.rivals if one is not place]
        self.began, self._is_announced = place.began, False
        return place

    def outlive(self) -> None:
        """Begin to follow all places where the publisher was: it goes on though it has said goodbye."""
        self.rivals, self.runs = [*self.rivals, *self.runs], []
        self.is_contested = True

    def answered(self, epoch: int) -> frozenset[int]:
        """Return the chunks that the publisher had answered in an epoch that it has left."""
        return self._answered.get(epoch, frozenset())

    def _extend(self, time_ns: int) -> None:
        self._ends_at = max(self._ends_at, time_ns + _CALM_NS)

    def is_claimed(self, head: Head, time_ns: int) -> bool:
        """Take in a place that is not believed; tell whether it has been claimed for some seconds."""
        self._extend(time_ns)
        if self._claim.is_silent(time_ns) or not self._claim.holds(head):
            self._claim = StreamPlace(head.epoch, head.sequence, head.sequence, time_ns)
        self._claim.take(head, time_ns)
        return time_ns - self._claim.since >= _PATIENCE_NS

    def note(self, time_ns: int) -> None:
        """Record a contradiction of a publisher that is contested."""
        self.news += 1
        self._extend(time_ns)

    def is_over(self, time_ns: int) -> bool:
        """Tell whether nothing has spoken against the publisher for long."""
        return time_ns >= self._ends_at

    def may_tell(self, time_ns: int) -> bool:
        """Tell whether to report once more that messages may be missing: once a second."""
        if time_ns - self._reported_at < _EVERY_NS:
            return False
        self._reported_at = time_ns
        return True

    def promote(self, place: StreamPlace, first: StreamPlace) -> None:
        """Put one of the other places first, as the first has fallen silent."""
        self.rivals = [first, *(one for one in self.rivals if one is not place)]
        self.began = place.began

    def find(self, head: Head) -> StreamPlace | None:
        """Return the place besides the first that a record goes on from, if any."""
        at = head.epoch, head.sequence
        return next((one for one in self.rivals if (one.epoch, one.expected) == at), None)

    def add(self, head: Head, time_ns: int) -> StreamPlace:
        """Make a place for a record that goes on from none; it is followed unless there are too many."""
        place = StreamPlace(head.epoch, head.sequence, head.sequence, time_ns)
        if len(self.rivals) >= MOST_RIVALS:
            oldest = min(self.rivals, key=lambda one: one.heard_at)
            if not oldest.is_silent(time_ns):
                return place
            self.rivals.remove(oldest)
        self.rivals.append(place)
        return place


def can_be(head: Head, epoch: int | None, expected: int, seconds: float, *, is_shared: bool) -> bool:
    """Tell whether a publisher can have come to where a record says that it is.

    Args:
        head: of the record, which is ahead.
        epoch: the epoch before; None where nothing was heard.
        expected: the number that came next.
        seconds: since when it was there.
        is_shared: others read the key too, so that it may have begun at any number.
    """
    if epoch is not None and head.epoch - epoch > MOST_EPOCHS:
        return False
    if head.epoch != epoch:
        if is_shared:
            return True
        expected = 0
    return head.sequence - expected <= MOST_MESSAGES * (SLACK + min(LONGEST, max(0.0, seconds)))
