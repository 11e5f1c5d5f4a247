"""The decisions for one leg of a forwarder: what it asks for, and when it tells of losses and silence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, Protocol

from oz.message import Extras
from oz.protocol.bridge.bridge import ImportFilter, Interest, Ledger
from oz.protocol.bridge.spanning_tree import Offer
from oz.protocol.stats import ForwarderStats

REPORT_EVERY = 0.25
"""Seconds between two reports that nobody knows how many messages were lost, or that another forwarder told
of. Forwarders that pass messages side by side, as they do while they disagree, hear each other's, and would
tell of them without end."""

AFTER_SILENCE = 0.5
"""Seconds for which offers of one that is heard again do not count: it takes them back if it stood still."""


class BridgeLeg(Protocol):
    """A leg of a forwarder, as its decisions see it: a node on one bus.

    Attributes:
        is_open: whether messages pass it.
        free_since: when it was found that it may open, in monotonic seconds; None when it may not.
    """

    is_open: bool
    free_since: float | None

    @property
    def number(self) -> int:
        """Return which it is, from 0."""

    @property
    def bus(self) -> str:
        """Return the name of its bus."""

    @property
    def ledger(self) -> Ledger:
        """Return what peers asked for when `look` looked last."""

    @property
    def forwarded(self) -> ForwardedInterest:
        """Return what is asked for there on behalf of other buses."""

    @property
    def import_filters(self) -> Sequence[tuple[BridgeLeg, ImportFilter]]:
        """Return the other legs, each with what may go there from here."""

    @property
    def stats(self) -> ForwarderStats:
        """Return the counts of what came here."""

    @property
    def pass_on(self) -> Callable[[Any, Any, Extras, str], bool]:
        """Publish what came from another bus: subject, content, extras, group; tell whether anybody wants it.

        Raises:
            SubjectError, ProtocolError: it may not be published.
            ClosedError: the node is closed.
        """

    def look(self, now: float) -> None:
        """Look at what peers ask for now."""

    def unready(self) -> Sequence[str]:
        """Say which peers are still to be spoken with."""

    def unheard(self) -> set[bytes]:
        """Return the uuids of the peers that do not send what is asked for yet."""

    def tell(self, offer: Offer) -> None:
        """Tell other forwarders on this bus how the root is reached over this one."""

    def ask(self) -> None:
        """Ask for what is wanted, and for nothing else."""

    def report_loss(self, count: int | None, now: float, *, is_hearsay: bool = False) -> None:
        """Report to peers that messages are missing, at once or later.

        Args:
            count: how many; None when nobody knows.
            now: the time, in monotonic seconds.
            is_hearsay: another forwarder told so; where that is too soon it is told without a count.
        """

    def tell_losses(self, now: float) -> None:
        """Report what was to be reported and came too soon after something else."""

    def next_deadline(self) -> float:
        """Return when such a report is due, in monotonic seconds; `inf` for never."""


class ForwardedInterest:
    """The interest that one leg declares on behalf of the others. It may change while it is carried out.

    Attributes:
        asked: what is asked for, with how members of a group are picked.
        policies: of each queue group, how they are to be picked.
    """

    __slots__ = ("_stale", "_wanted", "asked", "policies")

    def __init__(self) -> None:
        """Start without any."""
        self.asked: dict[Interest, str] = {}
        self.policies: dict[str, str] = {}
        self._wanted: dict[Interest, int] = {}
        self._stale: dict[Interest, None] = {}

    @property
    def is_stale(self) -> bool:
        """Whether something is wanted and not asked for, or the other way round, as far as is known."""
        return bool(self._stale)

    def forget(self) -> None:
        """Begin anew with what is wanted; it is asked for until `next_change` says otherwise."""
        self._stale.update(dict.fromkeys(self._wanted))
        self._wanted = {}

    def want(self, interests: Iterable[Interest], import_filter: ImportFilter, change: int = 1) -> None:
        """Record that another bus wants something, or no longer.

        Args:
            interests: what.
            import_filter: says what may go there.
            change: 1, or -1.
        """
        for pattern, group in interests:
            for narrowed in import_filter.narrow(pattern):
                interest = narrowed, group
                self._wanted[interest] = self._wanted.get(interest, 0) + change
                self._stale[interest] = None

    def next_change(self) -> tuple[Interest, str | None] | None:
        """Return what to ask for next and how members are to be picked, or None for how: it is not wanted.

        Returns:
            None when all that is wanted is asked for, and nothing else.
        """
        while self._stale:
            interest, _ = self._stale.popitem()
            policy = self.policies.get(interest[1], "round_robin") if self._wanted.get(interest) else None
            if policy is None:
                self._wanted.pop(interest, None)
            if self.asked.get(interest) == policy:
                continue
            if policy is None:
                del self.asked[interest]
            else:
                self.asked[interest] = policy
            return interest, policy
        return None


class LossReports:
    """The times at which peers are told of losses that this one knows little of: not too often.

    Attributes:
        reported_at: when they were told last, in monotonic seconds.
        is_owed: a report came too soon after that, and is still to be made.
    """

    __slots__ = ("is_owed", "reported_at")

    def __init__(self) -> None:
        """Nothing was told yet."""
        self.reported_at = -REPORT_EVERY
        self.is_owed = False

    def take(self, count: int | None, now: float) -> tuple[bool, int | None]:
        """Take in a loss; tell whether to tell of one now, and of how many messages.

        If not, one is owed at `next_deadline`. What was owed is told with the next: nobody knows its count.
        """
        was_owed, self.is_owed = self.is_owed, now < self.reported_at + REPORT_EVERY
        if self.is_owed:
            return False, None
        self.reported_at = now
        return True, None if was_owed else count

    def next_deadline(self) -> float:
        """Return when a report that came too soon is due, in monotonic seconds; `inf` for never."""
        return self.reported_at + REPORT_EVERY if self.is_owed else inf


class Silences:
    """The peers that say nothing, or did so a moment ago."""

    __slots__ = ("_silent_at",)

    def __init__(self) -> None:
        """Everybody speaks."""
        self._silent_at: dict[bytes, float] = {}

    def mute(self, silent: Iterable[bytes], now: float) -> set[bytes]:
        """Return whose offers do not count.

        Args:
            silent: the uuids of those who say nothing now.
            now: the time, in monotonic seconds.
        """
        for uuid in silent:
            self._silent_at[uuid] = now
        self._silent_at = {uuid: at for uuid, at in self._silent_at.items() if now - at < AFTER_SILENCE}
        return set(self._silent_at)
