"""Limits of the machines of nodes, name servers and forwarders. `node_limits` derives them from `oz.Limits`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from oz import options

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a node or a service; each is a number above 0, `math.inf` is no limit.

    Attributes:
        streams: streams of one connection at a publisher; a subscriber has one for each set of delivery
            options.
        patterns: patterns of one connection at a publisher.
        pattern_weight: bytes of memory that the patterns of one connection may take there, as estimated.
        pattern_time: seconds that a publisher gives to the patterns of one connection for each message.
        all_pattern_time: seconds for the patterns of all connections together.
        key_bytes: bytes of the keys of one connection, plain subscriptions aside: libzmq takes 100 for each.
        plain_subscriptions: plain subscriptions of one connection.
        plain_size: bytes of one plain subscription.
        plain_bytes: bytes of the plain subscriptions of one connection.
        waiting_keys: bytes that one connection asked for and a publisher has not looked at yet.
        refused_bytes: bytes that one connection asks for in vain before a publisher cuts it off.
        interest_time: seconds that a publisher spends on subscriptions at a time.
        all_streams: streams of all connections at a publisher.
        all_patterns: patterns of all connections at a publisher.
        all_plain_bytes: bytes of the plain subscriptions of all connections.
        all_waiting_keys: bytes of waiting keys of all connections together.
        unsent: bytes that wait at a publisher for one connection; more is lost, and that is told. One message
            passes however large it is.
        message_size: bytes of one frame that a socket takes; a peer that sends a larger one is cut off.
        handshake: seconds that a peer has for ZeroMQ's handshake.
        queued: bytes that wait at a name server for one peer.
        nodes: nodes that a name server keeps in mind.
        sources: publishers that a subscriber keeps in mind.
        dials: connections that a node begins at once.
        dial_rate: connections that a node begins in a second.
    """

    streams: float = 1_024
    patterns: float = 100_000
    pattern_weight: float = 16 * MIB
    pattern_time: float = 0.001
    all_pattern_time: float = 0.005
    key_bytes: float = 8 * MIB
    plain_subscriptions: float = 100_000
    plain_size: float = KIB
    plain_bytes: float = 4 * MIB
    waiting_keys: float = 4 * MIB
    refused_bytes: float = MIB
    interest_time: float = 0.001
    all_streams: float = 65_536
    all_patterns: float = 4_000_000
    all_plain_bytes: float = 256 * MIB
    all_waiting_keys: float = 64 * MIB
    unsent: float = 64 * MIB
    message_size: float = 64 * MIB
    handshake: float = 10.0
    queued: float = 8 * MIB
    nodes: float = 65_536
    sources: float = 16_384
    dials: float = 5
    dial_rate: float = 20

    def __post_init__(self) -> None:
        """Refuse what is no limit.

        Raises:
            TypeError: a value is no number.
            ValueError: a number is not above 0.
        """
        for name, value in asdict(self).items():
            check_limit(name, value)


def node_limits(given: options.Limits) -> Limits:
    """Return the limits of a node or a service.

    Raises:
        TypeError: the argument is no `oz.Limits`.
    """
    if not isinstance(given, options.Limits):
        raise TypeError(f"limits is oz.Limits(…), not {given!r}")
    return Limits(
        patterns=given.patterns,
        pattern_time=given.pattern_time,
        all_pattern_time=max(DEFAULT_LIMITS.all_pattern_time, given.pattern_time),
        key_bytes=given.subscription_bytes,
        plain_bytes=given.subscription_bytes,
        message_size=given.message_bytes,
        nodes=given.peers,
        handshake=given.handshake,
    )


def check_limit(name: str, value: Any) -> float:
    """Return a limit.

    Raises:
        TypeError: it is no number.
        ValueError: it is not above 0.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is a number above 0, or math.inf for no limit, not {value!r}")
    # nan is not above 0 either.
    if not value > 0:
        raise ValueError(f"{name} is a number above 0, or math.inf for no limit, not {value!r}")
    return value


DEFAULT_LIMITS = Limits()
"""Default limits."""
