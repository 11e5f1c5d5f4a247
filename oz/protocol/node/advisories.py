"""Advisories: what oz tells an application of the bus itself, typed, classed and not too often."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Literal

from oz.protocol.node.reserved_subjects import ADVISORY

Severity = Literal["information", "warning", "error"]

SEVERITIES: dict[str, Severity] = {
    "peer_up": "information",
    "peer_left": "information",
    "peer_lost": "warning",
    "nameserver_found": "information",
    "nameserver_lost": "warning",
    "gap": "warning",
    "slow_consumer": "warning",
    "pattern_timeout": "warning",
    "refused": "warning",
    "permission_denied": "error",
    "handler_failed": "error",
    "malformed": "error",
    "contradiction": "error",
}
"""The advisories of nodes, each with its class; docs/node.md lists them."""

_WORDS = {"information": "INFO", "warning": "WARN", "error": "ERROR"}

EVERY = 1.0
"""Seconds between two advisories of one kind about the same thing; those in between are counted together."""

MOST_THINGS = 1_024
"""Things that are told apart at a time."""


@dataclass(frozen=True, slots=True)
class Advisory:
    """Something that oz noticed.

    Attributes:
        kind: of a multicast subscriber: `"silent"`: nothing came of a publisher for 1.5 s. `"stuck"`: its
            packets arrive, but no message did for `stale_after` seconds, or for 5 without a repair, and the
            subscriber has connected anew. `"heard"`: the publisher is back. `"gone"`: it has stayed silent,
            and is not waited for any more. `"left"`: it closed, in order. `"rate"`: it has another
            `rate_kbps`. `"corrupt"`: frames were damaged and dropped; said of the first, and whenever there
            are twice as many.
            Of a node: `"peer_up"`, `"peer_left"` (it said goodbye), `"peer_lost"`, `"nameserver_found"`,
            `"nameserver_lost"`, `"gap"`, `"slow_consumer"`, `"pattern_timeout"`, `"refused"`,
            `"permission_denied"`, `"handler_failed"`, `"malformed"`,
            `"contradiction"` (another process may publish under the name of a publisher).
        endpoint: where; None when that is not known.
        origin: the publisher, 16 bytes; None when it is not known.
        text: the same in words.
        severity: its class: `"information"`, `"warning"` or `"error"`.
        count: how many messages or events it stands for; None when nobody knows.
        about: the subject, pattern, node or name server that it is about, if there is one.
    """

    kind: str
    endpoint: str | None
    origin: bytes | None
    text: str
    severity: Severity = "warning"
    count: int | None = 1
    about: str | None = None

    @property
    def subject(self) -> str:
        """The subject on which a node publishes it to its own subscriptions."""
        return f"{ADVISORY}{_WORDS[self.severity]}.{self.kind.upper()}"


def advise(
    kind: str, text: str, *, about: str | None = None, count: int | None = 1, origin: bytes | None = None
) -> Advisory:
    """Make an advisory of a node."""
    return Advisory(kind, None, origin, text, SEVERITIES[kind], count, about)


class Throttle:
    """Lets one advisory of a kind about one thing through at a time, and counts the others into the next."""

    __slots__ = ("_held", "_published_at")

    def __init__(self) -> None:
        """Start with nothing told."""
        self._published_at: dict[Hashable, float] = {}
        self._held: dict[Hashable, tuple[Advisory, bool]] = {}

    def offer(self, advisory: Advisory, now: float) -> Advisory | None:
        """Return it if it may be published now; otherwise keep it, and what it counts."""
        key = (advisory.kind, advisory.about)
        if key not in self._published_at and len(self._published_at) >= MOST_THINGS:
            key = (advisory.kind, None)
        if now - self._published_at.get(key, now - EVERY) >= EVERY and key not in self._held:
            self._published_at[key] = now
            return advisory
        held = self._held.get(key)
        self._held[key] = (advisory, False) if held is None else (_sum(held[0], advisory), True)
        return None

    def next_deadline(self) -> float | None:
        """Return when `due` has something to give, in monotonic seconds; None for never."""
        return min((self._published_at.get(key, 0.0) + EVERY for key in self._held), default=None)

    def due(self, now: float) -> list[Advisory]:
        """Return those whose time has come, each with the count of all that it stands for."""
        ready = [key for key in self._held if now >= self._published_at.get(key, 0.0) + EVERY]
        for key in ready:
            self._published_at[key] = now
        due = [_summed(self._held.pop(key)) for key in ready]
        for key in [key for key, at in self._published_at.items() if now - at >= 2 * EVERY]:
            if key not in self._held:
                del self._published_at[key]
        return due


def _sum(one: Advisory, other: Advisory) -> Advisory:
    """Return the newer one, with the count of both."""
    known = one.count is not None and other.count is not None
    return replace(other, count=(one.count or 0) + (other.count or 0) if known else None)


def _summed(held: tuple[Advisory, bool]) -> Advisory:
    """Say of an advisory that stands for several how many that are."""
    advisory, is_sum = held
    if not is_sum:
        return advisory
    how_many = "an unknown number" if advisory.count is None else f"{advisory.count:,}"
    return replace(advisory, text=f"{advisory.text}; {how_many} since the advisory before")
