"""The decisions of a forwarder: which of its legs are open, what it asks for on each, and what passes.

It waits for nothing: whoever has it calls `turn` when something has changed, or at `next_deadline`; and
`pass_between` and `lose` for what comes to a leg, from any thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from oz.errors import ClosedError, OzError
from oz.logs import peer_logger
from oz.message import Extras
from oz.protocol.bridge import spanning_tree
from oz.protocol.bridge.bridge import VIA_SIZE, has_passed
from oz.protocol.bridge.leg import BridgeLeg
from oz.protocol.messages import Message
from oz.protocol.stats import ForwarderStats
from oz.wire.extras import VIA

_log = peer_logger("oz.forwarder")

SETTLE = 0.3
"""Seconds for which a leg must have been free to open before it opens: others may be about to tell."""

PATIENCE = 3.0
"""Seconds at the start for which peers are waited for, that they may tell of other forwarders."""

STANDSTILL = 3.5
"""Seconds for which a process stands still, after which another forwarder may have gone on for it. Nobody
takes it for silent before four."""

LOOK_SECONDS = 1.0
"""Seconds between two looks at the buses while nothing is said to have changed; each notes that it runs."""

UNSETTLED_SECONDS = 0.1
"""Seconds between two looks at the start, while peers are waited for."""


class Forwarding:
    """The decisions of one forwarder.

    Attributes:
        legs: its legs.
        is_settled: whether it has found out what to pass on, and what others do.
        has_stand_by: another forwarder on two of the buses may go on for this one.
        is_replaced: another forwarder goes on for it, as it ends.
        takeovers: times that it went on for another one.
    """

    def __init__(
        self,
        legs: Sequence[BridgeLeg],
        name: bytes,
        monotonic: Callable[[], float],
        time_ns: Callable[[], int],
    ) -> None:
        """Begin with all legs closed.

        Args:
            legs: two or more.
            name: `VIA_SIZE` bytes that no other forwarder has.
            monotonic: the clock of its legs, in seconds.
            time_ns: the time of day there.

        Raises:
            ValueError: the name has another size.
        """
        if len(name) != VIA_SIZE:
            raise ValueError(f"a forwarder is known by {VIA_SIZE} bytes, not {name!r}")
        self.legs = legs
        self._name = name
        self._monotonic, self._time_ns = monotonic, time_ns
        self.is_settled = self.is_replaced = False
        self.takeovers = 0
        self._rank = self._new_rank()
        self._path: tuple[bytes, ...] = ()
        self._serial = 0
        self._turns = dict[str, int]()
        self._asked_for: list[tuple[bool, dict[str, str]]] = []
        self._began_at = self._alive_at = monotonic()
        self._looked_at = 0.0
        self.has_stand_by = False
        self._opened_at: float | None = None
        self._late: list[set[bytes]] | None = None

    def _new_rank(self) -> bytes:
        """Return the rank of a forwarder that is started now."""
        return self._time_ns().to_bytes(spanning_tree.TIME_SIZE, "big") + self._name

    @property
    def states(self) -> list[str]:
        """For each leg "open", or "standing by" while another forwarder passes messages there."""
        return ["open" if one.is_open else "standing by" for one in self.legs]

    @property
    def stats(self) -> ForwarderStats:
        """The counts so far."""
        total = ForwarderStats(takeovers=self.takeovers)
        for leg in self.legs:
            total.add(leg.stats)
        total.interests = sum(len(leg.forwarded.asked) for leg in self.legs)
        total.withheld = sum(len(one) for leg in self.legs for one in list(leg.ledger.withheld.values()))
        return total

    # when ------------------------------------------------------------------------------------------------

    def turn(self, now: float, *, has_news: bool) -> None:
        """See to what has changed.

        Args:
            now: the time, in monotonic seconds.
            has_news: peers may ask for something else than when this was called last.
        """
        self._note_alive(now)
        for leg in self.legs:
            leg.tell_losses(now)
        if has_news or now >= self._looks_at():
            self._looked_at = now
            for leg in self.legs:
                leg.look(now)
                self._note_alive(self._monotonic())
            self._settle(now)
            self._ask()
            self._hear_late(now)
            self._note_alive(self._monotonic())

    def next_deadline(self) -> float:
        """Return when `turn` has something to do if nothing changes before, in monotonic seconds."""
        return min([self._looks_at(), *(leg.next_deadline() for leg in self.legs)])

    def _looks_at(self) -> float:
        """Return when the buses are looked at next."""
        if not self.is_settled:
            return self._looked_at + UNSETTLED_SECONDS
        looks_at = self._looked_at + LOOK_SECONDS
        if all(one.is_open or one.free_since is None for one in self.legs):
            return looks_at
        # They open together, when the last of them may.
        return min(looks_at, max(one.free_since for one in self.legs if one.free_since is not None) + SETTLE)

    def _has_stood_still(self, now: float) -> bool:
        """Tell whether another forwarder may have gone on for this one, which does not know of it yet."""
        return self.has_stand_by and now - self._alive_at >= STANDSTILL

    def _note_alive(self, now: float) -> None:
        """Record that the process runs; if it stood still, stand by while another forwarder goes on.

        What came in the meantime would arrive twice, and behind what is newer.
        """
        if self._has_stood_still(now):
            _log.warning("this process stood still for seconds; others may have gone on, and it stands by")
            self._stand_by()
        self._alive_at = now

    def _stand_by(self) -> None:
        """Pass nothing on until it is found out anew who does, as one that is started now."""
        for leg in self.legs:
            leg.is_open, leg.free_since = False, None
        self._rank = self._new_rank()
        self._path = ()

    # the tree of buses -----------------------------------------------------------------------------------

    def _settle(self, now: float) -> None:
        """Find out which legs are open, and tell the other forwarders."""
        names = Counter(
            name
            for leg in self.legs
            for name in {offer.path[-1][spanning_tree.TIME_SIZE :] for offer in leg.ledger.offers}
        )
        self.has_stand_by = any(count > 1 for count in names.values())
        settled = spanning_tree.settle(self._rank, [one.ledger.offers for one in self.legs])
        if settled.path != self._path:
            self._path, self._serial = settled.path, self._serial + 1
            for leg in self.legs:
                leg.tell(spanning_tree.Offer(self._path, leg.number, self._serial))
                leg.free_since = None
        may_open = self.is_settled or self._may_begin(now)
        for leg, is_free in zip(self.legs, settled.is_open, strict=True):
            if not is_free:
                leg.free_since, leg.is_open = None, False
            elif leg.free_since is None:
                leg.free_since = now
        if may_open and all(one.free_since is None or now >= one.free_since + SETTLE for one in self.legs):
            self._open(now)

    def _may_begin(self, now: float) -> bool:
        return now - self._began_at >= PATIENCE or not any(one.unready() for one in self.legs)

    def _open(self, now: float) -> None:
        opened = [one for one in self.legs if one.free_since is not None and not one.is_open]
        for leg in opened:
            leg.is_open = True
        if opened:
            self._opened_at, self._late = now, None
        has_taken_over = self.is_settled and bool(opened)
        self.is_settled = True
        self._ask()
        if has_taken_over:
            self._take_over(now)

    def _take_over(self, now: float) -> None:
        """Go on for another one."""
        self.takeovers += 1
        for leg in self.legs:
            # What came while nobody passed it on is lost, and nobody knows how much that was.
            if leg.is_open:
                leg.report_loss(None, now)

    def _hear_late(self, now: float) -> None:
        """Tell that messages may be missing of peers that do what is asked of them only now.

        Whoever passed on what they said is gone, and they were cut off from this one when it began.
        """
        if self._opened_at is None or now < self._opened_at + SETTLE:
            return
        unheard = [leg.unheard() if leg.is_open else set() for leg in self.legs]
        before = unheard if self._late is None else self._late
        self._late = [one & now_unheard for one, now_unheard in zip(before, unheard, strict=True)]
        for leg, one, left in zip(self.legs, before, self._late, strict=True):
            if leg.is_open and one != left:
                self.lose(leg, None, is_hearsay=False)
        if not any(self._late):
            self._opened_at = None

    def resign(self) -> bool:
        """Let others go on for this one, which is about to end.

        Returns:
            Whether somebody may, `SETTLE` seconds later; `is_replaced` is to be said then.
        """
        if not any(leg.is_open and leg.ledger.offers for leg in self.legs):
            return False
        for leg in self.legs:
            leg.tell(spanning_tree.Offer((spanning_tree.LAST, self._rank), leg.number, self._serial + 1))
        return True

    # what crosses ----------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Ask on each bus for what the others want."""
        asked_for = [(one.is_open, one.ledger.policies) for one in self.legs]
        changes = [one.ledger.take_changes() for one in self.legs]
        is_new = asked_for != self._asked_for
        self._asked_for = asked_for
        policies: dict[str, str] = {}
        for _, of_leg in asked_for:
            # The buses may differ in how a group is picked from; two ways would be two members.
            policies = {**of_leg, **policies}
        for leg in self.legs:
            forwarded = leg.forwarded
            if is_new:
                forwarded.forget()
            for other, import_filter in leg.import_filters:
                if not (leg.is_open and other.is_open):
                    continue
                if is_new:
                    forwarded.want(other.ledger.interests, import_filter)
                    continue
                for interest, has_come in changes[other.number].items():
                    forwarded.want([interest], import_filter, 1 if has_come else -1)
            if forwarded.is_stale:
                forwarded.policies = policies
                leg.ask()

    def pass_between(self, leg: BridgeLeg, group: str, message: Message) -> None:
        """Publish a message on the other buses; called where the node of the leg is, to which it came."""
        stats, headers = leg.stats, message.headers
        stats.received += 1
        subject, via = message.subject, headers.get(VIA, b"")
        content = message.body
        stats.size += sum(map(len, content)) if type(content) is list else len(content)
        if has_passed(via, self._name):
            stats.looped += 1
            return
        raw = message.subject_bytes
        ways = [
            other for other, import_filter in leg.import_filters if other.is_open and import_filter.lets(raw)
        ]
        # The clock is read only where another one may have gone on.
        if not leg.is_open or not ways or (self.has_stand_by and self._has_stood_still(self._monotonic())):
            stats.unwanted += 1
            return
        passed = via + self._name if type(via) is bytes else self._name
        extras = message.extras._replace(headers={**headers, VIA: passed})
        if group and len(ways) > 1:
            ways = self._in_turn(group, leg, raw, ways)
        is_wanted = False
        for other in ways:
            if self._pass_on(leg, other, subject, content, extras, group):
                is_wanted = True
                stats.passed += 1
                if group:
                    break
        stats.unwanted += not is_wanted

    def _in_turn(self, group: str, leg: BridgeLeg, raw: bytes, ways: list[BridgeLeg]) -> list[BridgeLeg]:
        """Put the buses in the order in which they are offered a message of a group, of which one gets it."""
        policy = leg.forwarded.policies.get(group, "round_robin")
        if policy == "failover":
            return ways
        if policy == "sticky":
            at = sum(raw) % len(ways)
        else:
            at = self._turns[group] = (self._turns.get(group, -1) + 1) % len(ways)
        return ways[at:] + ways[:at]

    def _pass_on(
        self, leg: BridgeLeg, other: BridgeLeg, subject: Any, content: Any, extras: Extras, group: str
    ) -> bool:
        try:
            return other.pass_on(subject, content, extras, group)
        except ClosedError:
            return False
        except OzError as error:
            leg.stats.refused += 1
            _log.warning("a message on %r does not cross to bus %r: %s", subject, other.bus, error)
            other.report_loss(1, self._monotonic())
            return False

    def lose(self, leg: BridgeLeg, count: int | None, *, is_hearsay: bool) -> None:
        """Tell the other buses that messages were lost on one.

        Args:
            leg: that of the bus.
            count: how many; None when nobody knows.
            is_hearsay: another forwarder told so.
        """
        leg.stats.lost += count or 0
        # Whoever goes on for this one says that some may be lost, and must not be told so in its turn.
        if leg.is_open and not (count is None and self.is_replaced):
            for other, _ in leg.import_filters:
                if other.is_open:
                    other.report_loss(count, self._monotonic(), is_hearsay=is_hearsay)
