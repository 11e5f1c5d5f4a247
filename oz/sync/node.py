"""The blocking node."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from math import ceil
from typing import Any, Self, overload

import zmq

from oz.errors import ClosedError, NameserverUnavailable, Timeout
from oz.message import Extras, Message
from oz.protocol.node import subscription as node_subscription
from oz.protocol.node.handler_queue import HandlerQueue
from oz.protocol.node.requests import RequestClient
from oz.protocol.node.subscription import NodeStats
from oz.protocol.subscriber.receive_buffer import LIMIT
from oz.subjects.pattern import Patterns
from oz.sync.handlers import ThreadPool
from oz.sync.io_thread import IOThread
from oz.sync.publisher_engine import ThreadedPublisher
from oz.sync.requesting import ThreadRequester
from oz.sync.waiting import Handler, Subscription
from oz.transport.node.handlers import HandlerRunner
from oz.transport.node.mailbox import Mailbox
from oz.transport.node.node import NodeBase
from oz.transport.node.subscriptions import OnDropped
from oz.transport.option_checks import Overflow, Policy, check_count, closing_time
from oz.transport.subscriber.subscribing import refuse_async
from oz.wire.discovery import Announcement

OnPeer = Callable[[Announcement, str], Any]

_log = logging.getLogger("oz.node")

_TURN_SECONDS = 0.05
"""Seconds for what has come in one turn; then the rest has its own."""

_LAST_TURN = 5.0
"""Seconds that the I/O thread has at least to end its turn: nobody may close its sockets under it."""


class NodeSubscription(node_subscription.NodeSubscription, Subscription):
    """One call of a node's `subscribe`. Any thread may call its methods, and handlers may.

    Attributes:
        group: its queue group, or "".
    """

    __slots__ = ()


class ReceivedSubscription(NodeSubscription):
    """A subscription without a handler: its messages are received, by `receive` or iteration."""

    __slots__ = ()
    queue: Mailbox

    def receive(self, timeout: float | None = None) -> Message:
        """Wait for its next message.

        Args:
            timeout: seconds; None waits for ever, 0 takes only what is there.

        Raises:
            Timeout: none came in that time.
            ClosedError: the subscription has ended, or its node is closed.
        """
        message: Message = self.queue.receive(timeout)
        return message

    def __iter__(self) -> Iterator[Message]:
        """Receive until the subscription has ended."""
        with suppress(ClosedError):
            while True:
                yield self.receive()


class Node(NodeBase):
    """Joins a bus, and publishes, subscribes, asks and answers there by subject alone.

    Every method may be called from any thread. Handlers run on a pool of threads, in order for each
    subscription. The node has one thread for what comes in, and one for each of its publishers.
    """

    _engine_class = ThreadedPublisher
    _subscription_class = NodeSubscription
    _io: IOThread

    def _launch(self) -> None:
        self._handlers = ThreadPool(self.configuration.threads)
        client = RequestClient(
            self._requests, self._stats, self._publisher_for, self._has_responders, self._no_responders
        )
        self._requester = ThreadRequester(client, self._wait, self._handlers.lend)
        self._news = threading.Condition()
        self._closing = threading.Lock()
        self._notifications = self._make_queue(self._call_on_peer, HandlerQueue(), self._on_dropped)
        self._poller = zmq.Poller()
        self._io = IOThread(f"oz-node-{self.name}", self._turn)
        try:
            self._open()
        except BaseException:
            self._io.abandon()
            raise
        self._poller.register(self._io.bell, zmq.POLLIN)
        self._poller.register(self._sub.socket, zmq.POLLIN)
        for dealer in self._servers.values():
            self._poller.register(dealer, zmq.POLLIN)
        self._io.start()
        self._join(self.configuration.join_timeout)

    def _join(self, timeout: float) -> None:
        ends = time.monotonic() + timeout
        try:
            self._wait(lambda: None if self._links.is_registered else "no name server", timeout)
            # Nodes of this host are found at once, if they are there.
            with suppress(Timeout):
                left = max(0.0, min(1.0, ends - time.monotonic()))
                self._wait(lambda: "looking around" if self._links.unsettled() else None, left)
        except Timeout:
            if timeout:
                self.close(drain=False, timeout=1.0)
                raise NameserverUnavailable(self.configuration.nameserver, timeout) from None
        except BaseException:
            self.close(drain=False, timeout=0)
            raise

    # the I/O thread --------------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._io.ring()

    def _changed(self) -> None:
        with self._news:
            self._number_of_news += 1
            self._news.notify_all()

    def _turn(self, is_wanted: Callable[[], bool]) -> None:
        """Wait for something to do, and do it."""
        left = 0.0 if is_wanted() else self._seconds_left()
        ready = dict(self._poller.poll(None if left is None else ceil(1000 * left)))
        if self._io.bell in ready:
            self._io.hear()
        now = time.monotonic()
        for endpoint, dealer in self._servers.items():
            if dealer in ready:
                self._read(endpoint, dealer, now)
        self._sub.take_in(_TURN_SECONDS)
        if self._number_of_waits and self._sub.socket in ready:
            self._note_news(now)
        if self._has_due(now):
            for endpoint, frame in self._tick(now):
                with suppress(zmq.Again):
                    self._servers[endpoint].send(frame, zmq.NOBLOCK)

    def _read(self, endpoint: str, dealer: Any, now: float) -> None:
        self._is_due = True
        with suppress(zmq.Again):
            for _ in range(1_000):
                self._dialler.receive(endpoint, dealer.recv(zmq.NOBLOCK), now)

    def _call(self, work: Callable[[], Any]) -> Any:
        self._check_owner()
        return self._io.call(work)

    def _wait(self, what_is_missing: Callable[[], str | None], timeout: float | None) -> None:
        """Wait until nothing is missing; it is asked for in the I/O thread."""
        ends = None if timeout is None else time.monotonic() + timeout
        with self._news:
            self._number_of_waits += 1
        try:
            while True:
                # What comes after this look wakes.
                seen, missing = self._call(lambda: (self._number_of_news, what_is_missing()))
                if missing is None:
                    return
                left = None if ends is None else ends - time.monotonic()
                if left is not None and left <= 0:
                    raise Timeout(f"not within {timeout:g} s: {missing}")
                self._await_news(seen, left)
        finally:
            with self._news:
                self._number_of_waits -= 1

    def _await_news(self, seen: int, seconds: float | None) -> None:
        """Wait for more news than so many."""
        most = None if seconds is None else min(seconds, threading.TIMEOUT_MAX)
        with self._handlers.lend(), self._news:
            self._news.wait_for(lambda: self._number_of_news != seen, most)

    # publishing ------------------------------------------------------------------------------------------

    def publish(
        self,
        subject: str | bytes,
        payload: Any = b"",
        *,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
        message_id: bytes | tuple[bytes, int] | None = None,
    ) -> None:
        """Publish one message to all that have a subscription for it.

        Args:
            subject: a full subject, valid in the node's dialect. `_LOCAL.` subjects stay on this host.
            payload: what the codec encodes.
            headers: text to text, bytes, numbers, truth values or None.
            key: what sticky queue groups go by, in place of the subject.
            message_id: what a repeat is known by to those who drop repeats.

        Raises:
            SubjectError: the dialect does not allow the subject, or it is one of oz's own.
            WouldBlock: a peer has no room, unless `on_full` is `"drop"`.
            ClosedError: the node is closed.
            OwnershipError: it was made before a fork.
        """
        extras = None
        if not (headers is None is key and message_id is None):
            extras = Extras(headers, None, message_id, key)
        self._publisher_for(subject).engine.publish(subject, payload, extras)

    def flush(self) -> None:
        """Send now what waits for others to make a batch.

        Raises:
            ClosedError: the node is closed.
        """
        self._check_open()
        for publisher in self._publishers():
            publisher.engine.flush()

    # asking ----------------------------------------------------------------------------------------------

    def request(
        self,
        subject: str | bytes,
        payload: Any = b"",
        timeout: float | None = 1.0,
        *,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
    ) -> Message:
        """Ask, and give the first answer.

        Args:
            subject: as of `publish`.
            payload: what the codec encodes.
            timeout: seconds to wait; None waits for ever.
            headers: go with the request.
            key: what sticky queue groups go by.

        Raises:
            NoResponders: nobody on the bus has a subscription for the subject; known at once.
            ReplyError: a handler raised, and had not answered; known at once.
            Timeout: nobody has answered in that time.
            SubjectError, WouldBlock, ClosedError, OwnershipError: as `publish`.
        """
        return next(self._requester.ask(subject, payload, timeout, 1, headers, key))

    def request_many(
        self,
        subject: str | bytes,
        payload: Any = b"",
        timeout: float | None = 1.0,
        *,
        limit: int | None = None,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
    ) -> Iterator[Message]:
        """Ask, and give the answers as they come, until the time is over or there are so many.

        That a handler raised counts as its answer, and is told when all others have come.

        Args:
            subject: as of `publish`.
            payload: what the codec encodes.
            timeout: seconds from now on; None waits for ever.
            limit: answers to wait for, at least 1; None takes all that come in that time.
            headers: go with the request.
            key: what sticky queue groups go by.

        Raises:
            ValueError, TypeError: `limit` is no such number.
            NoResponders, ReplyError, Timeout: as `request`; Timeout only when nobody has answered at all.
            SubjectError, WouldBlock, ClosedError, OwnershipError: as `publish`.
        """
        if limit is not None:
            check_count("limit", limit, 1, 2**63)
        return self._requester.ask(subject, payload, timeout, limit, headers, key)

    # subscribing -----------------------------------------------------------------------------------------

    @overload
    def subscribe(
        self,
        pattern: Patterns,
        *,
        handler: None = None,
        dialect: str | None = None,
        group: str | None = None,
        policy: Policy = "round_robin",
        overflow: Overflow = None,
        max_pending: int | None = None,
        last_value: bool = False,
        max_messages: int | None = None,
        concurrency: int = 1,
        order_by: str | None = None,
    ) -> ReceivedSubscription: ...

    @overload
    def subscribe(
        self,
        pattern: Patterns,
        *,
        handler: Handler,
        dialect: str | None = None,
        group: str | None = None,
        policy: Policy = "round_robin",
        overflow: Overflow = None,
        max_pending: int | None = None,
        last_value: bool = False,
        max_messages: int | None = None,
        concurrency: int = 1,
        order_by: str | None = None,
    ) -> NodeSubscription: ...

    def subscribe(
        self,
        pattern: Patterns,
        *,
        handler: Handler | None = None,
        dialect: str | None = None,
        group: str | None = None,
        policy: Policy = "round_robin",
        overflow: Overflow = None,
        max_pending: int | None = None,
        last_value: bool = False,
        max_messages: int | None = None,
        concurrency: int = 1,
        order_by: str | None = None,
    ) -> Any:
        """Ask for the messages whose subject matches.

        Wildcards at the start of a pattern pass by subjects that begin with `_`; advisories are had by
        `"_OZ.ADVISORY.>"`.

        Args:
            pattern: text or bytes in the dialect, an `oz.Pattern`, or a list of them; "" is everything.
            handler: is called with each message, on the pool; without it messages are had by the
                subscription's `receive` and by iterating over it.
            dialect: that of the pattern, if it is another than the node's.
            group: a queue group: of its members on the bus one gets each message.
            policy: which one: `"round_robin"`, `"sticky"` or `"failover"`.
            overflow: what happens to messages beyond `max_pending`, which come faster than they are handled:
                `"drop_newest"`, as with None, `"drop_oldest"`, or `"conflate"`: the newest of each subject
                stays.
            max_pending: messages, or subjects with `overflow="conflate"`, that may wait for the handler, and
                with an `overflow` at each publisher; from 1 to 2**32 - 1, 65,536 unless said otherwise.
            last_value: first give the newest message of each subject that matches, of the nodes that are made
                with `last_value=True`.
            max_messages: end the subscription after so many.
            concurrency: messages that may be handled at the same time.
            order_by: `"subject"` keeps those of one subject in order.

        Returns:
            The subscription: `unsubscribe()` ends it. Without a handler it is an `oz.ReceivedSubscription`.

        Raises:
            PatternError: the dialect does not allow the pattern, or applications may not have it.
            ValueError, TypeError: an argument makes no sense.
            ClosedError: the node is closed.
        """
        self._check_open()
        return self._subscribe(
            self._prepare(pattern, dialect),
            handler,
            self._delivery_options(group, policy, overflow, max_pending),
            HandlerQueue(overflow, LIMIT if max_pending is None else max_pending, concurrency, order_by),
            last_value=last_value,
            max_messages=max_messages,
        )

    def _check_handler(self, handler: Any) -> None:
        super()._check_handler(handler)
        refuse_async(handler, "oz.asyncio.Node")

    def _make_mailbox(
        self, handler_queue: HandlerQueue, dropped: OnDropped
    ) -> tuple[Mailbox, type[ReceivedSubscription]]:
        return Mailbox(self._handlers, handler_queue, dropped), ReceivedSubscription

    def _make_queue(
        self, handler: Callable[[Any], Any], handler_queue: HandlerQueue, dropped: OnDropped
    ) -> HandlerRunner:
        return HandlerRunner(self._handlers, handler_queue, handler, self._on_failed, dropped)

    def _drain_one(self, subscription: node_subscription.NodeSubscription, timeout: float) -> bool:
        self._check_open()
        if not subscription.active:
            return True
        ends, has_all = time.monotonic() + timeout, True
        self._call(lambda: self._sub.begin_part(subscription))
        try:
            self._wait(lambda: self._still_draining(subscription), timeout)
        except Timeout:
            has_all = False
        self._call(lambda: self._sub.end_with_rest(subscription))
        is_handled = subscription.queue.drain(max(0.0, ends - time.monotonic()))
        self._call(lambda: self._end_drained(subscription))
        return has_all and is_handled

    # presence --------------------------------------------------------------------------------------------

    @property
    def peers(self) -> list[Announcement]:
        """The nodes that are up and connected, this one not among them."""
        if self._closed:
            return []
        peers: list[Announcement] = self._call(lambda: self._membership.up)
        return peers

    def wait_for_peers(self, wanted: int | str | Iterable[str] = 1, timeout: float | None = None) -> None:
        """Wait until peers are up.

        Args:
            wanted: how many, or the name of one, or several names.
            timeout: seconds; None waits for ever.

        Raises:
            Timeout: they were not in that time; says who is missing.
            ClosedError: the node is closed.
        """
        self._wait(self._missing(wanted), timeout)

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until every peer that is known can be spoken with both ways.

        Then all that they had subscribed to when this was called is known here, so that what this node
        publishes reaches them and `request` finds who answers; and they know what this node has subscribed
        to. Nodes of oz 0.1.0 cannot say what they had subscribed to: have those wait themselves.

        Args:
            timeout: seconds; None waits for ever.

        Raises:
            Timeout: something is missing after that time; says what.
            ClosedError: the node is closed.
        """
        self._wait(self._unready(), timeout)

    # counters --------------------------------------------------------------------------------------------

    @property
    def stats(self) -> NodeStats:
        """The counts of this node so far; see `NodeStats`."""
        return self._count_stats()

    # closing ---------------------------------------------------------------------------------------------

    def close(self, drain: bool = True, timeout: float | None = 5.0) -> None:
        """Leave the bus. A second call does nothing. It never takes much longer than it may.

        Args:
            drain: first stop asking, have handlers handle what has come, and send what they publish.
            timeout: seconds for all of it; None waits for as long as it takes.

        In a signal handler that interrupts `publish` it returns at once, and a thread goes on with it.
        """
        if self._local.engine.guard.is_foreign:
            return
        if any(publisher.engine.guard.is_mine for publisher in self._publishers()):
            # The I/O thread, which has to help, may wait for what this thread has until the handler returns.
            threading.Thread(target=self.close, args=(drain, timeout), name="oz-closing").start()
            return
        ends = time.monotonic() + closing_time(timeout)
        if not self._closing.acquire(blocking=False):
            return
        if drain:
            self._drain(ends)
        self._closed = True
        with suppress(ClosedError):
            self._io.call(self._take_leave)
        has_ended = self._io.stop(max(_LAST_TURN, ends - time.monotonic()))
        self._changed()
        self._close_queues()
        self._handlers.close(max(0.0, ends - time.monotonic()) if drain else 0)
        if has_ended:
            self._close_sockets(ends, drain=drain)
        else:
            _log.warning("closed, but the thread of node %s is still busy; its sockets stay open", self.name)

    def _close_sockets(self, ends: float, *, drain: bool) -> None:
        # With a drain the goodbye has been said, and answered by those who are there.
        self._sub.close(is_drained=drain)
        for dealer in self._servers.values():
            dealer.close()
        closed_at = time.monotonic()
        for publisher in self._publishers():
            publisher.engine.close(timeout=max(0.0, ends - time.monotonic()))
        self._end_context(max(0.0, ends - closed_at), closed_at)

    def _drain(self, ends: float) -> None:
        with suppress(ClosedError, Timeout):
            self._call(self._sub.begin_drain)
            self._wait(self._still_closing, ends - time.monotonic())
        for queue in self._queues():
            queue.drain(max(0.0, ends - time.monotonic()))
        for publisher in self._publishers():
            with suppress(ClosedError):
                publisher.engine.flush()

    def _take_leave(self) -> None:
        for endpoint, frame in self._say_goodbye():
            with suppress(zmq.ZMQError):
                self._servers[endpoint].send(frame, zmq.NOBLOCK)

    def __enter__(self) -> Self:
        """Use it in `with`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()
