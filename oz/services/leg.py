"""One leg of a forwarder: its node on one bus, and what it asks for there on behalf of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from oz.errors import ClosedError
from oz.logs import peer_logger
from oz.protocol.bridge import spanning_tree
from oz.protocol.bridge.bridge import MOST_INTERESTS, VIA_SIZE, ImportFilter, Interest, Ledger, quick_patterns
from oz.protocol.bridge.forwarding import SETTLE, Forwarding
from oz.protocol.bridge.leg import BridgeLeg, ForwardedInterest, LossReports, Silences
from oz.protocol.bridge.spanning_tree import Offer
from oz.protocol.messages import Gap, Message
from oz.protocol.publisher.stream import OutStream
from oz.protocol.stats import ForwarderStats
from oz.subjects.pattern import Pattern, compile
from oz.transport.backend import Backend
from oz.transport.node.node import NodeEngine
from oz.transport.node.notices import Watcher
from oz.transport.node.opening import SocketKinds
from oz.transport.node.subscriptions import Steps

_log = peer_logger("oz.forwarder")

T = TypeVar("T")

_SLICE = 0.02  # seconds of a node's thread at a time: messages wait meanwhile

PassOn = Callable[[BridgeLeg, str, Message], None]


class Lose(Protocol):
    """Called when messages were lost on their way to a leg; see `Forwarding.lose`."""

    def __call__(self, leg: BridgeLeg, count: int | None, *, is_hearsay: bool) -> None:
        """Tell the other buses."""


class LegShell(Protocol):
    """The thread or the loop of a leg's node."""

    @property
    def kinds(self) -> SocketKinds:
        """The classes of its sockets."""

    @property
    def engine(self) -> NodeEngine:
        """The node without them; it has joined."""

    def call(self, work: Callable[[], T]) -> T:
        """Run something on the I/O side; return its result."""


class PlainPayloads:
    """The codec of a leg's node: payloads pass as they are, whatever the codec of applications."""

    @staticmethod
    def encode(value: Any) -> bytes:
        """Take bytes."""
        return bytes(value)

    @staticmethod
    def decode(payload: bytes) -> bytes:
        """Return bytes."""
        return payload


LEG_SETTINGS: dict[str, Any] = {"dialect": "zmq", "codec": PlainPayloads(), "echo": False}
"""What every node of a leg is given. Its own publications are what came from another bus, and must not go
back."""


class Leg:
    """One leg of a forwarder; a `BridgeLeg`.

    Attributes:
        number: which it is, from 0.
        engine: its node.
        backend: what the sockets of the node are called by.
        bus: the name of its bus.
        is_open: whether messages pass it.
        free_since: when it was found that it may open, in monotonic seconds; None when it may not.
        ledger: what peers asked for when `look` looked last.
        forwarded: what is asked for on behalf of other buses.
        losses: when peers are told that nobody knows how many messages are missing.
        allowed: patterns of what may come onto its bus; none allows everything.
        import_filters: the other legs, each with what may go there from here.
        stats: what came here.
        pass_on: publishes on this bus what came from another; see `NodePublisher.pass_on`.
    """

    def __init__(
        self, number: int, shell: LegShell, on_news: Callable[[], None], allowed: Iterable[Pattern] = ()
    ) -> None:
        """Watch a node.

        Args:
            number: which leg it is.
            shell: of the node, which has joined; its settings are `LEG_SETTINGS` and what says how it joins.
            on_news: called, by any thread, when peers may ask for something else.
            allowed: patterns of what may come onto this bus.
        """
        self.number = number
        self.is_open = False
        self.free_since: float | None = None
        self.ledger = Ledger()
        self.forwarded = ForwardedInterest()
        self.losses = LossReports()
        self.allowed = tuple(allowed)
        self.import_filters: list[tuple[BridgeLeg, ImportFilter]] = []
        self.stats = ForwarderStats()
        self._subscriptions: dict[Interest, Any] = {}
        self._silences = Silences()
        self._on_news = on_news
        self._pass_between: PassOn | None = None
        self._lose: Lose | None = None
        self._passed: Message | None = None
        self._offer: Any = None
        self._cut: set[OutStream] = set()
        self._has_withheld = False
        self._shell = shell
        self.engine = engine = shell.engine
        self.backend: Backend = shell.kinds.backend
        self.bus = engine.bus
        self.pass_on = engine.sockets.main.pass_on
        engine.watch(Watcher(on_news, self._note_loss))

    def begin(self, pass_on: PassOn, lose: Lose, others: Iterable[Leg]) -> None:
        """Begin to hand on what comes.

        Args:
            pass_on: called, on the node's I/O side, with each message and the queue group that it came for.
            lose: called there when messages were lost.
            others: the other legs of the forwarder.
        """
        self._pass_between, self._lose = pass_on, lose
        self.import_filters = [(other, ImportFilter(other.allowed)) for other in others]

    # what peers ask for ----------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Look at what peers ask for now."""
        publisher = self.engine.sockets.main
        publisher.enter_into(self.ledger, self._silences.mute(self.engine.links.silent, now))
        streams = publisher.streams()
        cut = {stream for stream in streams if stream.vanished_at is not None}
        back = [stream for stream in streams if stream in self._cut and stream not in cut]
        self._cut = cut
        if self.ledger.withheld and not self._has_withheld:
            _log.warning(
                "a connection to bus %r asks for more than %d patterns: the rest is not asked for elsewhere",
                self.bus, MOST_INTERESTS,
            )  # fmt: skip
        self._has_withheld = bool(self.ledger.withheld)
        if back:
            # While they were cut off nothing was asked for on their behalf.
            publisher.own_up(back)

    def unready(self) -> list[str]:
        """Say which peers are still to be spoken with."""
        return self._shell.call(self.engine.links.unready)

    def unheard(self) -> set[bytes]:
        """Return the uuids of the peers that do not send what is asked for yet."""
        return self._shell.call(self.engine.links.unheard)

    def tell(self, offer: Offer) -> None:
        """Tell other forwarders on this bus how the root is reached over this one."""
        pattern = compile(spanning_tree.PREFIX + spanning_tree.to_text(offer), "nats")
        before = self._offer

        def tell() -> None:
            self._offer = self.engine.sockets.sub.subscribe(pattern, handler=_ignore)
            if before is not None:
                before.unsubscribe()

        self._shell.call(tell)

    # what is asked for on behalf of others ---------------------------------------------------------------

    def ask(self) -> None:
        """Ask for what is wanted, and for nothing else; for what is left there is news."""
        self._shell.call(self._change)
        if self.forwarded.is_stale:
            self._on_news()

    def _change(self) -> None:
        """Subscribe and unsubscribe for a while: the node has other things to do as well."""
        monotonic = self.engine.monotonic
        ends = monotonic() + _SLICE
        while monotonic() < ends and (change := self.forwarded.next_change()) is not None:
            interest, policy = change
            before = self._subscriptions.pop(interest, None)
            if policy is not None:
                self._subscriptions[interest] = self._begin(*interest, policy)
            if before is not None:
                before.unsubscribe()

    def _begin(self, pattern: Pattern, group: str, policy: str) -> Any:
        return self.engine.sockets.sub.subscribe(
            pattern,
            handler=partial(self._take, group),
            group=group or None,
            policy=policy,  # type: ignore[arg-type]
            found_by=quick_patterns(pattern),
        )

    def _take(self, group: str, message: Message) -> None:
        # Each subscription that matches is given the same message.
        if message is not self._passed and self._pass_between is not None:
            self._passed = message
            self._pass_between(self, group, message)

    def _note_loss(self, gap: Gap) -> None:
        if self._lose is not None:
            peer = None if gap.origin is None else self.engine.links.peer_of(gap.origin)
            is_hearsay = peer is not None and peer.uuid in self.engine.sockets.main.forwarders()
            self._lose(self, gap.count, is_hearsay=is_hearsay)

    # what peers are told ---------------------------------------------------------------------------------

    def report_loss(self, count: int | None, now: float, *, is_hearsay: bool = False) -> None:
        """Report to peers that messages are missing, perhaps by `tell_losses`; see `BridgeLeg`."""
        if count is None or is_hearsay:
            was_owed = self.losses.is_owed
            is_due, count = self.losses.take(count, now)
            if not is_due:
                if not was_owed:
                    self._on_news()
                return
        with suppress(ClosedError):
            self.engine.sockets.main.engine.report_loss(count)

    def next_deadline(self) -> float:
        """Return when a report that came too soon is due, in monotonic seconds; `inf` for never."""
        return self.losses.next_deadline()

    def tell_losses(self, now: float) -> None:
        """Report what was to be reported and came too soon after something else."""
        if now >= self.next_deadline():
            self.report_loss(None, now)


def join_legs(legs: Sequence[Leg]) -> Forwarding:
    """Join legs, which pass on to each other from now on what the result says."""
    backend = legs[0].backend
    forwarding = Forwarding(legs, backend.random_bytes(VIA_SIZE), backend.monotonic, backend.time_ns)
    for leg in legs:
        others = [one for one in legs if one is not leg]
        leg.begin(forwarding.pass_between, forwarding.lose, others)
    return forwarding


def hand_over(
    forwarding: Forwarding, legs: Sequence[Leg], pause: Callable[[float], Any], ends: float
) -> Steps[None]:
    """Let another forwarder go on, if there is one, and pass on what is on its way until then.

    Args:
        forwarding: what decides.
        legs: its legs.
        pause: lets so many seconds pass, on asyncio when awaited.
        ends: the time of the monotonic clock until which it may take.
    """
    if forwarding.resign():
        # Whoever is to go on opens in a moment.
        yield pause(SETTLE)
        forwarding.is_replaced = True
    for leg in legs:
        # All before any is closed: what comes to one goes out on others.
        if not leg.engine.is_closed:
            yield from leg.engine.lifecycle.drain(ends)
    for leg in legs:
        leg.tell_losses(leg.backend.monotonic())


def patterns_of(allow: Any) -> tuple[Pattern, ...]:
    """Read what may come onto a bus: a pattern or several, as of `oz.compile`.

    Raises:
        PatternError: one is not valid.
    """
    given = [allow] if isinstance(allow, (str, bytes, Pattern)) else list(allow)
    return tuple(map(compile, given))


def _ignore(_: Message) -> None:
    """Take a message that nobody sends."""
