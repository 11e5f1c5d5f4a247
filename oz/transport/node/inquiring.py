"""A node's questions to its peers, whether all their subscriptions have arrived; it never waits.

Subscriptions travel by themselves, and nobody tells a publisher when there are no more of them on the way.
So the node asks, and each peer answers how much it has asked for: docs/decisions/038. It is touched by the
node's I/O side only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from oz.errors import ClosedError
from oz.message import Message
from oz.protocol.node.inquiry import Inquiry
from oz.protocol.node.presence import uuid_of
from oz.transport.node.sockets import NodePublisher, NodeSubscriber
from oz.wire.discovery import Announcement
from oz.wire.node_codec import Asked, Question

_PREFIX = "_OZ.INTEREST."

SAY_AGAIN = 0.1
"""Seconds after which what nodes say to each other is said again, if there was no room for it."""


def interest_subject(uuid: bytes) -> str:
    """Return the subject on which a node is asked what it wants, and answered."""
    return _PREFIX + uuid.hex()


class Inquiries:
    """The questions of one node, and its answers."""

    __slots__ = ("_number", "_open", "_publish", "_sub")

    def __init__(self, sub: NodeSubscriber, publish: Callable[[str, Any], bool]) -> None:
        """Start with none.

        Args:
            sub: the node's subscriber.
            publish: publishes to peers; tells whether there was room.
        """
        self._sub = sub
        self._publish = publish
        self._number = 0
        self._open: WeakSet[Inquiry] = WeakSet()

    def unknown(
        self, inquiry: Inquiry, peers: Iterable[tuple[Announcement, list[NodePublisher]]], now: float
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
        self, inquiry: Inquiry, peer: Announcement, publishers: list[NodePublisher], now: float
    ) -> bool:
        chunks = inquiry.statement(peer.uuid)
        if chunks is not None and all(one.has_learned(chunks) for one in publishers):
            return True
        if inquiry.is_due(peer.uuid, now):
            subject = interest_subject(peer.uuid)
            if not any(one.interest(subject) for one in publishers):
                # A node of an older oz: its presence announcement stands, and this subscription comes before
                # that.
                return True
            # What found no room is said again, as what was lost is.
            if self._publish(subject, Question(inquiry.number)):
                inquiry.asked(peer.uuid, now)
        return False

    def take(self, message: Message) -> bool:
        """Take a question or an answer of a peer; tell whether somebody who waits is to look again."""
        if message.origin is None:
            return False
        uuid, statement = uuid_of(message.origin), message.payload
        if isinstance(statement, Question):
            answer = Asked(statement.number, self._sub.asked())
            with suppress(ClosedError):
                # Where there is no room for it, or nobody listens yet, the question comes again.
                self._publish(interest_subject(uuid), answer)
        elif isinstance(statement, Asked):
            for inquiry in list(self._open):
                inquiry.take(uuid, statement.number, statement.chunks)
            return True
        return False
