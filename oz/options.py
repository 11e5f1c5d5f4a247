"""Options of publishers, subscribers and nodes. All are frozen; `dataclasses.replace` changes a copy."""

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
"""Policies by which a queue group selects the member for a message."""
OVERFLOWS = ("drop_newest", "drop_oldest", "conflate")
"""Policies for a subscriber that is too slow."""
_HOST = re.compile(r"\[[^\s/\[\]]+\]|[^\s/:*\[\]]+")
"""Name or IPv4 address, or IPv6 address in brackets."""


class _StrictOptions:
    """Base of the options: a misspelled name gets a suggestion."""

    def __new__(cls, *_: Any, **given: Any) -> Self:
        known = {item.name for item in fields(cls)}  # type: ignore[arg-type]
        refuse_unknown(f"oz.{cls.__name__}", (text for text in given if text not in known), cls.__init__)
        return super().__new__(cls)


@dataclass(frozen=True, kw_only=True)
class Limits(_StrictOptions):
    """Limits of a socket, a node or a service. Limits bound the memory, time and connections that a peer can use.

    Attributes:
        patterns: subscriptions of one link at a publisher.
        pattern_time: seconds for one match. A pattern is suspended after three matches that took longer.
        subscription_bytes: bytes of the subscriptions of one plain subscriber.
        message_bytes: bytes of the payload of one message. `publish` refuses a larger payload. A peer that sends a
            larger payload is disconnected.
        peers: links of one publisher.
        handshake: seconds within which a peer ends ZeroMQ's handshake.
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
"""Bytes of a packet. libpgm ends the process below 76 bytes, and if the rate is below one packet a second."""
MAX_RATE = 10_000_000  # kbit/s
MAX_RECOVERY = 600.0  # seconds
MAX_WINDOW = 1 << 30
"""Limit for the bytes that a publisher keeps for repairs, which are `recovery` seconds at `rate_kbps`."""
REPAIR_SECONDS = 25.0
"""Seconds after which libpgm gives up a lost packet, at the latest. It asks 50 times for a confirmation and 50
times for the packet, each time after 50 ms at most, and waits for 200 ms. Source: pgm_socket.cpp of libzmq 4.3.
"""
_MIN_STALE = 0.5  # Seconds. A publisher is heard at least twice in this time.
_MAX_STALE = 3_600.0
_MAX_HOPS = 255


@dataclass(frozen=True, kw_only=True)
class Multicast:
    """Options of multicast endpoints, `epgm://` and `pgm://`.

    Attributes:
        rate_kbps: maximum rate of a publisher in kilobits (1,000 bits) a second; repairs are sent in addition. All
            hosts need the same value, because a subscriber derives the size of its window from it.
        recovery: seconds for which lost packets can be sent again.
        hops: routers that packets may pass, plus one; 1 stays on the LAN.
        mtu: maximum size in bytes of a packet on the network, with headers.
        stale_after: seconds after which a subscriber connects again, if packets of the publisher arrive and no
            messages do. A repair by libpgm may take 25 seconds, and a new connection ends the repair. Without
            repairs the subscriber waits at most 5 seconds.
        plain: whether to use plain ZeroMQ messages, without checksums, reports of losses and heartbeats.
    """

    rate_kbps: int = 10_000
    recovery: float = 10.0
    hops: int = 1
    mtu: int = 1_500
    stale_after: float = REPAIR_SECONDS
    plain: bool = False

    def __post_init__(self) -> None:
        """Check all values, because libzmq ends the process if it cannot use one."""
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
        """Bytes that a publisher may keep to send them again."""
        return round(self.rate_kbps * 125 * self.recovery)


@dataclass(frozen=True, kw_only=True)
class Options(_StrictOptions):
    """Options of a publisher or a subscriber that few programs change.

    Attributes:
        high_water_mark: maximum number of messages that wait for one subscriber; 0 for no such limit. `max_pending`
            of a subscription takes its place.
        pending_bytes: maximum size in bytes of the messages that wait for one subscriber at the publisher. With
            `on_full="block"` or "raise", a single message larger than half of this limit may exceed it.
        resume_bytes: bytes of sent messages that a publisher keeps until they are acknowledged, so that a
            subscriber can resume without loss.
        resume_seconds: seconds that a publisher keeps the link of a subscriber without connection.
        send_timeout: seconds that `publish` waits for a full subscriber, with `on_full="block"`.
        batch: maximum number of messages in a batch.
        batch_delay: maximum time in seconds that a message waits for a batch.
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
        """Check that no number is negative, and that 0 has a meaning."""
        _check_numbers(self, may_be_zero=("high_water_mark", "batch_delay"))
        if self.delimiter is not None and (not isinstance(self.delimiter, bytes) or not self.delimiter):
            rule = 'it is bytes between subject and payload, such as b" ", and not empty'
            raise ConfigurationError("delimiter", self.delimiter, "argument", rule)
        if self.multicast is not None and not isinstance(self.multicast, Multicast):
            raise ConfigurationError("multicast", self.multicast, "argument", "it is an oz.Multicast")


@dataclass(frozen=True, kw_only=True)
class NodeOptions(Options):
    """Options of a node: options of a publisher and a subscriber, and five options of nodes.

    Attributes:
        advertise: address or name of this host that other hosts dial, in place of the bound address.
        directory: where nodes of one host find each other; None for the directory of the user.
        lost_after: seconds without an answer of a silent peer after which the peer is lost.
        threads: maximum number of running handlers; unused in asyncio.
        echo: whether subscriptions of the node receive what the node publishes.
        error_replies: whether the reply to a request has the text of the exception of a handler.
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
        policy: how a queue group picks the member: "round_robin", "sticky" (by the key of the message, else
            by its subject) or "failover" (the member that joined first).
        max_pending: maximum number of messages that wait for the subscription.
        prefetch: number of unacknowledged messages at which a group prefers other members; None for 64 with
            `ack="handled"`, otherwise 4,096.
        redeliver: whether the messages that a lost member has not acknowledged go to other members.
        inline: whether the handler runs in the thread or loop that reads. Such a handler must be fast.
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
