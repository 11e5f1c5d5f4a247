"""The options of a multicast socket: how it sends and listens."""

from __future__ import annotations

from dataclasses import dataclass

from oz.numbers import check_count, check_seconds

LEAST_MTU, MOST_MTU = 256, 9_216
"""Bytes of a packet. Source: libpgm ends the process below 76 and where a second's rate is less than one."""

MOST_RATE = 10_000_000
MOST_RECOVERY = 600.0
MOST_WINDOW = 2**30
"""Bytes that rate and recovery window may come to: a publisher may keep as many to send again."""

MOST_SECONDS = 3_600.0
SHORTEST_SILENCE = 0.5
"""Seconds; publishers are heard at least every quarter of one, if their network is."""

MOST_HOPS = 255

REPAIR_SECONDS = 25.0
"""Seconds after which libpgm gives up on a lost packet, at the latest. It asks 50 times for a confirmation
and 50 times for the packet, each time after 50 ms at most, and waits for 200 ms.
Source: pgm_socket.cpp of libzmq 4.3.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Multicast:
    """Options of a multicast socket; docs/multicast.md helps to choose them.

    Attributes:
        rate_kbps: the most that a publisher sends, in kilobits (1,000 bits) a second; repairs come on top
            of it. The same on all hosts: a subscriber works out from it how much can be repaired.
        recovery: seconds for which lost packets can be sent again.
        hops: routers that packets may pass, and one more; 1 stays on the LAN.
        mtu: bytes of a packet on the network, headers included.
        stale_after: seconds for which packets of a publisher arrive, repairs among them, and none of its
            messages, after which a subscriber connects anew. libpgm may take 25: with less, a repair is
            forgone. Where no repairs arrive it is 5 at most.

    Raises:
        ValueError: a number is out of bounds, or two do not go together.
        TypeError: one is no number.
    """

    rate_kbps: int = 10_000
    recovery: float = 10.0
    hops: int = 1
    mtu: int = 1_500
    stale_after: float = REPAIR_SECONDS

    def __post_init__(self) -> None:
        """Check all of it: libzmq ends the process over what it does not like."""
        check_count("hops", self.hops, 1, MOST_HOPS)
        check_count("mtu", self.mtu, LEAST_MTU, MOST_MTU)
        check_count("rate_kbps", self.rate_kbps, 1, MOST_RATE)
        check_seconds("recovery", self.recovery, MOST_RECOVERY, 0.1)
        check_seconds("stale_after", self.stale_after, MOST_SECONDS, SHORTEST_SILENCE)
        if self.rate_kbps * 125 < self.mtu:
            least = -(-self.mtu // 125)
            raise ValueError(
                f"rate_kbps={self.rate_kbps} is less than one packet of mtu={self.mtu} bytes a second; "
                f"make it {least} or more"
            )
        if self.window_bytes > MOST_WINDOW:
            raise ValueError(
                f"rate_kbps={self.rate_kbps} for recovery={self.recovery:g} s may keep {self.window_bytes:,} "
                f"bytes in memory; the most is {MOST_WINDOW:,}: shorten recovery"
            )

    @property
    def window_bytes(self) -> int:
        """Bytes that a publisher may keep to send again."""
        return round(self.rate_kbps * 125 * self.recovery)
