"""The replies that a node's handlers give, and those that wait for their requesters to be connected."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from oz.message import Extras, Message
from oz.protocol.node.requests import FAILED, owner
from oz.protocol.node.subscription import NodeStats
from oz.transport.node.handlers import handled_partition
from oz.transport.node.publisher import NodePublisher
from oz.wire.node_codec import Failure

PARKED = 2.0
"""Seconds for which a reply waits for its requester to be connected."""

MOST_PARKED = 10_000
"""Replies that wait so at most."""


class Replies:
    """The replies of one node; any thread may give one."""

    __slots__ = ("_monotonic", "_name", "_note_due", "_parked", "_publisher_for", "_stats")

    def __init__(
        self,
        name: str,
        stats: NodeStats,
        publisher_for: Callable[[Any], NodePublisher],
        note_due: Callable[[], None],
        monotonic: Callable[[], float],
    ) -> None:
        """Start with none.

        Args:
            name: of the node.
            stats: what they are counted in.
            publisher_for: says which publisher a subject goes out by, or refuses it.
            note_due: called when a reply is to wait, by whichever thread gave it.
            monotonic: the clock.
        """
        self._name = name
        self._stats = stats
        self._publisher_for = publisher_for
        self._note_due = note_due
        self._monotonic = monotonic
        self._parked: deque[tuple[float, str, Any, dict[str, Any] | None]] = deque()

    def answer(self, message: Message, payload: Any, headers: dict[str, Any] | None) -> None:
        """Publish a reply; one whose requester is not connected yet waits for it for a while."""
        inbox = message.reply_to
        assert inbox is not None
        publisher = self._publisher_for(inbox)
        self._stats.replies += 1
        if publisher.interest(inbox) or owner(inbox) is None:
            self._send(publisher, inbox, payload, headers)
        else:
            self._park(inbox, payload, headers)
        if (partition := handled_partition.get()) is not None:
            # Not before: what cannot be encoded is no answer.
            partition.answered = message

    def answer_failure(self, message: Message, error: BaseException) -> None:
        """Tell the requester that a handler raised, unless the handler had answered before."""
        inbox = message.reply_to
        partition = handled_partition.get()
        if inbox is None or owner(inbox) is None or (partition is not None and partition.answered is message):
            return
        publisher, subject = self._publisher_for(inbox), inbox + FAILED
        failure = Failure(type(error).__name__, _text_of(error), self._name)
        if publisher.interest(subject):
            self._send(publisher, subject, failure, None)
        elif not publisher.interest(inbox):
            self._park(subject, failure, None)
        # Else it is a node of an older oz, which does not ask for such a thing.

    def send_parked(self, publisher: NodePublisher, now: float) -> None:
        """Send what waits to those who are connected now; on the I/O side.

        Args:
            publisher: the node's main one.
            now: monotonic seconds.
        """
        for _ in range(len(self._parked)):
            until, inbox, payload, headers = self._parked.popleft()
            if publisher.interest(inbox):
                self._send(publisher, inbox, payload, headers)
            elif now >= until:
                self._stats.replies_dropped += 1
            else:
                self._parked.append((until, inbox, payload, headers))

    def next_deadline(self) -> float | None:
        """Return when the first that waits has waited for long enough; None when none does."""
        try:
            return self._parked[0][0]
        except IndexError:
            return None

    def _park(self, subject: str, payload: Any, headers: dict[str, Any] | None) -> None:
        if len(self._parked) >= MOST_PARKED:
            self._stats.replies_dropped += 1
        else:
            self._parked.append((self._monotonic() + PARKED, subject, payload, headers))
            # Whoever does what is due may not know of it yet.
            self._note_due()

    def _send(
        self, publisher: NodePublisher, inbox: str, payload: Any, headers: dict[str, Any] | None
    ) -> None:
        extras = None if headers is None else Extras(headers=headers)
        if publisher.engine.sender.publish(publisher.engine.socket, inbox, payload, extras) is not None:
            self._stats.replies_dropped += 1


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""
