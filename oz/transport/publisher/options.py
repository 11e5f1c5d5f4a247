"""The options of a publisher, checked, and what comes of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import zmq

from oz.numbers import check_count, check_seconds
from oz.protocol.publisher.access import Reserved
from oz.protocol.publisher.batches import MAX_BATCH, Batches
from oz.protocol.publisher.last_value_cache import LastValueCache
from oz.protocol.publisher.pattern_time import PatternTime, Stopwatch
from oz.protocol.publisher.records import Records
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.security.limits import DEFAULT_LIMITS, Limits, check_limits
from oz.subjects import dialects
from oz.subjects.pattern import DEFAULT_DIALECT
from oz.transport.backend import backend_of
from oz.transport.dropin import refuse_green
from oz.transport.endpoints import Endpoints
from oz.transport.publisher.sink import SendingParts, XpubSink
from oz.transport.security import Security, credentials_of
from oz.transport.socket import (
    CLOSE_TIMEOUT,
    MOST_WAITING,
    check_delimiter,
    keep_tcp_alive,
    limit_peers,
    set_high_water_mark,
)
from oz.wire.batch import MAX_COUNT
from oz.wire.codec import Codec, find_codec
from oz.wire.keys import ID_SIZE, MAX_KEY

OnFull = Literal["drop", "block", "error"]

LONGEST_TIMEOUT = 2_000_000.0
"""Seconds; ZeroMQ counts milliseconds in 32 bits."""

MAX_DELAY = 0.0005
"""Seconds for which a message waits for others at most, unless said otherwise."""

_KINDS = (zmq.PUB, zmq.XPUB)


MAX_SUBSCRIPTION = 131_071
"""Bytes of a subscription at most: libzmq walks it by recursion, and takes 100 bytes of memory for each."""


def pattern_time(limits: Limits = DEFAULT_LIMITS) -> PatternTime:
    """Make what measures and limits the time that patterns take."""
    return PatternTime(Stopwatch(time.perf_counter, time.thread_time), limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """The role of a publisher that knows more of its subscribers than others do, such as a node's.

    Attributes:
        router: who wants what.
        last_values: what keeps the last values, if they are kept.
        interest_changed: called when an interest has come or gone, by whichever thread took it in, under the
            guard.
        reserved: decides about subjects that rules of permissions are not about; None where there are none.
    """

    router: Router
    last_values: LastValueCache | None
    interest_changed: Callable[[], object] | None = None
    reserved: Reserved | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherOptions:
    """The arguments of `oz.Publisher`, which says what each is.

    Attributes:
        kind: the type of socket that pyzmq asks for, where it makes the publisher.
    """

    bind: Endpoints | None = None
    connect: Endpoints | None = None
    dialect: str = DEFAULT_DIALECT
    context: zmq.Context[Any] | None = None
    codec: str | Codec | None = None
    delimiter: bytes | None = None
    on_full: OnFull = "drop"
    full_timeout: float | None = None
    high_water_mark: int | None = None
    last_value: bool = False
    max_batch: int = MAX_BATCH
    max_delay: float = MAX_DELAY
    limits: Limits = DEFAULT_LIMITS
    security: Security | None = None
    kind: int | None = None

    def check(self) -> tuple[Codec | None, bytes | None]:
        """Check them before anything is made; give the codec and the delimiter.

        Raises:
            ValueError, TypeError: see `oz.Publisher`.
        """
        self.check_buffering()
        codec, delimiter = find_codec(self.codec), check_delimiter(self.delimiter)
        credentials_of(self.security)
        dialects.find(self.dialect)
        refuse_green(self.context)
        if isinstance(self.kind, int) and self.kind not in _KINDS:
            names = " or ".join(zmq.SocketType(one).name for one in _KINDS)
            raise ValueError(f"Publisher is a {names} socket, not {zmq.SocketType(self.kind).name}")
        return codec, delimiter

    def check_buffering(self) -> None:
        """Check what is about messages that wait.

        Raises:
            ValueError, TypeError: see `oz.Publisher`.
        """
        if self.on_full not in ("drop", "block", "error"):
            raise ValueError(f'on_full is "drop", "block" or "error", not {self.on_full!r}')
        check_limits(self.limits)
        check_count("max_batch", self.max_batch, 1, MAX_COUNT)
        check_seconds("max_delay", self.max_delay, 1.0)
        if self.full_timeout is not None:
            check_seconds("full_timeout", self.full_timeout, LONGEST_TIMEOUT)
        if self.high_water_mark is not None:
            check_count("high_water_mark", self.high_water_mark, 0, MOST_WAITING)

    def route(self, socket: zmq.Socket[Any], role: Role | None) -> SendingParts:
        """Make what sends messages to the streams that ask for them.

        Args:
            socket: an XPUB.
            role: what the publisher knows beyond others, if it does.
        """
        backend = backend_of(socket)
        origin, stats, drops = backend.random_bytes(ID_SIZE), PublisherStats(), self.on_full == "drop"
        monotonic = backend.monotonic
        sink = XpubSink(socket, drops=drops, unsent=self.limits.unsent)
        last_values = LastValueCache(time.perf_counter) if self.last_value else None
        if role is not None:
            last_values = role.last_values
        router = (
            Router(origin, stats, pattern_time=pattern_time(self.limits), limits=self.limits)
            if role is None
            else role.router
        )
        batches = Batches(router, sink, monotonic, drops=drops)
        records = Records(router, batches, last_values, sink, monotonic)
        return SendingParts(router, batches, records, sink, last_values)

    def set_up(self, socket: zmq.Socket[Any], *, is_own: bool) -> None:
        """Set the options of the socket itself.

        Args:
            socket: an XPUB that is neither bound nor connected.
            is_own: whether the context is the publisher's own.
        """
        if is_own:
            socket.set(zmq.LINGER, round(CLOSE_TIMEOUT * 1000))
        keep_tcp_alive(socket)
        set_high_water_mark(socket, self.high_water_mark, own_context=is_own)
        # Every subscription and unsubscription is reported, and counts only once it was accepted here.
        socket.set(zmq.XPUB_MANUAL, 1)
        longest = min(MAX_SUBSCRIPTION, max(MAX_KEY, self.limits.plain_size))
        limit_peers(socket, self.limits, most=int(longest) + 1)
        if self.on_full != "drop":
            socket.set(zmq.XPUB_NODROP, 1)
