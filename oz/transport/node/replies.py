"""The replies that a node's handlers give, and those that wait for their requesters to be connected."""

from __future__ import annotations

import time
from typing import Any

from oz.message import Extras, Message
from oz.protocol.node.requests import FAILED, owner
from oz.transport.node.handlers import handled_partition
from oz.transport.node.opening import NodeOpening
from oz.wire.node_codec import Failure

PARKED = 2.0
"""Seconds for which a reply waits for its requester to be connected."""

MOST_PARKED = 10_000
"""Replies that wait so at most."""


class Replying(NodeOpening):
    """The part of a node that publishes replies."""

    def _publisher_for(self, subject: Any) -> Any:
        """Say which publisher a subject goes out by."""
        raise NotImplementedError

    def _note_due(self) -> None:
        """Have the I/O side look at what is due, and when; any thread may ask for it."""
        raise NotImplementedError

    def _answer(self, message: Message, payload: Any, headers: Any) -> None:
        """Publish a reply; one whose requester is not connected yet waits for it for a while."""
        inbox = message.reply_to
        assert inbox is not None
        publisher = self._publisher_for(inbox)
        self._stats.replies += 1
        if publisher.interest(inbox) or owner(inbox) is None:
            self._send_reply(publisher, inbox, payload, headers)
        else:
            self._park(inbox, payload, headers)
        if (partition := handled_partition.get()) is not None:
            # Not before: what cannot be encoded is no answer.
            partition.answered = message

    def _answer_failure(self, message: Message, error: BaseException) -> None:
        """Tell the requester that a handler raised, unless the handler had answered before."""
        inbox = message.reply_to
        partition = handled_partition.get()
        if inbox is None or owner(inbox) is None or (partition is not None and partition.answered is message):
            return
        publisher, subject = self._publisher_for(inbox), inbox + FAILED
        failure = Failure(type(error).__name__, _text_of(error), self.name)
        if publisher.interest(subject):
            self._send_reply(publisher, subject, failure, None)
        elif not publisher.interest(inbox):
            self._park(subject, failure, None)
        # Else it is a node of an older oz, which does not ask for such a thing.

    def _park(self, subject: str, payload: Any, headers: Any) -> None:
        if len(self._parked) >= MOST_PARKED:
            self._stats.replies_dropped += 1
        else:
            self._parked.append((time.monotonic() + PARKED, subject, payload, headers))
            # Whoever does what is due may not know of it yet.
            self._note_due()

    def _send_reply(self, publisher: Any, inbox: str, payload: Any, headers: Any) -> None:
        extras = None if headers is None else Extras(headers=headers)
        if publisher.engine.sender.publish(publisher.engine.socket, inbox, payload, extras) is not None:
            self._stats.replies_dropped += 1

    def _send_parked(self, now: float) -> None:
        for _ in range(len(self._parked)):
            until, inbox, payload, headers = self._parked.popleft()
            if self._main.interest(inbox):
                self._send_reply(self._main, inbox, payload, headers)
            elif now >= until:
                self._stats.replies_dropped += 1
            else:
                self._parked.append((until, inbox, payload, headers))


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""
