"""Noticing that a multicast publisher has gone silent. It reads no clock and wakes by itself never."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from oz.protocol.multicast.receiver import HeardSender
from oz.protocol.node.advisories import Advisory

MOST_TRIES = 5
"""Times that a subscriber connects anew for one publisher; each wait is twice the one before."""


class Noticed(NamedTuple):
    """A finding of the watchdog: what to say, and the endpoint to connect to anew, if any."""

    advisory: Advisory
    reconnect: str | None = None


class _Watch:
    """One publisher under watch."""

    __slots__ = ("has_left", "heard", "heard_at", "is_notified", "tried_at", "tries")

    def __init__(self, now: float) -> None:
        self.heard = 0
        self.heard_at = self.tried_at = now
        self.tries = 0
        self.is_notified = False
        self.has_left = False


class Watchdog:
    """Watches the publishers of one subscriber.

    It is looked at whenever the subscriber receives. Silence counts only when nothing is left to read: what
    a subscriber that was busy has not read yet says that its publisher lives.
    """

    __slots__ = ("_rate", "_reported_corrupt", "_stale_after", "_watches")

    def __init__(self, stale_after: float, rate: int) -> None:
        """Watch nobody yet.

        Args:
            stale_after: seconds.
            rate: the kilobits a second that all publishers should have.
        """
        self._stale_after = stale_after
        self._rate = rate
        self._watches: dict[bytes, _Watch] = {}
        self._reported_corrupt = 0

    def look(
        self, senders: Mapping[bytes, HeardSender], endpoints: Iterable[str], now: float, *, is_idle: bool
    ) -> list[Noticed]:
        """Look after the publishers.

        Args:
            senders: what was heard.
            endpoints: where it is listened to, each ending in group and port.
            now: monotonic seconds.
            is_idle: whether nothing was left to read just before.
        """
        findings: list[Noticed] = []
        for origin in self._watches.keys() - senders.keys():
            del self._watches[origin]
        for origin, sender in senders.items():
            watch = self._watches.get(origin)
            if watch is None:
                self._watches[origin] = watch = _Watch(now)
            findings += self._look_at(origin, sender, watch, list(endpoints), now, is_idle=is_idle)
        return findings

    def _look_at(
        self,
        origin: bytes,
        sender: HeardSender,
        watch: _Watch,
        endpoints: list[str],
        now: float,
        *,
        is_idle: bool,
    ) -> Iterable[Noticed]:
        if sender.heard_at != watch.heard:
            watch.heard = sender.heard_at
            watch.heard_at = watch.tried_at = now
            endpoint = _find(endpoints, sender.to)
            if watch.tries:
                watch.tries = 0
                yield Noticed(Advisory("heard", endpoint, origin, f"publisher {_name(origin)} is back"))
            if sender.rate and not watch.is_notified:
                watch.is_notified = True
                if sender.rate != self._rate:
                    yield Noticed(self._differs(endpoint, origin, sender.rate))
            if sender.has_left and not watch.has_left:
                yield Noticed(Advisory("left", endpoint, origin, f"publisher {_name(origin)} has closed"))
            watch.has_left = sender.has_left
        elif is_idle and not sender.has_left and self._is_stale(sender, watch, now):
            watch.tried_at = now
            watch.tries += 1
            yield self._silent(origin, watch, _find(endpoints, sender.to), now)

    def next_deadline(self, senders: Mapping[bytes, HeardSender]) -> float | None:
        """Return when the next publisher has been silent for too long, if nothing comes before.

        Args:
            senders: what was heard.

        Returns:
            Monotonic seconds; None for never.
        """
        return min(
            (
                watch.tried_at + self._patience(sender, watch)
                for origin, watch in self._watches.items()
                if (sender := senders.get(origin)) is not None
                and not sender.has_left
                and watch.tries <= MOST_TRIES
            ),
            default=None,
        )

    def _is_stale(self, sender: HeardSender, watch: _Watch, now: float) -> bool:
        return watch.tries <= MOST_TRIES and now >= watch.tried_at + self._patience(sender, watch)

    def _patience(self, sender: HeardSender, watch: _Watch) -> float:
        patience = self._stale_after * float(2 ** max(0, watch.tries - 1))
        if not watch.tries and sender.quiet_at == sender.heard_at:
            # Connecting anew would throw away what has come of the large message so far.
            patience += sender.quiet
        return patience

    def _silent(self, origin: bytes, watch: _Watch, endpoint: str | None, now: float) -> Noticed:
        seconds = now - watch.heard_at
        text = f"publisher {_name(origin)} has been silent for {seconds:.1f} s"
        if watch.tries > MOST_TRIES:
            return Noticed(Advisory("gone", endpoint, origin, f"{text}; it is not waited for any more"))
        return Noticed(Advisory("silent", endpoint, origin, f"{text}; connecting anew"), endpoint)

    def _differs(self, endpoint: str | None, origin: bytes, rate: int) -> Advisory:
        text = (
            f"publisher {_name(origin)} has rate_kbps={rate}, this subscriber {self._rate}; "
            "they must be equal, or too little can be repaired"
        )
        return Advisory("rate", endpoint, origin, text)

    def see_corrupt(self, count: int) -> list[Noticed]:
        """Say that frames were corrupt, at the first and whenever there are twice as many.

        Args:
            count: how many there were so far.
        """
        if count < max(1, 2 * self._reported_corrupt):
            return []
        self._reported_corrupt = count
        return [Noticed(Advisory("corrupt", None, None, f"{count} damaged frames were dropped so far"))]


def _find(endpoints: list[str], to: str | None) -> str | None:
    """Find the endpoint that a publisher is heard on: the only one, or that with its group and port."""
    for endpoint in endpoints:
        if to is not None and endpoint.rpartition(";")[2] == to:
            return endpoint
    return endpoints[0] if len(endpoints) == 1 else None


def _name(origin: bytes) -> str:
    return origin.hex()[:8]
