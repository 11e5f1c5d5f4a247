"""Requests of a node: state machine that matches replies to requests, and handles retries and timeouts.

Theory of operation
-------------------
A request is an ordinary message. `Responders` picks the streams in which it is sent: each plain stream that matches,
and one member of each group (see `oz.node.responders`). The `reply_to` of the request names this node and the request:
`_INBOX.<node id in hex>.<number>`. A session delivers a message even after a reconnect. Therefore a request is sent
only once in each stream. A stream in which the request was sent is a *holder* of the request.

A reply is a direct message whose subject is the `reply_to`. A reply counts only if it comes from a peer to which the
request was sent. Therefore a peer cannot answer a request that it did not receive. A group with redelivery may move a
request to another member. If such a group has the request, any peer may answer.

The first reply ends a request. Programs that only observe the bus, and forwarders, receive requests too. Therefore an
error reply ends the request only if no other stream holds the request. One peer may receive a request in several
streams. If the group member that holds a request is lost, the request is lost too: the plain streams that hold the
request belong to programs that only observe.

Each request ends exactly once: with its last reply, with an error, or at its deadline. A request with `is_many` that
has a holder ends at its deadline without an error.

A request without a responder fails at once, unless a peer is *greeting*: a new peer may still declare subscriptions.
Then the request waits for the next call of `changed`.

States and events. "–" means no effect. "Many" means a request with `is_many`.

======================= =============================== ===================================================
event                   WAITING (no holder)             HELD
======================= =============================== ===================================================
changed, a responder    HELD                            –
changed, no responder,  ends: NoResponders              –
no peer is greeting
reply of a holder       –                               reply; ends, if one is expected or `limit` is met
denied by a holder      –                               other holders: –; many with a reply: ends; else ends: error
error reply of a holder –                               many: as a reply; other holders: –; else ends: error
any other reply         –  (late)                       –  (late)
session of a holder     –                               other holders, and (many, or no group lost a member): –;
ends                                                    replies have arrived: ends; retries left: HELD by others;
                                                        else ends: PeerLost
deadline                ends: Timeout                   many: ends; else ends: Timeout
cancel                  removed                         removed
======================= =============================== ===================================================

A lost peer may have handled the request. Therefore a request with retries may be handled more than once. A retry does
not extend the deadline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from oz.errors import NoResponders, OzError, PeerLost, PermissionDenied, ReplyError, Timeout, WouldBlock

if TYPE_CHECKING:
    from oz.security.permissions import Permissions

MAX_REQUESTS = 65_536
"""Maximum number of open requests."""
INBOX = "_INBOX."
"""Start of the subjects for replies."""
_ID_DIGITS = 32


class Content(NamedTuple):
    """Message of a request.

    Attributes:
        subject: subject as text.
        raw: subject as bytes.
        payload: encoded payload.
        extras: map that is sent with the payload, or None.
        key: key by which sticky groups pick a member; None to use the subject.
        route: route of the request; None for the route of the subject. A request with a route does not wait for a
            responder.
    """

    subject: str
    raw: bytes
    payload: bytes = b""
    extras: dict[str, Any] | None = None
    key: bytes | None = None
    route: Any = None


class Request:
    """One request. As an effect, it means that the request has a new reply or has ended.

    Attributes:
        reply_to: subject of the replies.
        content: message that is sent.
        deadline: time in seconds at which the request ends.
        is_many: whether the request expects the replies of several peers.
        holders: streams in which the request was sent. A stream is removed when it is lost, or when its peer denies the
            request or sends an error reply.
        failure: last error reply of a former holder, while other holders may still reply; else None.
        replies: replies that the caller has not received.
        error: error that ended the request, or None.
        has_ended: whether no further reply can come.
        notify: function that the engine calls when the request has a new reply or has ended.
        asked_at: time in seconds at which the request was last sent.
        has_denied: whether permissions have denied a reply to the request.
    """

    __slots__ = (
        "_admitted", "_count", "_left", "_lost", "_retries", "asked_at", "content", "deadline", "error",
        "failure", "has_denied", "has_ended", "holders", "is_many", "notify", "replies", "reply_to",
    )  # fmt: skip

    def __init__(
        self,
        reply_to: str,
        content: Content,
        deadline: float,
        retries: int,
        left: int | None,
        *,
        is_many: bool,
    ) -> None:
        self.reply_to, self.content, self.is_many = reply_to, content, is_many
        self.deadline, self._retries, self._left, self._count = deadline, retries, left, 0
        self._lost: list[bytes] = []
        self._admitted: dict[str, int] | None = None
        self.asked_at, self.has_denied = 0.0, False
        self.holders: Sequence[Any] = ()
        self.replies: deque[Any] = deque()
        self.error: OzError | None = None
        self.failure: OzError | None = None
        self.has_ended = False
        self.notify: Callable[[], object] = bool

    def admits(self, key: str, permissions: Permissions, now: float) -> bool:
        """Return whether the permissions allow one more reply from a key. Count the reply if they do.

        Args:
            key: public key of the responder.
            permissions: permissions of this node.
            now: time in seconds.
        """
        if self._admitted is None:
            self._admitted = {}
        count, age = self._admitted.get(key, 0), now - self.asked_at
        if not permissions.may_reply(permissions.user_of(key), self.content.raw, count, age):
            return False
        self._admitted[key] = count + 1
        return True


class Send(NamedTuple):
    """Effect: send a request in a stream.

    Attributes:
        stream: stream in the session of a peer.
        request: request to send.
    """

    stream: Any
    request: Request


Effect = Send | Request


class Responders(Protocol):
    """Choice of the streams that receive a request. A stream has the attributes of `oz.publisher.session.Stream`."""

    @property
    def is_greeting(self) -> bool:
        """Whether a new peer may still declare subscriptions."""

    def all(self, content: Content, excluded: Collection[bytes], now: float) -> Sequence[Any]:
        """Return the streams that receive a request: all matching plain streams, and one stream of each group.

        Args:
            content: content of the request.
            excluded: ids of peers that were lost while they had the request.
            now: time in seconds.

        Raises:
            WouldBlock: each matching stream is full.
        """

    def name(self, node: bytes) -> str:
        """Return the name of a peer."""


class Requests:
    """Requests of a node that have not ended.

    Attributes:
        late: number of replies that no request expects.
    """

    def __init__(self, node: bytes, responders: Responders, *, max_requests: int = MAX_REQUESTS) -> None:
        """Start without requests.

        Args:
            node: id of this node.
            responders: object that chooses the streams which receive a request.
            max_requests: maximum number of open requests.
        """
        self._responders, self._max_requests = responders, max_requests
        self._inbox = f"{INBOX}{node.hex()}."
        self._open: dict[str, Request] = {}
        self._waiting: dict[str, Request] = {}
        self._deadlines: list[tuple[float, str]] = []
        self._number = 0
        self.late = 0

    def __len__(self) -> int:
        return len(self._open)

    def request(
        self,
        content: Content,
        now: float,
        *,
        timeout: float | None = 1.0,
        retries: int = 0,
        limit: int | None = None,
        is_many: bool = False,
    ) -> tuple[Request, list[Effect]]:
        """Send a request.

        Args:
            content: content of the request.
            now: time in seconds.
            timeout: seconds for all attempts together; None waits for ever.
            retries: maximum number of retries. The request is sent to other responders if the group member that holds
                it, or the last holder, is lost.
            limit: number of replies after which a request with `is_many` ends.
            is_many: whether the request ends after `limit` replies or `timeout` seconds, instead of after one reply.

        Returns:
            The request, and the effects for the engine.

        Raises:
            NoResponders: no peer has a matching subscription.
            WouldBlock: too many requests have not ended, or each matching stream is full.
        """
        if len(self._open) >= self._max_requests:
            raise WouldBlock(f"{len(self._open)} requests have no reply yet: wait for some of them")
        deadline = float("inf") if timeout is None else now + timeout
        self._number += 1
        reply_to = f"{self._inbox}{self._number}"
        request = Request(reply_to, content, deadline, retries, limit if is_many else 1, is_many=is_many)
        effects = self._send(request, now)
        if not effects:
            if not self._may_wait(request):
                raise self._no_responders(request)
            self._waiting[reply_to] = request
        self._open[reply_to] = request
        if timeout is not None:
            heappush(self._deadlines, (deadline, reply_to))
        return request, effects

    def _send(self, request: Request, now: float) -> list[Effect]:
        """Send a request in each chosen stream that does not hold it. The result is empty if all chosen streams do."""
        request.asked_at = now
        held = request.holders
        found = [
            item for item in self._responders.all(request.content, request._lost, now) if item not in held
        ]
        request.holders = [*held, *found]
        return [Send(stream, request) for stream in found]

    def _may_wait(self, request: Request) -> bool:
        return request.content.route is None and self._responders.is_greeting

    @staticmethod
    def _no_responders(request: Request) -> NoResponders:
        return NoResponders(
            f"no node has a subscription for {request.content.subject!r}: wait for one with "
            f"wait_ready(subscriber={request.content.subject!r})"
        )

    def _end(self, request: Request, error: OzError | None) -> Request:
        request.error, request.has_ended = error, True
        del self._open[request.reply_to]
        if self._waiting:
            self._waiting.pop(request.reply_to, None)
        # An entry in the middle of a heap cannot be removed. Therefore the heap is replaced when most of its entries
        # belong to ended requests.
        if len(self._deadlines) > 64 + 2 * len(self._open):
            self._deadlines = sorted(entry for entry in self._deadlines if entry[1] in self._open)
        return request

    @property
    def is_waiting(self) -> bool:
        """Whether a request waits for a responder."""
        return bool(self._waiting)

    def find(self, reply_to: str) -> Request | None:
        """Return the request that a reply answers; None if the request has ended."""
        return self._open.get(reply_to)

    def changed(self, now: float) -> list[Effect]:
        """Send the waiting requests that have a responder now. Subscriptions or links have changed."""
        effects: list[Effect] = []
        for request in list(self._waiting.values()):
            effects += self._retry(request, now, None)
        return effects

    def _retry(self, request: Request, now: float, loss: OzError | None) -> list[Effect]:
        """Send a request that has no holder, or that has lost a holder.

        Args:
            request: request to send.
            now: time in seconds.
            loss: error with which the request ends if no responder is found; None if the request may wait for one.
        """
        try:
            sent = self._send(request, now)
        except OzError as error:
            # The error means that all matching streams are full, or that the node closes.
            return [self._end(request, error)]
        if sent:
            self._waiting.pop(request.reply_to, None)
            return sent
        if loss is None and self._may_wait(request):
            return []
        return [self._end(request, loss or self._no_responders(request))]

    def on_reply(self, node: bytes, subject: str, message: Any) -> list[Request]:
        """Add a reply to its request; return the request if it has a new reply or has ended.

        Args:
            node: id of the peer that sent the reply.
            subject: subject of the reply.
            message: the reply.
        """
        request = self._open.get(subject)
        if request is None or not _may_reply(request, node):
            self.late += 1
            return []
        is_denied = isinstance(message, PermissionDenied)
        if is_denied or (isinstance(message, ReplyError) and not request.is_many):
            request.failure = message
            request.holders = _without_one(request.holders, node)
            return [] if request.holders else [self._end(request, None if request._count else message)]
        request._count += 1
        request.replies.append(message)
        return [self._end(request, None) if request._count == request._left else request]

    def session_ended(self, session: Any, now: float) -> list[Effect]:
        """Record the end of a session. The peer is lost, has closed, or has a new session."""
        effects: list[Effect] = []
        for request in list(self._open.values()):
            lost = [holder for holder in request.holders if holder.session is session]
            if not lost:
                continue
            held = request.holders = [holder for holder in request.holders if holder.session is not session]
            if held and (request.is_many or not _loses_group(lost, held)):
                continue
            if request._count:
                effects.append(self._end(request, None))
                continue
            request._lost.append(session.member)
            loss = request.failure or PeerLost(request.content.subject, self._responders.name(session.member))
            if request._retries:
                request._retries -= 1
                effects += self._retry(request, now, loss)
            else:
                effects.append(self._end(request, loss))
        return effects

    def fail(self, request: Request, error: OzError) -> list[Effect]:
        """Record that a stream did not accept a request. End the request if no other stream holds it."""
        if request.has_ended or len(request.holders) > 1:
            return []
        return [self._end(request, error)]

    def end_all(self, error: OzError) -> list[Effect]:
        """End all requests with an error when the node closes."""
        return [self._end(request, error) for request in list(self._open.values())]

    def cancel(self, request: Request) -> None:
        """Cancel a request whose caller has stopped waiting."""
        if not request.has_ended:
            self._end(request, None)

    def tick(self, now: float) -> list[Effect]:
        """End the requests whose timeout has passed, and send the waiting requests that have a responder now."""
        effects: list[Effect] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, reply_to = heappop(self._deadlines)
            request = self._open.get(reply_to)
            if request is not None:
                effects.append(self._end(request, self._timeout(request)))
        # The greeting time of a peer may have passed. Then a request that waits for this peer ends now.
        return effects + self.changed(now) if self._waiting else effects

    def _timeout(self, request: Request) -> OzError | None:
        if request.is_many and request.holders:
            return None
        if request.failure is not None:
            return request.failure
        nodes = dict.fromkeys(holder.session.member for holder in request.holders)
        names = ", ".join(repr(self._responders.name(node)) for node in nodes)
        where = "no peer has announced a subscription for it"
        if names:
            where = (
                f"node {names} has it. Its handler still runs, or returned None without message.reply(), or "
                "the node does not permit the request"
            )
        return Timeout(f"no reply to the request to {request.content.subject!r}: {where}")

    def next_deadline(self) -> float | None:
        """Return the time at which `tick` must run next; None without deadlines."""
        while self._deadlines and self._deadlines[0][1] not in self._open:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None


def _loses_group(lost: Sequence[Any], held: Sequence[Any]) -> bool:
    """Return whether a group member was lost, and no other group member holds the request.

    Args:
        lost: streams of the ended session that held the request.
        held: other streams that hold the request.
    """
    return any(stream.group is not None for stream in lost) and all(stream.group is None for stream in held)


def _without_one(holders: Sequence[Any], node: bytes) -> list[Any]:
    """Return the holders without one stream of a node: a plain stream if the node has one, else a stream of a group.

    Plain streams are removed first, because they may belong to programs that only observe.
    """
    streams = [holder for holder in holders if holder.session.member == node]
    failed = next((stream for stream in streams if stream.group is None), streams[0] if streams else None)
    return [holder for holder in holders if holder is not failed]


def _may_reply(request: Request, node: bytes) -> bool:
    return any(holder.session.member == node or holder.redelivers for holder in request.holders)


def inbox_node(subject: str) -> bytes | None:
    """Return the id of the node in the subject of an inbox; None if the subject does not name an inbox."""
    start = len(INBOX)
    if not subject.startswith(INBOX) or subject[start + _ID_DIGITS : start + _ID_DIGITS + 1] != ".":
        return None
    try:
        node = bytes.fromhex(subject[start : start + _ID_DIGITS])
    except ValueError:
        return None
    # Check the length, because `fromhex` skips spaces.
    return node if len(node) * 2 == _ID_DIGITS else None
