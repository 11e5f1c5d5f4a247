"""The forwarder between buses: a node on each, and what crosses is what somebody on another bus wants."""

from __future__ import annotations

import inspect
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from threading import Event, Lock
from typing import Any, Self

import zmq

from oz.errors import ClosedError, ConfigurationError, OzError
from oz.message import Extras, Message
from oz.protocol.bridge import spanning_tree
from oz.protocol.bridge.bridge import VIA_SIZE, has_passed
from oz.services.leg import ForwarderStats, Leg
from oz.services.waiting import Bell, look_again, wait
from oz.transport.node.opening import node_settings
from oz.wire.extras import VIA

_log = logging.getLogger("oz.forwarder")

SETTLE = 0.3
"""Seconds for which a leg must have been free to open before it opens: others may be about to tell."""

PATIENCE = 3.0
"""Seconds at the start for which peers are waited for, that they may tell of other forwarders."""

STANDSTILL = 3.5
"""Seconds for which a process stands still, after which another forwarder may have gone on for it. Nobody
takes it for silent before four."""

_LOOK_SECONDS = 1.0
"""Seconds between two looks at the buses while nothing is said to have changed; each notes that it runs."""

_LEG_OPTIONS = frozenset({"allow", *inspect.signature(node_settings).parameters}) - {"codec"}
"""What may be said of a leg. Payloads pass as they are, so that it has no codec."""

_UNSETTLED = 0.1  # seconds between two looks at the start, while peers are waited for
_COLLECT_SECONDS = 0.005  # seconds in which changes are taken together
_CLOSING = 5.0  # seconds that closing takes at most, as with a node


class Forwarder:
    """Joins buses by a node on each.

    What peers on one bus ask for it asks for on the others, and publishes what comes. There are no loops:
    forwarders that join the same buses, directly or in a ring, agree on which of them pass messages, and the
    others stand by.

    Attributes:
        legs: its nodes, in the order in which they were given.
    """

    def __init__(self, legs: Iterable[Mapping[str, Any]], *, name: str | None = None) -> None:
        """Join the buses; `run` begins to pass messages on.

        Args:
            legs: for each bus the arguments of `oz.Node` that say how to join it, `bus` at least; and
                `allow`, a pattern or several of what may come onto it from the others, as of `oz.parse`.
            name: what its nodes are called; default "forwarder" and the process id.

        Raises:
            ConfigurationError: fewer than two legs, or something in one makes no sense.
            PatternError: a pattern of `allow` is not valid.
            NameserverUnavailable, ValueError, TransportUnavailable, zmq.ZMQError: as of `oz.Node`.
        """
        if isinstance(legs, str) or not all(isinstance(one, Mapping) for one in legs):
            raise ConfigurationError("legs", legs, "argument", 'give a list of legs such as {"bus": "a"}')
        given = [dict(one) for one in legs]
        if len(given) < 2:
            raise ConfigurationError("legs", given, "argument", "a forwarder joins two buses or more")
        self._is_stopping = False
        self._bell = Bell()
        self._poller = zmq.Poller()
        self._poller.register(self._bell, zmq.POLLIN)
        self._has_news = False
        self._is_idle = Event()
        self._is_idle.set()
        self._takeovers = 0
        self._is_over = self._is_replaced = False
        self._ending = Lock()
        self.legs: list[Leg] = []
        try:
            for number, one in enumerate(given):
                self.legs.append(self._join(number, one, name or f"forwarder-{os.getpid()}"))
        except BaseException:
            self.close()
            raise
        self._name = os.urandom(VIA_SIZE)
        self._rank = time.time_ns().to_bytes(spanning_tree.TIME_SIZE, "big") + self._name
        self._path: tuple[bytes, ...] = ()
        self._turns = dict[str, int]()
        self._asked_for: list[tuple[bool, dict[str, str]]] = []
        self._serial = 0
        self._began_at = time.monotonic()
        self._looked_at = 0.0
        self._is_settled = False
        self._alive_at = self._began_at
        self._has_stand_by = False
        for leg in self.legs:
            leg.begin(self._pass_between, self._lose, [one for one in self.legs if one is not leg])

    def _join(self, number: int, given: dict[str, Any], name: str) -> Leg:
        where = f"leg {number + 1}"
        for wrong in given.keys() - _LEG_OPTIONS:
            meant = get_close_matches(str(wrong), _LEG_OPTIONS, 1)
            hint = f"did you mean {meant[0]}?" if meant else f"it has {', '.join(sorted(_LEG_OPTIONS))}"
            raise ConfigurationError(str(wrong), given[wrong], where, f"a leg has no such option; {hint}")
        if not given.get("bus"):
            raise ConfigurationError("bus", given.get("bus"), where, "which bus is it to join?")
        try:
            return Leg(number, self._wake, **{"name": name, **given})
        except TypeError as error:
            raise ConfigurationError("legs", given, where, str(error)) from None

    # the tree of buses -----------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Whether it has found out what to pass on, and what others do."""
        return self._is_settled

    @property
    def states(self) -> list[str]:
        """For each leg "open", or "standing by" while another forwarder passes messages there."""
        return ["open" if one.is_open else "standing by" for one in self.legs]

    def _wake(self) -> None:
        """Wake it; any thread may call this."""
        if not self._has_news:
            self._has_news = True
            self._bell.ring()

    def _settle(self, now: float) -> None:
        """Find out which legs are open, and tell the other forwarders."""
        names = Counter(
            name
            for leg in self.legs
            for name in {offer.path[-1][spanning_tree.TIME_SIZE :] for offer in leg.ledger.offers}
        )
        self._has_stand_by = any(count > 1 for count in names.values())
        settled = spanning_tree.settle(self._rank, [one.ledger.offers for one in self.legs])
        if settled.path != self._path:
            self._path, self._serial = settled.path, self._serial + 1
            for leg in self.legs:
                leg.tell(spanning_tree.Offer(self._path, leg.number, self._serial))
                leg.free_since = None
        may_open = self._is_settled or self._may_begin(now)
        for leg, is_free in zip(self.legs, settled.is_open, strict=True):
            if not is_free:
                leg.free_since, leg.is_open = None, False
            elif leg.free_since is None:
                leg.free_since = now
        if may_open and all(one.free_since is None or now - one.free_since >= SETTLE for one in self.legs):
            self._open()

    def _has_stood_still(self) -> bool:
        """Tell whether another forwarder may have gone on for this one, which does not know of it yet."""
        return self._has_stand_by and time.monotonic() - self._alive_at >= STANDSTILL

    def _note_alive(self) -> None:
        """Record that the process runs; if it stood still, stand by while another forwarder goes on.

        What came in the meantime would arrive twice, and behind what is newer.
        """
        if self._has_stood_still():
            _log.warning("this process stood still for seconds; others may have gone on, and it stands by")
            for leg in self.legs:
                leg.is_open, leg.free_since = False, None
            # As one that is started now.
            self._rank = time.time_ns().to_bytes(spanning_tree.TIME_SIZE, "big") + self._name
            self._path = ()
        self._alive_at = time.monotonic()

    def _may_begin(self, now: float) -> bool:
        return now - self._began_at >= PATIENCE or not any(one.unready() for one in self.legs)

    def _open(self) -> None:
        opened = [one for one in self.legs if one.free_since is not None and not one.is_open]
        for leg in opened:
            leg.is_open = True
        has_taken_over = self._is_settled and bool(opened)
        self._is_settled = True
        self._ask()
        if has_taken_over:
            self._takeovers += 1
            for leg in self.legs:
                # What came while nobody passed it on is lost, and nobody knows how much that was.
                if leg.is_open:
                    leg.report_loss(None)

    # what crosses ----------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Ask on each bus for what the others want."""
        asked_for = [(one.is_open, one.ledger.policies) for one in self.legs]
        changes = {one: one.ledger.take_changes() for one in self.legs}
        is_new = asked_for != self._asked_for
        self._asked_for = asked_for
        policies: dict[str, str] = {}
        for _, of_leg in asked_for:
            # The buses may differ in how a group is picked from; two ways would be two members.
            policies = {**of_leg, **policies}
        for leg in self.legs:
            if is_new:
                leg.forget()
            for other, import_filter in leg.import_filters:
                if not (leg.is_open and other.is_open):
                    continue
                if is_new:
                    leg.want(other.ledger.interests, import_filter)
                    continue
                for interest, has_come in changes[other].items():
                    leg.want([interest], import_filter, 1 if has_come else -1)
            leg.ask(policies)

    def _pass_between(self, leg: Leg, group: str, message: Message) -> None:
        """Publish a message on the other buses; called by the thread of the leg that it came to."""
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
        if not leg.is_open or not ways or self._has_stood_still():
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

    def _in_turn(self, group: str, leg: Leg, raw: bytes, ways: list[Leg]) -> list[Leg]:
        """Put the buses in the order in which they are offered a message of a group, of which one gets it."""
        policy = leg.policies.get(group, "round_robin")
        if policy == "failover":
            return ways
        if policy == "sticky":
            at = sum(raw) % len(ways)
        else:
            at = self._turns[group] = (self._turns.get(group, -1) + 1) % len(ways)
        return ways[at:] + ways[:at]

    def _pass_on(self, leg: Leg, other: Leg, subject: Any, content: Any, extras: Extras, group: str) -> bool:
        try:
            return other.pass_on(subject, content, extras, group)
        except ClosedError:
            return False
        except OzError as error:
            leg.stats.refused += 1
            _log.warning("a message on %r does not cross to bus %r: %s", subject, other.engine.bus, error)
            other.report_loss(1)
            return False

    def _lose(self, leg: Leg, count: int | None) -> None:
        """Tell the other buses that messages were lost on one."""
        leg.stats.lost += count or 0
        # Whoever goes on for this one says that some may be lost, and must not be told so in its turn.
        if leg.is_open and not (count is None and self._is_replaced):
            for other, _ in leg.import_filters:
                if other.is_open:
                    other.report_loss(count)

    # running ---------------------------------------------------------------------------------------------

    @property
    def stats(self) -> ForwarderStats:
        """The counts so far."""
        total = ForwarderStats(takeovers=self._takeovers)
        for leg in self.legs:
            total.add(leg.stats)
        total.interests = sum(len(leg.asked) for leg in self.legs)
        return total

    def run(self, look: Callable[[], object] | None = None) -> None:
        """Pass messages on until `stop`.

        Args:
            look: called whenever interests change, and ten times a second, or at the time of the monotonic
                clock that it returns, a float.
        """
        again = 0.0
        self._is_idle.clear()
        try:
            with self._bell.rung_by_signals():
                while not self._is_stopping:
                    self._turn(again)
                    again = look_again(look)
        finally:
            self._is_idle.set()
        self._hand_over(time.monotonic() + _CLOSING)

    def turn(self, seconds: float = 0.0) -> None:
        """See to what has changed. Messages pass meanwhile, in threads of the nodes.

        Args:
            seconds: to wait at most when nothing has.
        """
        self._turn(time.monotonic() + seconds)

    def _turn(self, until: float) -> None:
        wait(self._poller, min(until, self._next_deadline()))
        self._bell.hear()
        if has_news := self._has_news:
            time.sleep(_COLLECT_SECONDS)
            self._has_news = False
        self._note_alive()
        now = time.monotonic()
        for leg in self.legs:
            leg.tell_losses()
        if has_news or now >= self._looks_at():
            self._looked_at = now
            for leg in self.legs:
                leg.look()
                self._note_alive()
            self._settle(now)
            self._ask()
            self._note_alive()

    def _next_deadline(self) -> float:
        """Return when something is due if nothing changes before, in monotonic seconds."""
        return min([self._looks_at(), *(leg.next_deadline() for leg in self.legs)])

    def _looks_at(self) -> float:
        """Return when the buses are looked at next."""
        if not self._is_settled:
            return self._looked_at + _UNSETTLED
        opening = [
            one.free_since + SETTLE for one in self.legs if one.free_since is not None and not one.is_open
        ]
        return min([self._looked_at + _LOOK_SECONDS, *opening])

    def stop(self) -> None:
        """Make `run` pass on its messages and return; any thread or signal handler may call it."""
        self._is_stopping = True
        self._bell.ring()

    def close(self) -> None:
        """Pass on what was taken in, and leave the buses. A second call does nothing."""
        ends = time.monotonic() + _CLOSING
        self.stop()
        self._is_idle.wait(_CLOSING)
        self._hand_over(ends)
        for leg in self.legs:
            leg.is_open = False
        for leg in self.legs:
            leg.close(max(0.0, ends - time.monotonic()))
        self._bell.close()

    def _hand_over(self, ends: float) -> None:
        """Let another forwarder go on, if there is one, and pass on what is on its way until then."""
        with self._ending:
            if not self._is_over:
                self._is_over = True
                self._let_others_go_on()
                for leg in self.legs:
                    # All before any is closed: what comes to one goes out on others.
                    leg.hand_over(ends)
                for leg in self.legs:
                    leg.tell_losses()

    def _let_others_go_on(self) -> None:
        if any(leg.is_open and leg.ledger.offers for leg in self.legs):
            # Whoever is to go on opens in a moment.
            for leg in self.legs:
                leg.tell(spanning_tree.Offer((spanning_tree.LAST, self._rank), leg.number, self._serial + 1))
            time.sleep(SETTLE)
            self._is_replaced = True

    def __enter__(self) -> Self:
        """Use it in `with`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()
