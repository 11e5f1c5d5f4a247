"""The options of a publisher, checked, and what comes of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import zmq

from oz.numbers import check_count, check_seconds
from oz.protocol.publisher.batches import Batches
from oz.protocol.publisher.last_value_cache import LastValueCache
from oz.protocol.publisher.pattern_time import PatternTime, Stopwatch
from oz.protocol.publisher.records import Records
from oz.protocol.publisher.router import Router
from oz.security.access import Reserved
from oz.security.limits import DEFAULT_LIMITS, Limits, check_limits
from oz.subjects.pattern import DEFAULT_DIALECT
from oz.transport.backend import backend_of
from oz.transport.publisher.sink import SendingParts, XpubSink
from oz.transport.security import Security
from oz.transport.socket import (
    HIGH_WATER_MARK,
    MOST_WAITING,
    limit_peers,
)
from oz.wire.codec import Codec
from oz.wire.keys import MAX_KEY

OnFull = Literal["drop", "block", "error"]

LONGEST_TIMEOUT = 2_000_000.0
"""Seconds; ZeroMQ counts milliseconds in 32 bits."""

MAX_SUBSCRIPTION = 131_071
"""Bytes of a subscription at most: libzmq walks it by recursion, and takes 100 bytes of memory for each."""


def pattern_time(limits: Limits = DEFAULT_LIMITS) -> PatternTime:
    """Make what measures and limits the time that patterns take."""
    return PatternTime(Stopwatch(time.perf_counter, time.thread_time), limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What a publisher knows of the subscribers of its node.

    Attributes:
        router: who wants what.
        last_values: what keeps the last values, if they are kept.
        interest_changed: called when an interest has come or gone, by whichever thread took it in, under the
            guard.
        reserved: decides about subjects that rules of permissions are not about; None where there are none.
    """

    router: Router
    last_values: LastValueCache | None
    interest_changed: Callable[[], object]
    reserved: Reserved | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherOptions:
    """The options of a node's publishers, as `oz.Node` is given them.

    Attributes:
        context: of the node; None until the node opens.
        codec: of the node; None until the node opens.
    """

    dialect: str = DEFAULT_DIALECT
    context: zmq.Context[Any] | None = None
    codec: Codec | None = None
    on_full: OnFull = "drop"
    full_timeout: float | None = None
    high_water_mark: int = HIGH_WATER_MARK
    last_value: bool = False
    limits: Limits = DEFAULT_LIMITS
    security: Security | None = None

    def check(self) -> None:
        """Check what is about messages that wait.

        Raises:
            ValueError, TypeError: see `oz.Node`.
        """
        if self.on_full not in ("drop", "block", "error"):
            raise ValueError(f'on_full is "drop", "block" or "error", not {self.on_full!r}')
        check_limits(self.limits)
        if self.full_timeout is not None:
            check_seconds("full_timeout", self.full_timeout, LONGEST_TIMEOUT)
        check_count("high_water_mark", self.high_water_mark, 0, MOST_WAITING)

    def route(self, socket: zmq.Socket[Any], role: Role) -> SendingParts:
        """Make what sends messages to the streams that ask for them.

        Args:
            socket: an XPUB.
            role: what the publisher knows of its subscribers.
        """
        router, last_values, drops = role.router, role.last_values, self.on_full == "drop"
        monotonic = backend_of(socket).monotonic
        sink = XpubSink(socket, drops=drops, unsent=self.limits.unsent)
        batches = Batches(router, sink, monotonic, drops=drops)
        records = Records(router, batches, last_values, sink, monotonic)
        return SendingParts(router, batches, records, sink, last_values)

    def set_up(self, socket: zmq.Socket[Any]) -> None:
        """Set the options of the socket itself.

        Args:
            socket: an XPUB that is not bound yet.
        """
        socket.set(zmq.SNDHWM, self.high_water_mark)
        socket.set(zmq.RCVHWM, self.high_water_mark)
        # Every subscription and unsubscription is reported, and counts only once it was accepted here.
        socket.set(zmq.XPUB_MANUAL, 1)
        longest = min(MAX_SUBSCRIPTION, max(MAX_KEY, self.limits.plain_size))
        limit_peers(socket, self.limits, most=int(longest) + 1)
        if self.on_full != "drop":
            socket.set(zmq.XPUB_NODROP, 1)
