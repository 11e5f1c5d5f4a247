"""Options of `oz.Multicast` for a given load. The module repeats the arithmetic of libpgm and libzmq.

Sources: `compute_sqns` and `init` in pgm_socket.cpp of libzmq 4.3; source.c, rate_control.c, txw.c, rxw.c and skbuff.h
of OpenPGM. The other numbers were measured.

RATE is the socket option of libzmq that limits the rate. The window of a publisher holds the recent packets, which
libpgm can send again.
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
"""Size in bytes of the IPv4 and UDP headers. The option RATE of libzmq counts these bytes."""

PGM_HEADERS = 26
"""Size in bytes of the PGM headers, and two more bytes in which libzmq writes the offset of the first message. RATE
counts these bytes too.
"""

HEADERS = IP_AND_UDP + PGM_HEADERS

SPARE = 100
"""Number of bytes of a packet that oz leaves free when it fills a packet with messages."""

ITEM = 10
"""Maximum number of bytes that a message in a batch needs besides its subject and payload."""

LONE_FRAMES = 4_000
"""Maximum number of frames per second that do not fill a packet. Two of them may occur in each `max_delay` of 0.5 ms: a
single message and the last frame of a batch.
"""

BEATS = 5
"""Number of heartbeats that a publisher sends per second. A heartbeat is one packet. If messages are rare, most packets
of the window are heartbeats.
"""

BEAT_SIZE = 92
"""Maximum size of a heartbeat in bytes, without the headers around it."""

BUFFER = 208
"""Number of bytes that libpgm needs for each packet of a window in addition to the packet. Measured: 1,670 bytes for a
packet of 1,500 bytes.
"""

MARGIN = 1.25
"""Ratio of RATE to the load. With a ratio of 1, bursts of messages would be delayed."""

SLOW_SHARE = 0.3
"""If libpgm limits each millisecond separately, it sends less than RATE. The plan expects this fraction of RATE.

Measured: 0.50 to 0.97 on an idle processor, 0.18 to 0.83 on a busy processor; see docs/multicast.md.
"""

HELD_SECONDS = 5.0
"""Seconds for which the window must keep the lost packets after an outage, until they are sent again.

Measured: repairs took up to 5 seconds when two subscribers were cut off together.
"""

WINDOW_MARGIN = 1.5
"""Ratio of the size of the window to the number of packets that it must hold. With 1.15, repairs arrived too late
(measured)."""

REPAIRED_AT_ONCE = 1_000
"""Number of successive lost packets that libpgm repaired in every run. With 1,450 packets, some runs failed
(measured)."""


@dataclass(frozen=True, slots=True)
class Load:
    """Load that publishers send, and the outage after which all losses must be repaired.

    Attributes:
        rate: number of messages that each publisher sends per second.
        size: size of a payload in bytes.
        outage: duration in seconds of the longest outage. PGM must repair all packets that are lost during this outage.
        publishers: number of publishers.
        subject: size of a subject in bytes.
        mtu: size in bytes of the largest IP packet.
    """

    rate: float
    size: int
    outage: float
    publishers: int = 1
    subject: int = 32
    mtu: int = 1_500


@dataclass(frozen=True, slots=True)
class MulticastPlan:
    """Options for one publisher, and their effects.

    Attributes:
        load: load of the publisher for which the plan was made.
        packets: maximum number of packets per second. Heartbeats are not counted.
        wire_kbps: maximum rate in kilobits per second, with heartbeats and all headers that RATE counts.
        options: multicast options for the publisher and its subscribers.
        usable_kbps: minimum rate in kilobits per second that libpgm sends.
        window: number of packets that the publisher keeps, so that it can send them again.
        memory: size of a full window in bytes. A publisher always needs this memory. A subscriber needs it during
            repairs.
        lost: maximum number of packets that are lost in the outage, including heartbeats.
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
        """Duration in seconds of this load that fits into the window.

        In a longer outage, the first packets are lost for good.
        """
        return self.window / (self.packets + BEATS)

    @property
    def is_repaired(self) -> bool:
        """Whether libpgm repaired this number of lost packets in every measured run."""
        return self.lost <= REPAIRED_AT_ONCE

    @property
    def repaired_outage(self) -> float:
        """Longest outage in seconds that libpgm repaired in every measured run."""
        return REPAIRED_AT_ONCE / (self.packets + BEATS)

    @property
    def line(self) -> str:
        """Python expression `oz.Multicast(…)` with the options of the plan."""
        usual, options = Multicast(), self.options
        more = {name: getattr(options, name) for name in ("mtu", "stale_after")}
        text = "".join(f", {name}={value:g}" for name, value in more.items() if value != getattr(usual, name))
        return f"oz.Multicast(rate_kbps={options.rate_kbps}, recovery={options.recovery:g}{text})"


def packets_of(load: Load) -> tuple[float, float]:
    """Return the maximum number of packets per second for a load, and the number of bytes per second with all headers.

    A frame may contain a batch of messages. A large message is split into packets.
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
    """Return the number of packets in a window.

    As in libzmq, the rate is rounded down to whole bytes per millisecond.
    """
    return max(1, round(recovery * 1000) * (rate_kbps // 8) // mtu)


def usable_kbps(rate_kbps: int, mtu: int) -> float:
    """Return the rate in kilobits per second that libpgm reaches with a given RATE.

    If RATE allows a full packet in each millisecond, libpgm limits each millisecond separately. The unused part of a
    millisecond is lost.
    """
    return rate_kbps * SLOW_SHARE if rate_kbps >= 8 * mtu else float(rate_kbps)


def plan(load: Load) -> MulticastPlan:
    """Return the plan for a load.

    Args:
        load: messages that one publisher sends, and the outage to survive.

    Raises:
        ValueError: an attribute of the load is out of range, or the load is too high for one publisher. The error text
            suggests a remedy.
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
    """Return the lowest RATE for a load: whole bytes per millisecond, and at least one packet per second."""
    rate = 8 * ceil(max(kbps / 8, mtu / 1000))
    return rate if usable_kbps(rate, mtu) >= kbps else 8 * ceil(kbps / SLOW_SHARE / 8)


def _recovery_for(window: int, rate_kbps: int, mtu: int) -> float:
    """Return the shortest recovery time in seconds that gives a window of `window` packets, in steps of 0.1 s."""
    tenths = max(1, floor(window * mtu / (rate_kbps // 8) / 100))
    while window_of(rate_kbps, tenths / 10, mtu) < window:
        tenths += 1
    return tenths / 10


def _patience_for(outage: float) -> float:
    """Return the option `stale_after`.

    The option exceeds the outage, because a subscriber of `pgm://` cannot distinguish an outage from a stuck libpgm.
    """
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
