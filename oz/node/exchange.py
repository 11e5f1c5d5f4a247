"""Requests and replies of a node. The publisher of the node sends them, and the subscriber receives them.

Theory of operation
-------------------
The caller registers a request under `lock`, and sends the request in streams of the publisher. The subscriber receives
the reply as a direct message. An engine holds its lock when it reports a reply or an event of a session. Therefore
replies and events are only appended to queues. The attending side (`oz.node.engine`) calls `turn`, which passes the
entries of these queues to the state machines of `oz.node.requests` and `oz.node.replies`. While `turn` notifies a
caller, it holds no lock.

A thread acquires `lock` before the lock of the publisher or of the roster. A thread that waits for a reply ends its
request at the deadline. In an event loop, `turn` ends each request whose deadline has passed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from oz.errors import ClosedError, OzError, PermissionDenied, ProtocolError, ReplyError, WouldBlock
from oz.logs import peer_logger
from oz.message import Extras
from oz.node.handlers import Pool, Runner
from oz.node.replies import ERROR, Reply, WaitingReplies, decode_error, encode_error
from oz.node.requests import Content, Effect, Request, Requests, Send, inbox_node
from oz.node.responders import StreamResponders
from oz.publisher.engine import Engine as PublisherEngine
from oz.publisher.engine import Outgoing, _as_bytes, _too_large
from oz.publisher.routing import Route
from oz.publisher.session import Session
from oz.security.identity import is_same_key
from oz.subscriber.link import Link
from oz.subscriber.message import Arrival, Message
from oz.subscriber.queue import Direct
from oz.wire import links
from oz.wire.extras import REPLY_TO, TO_ALL, check_extras, decode_extras

if TYPE_CHECKING:
    from oz.wire.codec import Codec

GREETING_INTERVAL = 0.1
"""Seconds between two calls of `turn` while a request waits for a responder, or a reply waits for a session."""
SLOW_INTERVAL = 1.0
"""Seconds between two checks for slow handlers."""
REPLY_DELAY = 0.0005
"""Maximum seconds that a reply of an inline handler waits for further replies, which are sent in the same batch."""
DECLARE_TIME = 0.5
"""Seconds after the HELLO of a new session in which its subscriptions may still arrive."""

_log = peer_logger("oz.node")


class Exchange:
    """Requests, replies and handlers of one node.

    Attributes:
        finished: value that `Message.reply` returns: None for threads, an awaitable object for asyncio.
        schedule: function that is called with the deadline of each new request. The loop calls `turn` at this deadline.
        is_urgent: whether the attending side must send waiting requests or replies in its next call.
        inline: messages that wait for inline handlers.
        attending: id of the thread that attends to the node.
        failed: number of handler calls that raised an exception.
        overflowed: number of messages that did not reach a handler because its queue was full.
        lost_replies: number of replies that could not be sent.
    """

    def __init__(
        self,
        node: bytes,
        publisher: PublisherEngine,
        *,
        pool: Pool,
        codec: Codec | None,
        shows_errors: bool,
        greets: Callable[[], bool],
        has_session: Callable[[bytes], bool],
        runners: Callable[[], Iterable[Runner]],
        on_slow: Callable[[Runner, float, int], object],
        on_idle: Callable[[], object],
        has_keys: bool = False,
    ) -> None:
        """Start without requests.

        Args:
            node: id of this node.
            publisher: publisher of this node.
            pool: workers that call the handlers.
            codec: codec for payloads, or None.
            shows_errors: whether an error reply has the class and the text of the exception.
            greets: function that returns whether a new peer may still declare subscriptions.
            has_session: function that returns whether the node with an id has a session at this node.
            runners: function that returns the runners of all subscriptions.
            on_slow: function that is called with a slow handler's runner, the seconds that its oldest message has
                waited, and the number of dropped messages.
            on_idle: function that is called when a worker finds its lane empty.
            has_keys: whether the nodes have keys. Then the id of a node contains a hash of its key.
        """
        self._node, self._publisher, self._codec = node, publisher, codec
        self._pool = pool
        self._shows_errors, self._on_slow = shows_errors, on_slow
        self._has_session, self._runners = has_session, runners
        self.handler_ended, self._has_keys = on_idle, has_keys
        self._clock = publisher.runtime.clock
        self._wall_clock_ns: Callable[[], int] = publisher.runtime.time_ns
        self.lock = threading.Lock()
        self._names: dict[bytes, str] = {}
        self._young: dict[Session, float] = {}
        responders = StreamResponders(
            publisher.responders,
            lambda: greets() or self._has_young(),
            self._name,
            publisher.lock,
            publisher.cached_route,
        )
        self._requests = Requests(node, responders)
        self._replies = WaitingReplies()
        self._arrived: deque[tuple[Link, Sequence[tuple[str, bytes | PermissionDenied, Any]]]] = deque()
        self._sessions: deque[tuple[Session, str, bytes]] = deque()
        self._forgotten: deque[Request] = deque()
        self._slow_at = -inf
        # Before this time, `turn` need not end requests.
        self._expire_at = inf
        # Number of requests that ended in the last turn. The program often sends this number of requests next.
        self._answered = 0
        self.finished: Any = None
        self.schedule: Callable[[float], object] = bool
        self.attending = 0
        self.is_urgent, self._urgent_at = False, 0.0
        self.inline: Collection[Any] = ()
        self.failed = self.overflowed = self.lost_replies = 0

    @property
    def counters(self) -> dict[str, int]:
        """The counters of requests and replies in `NodeStats`."""
        return {
            "requests": len(self._requests),
            "late_replies": self._requests.late,
            "lost_replies": self.lost_replies + self._replies.given_up,
        }

    def _has_young(self) -> bool:
        """Return whether a session is new and has not declared subscriptions yet."""
        now = self._clock()
        return any(now < end and not session.applied for session, end in list(self._young.items()))

    def _name(self, node: bytes) -> str:
        return self._names.get(node) or node.hex()

    # Requests of this node.

    def begin(
        self,
        message: Outgoing,
        notify: Callable[[], object],
        *,
        timeout: float | None,
        retries: int = 0,
        limit: int | None = None,
        is_many: bool = False,
        route: Route | None = None,
    ) -> Request:
        """Send a request.

        Args:
            message: message to send.
            notify: function that is called, in any thread, when a reply has arrived or the request has ended.
            timeout: seconds for all attempts together; None waits for ever.
            retries: maximum number of retries. If its responder is lost, the request is sent to another responder.
            limit: number of replies after which a request to many nodes ends; None for no limit.
            is_many: whether all responders receive the request.
            route: route of the request; None for the route of its subject.

        Raises:
            NoResponders: no peer has a matching subscription.
            WouldBlock: too many requests have not ended, or each matching stream is full.
            ClosedError, OwnershipError: the node is closed, or was created before a fork.
        """
        now, content = self._clock(), Content(*message, route)
        with self.lock:
            request, effects = self._requests.request(
                content, now, timeout=timeout, retries=retries, limit=limit, is_many=is_many
            )
            request.notify = notify
        if effects:
            self._act(effects)
        else:
            self._publisher.wake()
        if timeout is not None:
            self._expire_at = min(self._expire_at, now + timeout)
            self.schedule(now + timeout)
        return request

    def _act(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if type(effect) is Request:
                effect.notify()
            elif type(effect) is Send:
                self._send(effect)

    def _send(self, send: Send) -> None:
        request, stream = send.request, send.stream
        content = request.content
        extras: dict[str, Any] = {REPLY_TO: request.reply_to}
        if request.is_many:
            extras[TO_ALL] = True
        if content.extras is not None:
            extras = {**content.extras, **extras}
        is_alone = max(self._answered, len(self._requests)) < 2
        if not is_alone:
            self.is_urgent = True
        try:
            if self._publisher.send_in(stream, content.raw, content.payload, extras, is_alone=is_alone):
                return
            error: OzError = WouldBlock(
                f"the request to {content.subject!r} was not sent: {self._name(stream.session.member)!r} is full"
            )
            if stream.session.has_ended:
                # `turn` informs the request about the end of the session.
                return
        except OzError as failure:
            error = failure
        with self.lock:
            effects = self._requests.fail(request, error)
        self._act(effects)

    def cancel(self, request: Request) -> None:
        """Cancel a request whose caller has stopped waiting."""
        with self.lock:
            self._requests.cancel(request)

    def forget(self, request: Request) -> None:
        """Cancel a request at the next turn.

        Garbage collection may call this method in any thread, even in a thread that holds `lock`.
        """
        if not request.has_ended:
            self._forgotten.append(request)

    def expire(self) -> float | None:
        """End the requests whose timeout has passed; return the next deadline."""
        with self.lock:
            effects = self._requests.tick(self._clock())
            deadline = self._requests.next_deadline()
        self._act(effects)
        return deadline

    def seconds_left(self, request: Request) -> float | None:
        """Return the seconds until the deadline of a request; None if it has no deadline."""
        deadline = request.deadline
        return None if deadline == inf else max(deadline - self._clock(), 0.0)

    def end_requests(self, error: OzError) -> None:
        """End all requests with an error when the node closes."""
        with self.lock:
            effects = self._requests.end_all(error)
        self._act(effects)

    def find(self, reply_to: str) -> Request | None:
        """Return the request to which a reply belongs; None if the request has ended. The caller needs no lock."""
        return self._requests.find(reply_to)

    # Replies of this node.

    def reply(self, message: Message, payload: Any = b"", headers: dict[str, Any] | None = None) -> Any:
        """Send a reply to a request; see `Message.reply`.

        Raises:
            ReplyError: the message is no request from a node.
            WouldBlock: the requester is too slow.
            TypeError, ValueError: payload or headers are not allowed.
            ClosedError, OwnershipError: the node is closed, or was created before a fork.
        """
        reply_to = self._inbox_of(message)
        extras = None if headers is None else check_extras(Extras(headers)) or None
        return self.send_reply(reply_to, self._encode(payload), extras)

    def _inbox_of(self, message: Message) -> str:
        """Return the subject for the replies to a request.

        Raises:
            ReplyError: the message is no request, or its inbox does not belong to the key of its sender.
        """
        reply_to = message.reply_to
        if reply_to is None:
            raise ReplyError(f"{message.subject!r} is no request: it has no subject to reply on")
        if self._has_keys and not is_same_key(inbox_node(reply_to), message.origin):
            # Without a file of permissions, only this check refuses the message. With a file, the subscriber has
            # already refused it.
            raise ReplyError(f"{message.subject!r} asks for a reply in the inbox of a node with another key")
        return reply_to

    def send_reply(
        self, reply_to: str, payload: bytes, extras: dict[str, Any] | None, *, is_alone: bool = True
    ) -> Any:
        """Send a direct message to the inbox of a node.

        Args:
            reply_to: subject of the inbox.
            payload: encoded payload.
            extras: result of `check_extras`, or None.
            is_alone: whether no further reply is expected soon. If it is true, the reply does not wait for a batch.

        Raises:
            ReplyError: the subject is not the inbox of a node.
            WouldBlock: the requester is too slow.
            ClosedError, OwnershipError: the node is closed, or was created before a fork.
        """
        node = inbox_node(reply_to)
        if node is None:
            raise ReplyError(f"{reply_to!r} is not the inbox of a node: it begins with '_INBOX.' and an id")
        is_alone = is_alone and self._pool.is_alone and not self.inline
        is_sent = self._publisher.direct(node, reply_to, payload, extras, is_alone=is_alone)
        if self.attending == threading.get_ident() and self._publisher.waiting:
            self._send_soon()
        if is_sent is None:
            with self.lock:
                is_sent = self._replies.add(node, Reply(reply_to, payload, extras), self._clock())
            # The session may have begun after the call of `direct`. Therefore `turn` checks at once.
            self._publisher.wake()
        elif not is_sent:
            self.lost_replies += 1
        if not is_sent:
            raise WouldBlock(f"the reply was not sent: node {self._name(node)!r} is too slow")
        return self.finished

    def _send_soon(self) -> None:
        """Send the replies of inline handlers together, after the last handler or after `REPLY_DELAY`."""
        now = self._clock()
        if not self.is_urgent:
            self.is_urgent, self._urgent_at = True, now
        elif now - self._urgent_at >= REPLY_DELAY:
            self.is_urgent = False
            self._publisher.flush_due()

    def _encode(self, payload: Any) -> bytes:
        value = payload if self._codec is None else self._codec.encode(payload)
        encoded = value if type(value) is bytes else _as_bytes(value)
        if len(encoded) > self._publisher.max_message_bytes:
            raise _too_large(len(encoded), self._publisher.max_message_bytes)
        return encoded

    # Results of handlers.

    def answer(self, message: Message, value: Any, *, is_alone: bool = True) -> None:
        """Send the return value of a handler as a reply, if the message is a request.

        Args:
            message: message that the handler was called with.
            value: return value of the handler.
            is_alone: whether no further reply is expected soon; see `send_reply`.
        """
        if message.reply_to is None:
            return
        try:
            self.send_reply(self._inbox_of(message), self._encode(value), None, is_alone=is_alone)
        except ClosedError:
            pass
        except Exception as error:
            _log.warning("the result of the handler for %r was not sent: %s", message.subject, error)
            if not isinstance(error, (WouldBlock, ReplyError)):
                self._send_error(message, error)

    def handler_failed(self, handler: Any, message: Message, error: BaseException) -> None:
        """Log and count the exception of a handler, and send it to the requester."""
        if isinstance(error, ClosedError) and self._publisher.is_closing:
            # The node closed while the handler ran.
            return
        self.failed += 1
        _log.error("a handler raised for %r: %r", message.subject, handler, exc_info=error)
        if message.reply_to is not None:
            self._send_error(message, error)

    def _send_error(self, message: Message, error: BaseException) -> None:
        extras = {ERROR: encode_error(error, is_hidden=not self._shows_errors)}
        try:
            self.send_reply(self._inbox_of(message), b"", extras)
        except OzError as failure:
            _log.warning("the error reply for %r was not sent: %s", message.subject, failure)

    # Callbacks: an engine calls these methods while it holds its lock.

    def on_direct(self, link: Link, messages: list[Direct]) -> None:
        """Queue replies, which `turn` handles."""
        self._arrived.append((link, messages))

    def refuse(self, link: Link, reply: Direct, error: PermissionDenied) -> None:
        """Queue the error for a reply that the permissions of this node deny.

        `turn` then ends the request without a reply from this peer.
        """
        self._arrived.append((link, [(reply[0], error, None)]))

    def on_session(self, session: Session, what: str) -> None:
        """Queue an event of a session, which `turn` handles."""
        self._sessions.append((session, what, session.card))

    def deny(self, node: bytes, reply_to: str, error: PermissionDenied) -> None:
        """Record that a peer denies a request.

        Args:
            node: id of the peer.
            reply_to: inbox of the denied request.
            error: error for the caller of the request.
        """
        with self.lock:
            effects = self._requests.on_reply(node, reply_to, error)
        self._act(effects)

    # Methods of the attending side.

    def turn(self, now: float) -> None:
        """Handle queued replies and events. Send waiting replies, and end the requests whose deadline has passed."""
        self.attending = threading.get_ident()
        answered: Sequence[Request] = self._read_replies() if self._arrived else ()
        while self._forgotten:
            self.cancel(self._forgotten.popleft())
        while self._sessions:
            self._on_event(*self._sessions.popleft(), now)
        if len(self._replies):
            self._send_waiting(now)
        if self._requests.is_waiting:
            with self.lock:
                effects = self._requests.changed(now)
            self._act(effects)
        if now >= self._slow_at:
            self._slow_at = now + SLOW_INTERVAL
            self._young = {key: end for key, end in self._young.items() if now < end}
            self._report_slow()
            # Another thread may have sent a request while this thread set the time.
            self._expire_at = now
        if now >= self._expire_at:
            self._expire_at = self.expire() or inf
        self._act(answered)

    def _read_replies(self) -> list[Request]:
        effects: list[Request] = []
        on_reply = self._requests.on_reply
        while self._arrived:
            link, messages = self._arrived.popleft()
            node = link.origin or b""
            replies = [
                (subject, self._read_reply(node, subject, payload, extras))
                for subject, payload, extras in messages
            ]
            with self.lock:
                for subject, reply in replies:
                    effects += on_reply(node, subject, reply)
        self._answered = len(effects)
        return effects

    def _read_reply(
        self, node: bytes, inbox: str, payload: bytes | PermissionDenied, extras: Any
    ) -> Message | ReplyError | PermissionDenied | None:
        if isinstance(payload, PermissionDenied):
            return payload
        request = self._requests.find(inbox)
        if request is None:
            # The reply is late. `on_reply` counts it, and needs no decoded payload.
            return None
        asked = request.content.subject
        if extras is not None and ERROR in extras:
            return decode_error(extras[ERROR], asked, self._name(node))
        try:
            fields = None if extras is None else decode_extras(extras)
            value = payload if self._codec is None else self._codec.decode(payload)
        except Exception as error:
            # A codec may raise any exception.
            text = f"the reply of node {self._name(node)!r} does not decode: {error}"
            return ReplyError(text, subject=asked, kind=type(error).__name__, node=self._name(node))
        arrival = Arrival(node, self._wall_clock_ns())
        return tuple.__new__(Message, (inbox, value, None, arrival, 0, fields, payload))

    def _on_event(self, session: Session, what: str, card: bytes, now: float) -> None:
        if what == "up" and card:
            with suppress(ProtocolError):
                self._names[session.member] = links.decode_card(card).name
            if not session.applied:
                self._young[session] = now + DECLARE_TIME
        elif what == "declared":
            self._young.pop(session, None)
        elif what == "ended":
            self._young.pop(session, None)
            with self.lock:
                effects = self._requests.session_ended(session, now)
            self._act(effects)
            if not self._has_session(session.member):
                self._names.pop(session.member, None)

    def _send_waiting(self, now: float) -> None:
        """Send the waiting replies whose requester has a session now, and drop replies that have waited too long."""
        with self.lock:
            found = self._replies.pop_ready(now, self._has_session)
        for node, reply in found:
            try:
                if not self._publisher.direct(node, *reply):
                    self.lost_replies += 1
            except (ValueError, OzError) as error:
                self.lost_replies += 1
                _log.warning("a reply to node %r was not sent: %s", self._name(node), error)

    def _report_slow(self) -> None:
        now_ns = self._wall_clock_ns()
        for runner in self._runners():
            found = runner.lanes.slowness(now_ns)
            if found is not None:
                self._on_slow(runner, *found)

    def next_deadline(self, now: float) -> float:
        """Return the time at which `turn` must run next; infinity if no request and no reply waits."""
        is_waiting = self._requests.is_waiting or len(self._replies)
        return min(self._expire_at, now + GREETING_INTERVAL if is_waiting else inf)
