"""The subscriptions of a node: each has a queue of its own, for its handler or for `receive`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from oz.errors import ClosedError, Timeout
from oz.logs import peer_logger
from oz.numbers import check_count
from oz.protocol.conflating import LIMIT
from oz.protocol.messages import Message
from oz.protocol.node import reserved_subjects
from oz.protocol.node.handler_queue import HandlerQueue
from oz.protocol.node.subscription import NodeParts, NodeStats, Pending
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.subjects.pattern import Pattern
from oz.transport.node.handlers import HandlerRunner, Pool
from oz.transport.node.mailbox import InlineCalls, InlineRunner, Mailbox, Receiving
from oz.transport.node.notices import Notices
from oz.transport.node.opening import SocketKinds
from oz.transport.node.subscriber import NodeSubscriber
from oz.transport.option_checks import MOST_PENDING, Overflow, Policy, delivery_options
from oz.transport.subscriber.subscribing import EVERYTHING, compile_asked
from oz.wire.denials import Denial
from oz.wire.keys import DeliveryOptions

_log = peer_logger("oz.node")

T = TypeVar("T")

Missing = Callable[[], str | None]
"""Says what is missing; None when nothing is."""

Steps = Generator[Any, Any, T]
"""What threads and asyncio do alike: it yields what asyncio awaits, and what is done already in a thread."""


class NodePool(Pool, Receiving, InlineCalls, Protocol):
    """The threads or tasks that call handlers and receive."""


class NodeShell(Protocol):
    """The threads or the loop of a node: all that differs between the two."""

    @property
    def kinds(self) -> SocketKinds:
        """The classes of its sockets."""

    @property
    def subscription(self) -> Callable[[NodeParts], Subscribed]:
        """Makes a subscription with a handler."""

    @property
    def received(self) -> Callable[[NodeParts], Subscribed]:
        """Makes one without."""

    @property
    def pool(self) -> NodePool:
        """The threads or tasks that call handlers."""

    @property
    def may_call(self) -> bool:
        """Whether `call` may be called here."""

    def call(self, work: Callable[[], T]) -> T:
        """Run something on the I/O side; return its result."""

    def wake(self) -> None:
        """Have the I/O side look at what is due soon; any thread may ask for it."""

    def changed(self) -> None:
        """Tell those who wait for peers or readiness to look again."""

    def wait(self, missing: Missing, timeout: float | None) -> Any:
        """Wait until nothing is missing, on asyncio when awaited; raises `Timeout` after so many seconds."""

    def check_handler(self, handler: Callable[[Message], Any]) -> None:
        """Refuse a handler that cannot be called here.

        Raises:
            TypeError: it is `async`, and the node is not.
        """

    def answer(self, message: Message, payload: Any, headers: dict[str, Any] | None) -> Any:
        """Publish a reply; give None, or on asyncio something to await."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeArguments:
    """The arguments of one call of `subscribe`, as they are given.

    Attributes:
        pattern, dialect, handler, group, policy, overflow, max_pending, last_value, max_messages,
            concurrency, order_by, inline: see `oz.Node.subscribe`.
        default: the dialect of the node.
    """

    pattern: Any
    dialect: str | None
    default: str
    handler: Callable[[Message], Any] | None
    group: str | None
    policy: Policy
    overflow: Overflow
    max_pending: int | None
    last_value: bool
    max_messages: int | None
    concurrency: int
    order_by: str | None
    inline: bool

    def delivery(self) -> DeliveryOptions:
        """Check how its messages are to be delivered.

        Raises:
            ValueError, TypeError: an argument makes no sense.
        """
        check_count("max_pending", self.most_pending, 1, MOST_PENDING)
        limit = None if self.overflow is None else self.max_pending
        return delivery_options(self.group, self.policy, self.overflow, limit)

    def handler_queue(self) -> HandlerQueue:
        """Make the queue of its messages."""
        return HandlerQueue(self.overflow, self.most_pending, self.concurrency, self.order_by)

    @property
    def most_pending(self) -> int:
        """Messages that may wait."""
        return LIMIT if self.max_pending is None else self.max_pending


class NodeSubscriptions:
    """The subscriptions of one node; `begin` and `end` are for the I/O side.

    Attributes:
        standing: those that stand, the oldest first, and where the messages of each wait.
        ended: the same of those that have ended, and have something left to handle.
    """

    __slots__ = (
        "_denied",
        "_name",
        "_notices",
        "_on_begin",
        "_on_end",
        "_on_failed",
        "_shell",
        "_stats",
        "_sub",
        "ended",
        "standing",
    )

    def __init__(
        self,
        name: str,
        stats: NodeStats,
        shell: NodeShell,
        notices: Notices,
        on_failed: Callable[[Any, BaseException], None],
        on_begin: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        """Start with none; nothing can be subscribed to before `open`.

        Args:
            name: of the node.
            stats: what ended ones are counted in.
            shell: the threads or the loop.
            notices: who is told of advisories and of what is dropped.
            on_failed: called where a handler was, with the message and what it raised.
            on_begin: called when a subscription has begun, on the I/O side.
            on_end: called when one has ended, there too.
        """
        self._name = name
        self._stats = stats
        self._shell = shell
        self._notices = notices
        self._on_failed = on_failed
        self._on_begin = on_begin
        self._on_end = on_end
        self._sub: NodeSubscriber
        self._denied: WeakKeyDictionary[Subscribed, set[str]] = WeakKeyDictionary()
        self.standing: dict[Subscribed, Pending] = {}
        self.ended: dict[Subscribed, Pending] = {}

    def open(self, sub: NodeSubscriber) -> None:
        """Set the subscriber of the node."""
        self._sub = sub

    def subscribe(self, given: SubscribeArguments, drain: Callable[[Any, float], Any]) -> Subscribed:
        """Make a subscription and have it begin.

        Args:
            given: what is asked for.
            drain: ends a subscription when it has handled what is on its way; see `Subscription.drain`.

        Raises:
            PatternError: the dialect does not allow a pattern, or applications may not have it.
            TypeError: the handler cannot be called, or is `async` and the node is not.
            ValueError: an argument makes no sense.
            ClosedError: the node is closed.
        """
        patterns, is_advisory = _check_patterns(given.pattern, given.dialect, given.default)
        delivery, handler_queue = given.delivery(), given.handler_queue()
        if given.max_messages is not None:
            check_count("max_messages", given.max_messages, 1, 2**63)
        # With `"conflate"` it is what was asked for.
        dropped = _ignore if given.overflow == "conflate" else self.on_dropped
        queue: Pending
        if given.inline and (given.handler is None or len(handler_queue.partitions) > 1):
            raise ValueError("inline=True is for a handler that is called with one message at a time")
        if given.handler is None:
            if len(handler_queue.partitions) > 1:
                raise ValueError(
                    "concurrency is for handlers; without one, call receive in as many threads as you like"
                )
            queue, make = Mailbox(self._shell.pool, handler_queue, dropped), self._shell.received
        else:
            if not callable(given.handler):
                raise TypeError(f"a handler is called with each message; {given.handler!r} cannot be called")
            self._shell.check_handler(given.handler)
            make = self._shell.subscription
            if given.inline:
                others = self._sub.taken_in
                queue = InlineRunner(self._shell.pool, given.handler, self._on_failed, others)
            else:
                queue = self.make_queue(given.handler, handler_queue, dropped)
        answer, most = self._shell.answer, given.max_messages
        subscription = make(NodeParts(patterns, queue, self._cancel, drain, answer, delivery.group, most))
        if most is not None:
            subscription.handler = partial(_put, subscription, queue)
        self._shell.call(
            lambda: self._begin(
                subscription, queue, delivery, last_value=given.last_value, is_advisory=is_advisory
            )
        )
        return subscription

    def make_queue(
        self,
        handler: Callable[[Any], Any],
        handler_queue: HandlerQueue,
        dropped: Callable[[int, Any], None],
    ) -> HandlerRunner:
        """Make what messages wait in for a handler."""
        return HandlerRunner(self._shell.pool, handler_queue, handler, self._on_failed, dropped)

    def on_dropped(self, count: int, message: object) -> None:
        """Record that messages were dropped whose handler is too slow."""
        self._notices.dropped(getattr(message, "subject", "on_peer"), count)

    def deny(self, subscription: Subscribed, denial: Denial) -> None:
        """Record that a peer denies what a subscription asks for; once for each reason."""
        reported = self._denied.setdefault(subscription, set())
        if denial in reported:
            return
        reported.add(denial)
        self._notices.denied(f"a peer denies a subscription: {denial}", about=denial.subject)
        queue = self.standing.get(subscription)
        if isinstance(queue, Mailbox):
            queue.fail(denial.error())

    def drain(self, subscription: Subscribed, timeout: float, still_draining: Missing) -> Steps[bool]:
        """End a subscription when it has handled what is on its way; see `Subscription.drain`."""
        queue = self.standing.get(subscription)
        if queue is None or not subscription.active:
            return True
        shell, sub = self._shell, self._sub
        ends, has_all = shell.kinds.backend.monotonic() + timeout, True
        shell.call(lambda: sub.begin_part(subscription))
        try:
            yield shell.wait(still_draining, timeout)
        except Timeout:
            has_all = False
        shell.call(lambda: sub.end_with_rest(subscription))
        is_handled: bool = yield queue.drain(max(0.0, ends - shell.kinds.backend.monotonic()))
        shell.call(lambda: self._end_drained(subscription, queue))
        return has_all and is_handled

    def close(self, *, is_killed: bool = False) -> None:
        """End all: what is in a mailbox can be received, the rest is dropped; see `NodeEngine`."""
        for subscription in list(self.standing):
            subscription.active = False
        dropped = sum(queue.abandon() for queue in self.queues())
        if dropped and not is_killed:
            _log.warning("%s closed before its handlers had handled %d messages", self._name, dropped)

    def settle(self) -> None:
        """Forget subscriptions that have ended and handled all; what they did is counted on."""
        for subscription, queue in [(one, queue) for one, queue in self.ended.items() if queue.is_idle]:
            del self.ended[subscription]
            self._stats.handled += queue.handled
            self._stats.failed += queue.failed
            self._stats.dropped += queue.dropped

    def queues(self) -> list[Pending]:
        """Return the queues that messages wait in, of subscriptions that have ended too."""
        return [*self.standing.values(), *self.ended.values()]

    def _begin(
        self,
        subscription: Subscribed,
        queue: Pending,
        delivery: DeliveryOptions,
        *,
        last_value: bool,
        is_advisory: bool,
    ) -> None:
        if is_advisory:
            for pattern in subscription.patterns:
                self._notices.add(pattern, subscription)
        else:
            self._sub.begin(subscription, delivery, last_value=last_value)
            self._on_begin()
        self.standing[subscription] = queue

    def _cancel(self, subscription: Subscribed) -> None:
        with suppress(ClosedError):
            self._shell.call(lambda: self._end(subscription))

    def _end(self, subscription: Subscribed) -> None:
        queue = self.standing.pop(subscription, None)
        if queue is not None:
            self.ended[subscription] = queue
        for pattern in subscription.patterns:
            self._notices.discard(pattern, subscription)
        subscription.active = False
        self._sub.cancel(subscription)
        self._on_end()
        if queue is not None and subscription.left != 0:
            # One that has had its last message is still to handle it.
            queue.close()

    def _end_drained(self, subscription: Subscribed, queue: Pending) -> None:
        """End a subscription that has had what came; on the I/O side."""
        queue.end()
        self._end(subscription)


def _put(subscription: Subscribed, queue: Pending, message: Message) -> None:
    """Take in a message of a subscription that ends after so many."""
    queue.put(message)
    if subscription.left == 0:
        # Only now: whoever receives is to have the last message before the end.
        queue.end()


def _ignore(count: int, message: object) -> None:
    """Record nothing."""


def _check_patterns(pattern: Any, dialect: str | None, default: str) -> tuple[list[Pattern], bool]:
    """Compile what is asked for; tell whether it is advisories.

    Raises:
        PatternError: the dialect does not allow it, or applications may not have it.
        ValueError: it is no pattern at all, or advisories together with others.
    """
    patterns = _patterns(pattern, dialect, default)
    if not patterns:
        raise ValueError("no pattern at all: a subscription to an empty list would never get a message")
    for one in patterns:
        reserved_subjects.check_subscribed(one)
    kinds = {reserved_subjects.is_advisory(one) for one in patterns}
    if len(kinds) > 1:
        raise ValueError("advisories need a subscription of their own")
    return patterns, kinds.pop()


def _patterns(pattern: Any, dialect: str | None, default: str) -> list[Pattern]:
    """Compile what is asked for. Bytes are a pattern too; with sockets they are the prefix of pyzmq."""
    if isinstance(pattern, (str, bytes, Pattern)) or not isinstance(pattern, Iterable):
        return [EVERYTHING if pattern in ("", b"") else compile_asked(pattern, dialect, default)]
    return [one for part in pattern for one in _patterns(part, dialect, default)]
