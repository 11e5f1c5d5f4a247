"""A plan for `oz.Multicast` under a load: the arithmetic of libpgm, as libzmq sets it up.

Sources: `compute_sqns` and `init` in pgm_socket.cpp of libzmq 4.3; source.c, rate_control.c, txw.c, rxw.c and
skbuff.h of OpenPGM. Measured numbers are marked.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor

from oz.options import (
    MAX_MTU,
    MAX_RATE,
    MAX_RECOVERY,
    MAX_WINDOW,
    MIN_MTU,
    REPAIR_SECONDS,
    Multicast,
)
from oz.wire.datagrams import OVERHEAD

IP_AND_UDP = 28
"""Bytes of the headers of IPv4 and UDP; RATE counts them."""

PGM_HEADERS = 26
"""Bytes of PGM's headers, and two bytes with the offset of the first message, from libzmq; RATE counts them."""

HEADERS = IP_AND_UDP + PGM_HEADERS

SPARE = 100
"""Number of bytes of a packet that oz leaves free when it fills a packet with messages."""

ITEM = 10
"""Maximum number of bytes that a message adds to a batch beside its subject and payload."""

LONE_FRAMES = 4_000
"""Incomplete frames per second: in each `max_delay` of 0.5 ms a message alone and the end of a batch."""

BEATS = 5
"""Heartbeats of a publisher per second, each in its own packet. With slow messages they fill most of the window."""

BEAT_SIZE = 92
"""Maximum size of a heartbeat in bytes, without the headers around it."""

BUFFER = 208
"""Bytes that libpgm keeps beside each packet of a window. Measured: 1,670 in all for packets of 1,500."""

MARGIN = 1.25
"""Ratio of RATE to the load, so that a burst does not wait."""

SLOW_SHARE = 0.3
"""Minimum share of RATE that is sent if libpgm limits each millisecond separately.

Measured: 0.50 to 0.97 on a free processor, 0.18 to 0.83 on a busy one; docs/multicast.md.
"""

HELD_SECONDS = 5.0
"""Seconds after an outage for which the window keeps its packets, while they are sent again.

Measured: up to 5 seconds, if two subscribers are cut off together and one receives the confirmations for the other.
"""

WINDOW_MARGIN = 1.5
"""Factor of the window over its need. With 1.15, repairs arrived too late (measured)."""

REPAIRED_AT_ONCE = 1_000
"""Number of successive lost packets that were repaired in every run. With 1,450 some runs failed (measured)."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load to send, and the outage to survive.

    Attributes:
        rate: messages a second of each publisher.
        size: bytes of a payload.
        outage: seconds of the longest interruption whose lost packets PGM must repair.
        publishers: number of publishers.
        subject: bytes of a subject.
        mtu: bytes of the largest IP packet.
    """

    rate: float
    size: int
    outage: float
    publishers: int = 1
    subject: int = 32
    mtu: int = 1_500


@dataclass(frozen=True, slots=True)
class MulticastPlan:
    """Plan for one publisher: options and their effects.

    Attributes:
        load: of the publisher.
        packets: packets a second, at most, beside the heartbeats.
        wire_kbps: kilobits a second with heartbeats and all headers that RATE counts, at most.
        options: of both sides.
        usable_kbps: kilobits a second that are sent at least.
        window: packets that can be sent again.
        memory: bytes that the full window takes: in the publisher always, in a subscriber while it repairs.
        lost: packets that the outage loses, at most, with the heartbeats.
    """

    load: Load
    packets: float
    wire_kbps: float
    options: Multicast
    usable_kbps: float
    window: int
    memory: int
    lost: int

    @property
    def held(self) -> float:
        """Seconds of this load that the window holds. A longer outage loses its first packets."""
        return self.window / (self.packets + BEATS)

    @property
    def is_repaired(self) -> bool:
        """Whether the number of lost packets is in the range that was repaired in every measured run."""
        return self.lost <= REPAIRED_AT_ONCE

    @property
    def repaired_outage(self) -> float:
        """Longest outage in seconds whose lost packets were repaired in every measured run."""
        return REPAIRED_AT_ONCE / (self.packets + BEATS)

    @property
    def line(self) -> str:
        """The `oz.Multicast(…)` to paste."""
        usual, options = Multicast(), self.options
        more = {name: getattr(options, name) for name in ("mtu", "stale_after")}
        text = "".join(f", {name}={value:g}" for name, value in more.items() if value != getattr(usual, name))
        return f"oz.Multicast(rate_kbps={options.rate_kbps}, recovery={options.recovery:g}{text})"


def packets_of(load: Load) -> tuple[float, float]:
    """Return the packets and the bytes a second that a load takes at most, with all headers.

    Frequent messages are sent in batches; a large message is split into packets.
    """
    item = load.subject + load.size + ITEM
    in_frame = (load.mtu - SPARE - OVERHEAD) // item
    if in_frame > 1:
        frames = min(load.rate, load.rate / in_frame + LONE_FRAMES)
        return frames, load.rate * item + frames * (OVERHEAD + HEADERS)
    frame = load.subject + load.size + OVERHEAD + ITEM
    packets = load.rate * ceil(frame / (load.mtu - HEADERS))
    return packets, load.rate * frame + packets * HEADERS


def window_of(rate_kbps: int, recovery: float, mtu: int) -> int:
    """Return the number of packets in a window, as libzmq computes it: in whole bytes per millisecond."""
    return max(1, round(recovery * 1000) * (rate_kbps // 8) // mtu)


def usable_kbps(rate_kbps: int, mtu: int) -> float:
    """Return the part of a RATE that is sent at least.

    If RATE allows a full packet each millisecond, libpgm limits each millisecond separately, and loses the unused part.
    """
    return rate_kbps * SLOW_SHARE if rate_kbps >= 8 * mtu else float(rate_kbps)


def plan(load: Load) -> MulticastPlan:
    """Return the plan for a load.

    Args:
        load: of one publisher.

    Raises:
        ValueError: an impossible number, or a load above the limit of one publisher; the text has the remedy.
    """
    _check(load)
    packets, size = packets_of(load)
    kbps = (size + BEATS * (BEAT_SIZE + HEADERS)) * 8 / 1000
    rate_kbps = _rate_for(kbps * MARGIN, load.mtu)
    wanted = ceil((packets + BEATS) * (load.outage + HELD_SECONDS) * WINDOW_MARGIN)
    recovery = _recovery_for(wanted, rate_kbps, load.mtu)
    if rate_kbps > MAX_RATE or recovery > MAX_RECOVERY or rate_kbps * 125 * recovery > MAX_WINDOW:
        raise ValueError(
            f"{packets:,.0f} packets a second take rate_kbps={rate_kbps} and, for an outage of "
            f"{load.outage:g} s, recovery={recovery:g}, more than one publisher may have. "
            "Spread the load over several, or plan for a shorter outage"
        )
    window = window_of(rate_kbps, recovery, load.mtu)
    return MulticastPlan(
        load,
        packets,
        kbps,
        Multicast(
            rate_kbps=rate_kbps, recovery=recovery, mtu=load.mtu, stale_after=_patience_for(load.outage)
        ),
        usable_kbps(rate_kbps, load.mtu),
        window,
        window * (load.mtu + BUFFER),
        ceil((packets + BEATS) * load.outage),
    )


def _rate_for(kbps: float, mtu: int) -> int:
    """Return the lowest RATE for a load: whole bytes a millisecond, and at least one packet a second."""
    rate = 8 * ceil(max(kbps / 8, mtu / 1000))
    return rate if usable_kbps(rate, mtu) >= kbps else 8 * ceil(kbps / SLOW_SHARE / 8)


def _recovery_for(window: int, rate_kbps: int, mtu: int) -> float:
    """Return the shortest recovery for a window in packets, rounded up to a tenth of a second."""
    tenths = max(1, floor(window * mtu / (rate_kbps // 8) / 100))
    while window_of(rate_kbps, tenths / 10, mtu) < window:
        tenths += 1
    return tenths / 10


def _patience_for(outage: float) -> float:
    """Return `stale_after`: the outage counts too, because packets of `pgm://` are not observed."""
    return ceil((outage + REPAIR_SECONDS) * 10) / 10


def _check(load: Load) -> None:
    bounds = (
        ("rate", load.rate, 0.01, 10_000_000, "messages a second"),
        ("size", load.size, 0, 1 << 30, "bytes"),
        ("outage", load.outage, 0, 600, "seconds"),
        ("publishers", load.publishers, 1, 10_000, "publishers"),
        ("subject", load.subject, 1, 65_535, "bytes"),
        ("mtu", load.mtu, MIN_MTU, MAX_MTU, "bytes"),
    )
    for name, value, minimum, maximum, unit in bounds:
        if not minimum <= value <= maximum:
            raise ValueError(f"{name} is from {minimum:,} to {maximum:,} {unit}, not {value!r}")
