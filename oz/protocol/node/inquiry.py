"""The inquiries of a node that waits: what each peer had asked for when the waiting began.

Subscriptions travel by themselves, and nobody tells a publisher when there are no more of them on the way.
So the node asks: docs/decisions/038. A question to a peer has a number, and the answer repeats it. The answer
names the streams of the peer, each with the newest chunk that stood then; where that chunk has arrived, all
before it have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakSet

from oz.errors import ClosedError
from oz.protocol.messages import Message
from oz.protocol.node.presence import uuid_of
from oz.protocol.node.reserved_subjects import INTEREST
from oz.wire.codec import Asked, Question
from oz.wire.discovery import Announcement

SAY_AGAIN = 0.1
"""Seconds after which what nodes say to each other is said again, if there was no room for it."""

FIRST_PATIENCE, LONGEST_PATIENCE = 0.25, 2.0
"""Seconds for an answer before the question is put again; doubled each time."""


def interest_subject(uuid: bytes) -> str:
    """Return the subject on which a node is asked what it wants, and answered."""
    return INTEREST + uuid.hex()


class Learning(Protocol):
    """A publisher of a node, as far as it has learned what its subscribers ask for; it answers at once."""

    def has_learned(self, chunks: Mapping[bytes, int]) -> bool:
        """Tell whether all that a subscriber asks for has arrived; see `Router.has_learned`."""


class Inquiry:
    """The inquiry of one call of `wait_ready`: which peers have not answered it yet.

    Attributes:
        number: that of its questions; 0 before the first one.
    """

    __slots__ = ("__weakref__", "_asked", "_learned", "_statements", "number")

    def __init__(self) -> None:
        """Start with nobody asked."""
        self.number = 0
        self._asked: dict[bytes, tuple[float, float]] = {}
        self._statements: dict[bytes, dict[bytes, int]] = {}
        self._learned: set[bytes] = set()

    def has_learned(self, uuid: bytes, publishers: Sequence[Learning]) -> bool:
        """Tell whether all that a peer had asked for has arrived; once it has, nobody is asked again."""
        chunks = self._statements.get(uuid)
        if uuid in self._learned or chunks is None:
            return chunks is not None
        if not all(one.has_learned(chunks) for one in publishers):
            return False
        self._learned.add(uuid)
        return True

    def is_due(self, uuid: bytes, now: float) -> bool:
        """Tell whether a peer is to be asked, or asked again."""
        at, patience = self._asked.get(uuid, (now, 0.0))
        # Added as `next_deadline` adds them: a difference may be a last digit less.
        return now >= at + patience

    def next_deadline(self) -> float | None:
        """Return when a peer that was asked is to be asked again, in monotonic seconds; None for never."""
        return min((at + patience for at, patience in self._asked.values()), default=None)

    def asked(self, uuid: bytes, now: float) -> None:
        """Record that a peer was asked."""
        _, patience = self._asked.get(uuid, (now, 0.0))
        self._asked[uuid] = now, min(LONGEST_PATIENCE, 2 * patience) or FIRST_PATIENCE

    def take(self, uuid: bytes, number: int, chunks: Mapping[bytes, int]) -> None:
        """Take an answer, of this wait or a later one; what that does not name any more has ended."""
        if not self.number or number < self.number:
            return
        before = self._statements.get(uuid, chunks)
        self._statements[uuid] = {name: min(before[name], chunks[name]) for name in before if name in chunks}


class Inquiries:
    """The questions of one node, and its answers.

    Attributes:
        publish: publishes to peers; tells whether there was room.
    """

    __slots__ = ("_asked", "_number", "_open", "publish")

    def __init__(self, asked: Callable[[], dict[bytes, int]], publish: Callable[[str, Any], bool]) -> None:
        """Start with none.

        Args:
            asked: gives what the node itself has asked for: the newest chunk of each stream.
            publish: publishes to peers; tells whether there was room.
        """
        self._asked = asked
        self.publish = publish
        self._number = 0
        self._open: WeakSet[Inquiry] = WeakSet()

    def unknown(
        self, inquiry: Inquiry, peers: Iterable[tuple[Announcement, Sequence[Learning]]], now: float
    ) -> list[str]:
        """Ask the peers that are due; name those whose subscriptions may not all have arrived.

        Args:
            inquiry: of whoever waits, who keeps it for so long.
            peers: those who are there, and the publishers of this node that each is connected to.
            now: monotonic seconds.
        """
        if not inquiry.number:
            self._number += 1
            inquiry.number = self._number
            self._open.add(inquiry)
        return [
            f"what {peer.name} has subscribed to has not arrived at this node"
            for peer, publishers in peers
            if not self._is_known(inquiry, peer, publishers, now)
        ]

    def next_deadline(self, inquiry: Inquiry, now: float) -> float:
        """Return when to call `unknown` again, if nothing comes before.

        Args:
            inquiry: of whoever waits.
            now: monotonic seconds.
        """
        deadline = inquiry.next_deadline()
        # Overdue: there was no room for the question.
        return now + SAY_AGAIN if deadline is None else max(deadline, now + SAY_AGAIN)

    def _is_known(
        self, inquiry: Inquiry, peer: Announcement, publishers: Sequence[Learning], now: float
    ) -> bool:
        if inquiry.has_learned(peer.uuid, publishers):
            return True
        if inquiry.is_due(peer.uuid, now):
            subject = interest_subject(peer.uuid)
            # What found no room is said again, as what was lost is.
            if self.publish(subject, Question(inquiry.number)):
                inquiry.asked(peer.uuid, now)
        return False

    def take(self, message: Message) -> bool:
        """Take a question or an answer of a peer; tell whether somebody who waits is to look again."""
        if message.origin is None:
            return False
        uuid, statement = uuid_of(message.origin), message.payload
        if isinstance(statement, Question):
            answer = Asked(statement.number, self._asked())
            with suppress(ClosedError):
                # Where there is no room for it, or nobody listens yet, the question comes again.
                self.publish(interest_subject(uuid), answer)
        elif isinstance(statement, Asked):
            for inquiry in list(self._open):
                inquiry.take(uuid, statement.number, statement.chunks)
            return True
        return False
