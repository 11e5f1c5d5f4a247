"""What a member of a queue group has no room for, given to others in the order of publishing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oz.protocol.outgoing import OutStream
from oz.protocol.packing import Batch


class Passing:
    """The batches of one flush that are for members of queue groups: those sent, and those still to come.

    What one member refuses may be older than what another was sent already. Of one subject that would go back
    in the order at the other one.
    """

    __slots__ = ("_pending", "_sent")

    def __init__(self, batches: Iterable[Batch] = ()) -> None:
        """Start with the batches of one flush, of which none was sent."""
        self._pending = {one.stream: one for one in batches if one.stream.delivery.group}
        self._sent: dict[OutStream, list[Batch]] = {}

    def begin(self, batch: Batch) -> None:
        """Take note that a batch is being sent, so that nothing more goes into it."""
        if self._pending.get(batch.stream) is batch:
            del self._pending[batch.stream]

    def note(self, batch: Batch) -> None:
        """Take note that a batch is its stream's now, sent or waiting."""
        self._sent.setdefault(batch.stream, []).append(batch)

    def share(
        self, batch: Batch, members: list[OutStream], *, must_go: bool
    ) -> tuple[list[Batch], Batch, Batch]:
        """Share out what a member has no room for.

        Args:
            batch: what it was to get.
            members: the others that can take more.
            must_go: it is gone itself, so that another one gets a message even out of order.

        Returns:
            Batches that are to be sent now, beside what was added to those still to come; what has to wait
            for the member itself, as all others that want it are ahead; and what nobody else wants.
        """
        assert batch.items is not None
        latest = {one: self._latest(one) for one in members}
        follow: dict[OutStream, Batch] = {}
        waits, rest = Batch(batch.stream), Batch(batch.stream)
        for number, place in enumerate(batch.places):
            item = batch.items[2 * number : 2 * number + 2]
            able = [one for one in members if _wants(one, item[0])]
            taker = next((one for one in able if latest[one].get(item[0], -1) < place), None)
            if taker is None and able and must_go:
                taker = able[0]
            if taker is None:
                (waits if able else rest).put(place, item)
            elif taker in self._pending:
                self._pending[taker].put(place, item)
            else:
                follow.setdefault(taker, Batch(taker)).put(place, item)
        return list(follow.values()), waits, rest

    def _latest(self, member: OutStream) -> dict[bytes, int]:
        """Give the place of the last message of each subject that a member was sent."""
        places: dict[bytes, int] = {}
        for batch in self._sent.get(member, ()):
            items: list[Any] = batch.items or []
            for subject, place in zip(items[0::2], batch.places, strict=True):
                places[subject] = max(places.get(subject, -1), place)
        return places


def _wants(stream: OutStream, subject: bytes) -> bool:
    for pattern in stream.patterns:
        try:
            if pattern.matches(subject):
                return True
        except (ValueError, TimeoutError):
            continue
    return False
