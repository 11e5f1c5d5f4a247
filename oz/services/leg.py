"""One leg of a forwarder: its node on one bus, and what it asks for there on behalf of the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

from oz.errors import ClosedError
from oz.message import Extras, Gap, Message
from oz.protocol.bridge import spanning_tree
from oz.protocol.bridge.bridge import ImportFilter, Interest, Ledger
from oz.protocol.bridge.spanning_tree import Offer
from oz.protocol.publisher.stream import OutStream
from oz.subjects.pattern import Pattern, compile, parse
from oz.sync.node_engine import ThreadedNode, finish
from oz.transport.node.notices import Watcher
from oz.transport.node.opening import node_settings

_SLICE = 0.05  # seconds of a node's thread at a time

_REPORT_EVERY = 0.25
"""Seconds between two reports that nobody knows how many messages were lost. Forwarders that pass messages
side by side, as they do while they disagree, hear each other's, and would tell of them without end."""

_AFTER_SILENCE = 0.5
"""Seconds for which offers of one that is heard again do not count: it takes them back if it stood still."""

PassOn = Callable[["Leg", str, Message], None]
Lose = Callable[["Leg", int | None], None]


@dataclass
class ForwarderStats:
    """The counts of a forwarder so far: messages, unless it says otherwise."""

    received: int = 0
    """That came, because somebody on another bus wants them."""
    size: int = 0
    """Bytes of their payloads."""
    passed: int = 0
    """That were published on another bus; for each bus once."""
    unwanted: int = 0
    """That nobody wanted any more, or that may not come onto the bus."""
    looped: int = 0
    """That had passed this forwarder before."""
    refused: int = 0
    """That could not be published."""
    lost: int = 0
    """That were lost on their way here, which the other buses were told."""
    interests: int = 0
    """Patterns that are asked for on behalf of other buses now."""
    takeovers: int = 0
    """Times that it went on for another forwarder."""

    def add(self, other: ForwarderStats) -> None:
        """Add what another one counted."""
        self.received += other.received
        self.size += other.size
        self.passed += other.passed
        self.unwanted += other.unwanted
        self.looped += other.looped
        self.refused += other.refused
        self.lost += other.lost
        self.interests += other.interests
        self.takeovers += other.takeovers


class _Bytes:
    """Payloads pass as they are, whatever the codec of applications."""

    @staticmethod
    def encode(value: Any) -> bytes:
        return bytes(value)

    @staticmethod
    def decode(payload: bytes) -> bytes:
        return payload


class Leg:
    """One leg of a forwarder.

    Attributes:
        number: which it is, from 0.
        engine: its node.
        is_open: whether messages pass it.
        free_since: when it was found that it may open, in monotonic seconds; None when it may not.
        ledger: what peers asked for when `look` looked last.
        asked: what is asked for on behalf of other buses, with how members are picked, and the subscription.
        policies: of each queue group there, how its members are picked.
        allowed: patterns of what may come onto its bus; none allows everything.
        import_filters: the other legs, each with what may go there from here.
        stats: what came here.
    """

    def __init__(self, number: int, on_news: Callable[[], None], *, allow: Any = (), **options: Any) -> None:
        """Join a bus.

        Args:
            number: which leg it is.
            on_news: called, by any thread, when peers may ask for something else.
            allow: patterns of what may come onto this bus.
            options: of `oz.Node`.

        Raises:
            PatternError: a pattern is not valid.
            TypeError: `oz.Node` has no such option.
        """
        self.number = number
        self.is_open = False
        self.free_since: float | None = None
        self.ledger = Ledger()
        self.asked: dict[Interest, tuple[str, Any]] = {}
        self.policies: dict[str, str] = {}
        self._wanted: dict[Interest, int] = {}
        self._stale: set[Interest] = set()
        self.allowed = _patterns(allow)
        self.import_filters: list[tuple[Leg, ImportFilter]] = []
        self.stats = ForwarderStats()
        self._on_news = on_news
        self._pass_between: PassOn | None = None
        self._lose: Lose | None = None
        self._passed: Message | None = None
        self._offer: Any = None
        self._cut: set[OutStream] = set()
        self._silent_at: dict[bytes, float] = {}
        self._reported_at = -_REPORT_EVERY
        self._is_owed = False
        # Its own publications are what came from another bus, and must not go back.
        settings = node_settings(dialect="zmq", codec=_Bytes(), echo=False, **options)
        self._node = ThreadedNode(settings)
        self.engine = self._node.engine
        self.engine.watch(Watcher(on_news, self._note_loss))

    def begin(self, pass_on: PassOn, lose: Lose, others: Iterable[Leg]) -> None:
        """Begin to hand on what comes.

        Args:
            pass_on: called, by the node's thread, with each message and the queue group that it came for.
            lose: called by it when messages were lost, with how many; None when nobody knows.
            others: the other legs of the forwarder.
        """
        self._pass_between, self._lose = pass_on, lose
        self.import_filters = [(other, ImportFilter(other.allowed)) for other in others]

    # what peers ask for ----------------------------------------------------------------------------------

    def look(self) -> None:
        """Look at what peers ask for now."""
        publisher = self.engine.sockets.main
        publisher.enter_into(self.ledger, self._mute(time.monotonic()))
        streams = publisher.streams()
        cut = {stream for stream in streams if stream.vanished_at is not None}
        back = [stream for stream in streams if stream in self._cut and stream not in cut]
        self._cut = cut
        if back:
            # While they were cut off nothing was asked for on their behalf.
            publisher.own_up(back)

    def _mute(self, now: float) -> set[bytes]:
        """Return the uuids of those who say nothing, or did so a moment ago."""
        for uuid in self.engine.links.silent:
            self._silent_at[uuid] = now
        self._silent_at = {uuid: at for uuid, at in self._silent_at.items() if now - at < _AFTER_SILENCE}
        return set(self._silent_at)

    def unready(self) -> list[str]:
        """Say which peers are still to be spoken with."""
        return self._node.call(self.engine.links.unready)

    def tell(self, offer: Offer) -> None:
        """Tell other forwarders on this bus how the root is reached over this one."""
        pattern = compile(spanning_tree.PREFIX + spanning_tree.to_text(offer), "nats")
        before = self._offer

        def tell() -> None:
            self._offer = self.engine.sockets.sub.subscribe(pattern, handler=_ignore)
            if before is not None:
                before.unsubscribe()

        self._node.call(tell)

    # what is asked for on behalf of others ---------------------------------------------------------------

    def forget(self) -> None:
        """Begin anew with what is wanted; it is asked for until `ask`."""
        self._stale |= self._wanted.keys()
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
                self._stale.add(interest)

    def ask(self, policies: dict[str, str]) -> None:
        """Ask for what is wanted, and for nothing else.

        Args:
            policies: of each queue group, how members are picked.
        """
        if self._stale:
            self.policies = policies
            self._node.call(self._change)
        if self._stale:
            self._on_news()

    def _change(self) -> None:
        """Subscribe and unsubscribe for a while: the node has other things to do as well."""
        ends = time.monotonic() + _SLICE
        while self._stale and time.monotonic() < ends:
            interest = self._stale.pop()
            pattern, group = interest
            policy = self.policies.get(group, "round_robin") if self._wanted.get(interest) else None
            if policy is None:
                self._wanted.pop(interest, None)
            before = self.asked.get(interest)
            if before is not None and before[0] == policy:
                continue
            if policy is not None:
                self.asked[interest] = policy, self._begin(pattern, group, policy)
            elif before is not None:
                del self.asked[interest]
            if before is not None:
                before[1].unsubscribe()

    def _begin(self, pattern: Pattern, group: str, policy: str) -> Any:
        return self.engine.sockets.sub.subscribe(
            pattern,
            handler=partial(self._take, group),
            group=group or None,
            policy=policy,  # type: ignore[arg-type]
        )

    def _take(self, group: str, message: Message) -> None:
        # Each subscription that matches is given the same message.
        if message is not self._passed and self._pass_between is not None:
            self._passed = message
            self._pass_between(self, group, message)

    def _note_loss(self, gap: Gap) -> None:
        if self._lose is not None:
            self._lose(self, gap.count)

    # what comes from others ------------------------------------------------------------------------------

    def pass_on(self, subject: Any, content: Any, extras: Extras, group: str) -> bool:
        """Publish on this bus what came from another; see `NodePublisher.pass_on`."""
        return self.engine.sockets.main.pass_on(subject, content, extras, group)

    def report_loss(self, count: int | None) -> None:
        """Report to peers that messages are missing; if nobody knows how many, perhaps by `tell_losses`."""
        now = time.monotonic()
        if count is None and now - self._reported_at < _REPORT_EVERY:
            if not self._is_owed:
                self._is_owed = True
                self._on_news()
            return
        if count is None:
            self._reported_at, self._is_owed = now, False
        with suppress(ClosedError):
            self.engine.sockets.main.engine.report_loss(count)

    def next_deadline(self) -> float:
        """Return when a report that came too soon is due, in monotonic seconds; `inf` for never."""
        return self._reported_at + _REPORT_EVERY if self._is_owed else inf

    def tell_losses(self) -> None:
        """Report what was to be reported and came too soon after something else."""
        if time.monotonic() >= self.next_deadline():
            self.report_loss(None)

    def hand_over(self, ends: float) -> None:
        """Ask for nothing more, and pass on what was on its way, until a time of the monotonic clock."""
        if not self.engine.is_closed:
            finish(self.engine.lifecycle.drain(ends))

    def close(self, timeout: float) -> None:
        """Leave the bus, within so many seconds."""
        self.is_open = False
        self._node.close(drain=False, timeout=timeout)


def _ignore(_: Message) -> None:
    """Take a message that nobody sends."""


def _patterns(allow: Any) -> tuple[Pattern, ...]:
    given = [allow] if isinstance(allow, (str, bytes, Pattern)) else list(allow)
    return tuple(one if isinstance(one, Pattern) else parse(one) for one in given)
