"""Supervision of the publishers of a multicast endpoint.

The watchdog detects silent publishers and stuck receivers of libpgm.

Theory of operation
-------------------
Four causes can stop the messages: a network failure, a stopped publisher, a long repair, or a stuck receiver of libpgm.
No call of libzmq reports the cause. A stuck receiver needs a new connection. For the other causes, a new connection
would do harm, because it ends the repairs. Therefore the subscriber connects again only if packets of the publisher
arrive but no messages. Before that, it waits for `stale_after`, which is longer than a repair. If the packets include
no repairs, it waits for `UNREPAIRED` seconds.

================ ==================================== ==========================================================
publisher        event                                result
================ ==================================== ==========================================================
heard            no frame for `SILENCE`               silent: observe its packets (`oz.multicast.arrivals`)
silent           a frame                              heard
silent           no packets, `DOUBT` after a frame    report that messages may be missing
silent           packets for `stale_after`, or for    stuck: report that messages may be missing, and
                 `UNREPAIRED` without repairs         connect again (the wait doubles after two attempts)
silent           stuck after `MAX_TRIES` attempts, or gone: the publisher is ignored
                 no packets, `FORGOTTEN` after a frame
any              a record that announces the end      left
================ ==================================== ==========================================================

A publisher can become silent only when all frames were read, because unread frames may come from this publisher. Times
are in seconds of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from oz.multicast.receiver import HeardSender

SILENCE = 1.5
"""Seconds without a frame after which a publisher counts as silent. A publisher sends a record every 0.2 s."""
DOUBT = 5.0
"""If no frame has arrived for this number of seconds, and no packet of the publisher arrives, messages may be
missing."""
UNREPAIRED = 5.0
"""Seconds after which libpgm counts as stuck, if packets arrive but neither messages nor repairs.

If more packets were lost than the window holds, libpgm requests no repair until the publisher announces its window.
Publishers do this every 30 seconds. By then the window contains other packets.
"""
FORGOTTEN = 300.0
"""Seconds without a packet after which libpgm forgets a publisher."""
MAX_TRIES = 5
"""Maximum number of new connections for one publisher. The waits before them are 1, 1, 2, 4 and 8 times the first
wait."""
_CHECK_INTERVAL = 0.5  # Seconds between two checks of the packets of a silent publisher.


class Arriving(NamedTuple):
    """Summary of the packets that arrive at an endpoint.

    Attributes:
        publishers: number of publishers whose packets arrive.
        has_repairs: whether the packets include repairs or confirmations of repair requests.
    """

    publishers: int
    has_repairs: bool


UNOBSERVED = Arriving(1, has_repairs=True)
"""Value for an endpoint whose packets cannot be observed: the watchdog assumes that packets and repairs arrive."""


class Notice(NamedTuple):
    """Notice of the watchdog.

    Attributes:
        kind: "silent", "heard", "stuck", "gone", "left", "rate" (a publisher has another rate), "corrupt" (frames were
            damaged), or "doubt" (messages may be missing).
        origin: id of the publisher; None for "corrupt".
        text: line for the log; empty if the kind is "doubt".
    """

    kind: str
    origin: bytes | None
    text: str = ""


class _Watch:
    """State of one publisher.

    Attributes:
        seen: value of `HeardSender.heard_at` at the last check. A different value shows that a frame has arrived since
            that check.
        heard_at: time of the check that found the last frame.
        checked_at: time of the last check of a silent publisher.
        waits_from: start of the time in which packets of the silent publisher arrive, but no messages.
        repaired_at: time of the last repair that arrived while the publisher was silent.
        tries: number of new connections since the last frame of the publisher.
        state: "heard", "silent" or "gone".
        is_doubted: whether the watchdog has returned the notice "doubt" since the last frame.
        is_compared: whether the rate of the publisher was compared with the rate of the subscriber.
        has_left: whether the last record of the publisher announced its end.
    """

    __slots__ = (
        "checked_at",
        "has_left",
        "heard_at",
        "is_compared",
        "is_doubted",
        "repaired_at",
        "seen",
        "state",
        "tries",
        "waits_from",
    )  # fmt: skip

    def __init__(self, now: float) -> None:
        self.seen = 0
        self.is_compared = self.has_left = False
        self.mark_heard(now)

    def mark_heard(self, now: float) -> None:
        self.heard_at = self.waits_from = self.checked_at = self.repaired_at = now
        self.tries = 0
        self.state = "heard"
        self.is_doubted = False


class Watchdog:
    """Watches the publishers of one endpoint."""

    def __init__(self, stale_after: float, rate_kbps: int) -> None:
        """Start without publishers.

        Args:
            stale_after: number of seconds, which must be longer than a repair. If packets but no messages arrive for
                this time, libpgm counts as stuck.
            rate_kbps: rate of the subscriber in kilobits per second. If a publisher has another rate, its losses are
                not repaired.
        """
        self._stale_after, self._rate = stale_after, rate_kbps
        self._watches: dict[bytes, _Watch] = {}
        self._reported_malformed = 0

    def has_silent(self) -> bool:
        """Return whether any publisher is silent. If so, the caller must observe the packets of the endpoint."""
        return any(watch.state == "silent" and not watch.has_left for watch in self._watches.values())

    def check(
        self,
        senders: Mapping[bytes, HeardSender],
        now: float,
        *,
        is_idle: bool,
        arriving: Arriving | None = UNOBSERVED,
        malformed: int = 0,
    ) -> list[Notice]:
        """Return the notices since the last check.

        Args:
            senders: state of each publisher from which frames have arrived, by the id of the publisher.
            now: current time in seconds of the monotonic clock.
            is_idle: whether all frames were read.
            arriving: packets that arrive at the endpoint; None if the caller has not observed them long enough.
            malformed: number of damaged frames so far.
        """
        for origin in self._watches.keys() - senders.keys():
            del self._watches[origin]
        notices: list[Notice] = []
        for origin, sender in senders.items():
            watch = self._watches.get(origin)
            if watch is None:
                watch = self._watches[origin] = _Watch(now)
            if sender.heard_at != watch.seen:
                notices += self._hear(origin, sender, watch, now)
        if is_idle:
            unheard = self._unheard(arriving)
            for origin, sender in senders.items():
                watch = self._watches[origin]
                if not (watch.has_left or watch.state == "gone"):
                    notices += self._miss(origin, sender, watch, now, unheard)
        if malformed >= max(1, 2 * self._reported_malformed):
            self._reported_malformed = malformed
            notices.append(Notice("corrupt", None, f"{malformed} damaged frames were dropped so far"))
        return notices

    def _hear(self, origin: bytes, sender: HeardSender, watch: _Watch, now: float) -> Iterator[Notice]:
        watch.seen = sender.heard_at
        if watch.state != "heard":
            yield Notice("heard", origin, f"publisher {_name(origin)} is heard again")
        watch.mark_heard(now)
        if sender.rate and not watch.is_compared:
            watch.is_compared = True
            if sender.rate != self._rate:
                text = (
                    f"publisher {_name(origin)} has rate_kbps={sender.rate} and this subscriber "
                    f"{self._rate}: give both the same, or lost packets are not repaired"
                )
                yield Notice("rate", origin, text)
        if sender.has_left and not watch.has_left:
            yield Notice("left", origin, f"publisher {_name(origin)} has closed")
        watch.has_left = sender.has_left

    def _unheard(self, arriving: Arriving | None) -> Arriving | None:
        """Return `arriving` without publishers whose frames arrive.

        In the result, `publishers` is the number of publishers whose packets arrive, but whose messages libpgm does not
        deliver.
        """
        if arriving is None or arriving is UNOBSERVED:
            return arriving
        heard = sum(watch.state == "heard" and not watch.has_left for watch in self._watches.values())
        return arriving._replace(publishers=arriving.publishers - heard)

    def _miss(
        self,
        origin: bytes,
        sender: HeardSender,
        watch: _Watch,
        now: float,
        came: Arriving | None,
    ) -> Iterator[Notice]:
        watch.checked_at = now
        if watch.state == "heard":
            if now >= watch.heard_at + SILENCE + sender.quiet:
                watch.state = "silent"
                watch.waits_from = watch.repaired_at = now
                yield _missing("silent", origin, watch, now, "waiting for it")
            return
        is_away = came is not None and came.publishers <= 0
        if came is None or is_away:
            watch.waits_from = now
        if came is None or is_away or came.has_repairs:
            watch.repaired_at = now
        silence = now - watch.heard_at
        is_stuck = self._is_stuck(watch, now)
        if not watch.is_doubted and (is_stuck or (is_away and silence >= DOUBT)):
            watch.is_doubted = True
            yield Notice("doubt", origin)
        if (is_stuck and watch.tries == MAX_TRIES) or (is_away and silence >= FORGOTTEN):
            watch.state = "gone"
            yield _missing("gone", origin, watch, now, "not waiting for it any more")
        elif is_stuck:
            watch.waits_from = watch.repaired_at = now
            watch.tries += 1
            yield _missing("stuck", origin, watch, now, "connecting again")

    def _is_stuck(self, watch: _Watch, now: float) -> bool:
        factor = float(2 ** max(0, watch.tries - 1))
        unrepaired = min(UNREPAIRED, self._stale_after)
        return now >= min(
            watch.waits_from + self._stale_after * factor, watch.repaired_at + unrepaired * factor
        )

    def next_deadline(self, senders: Mapping[bytes, HeardSender]) -> float | None:
        """Return the time in seconds at which the next `check` is due if no frame arrives; None if no check is needed.

        Args:
            senders: state of each publisher from which frames have arrived, by the id of the publisher.
        """
        return min(
            (
                watch.checked_at + _CHECK_INTERVAL
                if watch.state == "silent"
                else watch.heard_at + SILENCE + senders[origin].quiet
                for origin, watch in self._watches.items()
                if origin in senders and not (watch.has_left or watch.state == "gone")
            ),
            default=None,
        )


def _missing(kind: str, origin: bytes, watch: _Watch, now: float, action: str) -> Notice:
    silence = now - watch.heard_at
    return Notice(kind, origin, f"publisher {_name(origin)} is silent for {silence:.1f} s; {action}")


def _name(origin: bytes) -> str:
    return origin.hex()[:8]
