"""The publishers that a subscriber without keys has connected to, as they come back and demand some.

ZeroMQ gives a connection up for good whose listener demands another mechanism, and says nothing of it at the
socket: its monitor tells. That is two more sockets and two descriptors, so there is none as long as the only
publisher is heard, and none where descriptors or sockets are used up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

import zmq

from oz.errors import PermissionDenied
from oz.protocol.backoff import growing
from oz.system import most_descriptors
from oz.transport.attachments import Attachments
from oz.transport.demands import ASKED_AFTER, Demands
from oz.transport.descriptor_watch import count_used
from oz.transport.handshakes import Handshake, Handshakes, Outcome, named
from oz.transport.peer_keys import is_connected_to

LOOK_EVERY = 0.25
"""Seconds between two looks while something is going on."""

LOOK_EVERY_WHILE_WATCHING = 1.0
"""Seconds between two looks at what the monitor tells."""

QUIET = 1.5
"""Seconds without anything from the only publisher after which its connection is watched; it tells of itself
every second where it filters."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
"""Seconds before an endpoint is called anew that demands keys."""

_SHARE = 10
"""A monitor is begun only where the context may have so many times the sockets that it has."""

_RETRY = 30.0
"""Seconds after which a monitor is tried again, where there was no room for one."""


class _Refusal:
    """An endpoint that demands keys, or was found to.

    Attributes:
        again_at: when to call it anew, in monotonic seconds; None once that was done.
        pauses: before it is called the next times.
    """

    __slots__ = ("again_at", "pauses")

    def __init__(self) -> None:
        self.again_at: float | None = None
        self.pauses = growing(_FIRST_PAUSE, _LONGEST_PAUSE)


class Returns:
    """The connections of one subscriber without keys, each of which may lead to somebody with keys later."""

    __slots__ = (
        "_asking",
        "_attachments",
        "_begin_at",
        "_end",
        "_fail",
        "_handshakes",
        "_heard",
        "_is_left_alone",
        "_look_at",
        "_newest",
        "_refusals",
        "_reported",
    )

    def __init__(
        self,
        attachments: Attachments,
        heard: Callable[[], object],
        fail: Callable[[PermissionDenied], object],
        end: Callable[[Callable[[], object]], object],
    ) -> None:
        """Begin without looking; see `joined`.

        Args:
            attachments: of the socket.
            heard: returns something else whenever a publisher was heard meanwhile.
            fail: is told of a refusal; once, until a connection stands again.
            end: ends connections by calling what it is given, once nothing is in the way of that.
        """
        self._attachments = attachments
        self._heard, self._newest = heard, heard()
        self._fail, self._end = fail, end
        self._handshakes = Handshakes()
        self._asking: dict[str, Demands] = {}
        self._refusals: dict[str, _Refusal] = {}
        self._reported: set[str] = set()
        self._begin_at = self._look_at = inf
        self._is_left_alone = False

    def joined(self, now: float) -> None:
        """Record that the socket has another connection; where it has several, silence tells nothing."""
        if not self._is_left_alone and not self._handshakes.is_watching:
            self._begin_at = self._look_at = now + (QUIET if self._attachments.connections == 1 else 0.0)

    def leave_alone(self, socket: zmq.Socket[Any]) -> None:
        """Watch nothing any more: the user watches the socket, which has one monitor."""
        self._is_left_alone = True
        self._begin_at = self._look_at = inf
        self.close(socket)

    def close(self, socket: zmq.Socket[Any]) -> None:
        """End it, before the socket closes."""
        self._asking.clear()
        self._handshakes.close(socket)

    def next_deadline(self) -> float | None:
        """Return when to look next, in monotonic seconds; None for never."""
        return None if self._look_at == inf else self._look_at

    def tell(self, why: str, endpoint: str) -> None:
        """Have the next call that would wait raise that somebody demands keys, if that is news.

        Args:
            why: in words.
            endpoint: where.
        """
        if endpoint not in self._reported:
            self._reported.add(endpoint)
            self._fail(PermissionDenied(why))
            # Called anew, or else the way back without keys would be seen by nobody.
            self._look_at = min(self._look_at, self._begin_at, 0.0) if not self._is_left_alone else inf

    def look(self, socket: zmq.Socket[Any], now: float) -> None:
        """Take in what has become of the connections, and call those anew whose time it is.

        Args:
            socket: the socket.
            now: monotonic seconds.
        """
        if now < self._look_at:
            return
        if not self._handshakes.is_watching:
            self._find_out_whether_to_begin(socket, now)
        for one in self._handshakes.read():
            if (endpoint := named(one.where, self._attachments.connected)) is not None:
                self._take(socket, one, endpoint, now)
        for endpoint, demands in list(self._asking.items()):
            demands.look(now)
            if demands.refusals or demands.next_look_in(now) is None:
                self._asking.pop(endpoint, None)
                if not demands.refusals and not is_connected_to(endpoint):
                    # It has demanded keys in between, while nobody looked: ZeroMQ has given it up.
                    self._give_up(socket, endpoint, now)
        if self._handshakes.is_watching:
            # Of what was broken off before it was watched no event comes.
            for endpoint in self._reported - self._refusals.keys():
                self._give_up(socket, endpoint, now)
        self._call_anew(socket, now)
        self._plan(now)

    def _plan(self, now: float) -> None:
        if not self._handshakes.is_watching:
            self._look_at = self._begin_at
        else:
            is_quiet = not self._asking and not self._refusals
            self._look_at = now + (LOOK_EVERY_WHILE_WATCHING if is_quiet else LOOK_EVERY)

    def _find_out_whether_to_begin(self, socket: zmq.Socket[Any], now: float) -> None:
        heard = self._heard()
        if self._attachments.connections == 1 and heard != self._newest and not self._reported:
            self._newest, self._begin_at = heard, now + QUIET
        elif self._attachments.connected and (now >= self._begin_at or self._reported):
            self._begin(socket, now)

    def _begin(self, socket: zmq.Socket[Any], now: float) -> None:
        try:
            if not _has_room(socket):
                self._begin_at = now + _RETRY
                return
            self._handshakes.begin(socket)
        except zmq.ZMQError:
            if socket.closed:
                raise
            self._begin_at = now + _RETRY
            return
        # Whatever has happened before is told by nobody.
        for endpoint in self._attachments.connected:
            if endpoint not in self._reported:
                self._ask(endpoint, now)

    def _take(self, socket: zmq.Socket[Any], one: Handshake, endpoint: str, now: float) -> None:
        refusal = self._refusals.get(endpoint)
        if one.outcome is Outcome.ADMITTED and (refusal is None or refusal.again_at is None):
            # Otherwise it is of a connection that was given up since.
            self._refusals.pop(endpoint, None)
            self._asking.pop(endpoint, None)
            self._reported.discard(endpoint)
        elif one.outcome is Outcome.BROKEN and one.code == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            self._give_up(socket, endpoint, now)
            if endpoint not in self._reported:
                self._ask(endpoint, now)

    def _ask(self, endpoint: str, now: float) -> None:
        if endpoint not in self._asking:
            self._asking[endpoint] = Demands([endpoint], now - ASKED_AFTER, tell=self.tell)

    def _give_up(self, socket: zmq.Socket[Any], endpoint: str, now: float) -> None:
        refusal = self._refusals.setdefault(endpoint, _Refusal())
        if refusal.again_at is None:
            refusal.again_at = now + next(refusal.pauses)
            self._end(partial(self._attachments.give_up, socket, endpoint))

    def _call_anew(self, socket: zmq.Socket[Any], now: float) -> None:
        connected = self._attachments.connected
        for endpoint, refusal in list(self._refusals.items()):
            if endpoint not in connected:
                del self._refusals[endpoint]
                self._reported.discard(endpoint)
            elif refusal.again_at is not None and now >= refusal.again_at:
                refusal.again_at = None
                self._end(partial(self._attachments.call_again, socket, endpoint))


def _has_room(socket: zmq.Socket[Any]) -> bool:
    """Tell whether a monitor takes no descriptors and no sockets that the program may need itself."""
    limit, context = most_descriptors(), socket.context
    has_descriptors = limit is None or 2 * count_used(limit) < limit
    # pyzmq's own list of the sockets that it closes with a context.
    return has_descriptors and _SHARE * len(context._sockets) <= context.get(zmq.MAX_SOCKETS)
