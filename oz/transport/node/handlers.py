"""One subscription's messages on their way to its handler, and its replies, in whichever threads or tasks.

The thread or loop that receives only puts messages into queues. A queue with messages stands in the line of a
pool; a worker that takes it out handles its messages one after the other, and when others stand in line puts
it at their end after a while. So a slow handler fills its own queue, and a full queue starves nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol

from oz.logs import peer_logger
from oz.message import Extras
from oz.protocol.messages import Message
from oz.protocol.node.handler_queue import HandlerQueue, Handling, Partition, Waker, Worker, Workers
from oz.protocol.node.requests import is_inbox
from oz.protocol.node.subscription import NodeStats
from oz.transport.guard import Guard
from oz.transport.node.publisher import NodePublisher
from oz.wire.codec import Failure

_log = peer_logger("oz.handlers")

PARKED = 2.0
"""Seconds for which a reply waits for its requester to be connected."""

MOST_PARKED = 10_000
"""Replies that wait so at most."""


handled_partition: ContextVar[Partition | None] = ContextVar("handled_partition", default=None)
"""What the thread or task that runs works off, so that a reply is known to be its handler's."""


class WaitedNews(Waker, Protocol):
    """Waker that one can wait for, in a thread or a task."""

    def wait_for(self, is_so: Callable[[], bool], timeout: float | None) -> Any:
        """Wait until something is so, for so many seconds; give whether it is, on asyncio when awaited."""


class PendingQueue(Protocol):
    """The queue that messages of one subscription wait in."""

    guard: Guard
    news: WaitedNews

    def is_done(self, who: Worker) -> bool:
        """Tell whether a thread or task that drains it has nothing more to wait for."""

    @property
    def is_handled(self) -> bool:
        """Whether no message waits for a handler."""


class Pool(Protocol):
    """The threads or the tasks that call handlers: all that differs between the two."""

    workers: Workers

    def submit(self, work: Callable[[], Any]) -> None:
        """Hand work to one of them."""

    def make_news(self, guard: Guard) -> WaitedNews:
        """Make what is told when something guarded changes, the pool's own news among them."""

    def work_off(self, runner: HandlerRunner, partition: Partition) -> Any:
        """Handle a partition's messages, for a while or to the last."""

    def drain(self, queue: PendingQueue, timeout: float | None) -> Any:
        """Wait until all is handled; see `HandlerRunner.drain`."""


class HandlerRunner:
    """One subscription's messages on their way to its handler.

    With threads any of them may use it; with tasks it is for the thread of their loop.

    Attributes:
        guard: is held for every change.
        handler: is called with each message; what it gives is awaited on asyncio, if it can be.
        handling: who handles what.
        news: is told when a worker leaves a partition, or what waits is forgotten.
    """

    __slots__ = ("__weakref__", "_dropped", "_failed", "_partitions", "_pool", "_queue", "_works", "guard",
                 "handler", "handling", "news")  # fmt: skip

    def __init__(
        self,
        pool: Pool,
        handler_queue: HandlerQueue,
        handler: Callable[[Message], Any],
        failed: Callable[[Message, BaseException], None],
        dropped: Callable[[int, Message], None],
    ) -> None:
        """Start empty.

        Args:
            pool: whose threads or tasks call the handler.
            handler_queue: its own, which is empty; it is given a lock here.
            handler: is called with each message.
            failed: is called where the handler was, with a message and what the handler raised at it.
            dropped: is called where `put` is, with how many messages were dropped and the message that was
                put. What these two raise is logged.
        """
        self._pool = pool
        self._queue = handler_queue
        self.handler = handler
        self._failed = failed
        self._dropped = dropped
        self.guard = handler_queue.lock = Guard()
        self.handling = Handling(handler_queue, pool.workers)
        self.news = pool.make_news(self.guard)
        self._partitions = handler_queue.partitions
        self._works = {one: partial(pool.work_off, self, one) for one in self._partitions}

    @property
    def handled(self) -> int:
        """Messages that were handled, without those at which the handler raised."""
        return sum(partition.handled for partition in self._partitions)

    @property
    def failed(self) -> int:
        """Messages at which the handler raised, or was cancelled."""
        return sum(partition.failed for partition in self._partitions)

    @property
    def dropped(self) -> int:
        """Messages that were dropped because too many waited."""
        return self._queue.dropped

    @property
    def waiting(self) -> int:
        """Messages that wait; without those that are being handled."""
        return 0 if self.guard.is_foreign else len(self._queue)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is being handled."""
        return self.handling.is_idle

    @property
    def is_handled(self) -> bool:
        """Whether nothing waits."""
        return not len(self._queue)

    def is_done(self, who: Worker) -> bool:
        """Tell whether there is nothing more to wait for; under the guard."""
        return self.handling.is_done(who)

    def put(self, message: Message) -> None:
        """Have a message handled. It never waits for a handler.

        Raises:
            ClosedError: the pool is closed.
            OwnershipError: it was made before a fork, in the parent process.
            RuntimeError: there is no loop, or the system gives no thread, to handle anything.
        """
        partition, dropped = self._queue.put(message)
        if partition is not None:
            try:
                self._pool.submit(self._works[partition])
            except BaseException:
                self._queue.leave(partition)
                raise
        if dropped:
            try:
                self._dropped(dropped, message)
            except Exception:
                _log.exception("reporting a message that was dropped failed")

    def stand_in_line(self, partition: Partition) -> None:
        """Have the pool work a partition off.

        Raises:
            ClosedError, OwnershipError, RuntimeError: as `put`.
        """
        try:
            self._pool.submit(self._works[partition])
        except BaseException:
            self._queue.leave(partition)
            raise

    def work_of(self, partition: Partition) -> Callable[[], Any]:
        """Return what a worker calls to work a partition off."""
        return self._works[partition]

    def drain(self, timeout: float | None = None) -> Any:
        """Wait until nothing waits and nothing is being handled.

        A handler waits neither for itself, nor for handlers that wait so too, nor for what these hold up.

        Args:
            timeout: seconds to wait at most; None waits for as long as the handlers take.

        Returns:
            Whether everything was handled, on asyncio when awaited. False also when messages are left and
            nobody will handle them: the pool is closed, or they stand behind the message whose handler asks.
        """
        return self._pool.drain(self, timeout)

    def end(self) -> None:
        """Do nothing when no more comes: what has come is still handled."""

    def abandon(self) -> int:
        """Forget what waits, since its node closes. Give how many messages that were."""
        return self.close()

    def clear(self) -> int:
        """Forget what waits; what is being handled goes on. Give how many messages that were."""
        return self._forget(self._queue.clear)

    def close(self) -> int:
        """Forget what waits, and ignore what is still put. Give how many messages waited."""
        return self._forget(self._queue.close)

    def report(self, message: Message, error: BaseException) -> None:
        """Tell that the handler raised."""
        try:
            self._failed(message, error)
        except Exception:
            _log.exception("reporting that a handler raised failed; it had raised %r", error)

    def _forget(self, messages: Callable[[], int]) -> int:
        if self.guard.is_foreign:
            return 0
        count = messages()
        self.news.tell()
        return count


def warn_of_result(handling: Handling, partition: Partition, message: Message) -> None:
    """Warn, once, of a handler that gives back its answer and does not send it."""
    if handling.is_answer_lost(partition, message):
        _log.warning(
            "a handler returned a value at the request %r, and that is sent to nobody: answer with "
            "message.reply(value); this is said once for each subscription",
            message.subject,
        )


class Replies:
    """The replies of one node; any thread may give one.

    Attributes:
        parked: replies that wait for room or for a link.
    """

    __slots__ = ("_monotonic", "_name", "_note_due", "_publisher_for", "_refused", "_stats", "parked")

    def __init__(
        self,
        name: str,
        stats: NodeStats,
        publisher_for: Callable[[Any], NodePublisher],
        note_due: Callable[[], None],
        monotonic: Callable[[], float],
        refused: Callable[[str], None],
    ) -> None:
        """Start with none.

        Args:
            name: of the node.
            stats: what they are counted in.
            publisher_for: says which publisher a subject goes out by, or refuses it.
            note_due: called when a reply is to wait, by whichever thread gave it.
            monotonic: the clock.
            refused: is told, in words, of a reply that goes nowhere, since it was wanted on no inbox.
        """
        self._refused = refused
        self._name = name
        self._stats = stats
        self._publisher_for = publisher_for
        self._note_due = note_due
        self._monotonic = monotonic
        self.parked: deque[tuple[float, str, Any, dict[str, Any] | None]] = deque()

    def answer(self, message: Message, payload: Any, headers: dict[str, Any] | None) -> None:
        """Publish a reply; one whose requester is not connected yet waits for it for a while."""
        inbox = message.reply_to
        assert inbox is not None
        partition = handled_partition.get()
        if not is_inbox(inbox):
            # Whoever asks may ask for a reply to any subject, and would have this node publish there.
            self._refused(f"the reply to {message.subject!r} was wanted on {inbox!r:.200}, which is no inbox")
        else:
            self._answer(inbox, payload, headers, partition)
        if partition is not None:
            # Not before: what cannot be encoded is no answer.
            partition.answered = message

    def _answer(
        self, inbox: str, payload: Any, headers: dict[str, Any] | None, partition: Partition | None
    ) -> None:
        publisher = self._publisher_for(inbox)
        self._stats.replies += 1
        if publisher.interest(inbox):
            has_more = partition is not None and bool(partition.store)
            if has_more:
                publisher.expect_others()
            self._send(publisher, inbox, payload, headers)
            if not has_more:
                publisher.go()
        else:
            self._park(inbox, payload, headers)

    def answer_failure(self, message: Message, error: BaseException) -> None:
        """Tell the requester that a handler raised, unless the handler had answered before."""
        inbox = message.reply_to
        partition = handled_partition.get()
        if inbox is None or not is_inbox(inbox) or (partition is not None and partition.answered is message):
            return
        publisher = self._publisher_for(inbox)
        failure = Failure(type(error).__name__, _text_of(error), self._name)
        if publisher.interest(inbox):
            self._send(publisher, inbox, failure, None)
        else:
            self._park(inbox, failure, None)

    def send_parked(self, publisher: NodePublisher, now: float) -> None:
        """Send what waits to those who are connected now; on the I/O side.

        Args:
            publisher: the node's main one.
            now: monotonic seconds.
        """
        for _ in range(len(self.parked)):
            until, inbox, payload, headers = self.parked.popleft()
            if publisher.interest(inbox):
                self._send(publisher, inbox, payload, headers)
            elif now >= until:
                self._stats.replies_dropped += 1
            else:
                self.parked.append((until, inbox, payload, headers))

    def next_deadline(self) -> float | None:
        """Return when the first that waits has waited for long enough; None when none does."""
        try:
            return self.parked[0][0]
        except IndexError:
            return None

    def _park(self, inbox: str, payload: Any, headers: dict[str, Any] | None) -> None:
        if len(self.parked) >= MOST_PARKED:
            self._stats.replies_dropped += 1
        else:
            self.parked.append((self._monotonic() + PARKED, inbox, payload, headers))
            # Whoever does what is due may not know of it yet.
            self._note_due()

    def _send(
        self, publisher: NodePublisher, inbox: str, payload: Any, headers: dict[str, Any] | None
    ) -> None:
        extras = None if headers is None else Extras(headers=headers)
        if publisher.engine.sender.publish(publisher.engine.socket, inbox, payload, extras) is not None:
            self._stats.replies_dropped += 1


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""
