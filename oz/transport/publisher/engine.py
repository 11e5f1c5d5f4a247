"""The engine of sync and asyncio publishers: all but the waiting."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import Any, Literal, NoReturn

import zmq

from oz.errors import WouldBlock
from oz.protocol.multicast.options import Multicast
from oz.protocol.multicast.router import MulticastRouter
from oz.protocol.publisher.last_value_cache import LastValueCache
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.subjects.pattern import DEFAULT_DIALECT
from oz.transport.admission import check_subject
from oz.transport.endpoints import Endpoints
from oz.transport.guard import Guard
from oz.transport.multicast.group import Group, group_for
from oz.transport.multicast.sender import MulticastDispatch, high_water_mark_for
from oz.transport.option_checks import check_count, check_seconds
from oz.transport.publisher.batches import MAX_BATCH
from oz.transport.publisher.closing import PublisherClosing, pauses
from oz.transport.publisher.dispatch import Dispatch
from oz.transport.publisher.one_frame import JoiningSender
from oz.transport.publisher.raw_sends import RawSends
from oz.transport.publisher.sender import Refused, Sender
from oz.transport.publisher.subjects import Route
from oz.transport.socket import backend_get, backend_recv, backend_set, check_delimiter
from oz.wire.batch import MAX_COUNT
from oz.wire.codec import Codec, find_codec
from oz.wire.keys import ID_SIZE

OnFull = Literal["drop", "block", "error"]

LONGEST_TIMEOUT = 2_000_000.0
"""Seconds; ZeroMQ counts milliseconds in 32 bits."""

MAX_SUBSCRIPTION = 131_072
"""Bytes of a subscription; a peer that sends a longer one is cut off."""

MAX_DELAY = 0.0005
"""Seconds for which a message waits for others at most, unless said otherwise."""

_EVENTS = int(zmq.EVENTS)
_NOBLOCK = int(zmq.NOBLOCK)
_POLLIN = int(zmq.POLLIN)
_SUBSCRIBE = int(zmq.SUBSCRIBE)
_UNSUBSCRIBE = int(zmq.UNSUBSCRIBE)
_REFUSED_OPTIONS = (_SUBSCRIBE, _UNSUBSCRIBE, int(zmq.XPUB_MANUAL), int(zmq.INVERT_MATCHING))
"""What a PUB has not, or what would change who gets what behind this publisher's back."""


class PublisherBase(RawSends, PublisherClosing):
    """An XPUB socket that checks subjects. `oz.Publisher` and `oz.asyncio.Publisher` add the waiting."""

    _public_name = "Publisher"
    _kind = zmq.XPUB
    _accepted_kinds = (zmq.PUB, zmq.XPUB)
    _on_full: OnFull
    _full_timeout: float | None
    _max_delay: float

    def __init__(
        self,
        bind: Endpoints | zmq.Context[Any] | None = None,
        connect: Endpoints | int | None = None,
        *,
        dialect: str = DEFAULT_DIALECT,
        context: zmq.Context[Any] | None = None,
        codec: str | Codec | None = None,
        delimiter: bytes | None = None,
        on_full: OnFull = "drop",
        full_timeout: float | None = None,
        high_water_mark: int | None = None,
        last_value: bool = False,
        max_batch: int = MAX_BATCH,
        max_delay: float = MAX_DELAY,
        multicast: Multicast | None = None,
        plain: bool = False,
    ) -> None:
        r"""Make a publisher.

        Args:
            bind: an endpoint to bind to, or a list of them; `tcp://127.0.0.1:*` lets the system choose.
            connect: an endpoint to connect to, or a list of them.
            dialect: the dialect that subjects must be valid in; one of `oz.DIALECTS`.
            context: the ZeroMQ context to share; without it the publisher has one of its own.
            codec: `"msgpack"`, `"json"`, or an object with `encode` and `decode`; without it payloads are
                bytes.
            delimiter: for messages of one frame: what stands between subject and payload, such as
                `b" "` or `b"\\0"`. Without it the subject is a frame of its own.
            on_full: what to do when a subscriber is at its high-water mark: `"drop"` the message for
                that subscriber, as ZeroMQ does; `"block"` until there is room for all; `"error"` raises.
            full_timeout: seconds that `"block"` waits at most; None is for ever.
            high_water_mark: messages, or batches of them, that may wait here for each subscriber; 0 is no
                limit. Default 100,000, or what ZeroMQ has when the context is yours.
            last_value: keep the newest message of each subject, up to 65,536 of them, for subscribers that
                ask for it.
            max_batch: messages in one batch at most, from 1 to 65,535.
            max_delay: seconds for which a message waits for others at most; one that comes alone never
                waits. Only subscribers that have the publisher filter get batches.
            multicast: how to send to `epgm://interface;group:port`; docs/multicast.md.
            plain: multicast ordinary ZeroMQ messages, for subscribers that are not oz: nobody can tell then
                what was lost, nor what is corrupt.

        Raises:
            ValueError: no such dialect, codec, `on_full` or endpoint, an empty delimiter, a number that is
                out of bounds, or an option that does not go with multicast.
            TransportUnavailable: this libzmq lacks the transport of an endpoint.
            zmq.ZMQError: an endpoint cannot be bound or connected to.
        """
        if isinstance(bind, zmq.Context):
            # pyzmq's own way to make a socket: (context, type).
            context, kind, bind, connect = bind, connect, None, None
        else:
            kind = None
        if on_full not in ("drop", "block", "error"):
            raise ValueError(f'on_full is "drop", "block" or "error", not {on_full!r}')
        check_count("max_batch", max_batch, 1, MAX_COUNT)
        check_seconds("max_delay", max_delay, 1.0)
        if full_timeout is not None:
            check_seconds("full_timeout", full_timeout, LONGEST_TIMEOUT)
        found, ends = find_codec(codec), check_delimiter(delimiter)
        group = group_for((bind, connect), multicast, is_plain=plain, is_publisher=True)
        if group is not None and (last_value or (ends and not plain)):
            raise ValueError("multicast has no last_value, and a delimiter only with plain=True")
        self._create(context, kind, dialect, Guard())
        self._group = group
        last_values = self._make_last_values() if last_value else None
        self._send_to(group, last_values, drops=on_full == "drop")
        kind_of_sender = Sender if ends is None else JoiningSender
        self._sender = kind_of_sender(
            self._guard, found, self._router, self._dispatch, last_values, max_batch
        )
        self._delimiter = ends or b""
        self._on_full = on_full
        self._full_timeout = full_timeout
        self._max_delay = max_delay
        self._raw = []
        with self._closed_on_failure():
            self._set_options(high_water_mark)
            self._attach(bind, connect)
        self._take_shortcut()

    @staticmethod
    def _make_last_values() -> LastValueCache:
        return LastValueCache()

    def _send_to(self, group: Group | None, last_values: LastValueCache | None, *, drops: bool) -> None:
        """Send messages to the streams that ask for them, or to a multicast group."""
        origin, stats = self._make_origin(), PublisherStats()
        if group is None or group.is_plain:
            self._router = self._make_router(origin, stats)
            self._dispatch = Dispatch(self._router, last_values, drops=drops)
            if group is not None:
                # Nobody can ask, so that everybody gets everything.
                self._router.plain.learn(b"\x01")
        else:
            self._router = router = MulticastRouter(origin, stats)
            self._dispatch = MulticastDispatch(router, origin, group.options, drops=drops)
            self._is_framed = True

    def _make_origin(self) -> bytes:
        return os.urandom(ID_SIZE)

    def _make_router(self, origin: bytes, stats: PublisherStats) -> Router:
        return Router(origin, stats)

    def _take_shortcut(self) -> None:
        """Publish by the shortest way: see `Sender.shortcut`."""

    def _set_options(self, high_water_mark: int | None) -> None:
        group = self._group
        if group is not None and high_water_mark is None:
            high_water_mark = high_water_mark_for(group.options)
        self._set_high_water_mark(high_water_mark)
        if group is not None:
            group.configure(self)
        # Every subscription and unsubscription is reported, and counts only once it was accepted here.
        backend_set(self, zmq.XPUB_MANUAL, 1)
        # Nothing arrives but subscriptions, which libzmq walks by recursion: a huge one would crash it.
        self.set(zmq.MAXMSGSIZE, MAX_SUBSCRIPTION)
        if self._on_full != "drop":
            self.set(zmq.XPUB_NODROP, 1)

    def connect(self, addr: str | bytes) -> Any:
        """Connect to an endpoint, such as a proxy's; see `BaseSocket.connect`."""
        # Without it the pipe to a peer that is gone stays, and with it interests that nobody has.
        self.set(zmq.IMMEDIATE, 1)
        return super().connect(addr)

    @property
    def stats(self) -> PublisherStats:
        """The counts of this publisher so far; see `PublisherStats`."""
        return self._sender.stats if self._guard.is_foreign else self._sender.count()

    def set(self, option: int, optval: Any) -> None:
        """Set a socket option, as `zmq.Socket.set` does.

        Raises:
            zmq.ZMQError: it is not one that a PUB socket has, such as SUBSCRIBE.
            ValueError: multicast does not know it, or would end the process.
        """
        if option in _REFUSED_OPTIONS:
            # An XPUB in manual mode would take it for a subscription of whoever subscribed last.
            raise zmq.ZMQError(zmq.ENOTSOCK if self.closed else zmq.EINVAL)
        # A thread that looks after the publisher may be using the socket; no ZeroMQ socket stands two.
        with self._guard:
            super().set(option, optval)

    setsockopt = set

    def get(self, option: int) -> Any:
        """Get a socket option, as `zmq.Socket.get` does; TYPE is PUB.

        Raises:
            OwnershipError: the publisher was made before a fork.
        """
        with self._guard:
            found = super().get(option)
        # Programs that find an XPUB read subscriptions from it, which is done here already.
        return int(zmq.PUB) if option == zmq.TYPE else found

    getsockopt = get

    def monitor(self, addr: Any, events: int = zmq.EVENT_ALL) -> None:
        """Send events of the connections to an endpoint, as `zmq.Socket.monitor` does."""
        with self._guard:
            super().monitor(addr, events)

    # subjects --------------------------------------------------------------------------------------------

    def _admit(self, subject: Any) -> Route:
        """Work out the route of a subject that is not remembered.

        Raises:
            SubjectError, ProtocolError, TypeError: it may not be published.
            ClosedError: the publisher is closed.
        """
        self._check_open()
        can_remember = isinstance(subject, (str, bytes))
        routes = self._sender.routes
        forms = routes.valid(subject) if can_remember else None
        if forms is None:
            forms = check_subject(subject, self.dialect, self._delimiter, self._endpoints)
            if can_remember:
                routes.remember_valid(subject, forms)
        # At once, or an interest that another thread takes in between would stay unknown here.
        with self._guard:
            route = self._route(*forms)
            if can_remember:
                routes.remember(subject, route)
        return route

    def _route(self, wire: bytes, raw: bytes) -> Route:
        """Find out who wants a subject that is valid."""
        # Under the guard: another thread may be taking in an interest.
        with self._guard:
            return self._router.find(raw, wire), wire, raw

    def _endpoints_changed(self) -> None:
        if isinstance(self._dispatch, MulticastDispatch) and self._group is not None:
            self._dispatch.greet(self, self._group.endpoints.values())
        # What was allowed to leave, `_LOCAL.` subjects above all, may not be any more.
        self._sender.routes.forget_valid()

    # what is due -----------------------------------------------------------------------------------------

    def _listen(self) -> bool:
        """Take in the subscriptions that have arrived, and answer them; tell whether any interest changed."""
        with self._guard:
            if self.closed:
                return False
            router = self._router
            self._take_in()
            has_changed, router.has_changed = router.has_changed, False
            if has_changed:
                # Before the answer: what is published once it has arrived must go to whom it was given.
                self._sender.routes.forget()
                self._interest_changed()
            if (router.to_answer or router.to_serve) and not self._said_goodbye:
                # What was published before goes out before.
                self._sender.accumulator.flush(self)
                self._dispatch.answer(self)
            return has_changed

    def _take_in(self) -> None:
        """Learn of the subscriptions that have arrived, and tell ZeroMQ what comes of each.

        All of them in one go, without asking for EVENTS in between, which may end connections: libzmq looks
        at the connection that a subscription came from when that is read, even if its memory was freed since.
        docs/decisions/030-the-handle-that-users-hold.md
        """
        # Asking costs a third of what `zmq.Again` does, and loses no Ctrl-C: from Python 3.12 on, pyzmq
        # drops what a signal handler raises while it raises that itself.
        if not int(backend_get(self, _EVENTS)) & _POLLIN:
            return
        router, now = self._router, time.monotonic()
        with suppress(zmq.Again):
            while True:
                wanted, dropped = router.learn(backend_recv(self, _NOBLOCK), now)
                # ZeroMQ applies these to the connection that the frame came from.
                for key in wanted:
                    backend_set(self, _SUBSCRIBE, key)
                for key in dropped:
                    backend_set(self, _UNSUBSCRIBE, key)

    def _interest_changed(self) -> None:
        """Called when an interest has come or gone, by whichever thread took it in, under the guard."""

    def _attend(self) -> bool:
        """Do what is due: send what waits, take in subscriptions, tell streams where they stand.

        Returns:
            Whether there was anything to send, or still is and may soon find room.
        """
        with self._guard:
            if self.closed or self._said_goodbye:
                return False
            accumulator, dispatch = self._sender.accumulator, self._dispatch
            was_busy = bool(accumulator or dispatch.full)
            dispatch.is_halfway = False
            if not accumulator.is_held:
                accumulator.flush(self)
            self._listen()
            dispatch.retry(self)
            dispatch.beat(self, time.monotonic())
            return was_busy or dispatch.is_halfway

    def _expect_more(self) -> None:
        """Called when a message waits for others in the accumulator: see to it that they go out in time."""
        raise NotImplementedError

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Hold what is published until the end of a `with` block, or until a batch is full.

        Only subscribers that have the publisher filter get batches; others get their messages at once.
        """
        accumulator = self._sender.accumulator
        with self._guard:
            accumulator.is_held += 1
        try:
            yield
        finally:
            # Counted: two threads may each have one, and they end in any order.
            with self._guard:
                accumulator.is_held -= 1
            if not accumulator.is_held and not self.closed:
                self._flush_accumulator()

    def _flush_accumulator(self) -> None:
        """Send what waits in the accumulator.

        Raises:
            ClosedError: the publisher was closed meanwhile, by another thread or a signal handler.
        """
        try:
            self._sender.accumulator.flush(self)
        except zmq.ZMQError:
            self._check_open()
            raise

    # publishing ------------------------------------------------------------------------------------------

    def _try_again(self, subject: Any, refused: Refused) -> Iterator[float]:
        """Publish a message once there is room for it; give the seconds to wait between the attempts.

        Raises:
            WouldBlock: there was none in time, or it is not to be waited for.
            ClosedError: the publisher was closed meanwhile.
        """
        if self._on_full != "block":
            self._refuse(subject)
        deadline = inf if self._full_timeout is None else time.monotonic() + self._full_timeout
        (_, wire, raw), payload, item = refused
        for pause in pauses():
            # Looked at before the attempt: whoever was not scheduled until the end still has one.
            is_over = time.monotonic() >= deadline
            with self._guard:
                self._check_open()
                # Its route is looked up again: interests may have changed meanwhile.
                if self._sender.publish_any(self, self._route(wire, raw), payload, item) is None:
                    return
            if is_over:
                self._refuse(subject)
            yield pause

    def _refuse(self, subject: str | bytes) -> NoReturn:
        self._sender.stats.dropped += 1
        has_waited = self._on_full == "block" and self._full_timeout is not None
        waited = f" for {self._full_timeout:g} s" if has_waited else ""
        raise WouldBlock(
            f"a subscriber is at its high-water mark{waited}; {subject!r} was not sent to anybody"
        ) from None

    def report_loss(self, count: int | None) -> None:
        """Report messages as lost here: subscribers that count their messages find them missing.

        This is for programs that pass on what others publish, such as a gateway: what was lost on the way to
        them is neither published nor kept quiet about.

        Args:
            count: how many messages; None when nobody knows.

        Raises:
            TypeError, ValueError: the count is no number, or negative.
            ClosedError: the publisher is closed.
            OwnershipError: it was made before a fork.
        """
        if count is not None:
            check_count("count", count, 0, 2**62)
        self._check_open()
        with self._guard:
            # What was published before stays before.
            self._sender.accumulator.flush(self)
            self._dispatch.skip(count)
            self._dispatch.beats_at = 0.0
            self._dispatch.beat(self, time.monotonic())

    def _resume(self, origin: bytes, epoch: int, sequence: int, age: float) -> None:
        """Go on for a multicast publisher that has ended; to be called before the first endpoint is given."""
        assert isinstance(self._dispatch, MulticastDispatch)
        self._dispatch.resume(origin, epoch, sequence, age)

    # who wants what --------------------------------------------------------------------------------------

    def interest(self, subject: str | bytes) -> bool:
        """Tell whether any subscriber has asked for what a subject begins with.

        Args:
            subject: a valid subject of the dialect.

        Raises:
            SubjectError: it is not.
            ClosedError: the publisher is closed.
        """
        self._check_open()
        if subject is None:
            raise TypeError("which subject? It is str or bytes, not None")
        return self._enough(1, subject)

    def _enough(self, wanted: int, subject: str | bytes | None) -> bool:
        if not isinstance(wanted, int):
            raise TypeError(
                f"n is how many subscriptions to wait for, not {wanted!r}; a subject is subject=…"
            )
        self._listen()
        return self._count(subject) >= wanted

    def _count(self, subject: str | bytes | None) -> int:
        with self._guard:
            if subject is None:
                return self._router.count(None, None)
            _, wire, raw = self._sender.routes.find(self, subject)
            return self._router.count(raw, wire)

    def _too_few(self, wanted: int, subject: str | bytes | None, timeout: float | None) -> str:
        what = "" if subject is None else f" for {subject!r}"
        return f"{self._count(subject)} of {wanted} subscriptions{what} came within {timeout or 0:g} s"
