"""The blocking node."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Self

import zmq

from oz.configuration import resolve
from oz.errors import ClosedError, NameserverUnavailable, OwnershipError, Timeout
from oz.message import Message
from oz.protocol.advisory import advise
from oz.protocol.lanes import LIMIT, Lanes
from oz.protocol.node_stats import NodeStats
from oz.protocol.node_subscription import NodeSubscription
from oz.sync.handlers import HandledQueue, Handlers
from oz.sync.io_thread import IOThread
from oz.sync.mailbox import Mailbox
from oz.sync.publisher import Publisher
from oz.sync.subscriber import Subscriber
from oz.transport.node_base import TICK, NodeBase
from oz.transport.node_sockets import NodePublishing, NodeSubscribing
from oz.transport.publishing import OnFull
from oz.transport.terms import Keep, Policy
from oz.wire.naming import Announcement

OnPeer = Callable[[Announcement, str], Any]

_SLICE = 0.05


class NodePublisher(NodePublishing, Publisher):
    """A node's publisher."""


class NodeSubscriber(NodeSubscribing, Subscriber):
    """A node's subscriber."""


class ReceivedSubscription(NodeSubscription):
    """A subscription without a handler: its messages are received, by `receive` or iteration."""

    __slots__ = ()

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

    _publisher_class = NodePublisher
    _subscriber_class = NodeSubscriber
    _io: IOThread

    def __init__(
        self,
        name: str | None = None,
        *,
        bus: str | None = None,
        nameserver: str | Sequence[str] | None = None,
        bind: str | Sequence[str] | None = None,
        peers: str | Sequence[str] | None = None,
        advertise: str | None = None,
        dialect: str | None = None,
        codec: Any = None,
        echo: bool = True,
        directory: str | None = None,
        join_timeout: float | None = None,
        lost_after: float | None = None,
        threads: int | None = None,
        on_full: OnFull = "drop",
        full_timeout: float | None = None,
        high_water_mark: int | None = None,
        on_peer: OnPeer | None = None,
    ) -> None:
        """Join a bus.

        What is None is taken from `OZ_*` environment variables, a TOML file, or a default:
        docs/configuration.md.

        Args:
            name: what it is called; default the program's name and its process id.
            bus: the bus; nodes of others never hear of it.
            nameserver: the endpoint of a name server, or of several. One that answers is enough.
            bind: where nodes of other hosts connect to it; default a free port at the address of this host
                that name servers and peers see, or none without either.
            peers: endpoints of nodes to connect to, in place of a name server; one is enough to find all.
                With neither, the nodes of this host find each other in a directory.
            advertise: the address of this host that others are told, if it is not the one that it sees.
            dialect: that of patterns and subjects.
            codec: `"msgpack"`, or an object with `encode` and `decode`.
            echo: whether its own subscriptions get what it publishes itself.
            directory: where nodes of one host find each other; only its owner may enter it.
            join_timeout: seconds to wait for a name server; 0 does not wait, and goes on trying.
            lost_after: seconds without a link after which a peer counts as lost.
            threads: the most handlers that run at once.
            on_full: what to do when a peer has no room: see `oz.Publisher`.
            full_timeout: seconds that `"block"` waits at most.
            high_water_mark: batches that may wait for each peer.
            on_peer: called with a peer and `"up"`, `"left"` or `"lost"`, one after the other, on the pool.

        Raises:
            NameserverUnavailable: no name server has answered in that time.
            ConfigurationError: a setting makes no sense; says where it came from.
            ValueError, TransportUnavailable, zmq.ZMQError: an endpoint cannot be bound.
        """
        if isinstance(codec, str) and codec == "bytes":
            raise ValueError('codec is "msgpack" or an object with encode and decode')
        settings = resolve(
            name=name, bus=bus, nameserver=nameserver, bind=bind, peers=peers, dialect=dialect, codec=codec,
            directory=directory, join_timeout=join_timeout, lost_after=lost_after, threads=threads,
        )  # fmt: skip
        self._configure(settings, echo=echo, advertise=advertise)
        self._handlers = Handlers(settings.threads)
        self._news = threading.Condition()
        self._on_peer = self._make_queue(lambda told: on_peer and on_peer(*told), Lanes())
        self._poller = zmq.Poller()
        self._io = IOThread(f"oz-node-{self.name}", self._turn)
        self._open(on_full=on_full, full_timeout=full_timeout, high_water_mark=high_water_mark)
        self._poller.register(self._io.bell, zmq.POLLIN)
        self._poller.register(self._sub, zmq.POLLIN)
        for dealer in self._servers.values():
            self._poller.register(dealer, zmq.POLLIN)
        self._io.start()
        self._join(settings.join_timeout)

    def _join(self, timeout: float) -> None:
        ends = time.monotonic() + timeout
        try:
            self._wait(lambda: None if self._mesh.is_enrolled else "no name server", timeout)
            # Nodes of this host are found at once, if they are there.
            with suppress(Timeout):
                left = max(0.0, min(1.0, ends - time.monotonic()))
                self._wait(lambda: "looking around" if self._mesh._unsettled() else None, left)
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
            self._news.notify_all()

    def _tell_peer(self, peer: Announcement, what: str) -> None:
        told: Any = (peer, what)
        self._on_peer.put(told)

    def _turn(self, is_wanted: Callable[[], bool]) -> None:
        """Wait for something to do, and do it."""
        wait = 0.0 if is_wanted() or self._sub._has_some else max(0.0, self._tick_at - time.monotonic())
        ready = dict(self._poller.poll(1000 * min(wait, TICK)))
        if self._io.bell in ready:
            self._io.hear()
        now = time.monotonic()
        for endpoint, dealer in self._servers.items():
            if dealer in ready:
                self._read(endpoint, dealer, now)
        self._sub._prefetch()
        # Nobody receives here; what is for nobody is not kept.
        self._sub._ready.clear()
        if now >= self._tick_at or self._mesh._is_stale or self._notices:
            for endpoint, frame in self._tick(now):
                with suppress(zmq.Again):
                    self._servers[endpoint].send(frame, zmq.NOBLOCK)

    def _read(self, endpoint: str, dealer: Any, now: float) -> None:
        with suppress(zmq.Again):
            for _ in range(1_000):
                self._mesh.receive(endpoint, dealer.recv(zmq.NOBLOCK), now)

    def _call(self, work: Callable[[], Any]) -> Any:
        self._check_owner()
        return self._io.call(work)

    def _check_owner(self) -> None:
        if self._near._guard.is_foreign:
            raise OwnershipError("this node was made before a fork, in the parent process; make one in the child")

    def _wait(self, what_is_missing: Callable[[], str | None], timeout: float | None) -> None:
        """Wait until nothing is missing; it is asked for in the I/O thread."""
        ends = None if timeout is None else time.monotonic() + timeout
        while (missing := self._call(what_is_missing)) is not None:
            left = None if ends is None else ends - time.monotonic()
            if left is not None and left <= 0:
                raise Timeout(f"not within {timeout:g} s: {missing}")
            with self._news:
                self._news.wait(_SLICE if left is None else min(_SLICE, left))

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
        """Publish one message to whoever has a subscription for it.

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
        self._publisher_for(subject).publish(
            subject, payload, headers=headers, key=key, message_id=message_id
        )

    def flush(self) -> None:
        """Send now what waits for others to make a batch.

        Raises:
            ClosedError: the node is closed.
        """
        self._check_open()
        for publisher in self._publishers():
            publisher.flush()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the node {self.name} is closed")

    # subscribing -----------------------------------------------------------------------------------------

    def subscribe(
        self,
        pattern: Any,
        *,
        handler: Callable[[Message], Any] | None = None,
        dialect: str | None = None,
        group: str | None = None,
        policy: Policy = "turn",
        keep: Keep = "all",
        max_waiting: int | None = None,
        last_value: bool = False,
        max_messages: int | None = None,
        concurrency: int = 1,
        order_by: str | None = None,
    ) -> Any:
        """Ask for the messages whose subject matches.

        Wildcards at the start of a pattern pass by subjects that begin with `_`; advisories are had by
        `"_OZ.ADVISORY.>"`.

        Args:
            pattern: as of `oz.Subscriber.subscribe`.
            handler: is called with each message, on the pool; without it messages are had by the
                subscription's `receive` and by iterating over it.
            dialect: that of the pattern, if it is another than the node's.
            group: a queue group: of its members on the bus one gets each message.
            policy: which one: `"turn"`, `"sticky"` or `"first"`.
            keep: what to let go when handlers are slower than messages come: `"all"` the newest, once
                `max_waiting` wait; `"latest"` keeps the newest of each subject; `"drop_oldest"`,
                `"drop_newest"`.
            max_waiting: messages that may wait for the handler; default 65,536.
            last_value: give the newest message of each subject that matches first, if publishers keep it.
            max_messages: end the subscription after so many.
            concurrency: messages that may be handled at the same time.
            order_by: `"subject"` keeps those of one subject in order.

        Returns:
            The subscription: `unsubscribe()` ends it.

        Raises:
            PatternError: the dialect does not allow the pattern, or applications may not have it.
            ValueError, TypeError: an argument makes no sense.
            ClosedError: the node is closed.
        """
        self._check_open()
        if handler is not None:
            self._sub._check_handler(handler)
        terms = self._check_terms(group, policy, keep, max_waiting)
        limit = LIMIT if max_waiting is None else max_waiting
        lanes = Lanes(keep, limit, concurrency, order_by)
        patterns, is_advisory = self._prepare(pattern, dialect)
        queue: Any
        if handler is None:
            queue = Mailbox(Lanes(keep, limit), self._on_dropped)
            kind: type[NodeSubscription] = ReceivedSubscription
        else:
            queue = self._make_queue(handler, lanes)
            kind = NodeSubscription
        subscription = kind(patterns, queue, self._cancel, max_messages, group or "", self._answer)
        self._call(
            lambda: self._begin(subscription, terms, last_value=last_value, is_advisory=is_advisory)
        )
        return subscription

    def _make_queue(self, handler: Callable[[Any], Any], lanes: Lanes) -> HandledQueue:
        return HandledQueue(self._handlers, lanes, handler, self._on_failed, self._on_dropped)

    def _cancel(self, subscription: Any) -> None:
        with suppress(ClosedError):
            self._call(lambda: self._end(subscription))

    def _on_failed(self, message: Any, error: BaseException) -> None:
        subject = getattr(message, "subject", "on_peer")
        _log_failure(subject, error)
        text = f"a handler raised {type(error).__name__} at {subject!r}: {error}"
        self._advise(advise("handler_failed", text, about=str(subject)))
        self._wake()

    def _on_dropped(self, count: int, message: Any) -> None:
        subject = getattr(message, "subject", "on_peer")
        text = f"{count:,} messages like {subject!r} were let go: their handler is too slow"
        self._advise(advise("slow_consumer", text, about=str(subject), count=count))

    # requests --------------------------------------------------------------------------------------------

    def request(
        self,
        subject: str | bytes,
        payload: Any = b"",
        *,
        timeout: float | None = 1.0,
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
            Timeout: nobody has answered in that time.
            SubjectError, WouldBlock, ClosedError, OwnershipError: as `publish`.
        """
        return next(iter(self.request_many(subject, payload, timeout=timeout, limit=1, headers=headers, key=key)))

    def request_many(
        self,
        subject: str | bytes,
        payload: Any = b"",
        *,
        timeout: float | None = 1.0,
        limit: int | None = None,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
    ) -> Iterator[Message]:
        """Ask, and give the answers as they come, until the time is over or there are so many.

        Args:
            subject: as of `publish`.
            payload: what the codec encodes.
            timeout: seconds from now on; None waits for ever.
            limit: answers to wait for at most.
            headers: go with the request.
            key: what sticky queue groups go by.

        Raises:
            NoResponders, Timeout: as `request`; Timeout only when nobody has answered at all.
            SubjectError, WouldBlock, ClosedError, OwnershipError: as `publish`.
        """
        ends = None if timeout is None else time.monotonic() + timeout
        self._await_responders(subject, timeout)
        replies: SimpleQueue[Message] = SimpleQueue()
        inbox = self._requests.begin(replies.put)
        self._stats.requests += 1
        try:
            publisher: Any = self._publisher_for(subject)
            refused = publisher.send_request(subject, payload, headers, key, inbox)
            if refused is not None:
                for pause in publisher._try_again(subject, refused):
                    time.sleep(pause)
        except BaseException:
            self._requests.end(inbox)
            raise
        return self._replies(subject, inbox, replies, ends, limit)

    def _replies(
        self, subject: Any, inbox: str, replies: SimpleQueue[Message], ends: float | None, limit: int | None
    ) -> Iterator[Message]:
        count = 0
        began = time.monotonic()
        try:
            while limit is None or count < limit:
                left = None if ends is None else ends - time.monotonic()
                try:
                    reply = replies.get(timeout=_LONG if left is None else max(0.0, min(left, _LONG)))
                except Empty:
                    self._check_open()
                    if left is None or left > _LONG:
                        continue
                    if not count:
                        waited = time.monotonic() - began
                        raise Timeout(f"no answer to {subject!r} in {waited:.3g} s") from None
                    return
                count += 1
                yield reply
        finally:
            self._requests.end(inbox)

    def _await_responders(self, subject: Any, timeout: float | None) -> None:
        if self._publisher_for(subject).interest(subject):
            return
        with suppress(Timeout):
            # Those who have just been heard of may have a subscription.
            self._wait(lambda: None if self._has_responders(subject) is not None else "peers", timeout)
        if not self._publisher_for(subject).interest(subject):
            raise self._no_responders(subject)

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

    def _missing(self, wanted: int | str | Iterable[str]) -> Callable[[], str | None]:
        if isinstance(wanted, int):
            count = wanted

            def too_few() -> str | None:
                up = len(self._membership.up)
                return None if up >= count else f"{up} of {count} peers are up"

            return too_few
        names = {wanted} if isinstance(wanted, str) else set(wanted)

        def absent() -> str | None:
            missing = names - {one.name for one in self._membership.up}
            return f"{', '.join(sorted(missing))} are not up" if missing else None

        return absent

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until every peer that is known can be spoken with both ways.

        What is published from then on reaches them, and what they publish reaches this node.

        Args:
            timeout: seconds; None waits for ever.

        Raises:
            Timeout: something is missing after that time; says what.
            ClosedError: the node is closed.
        """
        self._wait(lambda: "; ".join(self._mesh.unready()) or None, timeout)

    # counters --------------------------------------------------------------------------------------------

    @property
    def stats(self) -> NodeStats:
        """What it did so far; see `NodeStats`."""
        return self._count_stats()

    # closing ---------------------------------------------------------------------------------------------

    def close(self, *, drain: bool = True, timeout: float = 5.0) -> None:
        """Leave the bus. A second call does nothing. It never takes much longer than it may.

        Args:
            drain: first stop asking, have handlers handle what has come, and send what they publish.
            timeout: seconds for all of it.
        """
        if self._closed or self._near._guard.is_foreign:
            return
        ends = time.monotonic() + timeout
        if drain:
            self._drain(ends)
        self._closed = True
        with suppress(ClosedError):
            self._io.call(self._take_leave)
        self._io.stop(max(0.1, ends - time.monotonic()))
        for subscription in list(self._subscriptions):
            subscription.active = False
            subscription.queue.end() if isinstance(subscription.queue, Mailbox) else subscription.queue.close()
        self._handlers.close(max(0.0, ends - time.monotonic()) if drain else 0)
        for publisher in self._publishers():
            publisher.close(timeout=max(0.0, ends - time.monotonic()))
        self._sub.close(0)
        self._end_context(max(0.0, ends - time.monotonic()))
        self._changed()

    def _drain(self, ends: float) -> None:
        with suppress(ClosedError, Timeout):
            self._call(self._sub._begin_drain)
            self._wait(lambda: None if self._sub._has_left() else "publishers", ends - time.monotonic())
        for subscription in list(self._subscriptions):
            subscription.queue.drain(max(0.0, ends - time.monotonic()))
        for publisher in self._publishers():
            with suppress(ClosedError):
                publisher.flush()

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


_LONG = 0.5
"""Seconds of waiting at a time, so that a node that is closed is noticed."""


def _log_failure(subject: Any, error: BaseException) -> None:
    import logging

    logging.getLogger("oz.node").error("a handler raised at %r", subject, exc_info=error)
