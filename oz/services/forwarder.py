"""The forwarder between buses: a node on each, and what crosses is what somebody on another bus wants."""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from threading import Event, Lock
from typing import Any, Self

import zmq

from oz.errors import ConfigurationError
from oz.numbers import check_number
from oz.protocol.stats import ForwarderStats
from oz.services.leg import LEG_SETTINGS, Leg, hand_over, join_legs, patterns_of
from oz.services.waiting import Bell, look_again, wait
from oz.sync.node_engine import ThreadedNode, finish
from oz.transport.node.opening import node_settings
from oz.transport.security import Security, resolve_security

_LEG_OPTIONS = frozenset({"allow", *inspect.signature(node_settings).parameters}) - {"codec"}
"""What may be said of a leg. Payloads pass as they are, so that it has no codec."""

_WAYS = ("nameserver", "peers", "directory", "bind")
"""What leads to a bus; two of one name may be different ones."""

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

    def __init__(
        self, legs: Iterable[Mapping[str, Any]], *, name: str | None = None, security: Security | None = None
    ) -> None:
        """Join the buses; `run` begins to pass messages on.

        Args:
            legs: for each bus the arguments of `oz.Node` that say how to join it, `bus` at least; and
                `allow`, a pattern or several of what may come onto it from the others, as of `oz.compile`.
            name: what its nodes are called; default "forwarder" and the process id.
            security: of the legs that say none of their own; default as of `oz.Node`. All that it passes on
                has its key there: docs/security.md.

        Raises:
            ConfigurationError: fewer than two legs, two alike, or something in one makes no sense.
            PatternError: a pattern of `allow` is not valid.
            NameserverUnavailable, PermissionDenied, ValueError, TransportUnavailable, zmq.ZMQError: as of
                `oz.Node`.
        """
        found = [] if isinstance(legs, str) else list(legs)
        if isinstance(legs, str) or not all(isinstance(one, Mapping) for one in found):
            raise ConfigurationError("legs", legs, "argument", 'give a list of legs such as {"bus": "a"}')
        given = [dict(one) for one in found]
        self._security = resolve_security() if security is None else security
        if len(given) < 2:
            raise ConfigurationError("legs", given, "argument", "a forwarder joins two buses or more")
        _check_different(given)
        self._is_stopping = self._has_news = self._is_over = False
        self._owner = os.getpid()
        self._bell = Bell()
        self._poller = zmq.Poller()
        self._poller.register(self._bell, zmq.POLLIN)
        self._is_idle = Event()
        self._is_idle.set()
        self._ending = Lock()
        self._nodes: list[ThreadedNode] = []
        self.legs: list[Leg] = []
        try:
            for number, one in enumerate(given):
                self.legs.append(self._join(number, one, name or f"forwarder-{os.getpid()}"))
        except BaseException:
            self._leave(time.monotonic() + _CLOSING)
            raise
        self._forwarding = join_legs(self.legs)

    def _join(self, number: int, given: dict[str, Any], name: str) -> Leg:
        where = f"leg {number + 1}"
        for wrong in given.keys() - _LEG_OPTIONS:
            meant = get_close_matches(str(wrong), _LEG_OPTIONS, 1)
            hint = f"did you mean {meant[0]}?" if meant else f"it has {', '.join(sorted(_LEG_OPTIONS))}"
            raise ConfigurationError(str(wrong), given[wrong], where, f"a leg has no such option; {hint}")
        if not given.get("bus"):
            raise ConfigurationError("bus", given.get("bus"), where, "which bus is it to join?")
        options = {"name": name, "security": self._security, **given}
        try:
            allowed = patterns_of(options.pop("allow", ()))
            node = ThreadedNode(node_settings(**LEG_SETTINGS, **options)).open()
        except TypeError as error:
            raise ConfigurationError("legs", given, where, str(error)) from None
        self._nodes.append(node)
        return Leg(number, node, self._wake, allowed)

    def _wake(self) -> None:
        """Wake it; any thread may call this."""
        if not self._has_news:
            self._has_news = True
            self._bell.ring()

    @property
    def is_settled(self) -> bool:
        """Whether it has found out what to pass on, and what others do."""
        return self._forwarding.is_settled

    @property
    def states(self) -> list[str]:
        """For each leg "open", or "standing by" while another forwarder passes messages there."""
        return self._forwarding.states

    @property
    def stats(self) -> ForwarderStats:
        """The counts so far."""
        return self._forwarding.stats

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
        check_number("seconds", seconds)
        self._turn(time.monotonic() + seconds)

    def _turn(self, until: float) -> None:
        forwarding = self._forwarding
        wait(self._poller, min(until, forwarding.next_deadline()))
        self._bell.hear()
        if has_news := self._has_news:
            time.sleep(_COLLECT_SECONDS)
            self._has_news = False
        forwarding.turn(time.monotonic(), has_news=has_news)

    def stop(self) -> None:
        """Make `run` pass on its messages and return; any thread or signal handler may call it."""
        self._is_stopping = True
        self._bell.ring()

    def close(self) -> None:
        """Pass on what was taken in, and leave the buses. A second call does nothing."""
        # The threads of the nodes are stopped then, or belong to the parent process.
        if sys.is_finalizing() or self._owner != os.getpid():
            return
        ends = time.monotonic() + _CLOSING
        self.stop()
        self._is_idle.wait(_CLOSING)
        self._hand_over(ends)
        for leg in self.legs:
            leg.is_open = False
        self._leave(ends)

    def _hand_over(self, ends: float) -> None:
        """Let another forwarder go on, if there is one, and pass on what is on its way until then."""
        with self._ending:
            if not self._is_over:
                self._is_over = True
                finish(hand_over(self._forwarding, self.legs, time.sleep, ends))

    def _leave(self, ends: float) -> None:
        for node in self._nodes:
            node.close(drain=False, timeout=max(0.0, ends - time.monotonic()))
        self._bell.close()

    def __enter__(self) -> Self:
        """Use it in `with`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def _check_different(legs: Sequence[Mapping[str, Any]]) -> None:
    """Refuse two legs that join one bus by the same way: there is nothing to pass on between them."""
    seen: dict[str, int] = {}
    for number, leg in enumerate(legs, start=1):
        way = repr([leg.get(one) for one in ("bus", *_WAYS)])
        if leg.get("bus") and (other := seen.setdefault(way, number)) != number:
            ways = ", ".join(_WAYS)
            rule = f"leg {other} joins this bus by the same way; name another bus, or another of {ways}"
            raise ConfigurationError("bus", leg.get("bus"), f"leg {number}", rule)
