"""The publishers that a subscriber without keys has connected to, as they come back and demand some.

ZeroMQ gives a connection up for good whose listener demands another mechanism, and says nothing of it at the
socket: its monitor tells. That is two more sockets and two descriptors, so there is none as long as the only
publisher is heard, and none where descriptors or sockets are used up.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import zmq

from oz.errors import PermissionDenied
from oz.transport.attachments import Attachments
from oz.transport.demands import Demands, can_be_asked
from oz.transport.keyless_calls import RETRY, KeylessCalls
from oz.transport.peer_keys import is_connected_to

QUIET = 1.5
"""Seconds without anything from the only publisher after which its connection is watched; it tells of itself
every second where it filters."""

MISSING = 1.0
"""Seconds after which a connection that does not stand is made anew, where no keys are demanded: a young one
may take a moment."""

SILENT = 10.0
"""Seconds without anything from the only publisher, which filters, after which it is connected to anew though
some connection of this process leads there: that may be another socket's."""


class Returns:
    """The connections of one subscriber without keys, each of which may lead to somebody with keys later."""

    __slots__ = (
        "_asked",
        "_attachments",
        "_begin_at",
        "_calls",
        "_demands",
        "_fail",
        "_has_heartbeats",
        "_heard",
        "_is_left_alone",
        "_look_at",
        "_newest",
    )

    def __init__(
        self,
        attachments: Attachments,
        heard: Callable[[], object],
        fail: Callable[[PermissionDenied], object],
        end: Callable[[Callable[[], object]], object],
        *,
        has_heartbeats: bool,
    ) -> None:
        """Begin without looking; see `joined`.

        Args:
            attachments: of the socket.
            heard: returns something else whenever a publisher was heard meanwhile.
            fail: is told of a refusal; once, until a connection stands again.
            end: ends connections by calling what it is given, once nothing is in the way of that.
            has_heartbeats: whether publishers filter, and tell of themselves every second.
        """
        self._attachments = attachments
        self._heard, self._newest = heard, heard()
        self._fail, self._has_heartbeats = fail, has_heartbeats
        self._demands = Demands([], 0.0, tell=self._tell)
        self._calls = KeylessCalls(attachments, self._demands, end)
        self._asked: dict[str, float] = {}
        self._begin_at = self._look_at = inf
        self._is_left_alone = False

    def joined(self, now: float) -> None:
        """Record that the socket has another connection; where it has several, silence tells nothing."""
        if not self._is_left_alone and not self._calls.is_watching:
            self._begin_at = self._look_at = now + (QUIET if self._attachments.connections == 1 else 0.0)

    def leave_alone(self, socket: zmq.Socket[Any]) -> None:
        """Watch nothing any more: the user watches the socket, which has one monitor."""
        self._is_left_alone = True
        self._begin_at = self._look_at = inf
        self.close(socket)

    def close(self, socket: zmq.Socket[Any]) -> None:
        """End it, before the socket closes."""
        self._asked.clear()
        self._calls.close(socket)

    def next_deadline(self) -> float | None:
        """Return when to look next, in monotonic seconds; None for never."""
        return None if self._look_at == inf else self._look_at

    def tell(self, why: str, endpoint: str) -> None:
        """Have the next call that would wait raise that somebody demands keys, if that is news.

        Args:
            why: in words.
            endpoint: where.
        """
        self._demands.refuse(why, endpoint)

    def _tell(self, why: str, endpoint: str) -> None:
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
        if not self._calls.is_watching:
            self._find_out_whether_to_begin(socket, now)
        self._calls.look(socket, now)
        if self._calls.is_watching:
            self._give_up_what_was(socket, now)
            self._look_at = self._calls.next_look(now)
        else:
            self._look_at = self._begin_at

    def _find_out_whether_to_begin(self, socket: zmq.Socket[Any], now: float) -> None:
        heard, refusals = self._heard(), self._demands.refusals
        if self._attachments.connections == 1 and heard != self._newest and not refusals:
            self._newest, self._begin_at = heard, now + QUIET
        elif self._attachments.connected and (now >= self._begin_at or refusals):
            if not self._calls.begin(socket):
                self._begin_at = now + RETRY
                return
            # Whatever has happened before is told by nobody.
            self._newest = heard
            for endpoint in filter(can_be_asked, self._attachments.connected):
                self._asked[endpoint] = now
                self._demands.ask(endpoint)

    def _give_up_what_was(self, socket: zmq.Socket[Any], now: float) -> None:
        """End what was broken off before it was watched: of that no event comes."""
        is_only_one = self._has_heartbeats and self._attachments.connections == 1
        is_silent = is_only_one and self._heard() == self._newest
        for endpoint, since in list(self._asked.items()):
            is_seen_to = endpoint in self._demands.refusals or self._calls.is_given_up(endpoint)
            is_there = is_seen_to or is_connected_to(endpoint)
            is_well = is_seen_to or (is_there and not is_silent)
            until = since + (SILENT if is_there else MISSING)
            if self._demands.is_asking(endpoint) or (not is_well and now < until):
                continue
            del self._asked[endpoint]
            if not is_well:
                self._calls.give_up(socket, endpoint, now)
