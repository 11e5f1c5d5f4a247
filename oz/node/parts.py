"""Publisher and subscriber of a node: subclasses of the engines of `oz.publisher` and `oz.subscriber`.

`oz.node.engine` explains the attending side, and `oz.node.roster` explains cards.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from typing import Any

import zmq

from oz.errors import ClosedError, OwnershipError, PermissionDenied
from oz.message import Gap
from oz.node.dial_check import DialCheck
from oz.node.handlers import Runner
from oz.node.proofs import decode_card
from oz.node.requests import INBOX
from oz.node.subjects import INBOX as RAW_INBOX
from oz.node.subjects import NodeInterest, NodeLastValues, NodeSubjects, NodeSubscriptions
from oz.program_end import end_daemon
from oz.publisher.engine import Engine as PublisherEngine
from oz.publisher.engine import Outgoing
from oz.publisher.session import Session
from oz.security.permissions import Action
from oz.subscriber.connections import CLOSED, FOREIGN
from oz.subscriber.engine import Engine as SubscriberEngine
from oz.subscriber.link import LIVE, Link, Messages, Refused
from oz.subscriber.message import Message
from oz.subscriber.places import Place
from oz.subscriber.queue import Inbox, Queue
from oz.transport.runtime import REAL
from oz.wire.extras import REPLY_TO
from oz.wire.links import Card

CLOSED_TEXT = "the node is closed"
FOREIGN_TEXT = (
    "this node was made before the fork, and its sockets belong to the parent: make a new one in the child"
)


class NodePublisher(PublisherEngine):
    """Publisher of a node, with the rules for reserved subjects."""

    __slots__ = ("describe_peers", "send_reply")

    describe_peers: Callable[[bool], str]
    send_reply: Callable[[str, bytes, dict[str, Any] | None], object]
    _patterns_hint = ""
    interest_class = NodeInterest
    last_values_class = NodeLastValues
    subjects_class = NodeSubjects

    def check_usable(self) -> None:
        """Raise ClosedError after `close`, and OwnershipError in the child of a fork."""
        if self.is_foreign:
            raise OwnershipError(FOREIGN_TEXT)
        if self.is_closing:
            end_daemon()
            raise ClosedError(CLOSED_TEXT)

    def _describe(self, *, has_cause: bool) -> str:
        return self.describe_peers(has_cause)

    def _check_right(self, action: Action, subject: bytes) -> None:
        # Only the requester checks replies, because only the requester counts them for `allow_responses`.
        if not subject.startswith(RAW_INBOX):
            super()._check_right(action, subject)

    def offer(self, message: Outgoing) -> bool:
        """Publish a message, or send a reply to the inbox of a node; see `oz.publisher.engine.Engine.offer`."""
        if message.subject.startswith(INBOX):
            self.send_reply(message.subject, message.payload, message.extras)
            return True
        return super().offer(message)

    def is_idle(self, now: float) -> bool:
        """Return whether `attend` would have no effect. This check is several times faster than a call of `attend`."""
        with self.lock:
            listener, sessions = self._listener, self._sessions
            if listener is None or self.is_closed or self.waiting or self._blocked or self._keys is not None:
                return False
            if sessions.ready or sessions.replies or sessions.has_work or listener.has_input():
                return False
            due = sessions.next_deadline()
            return due is None or now < due

    def check_subject(self, subject: str | bytes) -> bytes:
        """Return a subject as bytes.

        Raises:
            SubjectError, TypeError: the subject is not allowed.
            ClosedError, OwnershipError: the same reasons as in `check_usable`.
        """
        self.check_usable()
        return self._subjects.check(subject)[1]

    def nodes_that_receive(self, subject: str | bytes) -> set[bytes]:
        """Return the ids of the nodes that subscribe to a subject and have a connection.

        Raises:
            SubjectError, TypeError: the subject is not allowed.
            ClosedError, OwnershipError: the same reasons as in `check_usable`.
        """
        route = self.responders(*self._subjects.check(subject))
        if route is None:
            return set()
        streams = [*route.plain, *(stream for _, members in route.groups for stream in members)]
        return {stream.session.member for stream in streams if stream.session.is_up}

    def session_of(self, node: bytes) -> Session | None:
        """Return the session of a node, or None. The caller has the lock."""
        return self._sessions.of_node(node)

    def ping(self, node: bytes) -> None:
        """Send a PING to a node at once. If the connection has ended, the send fails and the session becomes DOWN."""
        self._locked(self._ping, node)

    def _ping(self, node: bytes) -> None:
        for session in self._sessions.by_node.get(node, ()):
            session.ping()
            self._sessions.ready[session] = None
        if self._listener is not None:
            self._pump(self._listener)


class NodeSubscriber(SubscriberEngine):
    """Subscriber of a node. Only the attending side reads its sockets.

    Attributes:
        on_denied: function that is called when a peer refuses a connection or a subscription. Its arguments are two
            texts: the endpoint, peer or pattern, and the reason. The caller holds the lock.
        on_dropped: function that is called when permissions deny a message. Its arguments are the id and the key of the
            peer, and the subject and the `reply_to` of the message. The caller holds the lock.
        describe_silence: function that returns why a subscription may receive nothing.
        describe_socket: function that returns a name for the node at an endpoint; the endpoint itself if no name is
            known. It is called while no node has sent its card from the endpoint.
    """

    __slots__ = ("_checks", "_reported", "describe_silence", "describe_socket", "on_denied", "on_dropped")

    on_denied: Callable[[str, str], object]
    on_dropped: Callable[[bytes, str, bytes, object], object]
    describe_silence: Callable[[Inbox | None], str]
    describe_socket: Callable[[str], str]
    watches_links = True
    subscriptions_class = NodeSubscriptions

    def __init__(self, **options: Any) -> None:
        self._arrived: deque[Queue] = deque()
        self._checks: dict[Place, DialCheck] = {}
        self._reported: frozenset[tuple[Place, int]] = frozenset()
        super().__init__(**options)
        self.on_connection = self._on_connection

    def check_open(self) -> None:
        """Raise ClosedError or OwnershipError if the node cannot be used."""
        if self.state == FOREIGN:
            raise OwnershipError(FOREIGN_TEXT)
        if self.state == CLOSED:
            end_daemon()
            raise ClosedError(CLOSED_TEXT)

    def why_nothing_comes(self, timeout: float | None, inbox: Inbox | None) -> str:
        """Return the cause of a timeout; empty for `timeout=0`, because a call with `timeout=0` must be fast."""
        return self.describe_silence(inbox) if timeout else ""

    def _drop_denied(self, place: Place, link: Link, effect: Messages, sequences: Iterable[int]) -> None:
        super()._drop_denied(place, link, effect, sequences)
        origin, key = link.origin, None if self.keys is None else self.keys.key_of(place.endpoint)
        if origin is None or key is None:
            return
        flat = effect.flat
        for sequence in sorted(sequences):
            at = 3 * (sequence - effect.sequence)
            extras = flat[at + 2]
            self.on_dropped(origin, key, flat[at], None if extras is None else extras.get(REPLY_TO))

    def _unwatch(self) -> None:
        """Keep the monitor of the socket, which reports the end of connections. The base class closes the monitor."""

    def _on_connection(self, place: Place, event: int, where: str) -> None:
        """Report a link as refused if the process at its other end has ended.

        libzmq reports `EVENT_CONNECT_RETRIED` when a connection has ended, and after each failed attempt to reconnect.
        The first attempt begins after 100 ms, the second attempt 200 ms later, and so on.
        """
        place.is_connected = event == zmq.EVENT_CONNECTED
        check = self._checks.pop(place, None)
        is_refused = check is not None and check.is_refused()
        if check is not None:
            check.close()
        is_live = place.link is not None and place.link.state == LIVE and self.runtime is REAL
        if event != zmq.EVENT_CONNECT_RETRIED or not is_live:
            return
        if not is_refused:
            check = self._checks[place] = DialCheck(where)
            is_refused = check.is_refused()
        if is_refused:
            self.on_link(place, "refused")

    def key_of(self, link: Link) -> str | None:
        """Return the key of the publisher at the other end of a link; None if the link has ended."""
        place = self._place_of.get(link)
        return None if place is None or self.keys is None else self.keys.key_of(place.endpoint)

    def card_at(self, endpoint: str) -> Card | None:
        """Return the card of the last node that answered at an endpoint; None if no node has answered."""
        place = self.places.get(endpoint)
        return None if place is None or place.link is None else decode_card(place.link.card)

    def name_of(self, endpoint: str) -> str:
        """Return the name that errors and events show for the node at an endpoint; the endpoint if no name is known."""
        card = self.card_at(endpoint)
        return self.describe_socket(endpoint) if card is None else f"peer {card.name!r}"

    def unanswered(self) -> list[str]:
        """Return the endpoints at which a process accepts connections, but does not answer."""
        with self.lock:
            return [
                place.endpoint
                for place in self.places.values()
                if place.is_connected and place.link is not None and place.link.state != LIVE
            ]

    def _find_key(self, endpoint: str, *, is_exact: bool = False) -> None:
        """Choose the likeliest key for an endpoint. A handshake with each key would delay the attending side."""
        with self.lock:
            if self.keys is not None and endpoint not in self.places:
                self.keys.expect(endpoint)

    def _on_key_refusal(self, endpoint: str, why: str) -> None:
        super()._on_key_refusal(endpoint, why)
        self._report_denials()

    def _on_answer(self, place: Place, effect: Refused) -> None:
        super()._on_answer(place, effect)
        self._report_denials()

    def _report_denials(self) -> None:
        """Report refusals as events, and keep the first refusal of each subscription for `receive`."""
        kept: dict[Inbox, tuple[tuple[Place, int], PermissionDenied]] = {}
        for key, (inbox, error) in self.denials.items():
            if key not in self._reported:
                card = self.card_at(key[0].endpoint)
                about = key[0].endpoint if card is None else card.name
                about = about if inbox is None else str(inbox.entries[0].pattern.text)
                self.on_denied(about, str(error))
            if inbox is not None and inbox.handler is None and inbox.is_active:
                kept.setdefault(inbox, (key, error))
        self.denials = {key: (inbox, error) for inbox, (key, error) in kept.items()}
        self._reported = frozenset(self.denials)

    def close(self) -> None:
        """Send BYE on all links and close the sockets."""
        super().close()
        while self._checks:
            self._checks.popitem()[1].close()

    def _attend(self, may_read: bool) -> bool:
        has_more = super()._attend(may_read)
        # `attend_at` is the time at which `receive` must call `attend`. In a node, only the attending side calls it.
        self.attend_at = inf
        return has_more

    def _call_back(self) -> None:
        super()._call_back()
        if self._arrived:
            queues = dict.fromkeys(self._arrived)
            self._arrived.clear()
            for queue in queues:
                self._hand_over(queue)

    def _hand_over(self, queue: Queue) -> None:
        items = list(queue.items)
        queue.items.clear()
        assert queue.inbox is not None
        runner = queue.inbox.handler
        if isinstance(runner, Runner):
            messages = [item for item in items if isinstance(item, Message)]
            runner.put(messages)
        for item in items:
            if isinstance(item, Gap):
                self.report(item)

    def add_runner(self, inbox: Inbox) -> None:
        """Make the queue of a subscription pass its messages to the lanes of its runner. The caller has the lock.

        Messages are in the queue only during a call of `attend`. The queue has no limit, because the lanes have limits.
        """
        queue = inbox.queue
        assert queue is not None
        queue.work, queue.overflow, queue.max_pending = self._arrived, None, sys.maxsize

    def unsubscribe(self, inbox: Inbox) -> None:
        """End a subscription and drop its messages."""
        super().unsubscribe(inbox)
        with self.lock:
            self.denials = {key: denial for key, denial in self.denials.items() if denial[0] is not inbox}
        if isinstance(inbox.handler, Runner):
            removed = inbox.handler.clear()
            with self.lock:
                for message in removed:
                    self.dispatcher.abandon(message)

    def is_drained(self, inboxes: list[Inbox], revision: int) -> bool:
        """Return whether all messages that were published before `begin_drain` are handled."""
        return super().is_drained(inboxes, revision) and all(
            runner.lanes.is_idle for runner in runners_of(inboxes)
        )

    def runners(self) -> list[Runner]:
        """Return the runners of the handlers."""
        with self.lock:
            return runners_of(self.dispatcher.inboxes)


def runners_of(inboxes: Iterable[Inbox]) -> list[Runner]:
    """Return the runners of the handlers of subscriptions."""
    return [inbox.handler for inbox in inboxes if isinstance(inbox.handler, Runner)]
