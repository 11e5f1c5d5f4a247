"""Requests of a node: which peer holds each request, replies, retries, timeouts.

Theory of operation
-------------------
A request goes to a peer as a message of stream 0 of the peer's session. Its number identifies it in replies. The
session delivers it over reconnections, so that a request is sent once to each *holder*. Each request ends
exactly once, by its last reply, by an error, or (with `many`) without an error.

`Responders` picks peers, as a group picks members. A subject without a responder fails at once, unless a link
is greeting: then the request waits until `changed`, because the link may bring a subscription.

States and events. "–" means no effect.

======================= =============================== ===================================================
event                   WAITING (no holder)             HELD
======================= =============================== ===================================================
changed, a responder    HELD                            –
changed, none, no link  ends: NoResponders              –
is greeting
reply of a holder       –                               reply; ends, if one is expected or `limit` is met
other reply             –  (late)                       –  (late)
holder is lost          –                               other holders: –; retries: HELD by another member;
                                                        replies arrived: ends; else ends: PeerLost
deadline                ends: Timeout                   many: ends; else ends: Timeout
cancel                  removed                         removed
======================= =============================== ===================================================

A peer that is lost may have run the request: retries are at least once. Retries do not move the deadline.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple, Protocol

from oz.errors import NoResponders, OzError, PeerLost, Timeout, WouldBlock

MAX_REQUESTS = 65_536
"""Requests without an end at most."""


class Send(NamedTuple):
    """Effect: send a request to a peer.

    Attributes:
        node: id of the peer.
        number: of the request.
        content: of the request.
    """

    node: bytes
    number: int
    content: Content


class Reply(NamedTuple):
    """Effect: a reply arrived.

    Attributes:
        number: of the request.
        message: the reply.
    """

    number: int
    message: Any


class Ended(NamedTuple):
    """Effect: a request has ended.

    Attributes:
        number: of the request.
        error: None if all expected replies have arrived.
    """

    number: int
    error: OzError | None


Effect = Send | Reply | Ended


class Content(NamedTuple):
    """What a request asks.

    Attributes:
        subject: of the request.
        payload: encoded.
        headers: of the request.
        key: for sticky groups; the subject if None.
    """

    subject: str
    payload: bytes = b""
    headers: dict[str, Any] | None = None
    key: bytes | None = None


class Responders(Protocol):
    """Subscriptions of the peers. `publisher.groups.Group` picks, over one stream for each session."""

    @property
    def is_greeting(self) -> bool:
        """Whether a link may bring subscriptions that are not known yet."""

    def pick(self, content: Content, excluded: Collection[bytes], now: float) -> bytes | None:
        """Return a peer with a matching subscription, None without one.

        Args:
            content: of the request.
            excluded: peers that were lost with the request.
            now: in seconds.

        Raises:
            WouldBlock: stream 0 of the chosen session is full.
        """

    def all(self, content: Content, now: float) -> Sequence[bytes]:
        """Return all peers with a matching subscription, and one member of each group.

        Raises:
            WouldBlock: stream 0 of a chosen session is full.
        """

    def name(self, node: bytes) -> str:
        """Return the name of a peer."""


class _Request:
    __slots__ = ("content", "deadline", "holders", "left", "lost", "many", "replies", "retries")

    def __init__(
        self, content: Content, deadline: float, retries: int, left: int | None, *, many: bool
    ) -> None:
        self.content, self.deadline, self.retries, self.left = content, deadline, retries, left
        self.many = many
        self.holders: list[bytes] = []
        self.lost: list[bytes] = []
        self.replies = 0


class Requests:
    """Requests of a node that have not ended.

    Attributes:
        late: replies that no request expects.
    """

    def __init__(self, responders: Responders, *, max_requests: int = MAX_REQUESTS) -> None:
        """Start without requests.

        Args:
            responders: subscriptions of the peers.
            max_requests: requests without an end at most.
        """
        self._responders, self._max_requests = responders, max_requests
        self._open: dict[int, _Request] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._number = 0
        self.late = 0

    def __len__(self) -> int:
        """Return the number of requests that have not ended."""
        return len(self._open)

    def request(
        self, content: Content, now: float, *, timeout: float | None = 1.0, retries: int = 0
    ) -> tuple[int, list[Effect]]:
        """Send a request to one responder.

        Args:
            content: of the request.
            now: in seconds.
            timeout: seconds for all tries; None waits for ever.
            retries: times that the request goes to another responder after the loss of its holder.

        Returns:
            Number of the request, and effects.

        Raises:
            NoResponders: no peer has a matching subscription.
            WouldBlock: too many requests have not ended, or the chosen session is full.
        """
        return self._begin(content, now, timeout, retries, 1, many=False)

    def request_many(
        self, content: Content, now: float, *, timeout: float | None = 1.0, limit: int | None = None
    ) -> tuple[int, list[Effect]]:
        """Send a request to all responders; it ends after `limit` replies or `timeout` seconds.

        Raises:
            NoResponders: no peer has a matching subscription.
            WouldBlock: too many requests have not ended, or a chosen session is full.
        """
        return self._begin(content, now, timeout, 0, limit, many=True)

    def _begin(
        self,
        content: Content,
        now: float,
        timeout: float | None,
        retries: int,
        left: int | None,
        *,
        many: bool,
    ) -> tuple[int, list[Effect]]:
        if len(self._open) >= self._max_requests:
            raise WouldBlock(f"{len(self._open)} requests have no reply yet: wait for some of them")
        deadline = float("inf") if timeout is None else now + timeout
        request = _Request(content, deadline, retries, left, many=many)
        self._number += 1
        number = self._number
        effects = self._send(number, request, now)
        if not effects and not self._responders.is_greeting:
            raise self._no_responders(request)
        self._open[number] = request
        if timeout is not None:
            heappush(self._deadlines, (deadline, number))
        return number, effects

    def _send(self, number: int, request: _Request, now: float) -> list[Effect]:
        if request.many:
            holders = list(self._responders.all(request.content, now))
        else:
            holder = self._responders.pick(request.content, request.lost, now)
            holders = [] if holder is None else [holder]
        request.holders = holders
        return [Send(holder, number, request.content) for holder in holders]

    @staticmethod
    def _no_responders(request: _Request) -> NoResponders:
        return NoResponders(
            f"no node has a subscription for {request.content.subject!r}: wait for one with "
            f"wait_ready(subscriber={request.content.subject!r})"
        )

    def _end(self, number: int, error: OzError | None) -> Ended:
        del self._open[number]
        # A heap has no removal: it is made anew when most of its entries have ended.
        if len(self._deadlines) > 64 + 2 * len(self._open):
            self._deadlines = sorted(entry for entry in self._deadlines if entry[1] in self._open)
        return Ended(number, error)

    def changed(self, now: float) -> list[Effect]:
        """Send the waiting requests, after a change of subscriptions or links."""
        effects: list[Effect] = []
        for number, request in list(self._open.items()):
            if not request.holders:
                effects += self._retry(number, request, now, None)
        return effects

    def _retry(self, number: int, request: _Request, now: float, loss: OzError | None) -> list[Effect]:
        """Send a request that has no holder.

        Args:
            number: of the request.
            request: to send.
            now: in seconds.
            loss: how the request ends without a responder; None if it may wait for one.
        """
        try:
            sent = self._send(number, request, now)
        except WouldBlock as error:
            return [self._end(number, error)]
        if sent:
            return sent
        if loss is None and self._responders.is_greeting:
            return []
        return [self._end(number, loss or self._no_responders(request))]

    def on_reply(self, node: bytes, number: int, message: Any) -> list[Effect]:
        """Read a reply.

        Args:
            node: id of the peer that sent it.
            number: of the request.
            message: the reply.
        """
        request = self._open.get(number)
        if request is None or node not in request.holders:
            self.late += 1
            return []
        request.replies += 1
        effects: list[Effect] = [Reply(number, message)]
        if request.replies == request.left:
            effects.append(self._end(number, None))
        return effects

    def peer_lost(self, node: bytes, now: float) -> list[Effect]:
        """Record that the session of a peer has ended: the peer is lost, has closed, or has a new session."""
        effects: list[Effect] = []
        for number, request in list(self._open.items()):
            if node not in request.holders:
                continue
            request.holders.remove(node)
            if request.holders:
                continue
            if request.replies:
                effects.append(self._end(number, None))
                continue
            request.lost.append(node)
            loss = PeerLost(request.content.subject, self._responders.name(node))
            if request.retries:
                request.retries -= 1
                effects += self._retry(number, request, now, loss)
            else:
                effects.append(self._end(number, loss))
        return effects

    def cancel(self, number: int) -> None:
        """Forget a request, because its caller does not wait any more."""
        if number in self._open:
            self._end(number, None)

    def tick(self, now: float) -> list[Effect]:
        """End the requests whose time is over."""
        effects: list[Effect] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, number = heappop(self._deadlines)
            request = self._open.get(number)
            if request is not None:
                effects.append(self._end(number, self._timeout(request)))
        return effects

    def _timeout(self, request: _Request) -> OzError | None:
        if request.many and request.holders:
            return None
        names = ", ".join(repr(self._responders.name(holder)) for holder in request.holders)
        where = f"node {names} has it" if names else "no link has brought a subscription for it"
        return Timeout(f"no reply to the request to {request.content.subject!r}: {where}")

    def next_deadline(self) -> float | None:
        """Return the time at which `tick` has something to do; None without deadlines."""
        while self._deadlines and self._deadlines[0][1] not in self._open:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None
