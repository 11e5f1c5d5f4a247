"""Options of publishers, subscribers and nodes.

The dataclasses are frozen. `dataclasses.replace` returns a changed copy.
"""

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
"""Policies of a queue group for the choice of the member that receives a message."""
OVERFLOWS = ("drop_newest", "drop_oldest", "conflate")
"""Policies that decide which messages are dropped if a subscription is too slow."""
_HOST = re.compile(r"\[[^\s/\[\]]+\]|[^\s/:*\[\]]+")
"""Regex for a host: a name, an IPv4 address, or an IPv6 address in brackets."""


class _StrictOptions:
    """Base class of the options. For a misspelled option, its constructor raises an error with a suggestion."""

    def __new__(cls, *_: Any, **given: Any) -> Self:
        known = {item.name for item in fields(cls)}  # type: ignore[arg-type]
        refuse_unknown(f"oz.{cls.__name__}", (text for text in given if text not in known), cls.__init__)
        return super().__new__(cls)


@dataclass(frozen=True, kw_only=True)
class Limits(_StrictOptions):
    """Limits for the memory, the time and the connections that peers can use at a socket, a node or a service.

    Attributes:
        patterns: maximum number of subscriptions that a publisher accepts on one link.
        pattern_time: time limit in seconds for the match of a pattern with a subject. If a pattern exceeds the limit
            three times, it is suspended.
        subscription_bytes: maximum size in bytes of all subscriptions of one plain subscriber together.
        message_bytes: maximum size of a payload in bytes. `publish` refuses a larger payload. A peer that sends a
            larger payload is disconnected.
        peers: maximum number of links that one publisher accepts.
        handshake: time limit in seconds for ZeroMQ's handshake. A connection that exceeds the limit is closed.
    """

    patterns: int = 100_000
    pattern_time: float = 0.001
    subscription_bytes: int = 8 * _MIB
    message_bytes: int = 64 * _MIB
    peers: int = 65_536
    handshake: float = 10.0

    def __post_init__(self) -> None:
        _check_numbers(self)


MIN_MTU, MAX_MTU = 256, 9_216
"""Limits for `mtu` in bytes. libpgm ends the process if packets have fewer than 76 bytes, or if the rate is below one
packet a second."""
MAX_RATE = 10_000_000  # kbit/s
MAX_RECOVERY = 600.0  # seconds
MAX_WINDOW = 1 << 30
"""Maximum number of bytes that a publisher may keep for repairs. This is the size of the packets of `recovery` seconds
at `rate_kbps`."""
REPAIR_SECONDS = 25.0
"""Maximum time in seconds until libpgm gives up a lost packet. It requests the packet 50 times, and before that it
requests a confirmation 50 times. Before each request it pauses for at most 50 ms, and after each request it waits for
200 ms. Source: pgm_socket.cpp of libzmq 4.3.
"""
_MIN_STALE = 0.5  # Seconds. A publisher sends at least two heartbeats in this time.
_MAX_STALE = 3_600.0
_MAX_HOPS = 255


@dataclass(frozen=True, kw_only=True)
class Multicast:
    """Options of multicast endpoints, `epgm://` and `pgm://`.

    Attributes:
        rate_kbps: maximum rate of a publisher in kilobits (1,000 bits) per second. Repairs may exceed it. All hosts
            need the same value, because a subscriber computes the size of its buffer from the rate.
        recovery: time in seconds for which a publisher keeps its packets, so that libpgm can send lost packets again.
        hops: one more than the number of routers that a packet may pass. With 1, packets stay on the LAN.
        mtu: maximum size in bytes of a packet on the network, including headers.
        stale_after: time in seconds after which a subscriber connects again, if packets of the publisher arrive but no
            messages. A repair by libpgm may take 25 seconds, and a new connection would end the repair. If no repair is
            in progress, the subscriber connects again after at most 5 seconds.
        plain: whether to send and receive plain ZeroMQ messages, without checksums, reports of losses and heartbeats.
    """

    rate_kbps: int = 10_000
    recovery: float = 10.0
    hops: int = 1
    mtu: int = 1_500
    stale_after: float = REPAIR_SECONDS
    plain: bool = False

    def __post_init__(self) -> None:
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
        """Number of bytes that a publisher may keep for repairs."""
        return round(self.rate_kbps * 125 * self.recovery)


@dataclass(frozen=True, kw_only=True)
class Options(_StrictOptions):
    """Options of a publisher or a subscriber. Few programs change them.

    Attributes:
        high_water_mark: maximum number of messages that wait for one subscriber; 0 for no limit. If a subscription has
            the option `max_pending`, its value replaces this limit for the messages of the subscription.
        pending_bytes: maximum number of bytes that wait at the publisher for one subscriber. With `on_full="block"` or
            "raise", a single message larger than half of this limit may exceed it.
        resume_bytes: maximum number of bytes of sent messages that a publisher keeps until the subscriber has
            acknowledged them. If the subscriber connects again, it receives these messages.
        resume_seconds: time in seconds for which a publisher keeps the link of a disconnected subscriber.
        send_timeout: maximum time in seconds that `publish` waits for a full subscriber, with `on_full="block"`.
        batch: maximum number of messages in a batch.
        batch_delay: maximum time in seconds that a message waits for other messages of its batch.
        delimiter: bytes between subject and payload, such as `b" "`, for plain ZeroMQ peers whose messages have one
            frame. A publisher sends `subject + delimiter + payload` to plain subscribers, and refuses a subject that
            contains the delimiter. A subscriber splits messages of plain publishers at the first delimiter. Messages
            without the delimiter count as malformed. Links between oz programs do not use the delimiter.
        dedupe: whether a subscriber drops a message if it has already received a message with the same id.
        multicast: options of `epgm://` and `pgm://` endpoints; None for the defaults of `Multicast`.
        limits: limits for the resources that peers can use.
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
        _check_numbers(self, may_be_zero=("high_water_mark", "batch_delay"))
        if self.delimiter is not None and (not isinstance(self.delimiter, bytes) or not self.delimiter):
            rule = 'it is bytes between subject and payload, such as b" ", and not empty'
            raise ConfigurationError("delimiter", self.delimiter, "argument", rule)
        if self.multicast is not None and not isinstance(self.multicast, Multicast):
            raise ConfigurationError("multicast", self.multicast, "argument", "it is an oz.Multicast")


@dataclass(frozen=True, kw_only=True)
class NodeOptions(Options):
    """Options of a node: all options of publishers and subscribers, and the options below.

    Attributes:
        advertise: address or name of this host to which nodes on other hosts connect, instead of the bound address.
        directory: directory through which nodes on one host find each other; None for the default directory of the
            user.
        lost_after: time in seconds after which a peer that does not answer counts as lost.
        threads: maximum number of handlers that run at the same time. It has no effect in asyncio.
        echo: whether the node receives messages that it publishes itself.
        error_replies: whether the requester receives the text of the exception if the handler of a request raises.
    """

    advertise: str | None = None
    directory: str | os.PathLike[str] | None = None
    lost_after: float = 5.0
    threads: int = 8
    echo: bool = True
    error_replies: bool = True

    def __post_init__(self) -> None:
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
        policy: policy of a queue group for the choice of the member that receives a message. The policy "round_robin"
            picks one member after the other. The policy "sticky" picks the same member for messages with the same key,
            or with the same subject if messages have no key. The policy "failover" picks the member that joined first.
        max_pending: maximum number of messages that wait for the subscription.
        prefetch: number of unacknowledged messages from which a group prefers other members. None means 64 with
            `ack="handled"`, and otherwise 4,096.
        redeliver: whether messages that a lost member has not acknowledged are sent to other members.
        inline: whether the handler runs in the thread or event loop that reads the socket. An inline handler must be
            fast.
    """

    policy: Policy = "round_robin"
    max_pending: int = 65_536
    prefetch: int | None = None
    redeliver: bool = False
    inline: bool = False

    def __post_init__(self) -> None:
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
