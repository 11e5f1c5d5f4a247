"""Options of publishers, subscribers and nodes. The classes are frozen; `dataclasses.replace` makes a changed copy."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self

from oz.errors import ConfigurationError
from oz.suggestions import refuse_unknown

_MIB = 1 << 20

OnFull = Literal["drop", "block", "raise"]
Filtering = Literal["auto", "publisher", "prefix"]
Overflow = Literal["drop_newest", "drop_oldest", "conflate"]
Ack = Literal["received", "handled"]
Policy = Literal["round_robin", "sticky", "failover"]

POLICIES = ("round_robin", "sticky", "failover")
"""Policies by which a queue group picks the member that receives a message."""
OVERFLOWS = ("drop_newest", "drop_oldest", "conflate")
"""Policies for messages when too many wait for a slow subscriber."""
_HOST = re.compile(r"\[[^\s/\[\]]+\]|[^\s/:*\[\]]+")
"""Regex for a host: a name, an IPv4 address, or an IPv6 address in brackets."""


class _StrictOptions:
    """Base class of the options. A misspelled option raises an error with a suggestion."""

    def __new__(cls, *_: Any, **given: Any) -> Self:
        known = {item.name for item in fields(cls)}  # type: ignore[arg-type]
        refuse_unknown(f"oz.{cls.__name__}", (text for text in given if text not in known), cls.__init__)
        return super().__new__(cls)


@dataclass(frozen=True, kw_only=True)
class Limits(_StrictOptions):
    """Limits for the memory, the time and the connections that a peer can use at a socket, a node or a service.

    Attributes:
        patterns: maximum number of subscriptions that a publisher accepts on one link.
        pattern_time: time limit in seconds for the match of a pattern with a subject. A pattern that exceeds the
            limit three times is suspended.
        subscription_bytes: maximum total size in bytes of the subscriptions of one plain subscriber.
        message_bytes: maximum size of a payload in bytes. `publish` refuses a larger payload. A peer that sends a
            larger payload is disconnected.
        peers: maximum number of links that one publisher accepts.
        handshake: seconds after which a connection is closed if ZeroMQ's handshake is not complete.
    """

    patterns: int = 100_000
    pattern_time: float = 0.001
    subscription_bytes: int = 8 * _MIB
    message_bytes: int = 64 * _MIB
    peers: int = 65_536
    handshake: float = 10.0

    def __post_init__(self) -> None:
        """Check that every limit is a positive number."""
        _check_numbers(self)


MIN_MTU, MAX_MTU = 256, 9_216
"""Limits for `mtu` in bytes. libpgm ends the process if a packet has fewer than 76 bytes, or if the rate is lower than
one packet a second."""
MAX_RATE = 10_000_000  # kbit/s
MAX_RECOVERY = 600.0  # seconds
MAX_WINDOW = 1 << 30
"""Limit for the bytes that a publisher keeps for repairs: the packets of `recovery` seconds at `rate_kbps`."""
REPAIR_SECONDS = 25.0
"""Maximum time in seconds after which libpgm gives up a lost packet. libpgm asks 50 times for a confirmation, and 50
times for the packet. Before each question it pauses for at most 50 ms, and after each question it waits for 200 ms.
Source: pgm_socket.cpp of libzmq 4.3.
"""
_MIN_STALE = 0.5  # Seconds. At least two heartbeats of a publisher arrive in this time.
_MAX_STALE = 3_600.0
_MAX_HOPS = 255


@dataclass(frozen=True, kw_only=True)
class Multicast:
    """Options of multicast endpoints, `epgm://` and `pgm://`.

    Attributes:
        rate_kbps: maximum rate of a publisher in kilobits (1,000 bits) a second; repairs are sent in addition. All
            hosts need the same value, because a subscriber computes the size of its buffer from the rate.
        recovery: seconds for which a publisher keeps packets, so that lost packets can be sent again.
        hops: maximum number of routers that a packet may pass, plus one. With 1, packets stay on the LAN.
        mtu: maximum size in bytes of a packet on the network, with headers.
        stale_after: seconds after which a subscriber connects again, if packets of the publisher arrive but no
            messages. A repair by libpgm may take 25 seconds, and a new connection ends the repair. If no repair is
            in progress, the subscriber connects again after at most 5 seconds.
        plain: whether to use plain ZeroMQ messages, without checksums, reports of losses and heartbeats.
    """

    rate_kbps: int = 10_000
    recovery: float = 10.0
    hops: int = 1
    mtu: int = 1_500
    stale_after: float = REPAIR_SECONDS
    plain: bool = False

    def __post_init__(self) -> None:
        """Check all values, because libzmq ends the process if it cannot use a value."""
        _check_range("hops", self.hops, 1, _MAX_HOPS, int)
        _check_range("mtu", self.mtu, MIN_MTU, MAX_MTU, int)
        _check_range("rate_kbps", self.rate_kbps, 1, MAX_RATE, int)
        _check_range("recovery", self.recovery, 0.1, MAX_RECOVERY, float)
        _check_range("stale_after", self.stale_after, _MIN_STALE, _MAX_STALE, float)
        if type(self.plain) is not bool:
            raise ConfigurationError("plain", self.plain, "argument", "it is True or False")
        if self.rate_kbps * 125 < self.mtu:
            minimum = -(-self.mtu // 125)
            rule = f"it is less than one packet of mtu={self.mtu} bytes a second; make it {minimum} or more"
            raise ConfigurationError("rate_kbps", self.rate_kbps, "argument", rule)
        if self.window_bytes > MAX_WINDOW:
            rule = (
                f"with rate_kbps={self.rate_kbps} a publisher may keep {self.window_bytes:,} bytes in memory, "
                f"and {MAX_WINDOW:,} are allowed; make it shorter"
            )
            raise ConfigurationError("recovery", self.recovery, "argument", rule)

    @property
    def window_bytes(self) -> int:
        """Maximum number of bytes that a publisher keeps for repairs."""
        return round(self.rate_kbps * 125 * self.recovery)


@dataclass(frozen=True, kw_only=True)
class Options(_StrictOptions):
    """Options of a publisher or a subscriber that few programs change.

    Attributes:
        high_water_mark: maximum number of messages that wait for one subscriber; 0 for no limit. A subscription with
            its own `max_pending` uses that limit instead.
        pending_bytes: maximum size in bytes of the messages that wait for one subscriber at the publisher. With
            `on_full="block"` or "raise", a single message larger than half of this limit may exceed it.
        resume_bytes: maximum size in bytes of the sent messages that a publisher keeps until a subscriber has
            acknowledged them. A subscriber that connects again receives these messages.
        resume_seconds: seconds for which a publisher keeps the link of a disconnected subscriber.
        send_timeout: maximum time in seconds that `publish` waits for a full subscriber, with `on_full="block"`.
        batch: maximum number of messages in a batch.
        batch_delay: maximum time in seconds that a message waits for other messages of its batch.
        delimiter: bytes between subject and payload, such as `b" "`, for plain ZeroMQ peers whose messages are one
            frame. A publisher sends `subject + delimiter + payload` to plain subscribers, and refuses a subject
            that contains the delimiter. A subscriber splits messages of plain publishers at the first delimiter. A
            message without a delimiter counts as malformed. Links do not use the delimiter.
        dedupe: whether a subscriber drops messages whose id it has seen.
        multicast: options of `epgm://` and `pgm://` endpoints; None for the defaults of `Multicast`.
        limits: bounds for the resources that a peer can use.
    """

    high_water_mark: int = 10_000
    pending_bytes: int = 64 * _MIB
    resume_bytes: int = 8 * _MIB
    resume_seconds: float = 30.0
    send_timeout: float = 10.0
    batch: int = 512
    batch_delay: float = 0.0005
    delimiter: bytes | None = None
    dedupe: bool = False
    multicast: Multicast | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        """Check the values. Numbers are above 0, except the two options that may be 0."""
        _check_numbers(self, may_be_zero=("high_water_mark", "batch_delay"))
        if self.delimiter is not None and (not isinstance(self.delimiter, bytes) or not self.delimiter):
            rule = 'it is bytes between subject and payload, such as b" ", and not empty'
            raise ConfigurationError("delimiter", self.delimiter, "argument", rule)
        if self.multicast is not None and not isinstance(self.multicast, Multicast):
            raise ConfigurationError("multicast", self.multicast, "argument", "it is an oz.Multicast")


@dataclass(frozen=True, kw_only=True)
class NodeOptions(Options):
    """Options of a node: the options of publishers and subscribers, and options that only nodes have.

    Attributes:
        advertise: address or name of this host that other hosts dial, in place of the bound address.
        directory: directory in which nodes of one host find each other; None for the user's default directory.
        lost_after: seconds without an answer after which a silent peer counts as lost.
        threads: maximum number of handlers that run at once; unused in asyncio.
        echo: whether the node's subscriptions receive messages that the node itself publishes.
        error_replies: whether the reply to a request contains the text of an exception that the handler raised.
    """

    advertise: str | None = None
    directory: str | os.PathLike[str] | None = None
    lost_after: float = 5.0
    threads: int = 8
    echo: bool = True
    error_replies: bool = True

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        for name in ("echo", "error_replies"):
            if type(getattr(self, name)) is not bool:
                raise ConfigurationError(name, getattr(self, name), "argument", "it is True or False")
        if self.advertise is not None and not (
            isinstance(self.advertise, str) and _HOST.fullmatch(self.advertise)
        ):
            rule = "give an address or a name of this host, without tcp:// and port; IPv6 in brackets"
            raise ConfigurationError("advertise", self.advertise, "argument", rule)
        for name in ("multicast", "delimiter"):
            if getattr(self, name) is not None:
                rule = "a node has links only: use oz.Publisher and oz.Subscriber"
                raise ConfigurationError(name, getattr(self, name), "argument", rule)


@dataclass(frozen=True, kw_only=True)
class Delivery(_StrictOptions):
    """Delivery options of a subscription.

    Attributes:
        policy: policy by which a queue group picks the member for a message. The policy "round_robin" picks
            each member in turn. The policy "sticky" picks by the key of the message, or by the subject of a message
            without key. The policy "failover" picks the member that joined first.
        max_pending: maximum number of messages that wait for the subscription.
        prefetch: number of unacknowledged messages at which a group prefers other members; None for 64 with
            `ack="handled"`, otherwise 4,096.
        redeliver: whether other members receive the messages that a lost member has not acknowledged.
        inline: whether the handler runs in the thread or event loop that reads the socket. Such a handler must be
            fast.
    """

    policy: Policy = "round_robin"
    max_pending: int = 65_536
    prefetch: int | None = None
    redeliver: bool = False
    inline: bool = False

    def __post_init__(self) -> None:
        """Check the values."""
        if self.policy not in POLICIES:
            raise ConfigurationError(
                "policy", self.policy, "argument", f"a policy is one of {', '.join(POLICIES)}"
            )
        _check_numbers(self)
        if self.prefetch is not None and not (type(self.prefetch) is int and self.prefetch > 0):
            raise _not_positive("prefetch", self.prefetch, "a whole number above 0, or None")


def _check_numbers(options: Any, may_be_zero: tuple[str, ...] = ()) -> None:
    for item in fields(options):
        value = getattr(options, item.name)
        if type(item.default) not in (int, float):
            continue
        is_whole = type(item.default) is int
        is_number = type(value) is int or (type(value) is float and not is_whole)
        if not is_number or not (value > 0 or (value == 0 and item.name in may_be_zero)):
            minimum = "0 or more" if item.name in may_be_zero else "above 0"
            what = f"a {'whole ' if is_whole else ''}number {minimum}"
            raise _not_positive(item.name, value, what)


def _check_range(name: str, value: Any, minimum: float, maximum: float, kind: type) -> None:
    kinds = (int,) if kind is int else (int, float)
    if type(value) not in kinds or not minimum <= value <= maximum:
        what = "a whole number" if kind is int else "seconds"
        raise ConfigurationError(
            name, value, "argument", f"it is {what} from {minimum:,.10g} to {maximum:,.10g}"
        )


def _not_positive(name: str, value: Any, what: str) -> ConfigurationError:
    return ConfigurationError(name, value, "argument", f"it is {what}")
