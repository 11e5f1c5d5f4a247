"""The calls of a socket without keys, as those who listen come to demand some.

ZeroMQ gives a connection up for good whose listener demands another mechanism, and says nothing of it at the
socket: its monitor tells. Such an endpoint is called anew from time to time, and its listener is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import zmq

from oz.transport.attachments import Attachments
from oz.transport.demands import Demands
from oz.transport.handshakes import Handshakes, Outcome, all_named
from oz.transport.recall import Recall

LOOK_EVERY, LOOK_EVERY_WHILE_QUIET = 0.25, 1.0
"""Seconds between two looks at what the monitor tells: while something is going on, and otherwise."""

RETRY = 30.0
"""Seconds after which a monitor is tried again, where there was no room for one."""

_SHARE = 10
"""A monitor is begun only where the context may have so many times the sockets that it has."""


class KeylessCalls:
    """The endpoints that one socket without keys has connected to."""

    __slots__ = ("_attachments", "_call", "_demands", "_end", "_handshakes", "_is_recalled", "_recalls")

    def __init__(
        self,
        attachments: Attachments,
        demands: Demands,
        end: Callable[[Callable[[], object]], object],
        *,
        call: Callable[[zmq.Socket[Any], str], object] | None = None,
        is_recalled: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Begin without looking; see `begin`.

        Args:
            attachments: of the socket.
            demands: asks those who break a handshake off what they demand.
            end: ends connections by calling what it is given, once nothing is in the way of that.
            call: connects anew; as `Attachments.call_again` unless given.
            is_recalled: tells whether an endpoint is to be called anew here; others see to the rest.
        """
        self._attachments, self._demands, self._end = attachments, demands, end
        self._call = attachments.call_again if call is None else call
        self._is_recalled = is_recalled
        self._handshakes = Handshakes()
        self._recalls: dict[str, Recall] = {}

    @property
    def connected(self) -> list[str]:
        """The endpoints that are called anew here where that is needed."""
        return list(filter(self._is_recalled, self._attachments.connected))

    @property
    def is_watching(self) -> bool:
        """Whether the connections are watched."""
        return self._handshakes.is_watching

    def begin(self, socket: zmq.Socket[Any]) -> bool:
        """Watch the connections of a socket from now on; tell whether there is room for that.

        Raises:
            zmq.ZMQError: the socket is closed.
        """
        try:
            if _has_room(socket):
                self._handshakes.begin(socket)
        except zmq.ZMQError:
            if socket.closed:
                raise
        return self.is_watching

    def close(self, socket: zmq.Socket[Any]) -> None:
        """End it, before the socket closes."""
        self._handshakes.close(socket)

    def is_given_up(self, endpoint: str) -> bool:
        """Tell whether ZeroMQ has given a connection up, and none stands since."""
        return endpoint in self._recalls

    def next_look(self, now: float) -> float:
        """Return when to look next, in monotonic seconds."""
        is_busy = bool(self._recalls) or self._demands.is_asking_any
        return now + (LOOK_EVERY if is_busy else LOOK_EVERY_WHILE_QUIET)

    def read(self, socket: zmq.Socket[Any], now: float) -> None:
        """Take in what has become of the connections; to be called before one is made or ended."""
        for one in self._handshakes.read():
            if one.outcome is Outcome.ADMITTED:
                self._admit(one.where)
            elif one.outcome.is_final:
                for endpoint in all_named(one.where, self._attachments.connected):
                    self.give_up(socket, endpoint, now)
                    if self._is_recalled(endpoint):
                        self._demands.ask(endpoint)

    def look(self, socket: zmq.Socket[Any], now: float) -> None:
        """Take in what has become of the connections, and call those anew whose time it is."""
        self.read(socket, now)
        self._demands.look(now)
        connected = self._attachments.connected
        for endpoint in filter(self._is_recalled, self._demands.refusals.keys() - connected):
            self._demands.settle(endpoint)
        for endpoint, recall in list(self._recalls.items()):
            if endpoint not in connected:
                del self._recalls[endpoint]
            elif recall.is_due(now):
                self._call_anew(socket, endpoint, now)
        # Of what was broken off before it was watched no event comes.
        for endpoint in self._demands.refusals.keys() & self.connected if self.is_watching else ():
            if endpoint not in self._recalls:
                self.give_up(socket, endpoint, now)

    def give_up(self, socket: zmq.Socket[Any], endpoint: str, now: float) -> None:
        """End a connection that ZeroMQ has given up, and have it made anew."""
        if not self._is_recalled(endpoint) or self._recalls.setdefault(endpoint, Recall()).plan(now):
            self._end(partial(self._attachments.give_up, socket, endpoint))

    def _admit(self, where: str) -> None:
        waiting = self._recalls.keys() | self._demands.refusals.keys()
        for endpoint in all_named(where, self._attachments.connected) if waiting else ():
            recall = self._recalls.get(endpoint)
            # Otherwise it is of a connection that was given up since.
            if endpoint in waiting and (recall is None or recall.again_at is None):
                self._recalls.pop(endpoint, None)
                self._demands.settle(endpoint)

    def _call_anew(self, socket: zmq.Socket[Any], endpoint: str, now: float) -> None:
        try:
            self._end(partial(self._call, socket, endpoint))
        except zmq.ZMQError:
            if socket.closed:
                raise
            # Descriptors are short, or its host has no address now.
            self._recalls[endpoint].plan(now)


def _has_room(socket: zmq.Socket[Any]) -> bool:
    """Return whether the context has sockets to spare for a monitor."""
    context = socket.context
    # pyzmq's own list of the sockets that it closes with a context.
    return _SHARE * len(context._sockets) <= context.get(zmq.MAX_SOCKETS)
