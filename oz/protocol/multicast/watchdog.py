"""Noticing that a multicast publisher has gone silent. It reads no clock and wakes by itself never."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from oz.protocol.multicast.receiver import HeardSender
from oz.protocol.node.advisories import Advisory

MOST_TRIES = 5
"""Times that a subscriber connects anew for one publisher; each wait is twice the one before."""

SILENCE = 1.5
"""Seconds without a message or heartbeat after which a publisher is silent; its heart beats every 0.2 s."""

DOUBT = 5.0
"""Seconds without any packet of a silent publisher after which messages may be missing that nobody counts."""

UNREPAIRED = 5.0
"""Seconds for which packets arrive, no message and no repair, after which libpgm repairs nothing any more.

Where more was lost than its window holds it was seen to ask for nothing, until the publisher said where it
stands: every 30 seconds, while it sends. What the window held by then had moved on.
"""

FORGOTTEN = 300.0
"""Seconds after which a publisher is not waited for of which nothing arrives: libpgm has forgotten it."""

_LOOK_EVERY = 0.5
"""Seconds between two looks at whether packets of a silent publisher arrive."""


class Arriving(NamedTuple):
    """The packets that arrive at an endpoint.

    Attributes:
        publishers: of how many publishers.
        has_repairs: whether there are repairs, or confirmations that one was asked for, among them.
    """

    publishers: int
    has_repairs: bool


_UNSEEN = Arriving(1, has_repairs=True)


class Noticed(NamedTuple):
    """A finding of the watchdog.

    Attributes:
        advisory: what to say; None for nothing.
        reconnect: the endpoint to connect to anew, if any.
        unknown: the publisher of which messages may be missing that nobody counted, if any.
    """

    advisory: Advisory | None
    reconnect: str | None = None
    unknown: bytes | None = None


class _Watch:
    """One publisher under watch.

    Attributes:
        heard: when it was heard last, by the subscriber's clock.
        heard_at: the same, in monotonic seconds.
        looked_at: when it was last seen to be silent, or heard.
        waits_from: since when its packets arrive, or may, and no message does.
        repaired_at: when repairs, or what may be repairs, arrived last while it was silent.
        tries: how many times the subscriber has connected anew for it.
        is_silent: whether that was said.
        is_gone: whether it is not waited for any more.
        is_doubted: whether it was said that messages may be missing.
        is_notified: whether its rate was looked at.
        has_left: whether it said goodbye.
    """

    __slots__ = (
        "has_left",
        "heard",
        "heard_at",
        "is_doubted",
        "is_gone",
        "is_notified",
        "is_silent",
        "looked_at",
        "repaired_at",
        "tries",
        "waits_from",
    )

    def __init__(self, now: float) -> None:
        self.heard = 0
        self.is_notified = self.has_left = False
        self.hear(now)

    def hear(self, now: float) -> None:
        self.heard_at = self.waits_from = self.looked_at = self.repaired_at = now
        self.tries = 0
        self.is_silent = self.is_gone = self.is_doubted = False


class Watchdog:
    """Watches the publishers of one subscriber.

    It is looked at whenever the subscriber receives. Silence counts only when nothing is left to read: what
    a subscriber that was busy has not read yet says that its publisher lives. Connecting anew throws away
    what libpgm was repairing, so it is for one case: packets arrive and no message does, for longer than any
    repair takes, or without any repair.
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

    def silent_on(self, senders: Mapping[bytes, HeardSender], endpoints: Iterable[str]) -> set[str]:
        """Return the endpoints of publishers that are silent: where to see whether packets arrive.

        Args:
            senders: what was heard.
            endpoints: where it is listened to.
        """
        known = list(endpoints)
        return {
            endpoint
            for origin, watch in self._watches.items()
            if self._is_awaited(watch)
            and origin in senders
            and (endpoint := _find(known, senders[origin].to)) is not None
        }

    @staticmethod
    def _is_awaited(watch: _Watch) -> bool:
        return watch.is_silent and not watch.is_gone and not watch.has_left

    def look(
        self,
        senders: Mapping[bytes, HeardSender],
        endpoints: Iterable[str],
        now: float,
        *,
        is_idle: bool,
        arriving: Mapping[str, Arriving | None] | None = None,
    ) -> list[Noticed]:
        """Look after the publishers.

        Args:
            senders: what was heard.
            endpoints: where it is listened to, each ending in group and port.
            now: monotonic seconds.
            is_idle: whether nothing was left to read just before.
            arriving: what packets arrive at an endpoint; None before that is known. Where an endpoint is
                missing it cannot be seen: packets count as arriving, and as repairs.
        """
        known = list(endpoints)
        for origin in self._watches.keys() - senders.keys():
            del self._watches[origin]
        findings: list[Noticed] = []
        for origin, sender in senders.items():
            watch = self._watches.get(origin)
            if watch is None:
                self._watches[origin] = watch = _Watch(now)
            if sender.heard_at != watch.heard:
                findings += self._hear(origin, sender, watch, _find(known, sender.to), now)
        if is_idle:
            unheard = self._unheard(senders, known, arriving or {})
            for origin, sender in senders.items():
                watch = self._watches[origin]
                if not (sender.has_left or watch.is_gone):
                    endpoint = _find(known, sender.to)
                    findings += self._miss(
                        origin, sender, watch, endpoint, now, unheard.get(endpoint, _UNSEEN)
                    )
        return findings

    def _hear(
        self, origin: bytes, sender: HeardSender, watch: _Watch, endpoint: str | None, now: float
    ) -> Iterable[Noticed]:
        """Record a publisher of which something came since the last look."""
        watch.heard = sender.heard_at
        if watch.is_silent:
            yield Noticed(Advisory("heard", endpoint, origin, f"publisher {_name(origin)} is back"))
        watch.hear(now)
        if sender.rate and not watch.is_notified:
            watch.is_notified = True
            if sender.rate != self._rate:
                yield Noticed(self._differs(endpoint, origin, sender.rate))
        if sender.has_left and not watch.has_left:
            yield Noticed(Advisory("left", endpoint, origin, f"publisher {_name(origin)} has closed"))
        watch.has_left = sender.has_left

    def _unheard(
        self,
        senders: Mapping[bytes, HeardSender],
        endpoints: list[str],
        arriving: Mapping[str, Arriving | None],
    ) -> dict[str | None, Arriving | None]:
        """Return what packets arrive of publishers that are not heard; None before it is known."""
        heard = [
            _find(endpoints, senders[origin].to)
            for origin, watch in self._watches.items()
            if not (watch.is_silent or watch.has_left)
        ]
        return {
            one: None if came is None else came._replace(publishers=came.publishers - heard.count(one))
            for one, came in arriving.items()
        }

    def _miss(
        self,
        origin: bytes,
        sender: HeardSender,
        watch: _Watch,
        endpoint: str | None,
        now: float,
        came: Arriving | None,
    ) -> Iterable[Noticed]:
        """Look at a publisher that may be silent."""
        watch.looked_at = now
        if not watch.is_silent:
            if now >= watch.heard_at + self._patience(sender):
                watch.is_silent = True
                watch.waits_from = watch.repaired_at = now
                yield Noticed(self._silent(origin, watch, endpoint, now, "waiting for it"))
            return
        is_away = came is not None and came.publishers <= 0
        if came is None or is_away:
            watch.waits_from = now
        if came is None or is_away or came.has_repairs:
            watch.repaired_at = now
        silence = now - watch.heard_at
        is_stale = self._is_stale(watch, now)
        if not watch.is_doubted and (is_stale or (is_away and silence >= DOUBT)):
            watch.is_doubted = True
            yield Noticed(None, unknown=origin)
        if (is_stale and watch.tries == MOST_TRIES) or (is_away and silence >= FORGOTTEN):
            watch.is_gone = True
            yield Noticed(self._silent(origin, watch, endpoint, now, "it is not waited for any more", "gone"))
        elif is_stale:
            watch.waits_from = watch.repaired_at = now
            watch.tries += 1
            yield Noticed(self._silent(origin, watch, endpoint, now, "connecting anew", "stuck"), endpoint)

    def _is_stale(self, watch: _Watch, now: float) -> bool:
        """Tell whether libpgm has had its time since packets arrive, or repairs nothing."""
        times = float(2 ** max(0, watch.tries - 1))
        unrepaired = min(UNREPAIRED, self._stale_after)
        return now >= min(
            watch.waits_from + self._stale_after * times, watch.repaired_at + unrepaired * times
        )

    def next_deadline(self, senders: Mapping[bytes, HeardSender]) -> float | None:
        """Return when something is to be looked at, if nothing comes before.

        Args:
            senders: what was heard.

        Returns:
            Monotonic seconds; None for never.
        """
        return min(
            (
                watch.looked_at + _LOOK_EVERY if watch.is_silent else watch.heard_at + self._patience(sender)
                for origin, watch in self._watches.items()
                if (sender := senders.get(origin)) is not None and not (sender.has_left or watch.is_gone)
            ),
            default=None,
        )

    @staticmethod
    def _patience(sender: HeardSender) -> float:
        """Return the seconds after which a publisher is silent; more while a large message is on its way."""
        return SILENCE + (sender.quiet if sender.quiet_at == sender.heard_at else 0.0)

    @staticmethod
    def _silent(
        origin: bytes, watch: _Watch, endpoint: str | None, now: float, then: str, kind: str = "silent"
    ) -> Advisory:
        seconds = now - watch.heard_at
        text = f"publisher {_name(origin)} has been silent for {seconds:.1f} s; {then}"
        return Advisory(kind, endpoint, origin, text)

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
