"""The engine of sync and asyncio publishers: all but the waiting."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, NoReturn

import zmq

from oz.errors import ClosedError, WouldBlock
from oz.protocol.multicast.router import MulticastRouter
from oz.protocol.multicast.sender import MulticastDispatch, high_water_mark_for
from oz.protocol.publisher.dispatch import RECORD_PATIENCE, Dispatch
from oz.protocol.publisher.last_value_cache import LastValueCache
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.transport import descriptors
from oz.transport.admission import check_subject
from oz.transport.attachments import Attachments
from oz.transport.ending import CLOSE_TIMEOUT
from oz.transport.endpoints import Endpoints, as_list
from oz.transport.guard import Guard
from oz.transport.monitors import Monitor
from oz.transport.multicast.group import Group
from oz.transport.option_checks import check_count
from oz.transport.publisher.closing import PublisherClosing, pauses
from oz.transport.publisher.options import PublisherOptions
from oz.transport.publisher.plain_frames import PlainFrames
from oz.transport.publisher.raw_sends import RawSends, as_it_is
from oz.transport.publisher.sender import Refused, Sender
from oz.transport.publisher.sink import XpubSink
from oz.transport.publisher.subjects import Routes
from oz.transport.socket import (
    backend_get,
    backend_recv,
    backend_set,
    keep_tcp_alive,
    set_high_water_mark,
    some,
)
from oz.wire.keys import ID_SIZE

MAX_SUBSCRIPTION = 131_072
"""Bytes of a subscription; a peer that sends a longer one is cut off."""

_EVENTS = int(zmq.EVENTS)
_NOBLOCK = int(zmq.NOBLOCK)
_POLLIN = int(zmq.POLLIN)
_SUBSCRIBE = int(zmq.SUBSCRIBE)
_UNSUBSCRIBE = int(zmq.UNSUBSCRIBE)

SOON = 0.1
"""Seconds after the last use of the socket in which its thread or loop looks once, as no sign may come."""

_FIRST_PAUSE = 0.0005
"""Seconds before the first attempt without a sign to send what found no room."""

_REFUSED_OPTIONS = (_SUBSCRIBE, _UNSUBSCRIBE, int(zmq.XPUB_MANUAL), int(zmq.INVERT_MATCHING))
"""What a PUB has not, or what would change who gets what behind this publisher's back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """The thread or the loop that an engine is for, as far as the engine asks it for something.

    Attributes:
        context_class: of which a publisher makes a context of its own.
        expect_more: a message waits for others: see to it that `attend` is called in time.
        attached: the socket was bound or connected anew.
        in_use: something was done with the socket that no look follows, or is about to be: that may take the
            sign of news, so call `attend` once, `SOON` seconds after the last of these calls. Called once in
            `LISTEN_EVERY` seconds at most while messages are sent.
        heard: subscriptions have come, or room perhaps: wake those who wait for either. Called by whichever
            thread has found that, under the guard.
        deliver, as_result, send_whole: how raw sends reach ZeroMQ; see `RawSends`.
        take_more: see `PublisherClosing`; None where nothing comes from elsewhere.
    """

    context_class: type[zmq.Context[Any]]
    expect_more: Callable[[], object]
    attached: Callable[[], object]
    in_use: Callable[[], object]
    heard: Callable[[], object]
    deliver: Callable[[Sequence[Any], int, Any], Any] | None = None
    as_result: Callable[[Any], Any] = as_it_is
    send_whole: Callable[[Sequence[Any], int, Any], Any] | None = None
    take_more: Callable[[], bool] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """The role of a publisher that knows more of its subscribers than others do, such as a node's.

    Attributes:
        router: who wants what.
        last_values: what keeps the last values, if they are kept.
        interest_changed: called when an interest has come or gone, by whichever thread took it in, under the
            guard.
    """

    router: Router
    last_values: LastValueCache | None
    interest_changed: Callable[[], object] | None = None


class PublisherEngine:
    """An XPUB socket of its own, and all that is done on it. What has it adds the waiting.

    Attributes:
        socket: the socket; only who has the guard uses it.
        guard: lets one thread after the other use it.
        attachments: where it is bound and connected to.
        router: who wants what.
        dispatch: sends batches.
        sender: what every message passes through.
        raw: the sends of `zmq.Socket`.
        closing: the end of it all.
        dialect: the dialect that subjects must be valid in.
        on_full: what to do when a subscriber is at its high-water mark.
        full_timeout: seconds that `"block"` waits at most; None is for ever.
        is_closing: it has begun to close, and publishes nothing more.
    """

    def __init__(self, options: PublisherOptions, shell: Shell, role: Role | None = None) -> None:
        """Make one that is neither bound nor connected; see `attach`.

        Args:
            options: as `oz.Publisher` is given them.
            shell: the thread or the loop.
            role: what the publisher knows beyond others, if it does.

        Raises:
            ValueError, TypeError, zmq.ZMQError: see `oz.Publisher`.
        """
        codec, delimiter, group = options.check()
        self.dialect = options.dialect
        self.on_full = options.on_full
        self.is_closing = False
        self.full_timeout = options.full_timeout
        self._pause = _FIRST_PAUSE
        self._shell = shell
        self._role = role
        self.guard = guard = Guard()
        # Also where the context is the user's: nobody can ask whether its threads run already.
        descriptors.need(descriptors.CONTEXT, "a Publisher")
        context = options.context
        self.attachments = Attachments(guard, group, own_context=context is None)
        self._monitor = Monitor(guard, is_shared=True)
        self.socket = socket = zmq.Socket(shell.context_class() if context is None else context, zmq.XPUB)
        last_values = LastValueCache() if options.last_value and role is None else None
        last_values = role.last_values if role is not None else last_values
        self._route_to(group, last_values, drops=options.on_full == "drop")
        routes = Routes(
            guard,
            self.router,
            partial(
                check_subject,
                dialect=options.dialect,
                delimiter=delimiter or b"",
                endpoints=self.attachments.endpoints,
            ),
            self.check_open,
        )
        plain = PlainFrames(guard, self.dispatch)
        self.sender = Sender(
            guard,
            codec,
            self.router,
            self.dispatch,
            last_values,
            options.max_batch,
            routes=routes,
            hand_over=plain.hand_over if delimiter is None else plain.hand_over_joined,
            listen=self.listen,
            in_use=shell.in_use,
            check_open=self.check_open,
            expect_more=shell.expect_more,
        )
        self.raw = RawSends(
            socket,
            guard,
            self.router,
            self.dispatch,
            self.sender,
            delimiter=delimiter or b"",
            is_framed=isinstance(self.dispatch, MulticastDispatch),
            deliver=shell.deliver,
            as_result=shell.as_result,
            send_whole=shell.send_whole,
        )
        self.closing = PublisherClosing(
            socket,
            guard,
            self.attachments,
            self._monitor,
            self.router,
            self.dispatch,
            self.sender,
            listen=self.listen,
            take_more=shell.take_more,
        )
        try:
            self._set_options(options.high_water_mark, group)
        except BaseException:
            self.give_up()
            raise
        # `Context.destroy` is to know of it, as of what `Context.socket` makes.
        socket.context._add_socket(self)

    def _route_to(self, group: Group | None, last_values: LastValueCache | None, *, drops: bool) -> None:
        """Send messages to the streams that ask for them, or to a multicast group."""
        origin, stats = os.urandom(ID_SIZE), PublisherStats()
        self._sink = sink = XpubSink(self.socket, drops=drops)
        if group is None or group.is_plain:
            self.router = Router(origin, stats) if self._role is None else self._role.router
            self.dispatch = Dispatch(self.router, last_values, sink, time.monotonic, drops=drops)
            if group is not None:
                # Nobody can ask, so that everybody gets everything.
                self.router.plain.learn(b"\x01")
        else:
            self.router = router = MulticastRouter(origin, stats)
            self.dispatch = MulticastDispatch(
                router,
                origin,
                group.options,
                sink,
                time.monotonic,
                epoch=int(time.time()),
                drops=drops,
            )

    def _set_options(self, high_water_mark: int | None, group: Group | None) -> None:
        is_own = self.attachments.own_context
        if is_own:
            self.set(zmq.LINGER, round(CLOSE_TIMEOUT * 1000))
        keep_tcp_alive(self.socket)
        if group is not None and high_water_mark is None:
            high_water_mark = high_water_mark_for(group.options)
        set_high_water_mark(self.socket, high_water_mark, own_context=is_own)
        if group is not None:
            group.configure(self.socket)
        # Every subscription and unsubscription is reported, and counts only once it was accepted here.
        backend_set(self.socket, zmq.XPUB_MANUAL, 1)
        # Nothing arrives but subscriptions, which libzmq walks by recursion: a huge one would crash it.
        self.set(zmq.MAXMSGSIZE, MAX_SUBSCRIPTION)
        if self.on_full != "drop":
            self.set(zmq.XPUB_NODROP, 1)

    def give_up(self) -> None:
        """Leave nothing open behind when it was never bound nor connected."""
        if self.closing.close_socket(0, None):
            self.closing.end_context(0)

    # the socket ------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self.socket.closed

    @property
    def context(self) -> zmq.Context[Any]:
        """The context of its socket."""
        return self.socket.context

    @property
    def is_foreign(self) -> bool:
        """Whether it was made before a fork, in the parent process."""
        return self.guard.is_foreign

    @property
    def endpoint(self) -> str | None:
        """The address last bound, or else connected to; None when there is none, or it is closed."""
        return None if self.closed else self.attachments.last

    @property
    def stats(self) -> PublisherStats:
        """The counts of this publisher so far; see `PublisherStats`."""
        return self.sender.stats if self.is_foreign else self.sender.count()

    def described(self) -> list[str]:
        """Say for `repr` where it is bound or connected to."""
        return ["zmq.PUB", *some(self.attachments.endpoints)]

    def check_open(self) -> None:
        """Refuse what comes after the end.

        Raises:
            ClosedError: the publisher is closed, or closes.
        """
        if self.socket._closed:
            raise ClosedError("this Publisher is closed")
        if self.is_closing:
            raise ClosedError("this Publisher is closing")

    def attach(self, bind: Endpoints | None, connect: Endpoints | None) -> None:
        """Bind and connect to endpoints; see `oz.Publisher`."""
        for endpoint in as_list(bind):
            self.bind(endpoint)
        for endpoint in as_list(connect):
            self.connect(endpoint)

    def bind(self, addr: str | bytes) -> Any:
        """Bind to an endpoint; see `Attachments.bind`."""
        manager = self.attachments.bind(self.socket, addr)
        self._attached()
        return manager

    def connect(self, addr: str | bytes) -> Any:
        """Connect to an endpoint, such as a proxy's; see `Attachments.connect`."""
        # Without it the pipe to a peer that is gone stays, and with it interests that nobody has.
        self.set(zmq.IMMEDIATE, 1)
        manager = self.attachments.connect(self.socket, addr)
        self._attached()
        return manager

    def _attached(self) -> None:
        group = self.attachments.group
        if isinstance(self.dispatch, MulticastDispatch) and group is not None:
            self.dispatch.greet(one.to for one in group.endpoints.values())
        # What was allowed to leave, `_LOCAL.` subjects above all, may not be any more.
        self.sender.routes.forget_valid()
        self._shell.attached()
        self._shell.in_use()

    def unbind(self, addr: Any) -> None:
        """Unbind from an endpoint, as `zmq.Socket.unbind` does."""
        self.attachments.unbind(self.socket, addr)
        self._shell.in_use()

    def disconnect(self, addr: Any) -> None:
        """Disconnect from an endpoint, as `zmq.Socket.disconnect` does."""
        self.attachments.disconnect(self.socket, addr)
        self._shell.in_use()

    def set(self, option: int, optval: Any) -> None:
        """Set a socket option, as `zmq.Socket.set` does.

        Raises:
            zmq.ZMQError: it is not one that a PUB socket has, such as SUBSCRIBE.
            ValueError: multicast does not know it, or would end the process.
            OwnershipError: the publisher was made before a fork.
        """
        if option in _REFUSED_OPTIONS:
            # An XPUB in manual mode would take it for a subscription of whoever subscribed last.
            raise zmq.ZMQError(zmq.ENOTSOCK if self.closed else zmq.EINVAL)
        # A thread that looks after the publisher may be using the socket; no ZeroMQ socket stands two.
        with self.guard:
            if self.attachments.group is not None:
                self.attachments.group.check_option(option)
            self.socket.set(option, optval)

    setsockopt = set

    def get(self, option: int) -> Any:
        """Get a socket option, as `zmq.Socket.get` does; TYPE is PUB.

        Raises:
            OwnershipError: the publisher was made before a fork.
        """
        with self.guard:
            found = self.socket.get(option)
        if option == zmq.EVENTS:
            self._shell.in_use()
        # Programs that find an XPUB read subscriptions from it, which is done here already.
        return int(zmq.PUB) if option == zmq.TYPE else found

    getsockopt = get

    def monitor(self, addr: Any, events: int = zmq.EVENT_ALL) -> None:
        """Send events of the connections to an endpoint, as `zmq.Socket.monitor` does."""
        self._monitor.begin(self.socket, addr, events)

    def get_monitor_socket(self, events: int | None = None, addr: str | None = None) -> Any:
        """Make a socket that receives events of the connections; see `Monitor.socket_for`."""
        return self._monitor.socket_for(self.socket, events, addr)

    # what is due -----------------------------------------------------------------------------------------

    def listen(self) -> bool:
        """Take in the subscriptions that have arrived, and answer them; tell whether any interest changed."""
        with self.guard:
            if self.closed:
                return False
            router = self.router
            if self._take_in():
                self._shell.heard()
            has_changed, router.has_changed = router.has_changed, False
            if has_changed:
                # Before the answer: what is published once it has arrived must go to whom it was given.
                self.sender.routes.forget()
                if self._role is not None and self._role.interest_changed is not None:
                    self._role.interest_changed()
            if (router.to_answer or router.to_serve) and not self.closing.said_goodbye:
                # What was published before goes out before.
                self.sender.accumulator.flush(self.socket)
                self.dispatch.answer()
                self._shell.in_use()
            return has_changed

    def rest(self) -> float | None:
        """Return how long the thread or loop behind it may sleep, unless the socket or others wake it first.

        To be asked last, with nothing done in between: what it finds to be done is not told again.

        Returns:
            Seconds; 0 where `attend` is to be called at once, None for as long as nothing comes.
        """
        with self.guard:
            if self.closed or self.closing.said_goodbye:
                return None
            if int(backend_get(self.socket, _EVENTS)) & _POLLIN:
                return 0.0
            # What it has just taken notice of may have been room.
            self._shell.heard()
            now = time.monotonic()
            due = self.dispatch.next_deadline(now)
            if self.dispatch.full:
                due = min(inf if due is None else due, now + self._pause)
            return None if due is None else max(0.0, due - now)

    def _take_in(self) -> bool:
        """Learn of the subscriptions that have arrived, and tell ZeroMQ what comes of each; was there any?

        All of them in one go, without asking for EVENTS in between, which may end connections: libzmq looks
        at the connection that a subscription came from when that is read, even if its memory was freed since.
        docs/decisions/030-the-handle-that-users-hold.md
        """
        # Asking costs a third of what `zmq.Again` does, and loses no Ctrl-C: from Python 3.12 on, pyzmq
        # drops what a signal handler raises while it raises that itself.
        if not int(backend_get(self.socket, _EVENTS)) & _POLLIN:
            return False
        router, now = self.router, time.monotonic()
        with suppress(zmq.Again):
            while True:
                wanted, dropped = router.learn(backend_recv(self.socket, _NOBLOCK), now)
                # ZeroMQ applies these to the connection that the frame came from.
                for key in wanted:
                    backend_set(self.socket, _SUBSCRIBE, key)
                for key in dropped:
                    backend_set(self.socket, _UNSUBSCRIBE, key)
        return True

    def attend(self) -> bool:
        """Do what is due: send what waits, take in subscriptions, tell streams where they stand.

        Returns:
            Whether there was anything to send, or still is and may soon find room.
        """
        with self.guard:
            if self.closed or self.closing.said_goodbye:
                return False
            accumulator, dispatch = self.sender.accumulator, self.dispatch
            was_busy = bool(accumulator)
            dispatch.is_halfway = False
            if not accumulator.is_held:
                accumulator.flush(self.socket)
            self.listen()
            self._retry()
            dispatch.beat(time.monotonic())
            self._shell.heard()
            return was_busy or dispatch.is_halfway

    def _retry(self) -> None:
        """Send what waits for room; the longer there is none, the later it tries again without a sign."""
        if self.dispatch.full:
            before = self._sink.taken
            self.dispatch.retry()
            has_moved = self._sink.taken != before
            self._pause = _FIRST_PAUSE if has_moved else min(2 * self._pause, RECORD_PATIENCE)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Hold what is published until the end of a `with` block, or until a batch is full.

        Only subscribers with publisher-side filtering get batches; others get their messages at once.
        """
        accumulator = self.sender.accumulator
        with self.guard:
            accumulator.is_held += 1
        try:
            yield
        finally:
            # Counted: two threads may each have one, and they end in any order.
            with self.guard:
                accumulator.is_held -= 1
            if not accumulator.is_held and not self.closed:
                self.flush_now()

    def flush_now(self) -> None:
        """Send what waits in the accumulator.

        Raises:
            ClosedError: the publisher was closed meanwhile, by another thread or a signal handler.
        """
        try:
            self.sender.accumulator.flush(self.socket)
        except zmq.ZMQError:
            self.check_open()
            raise

    # publishing ------------------------------------------------------------------------------------------

    def publish_again(self, refused: Refused) -> bool:
        """Publish a message if there is room for it now; tell whether there was.

        Raises:
            ClosedError: the publisher was closed meanwhile.
        """
        (_, wire, raw), payload, item = refused
        with self.guard:
            self.check_open()
            # Its route is looked up again: interests may have changed meanwhile.
            route = self.sender.routes.look_up(wire, raw)
            return self.sender.publish_any(self.socket, route, payload, item) is None

    def try_again(self, subject: Any, refused: Refused) -> Iterator[float]:
        """Publish a message once there is room for it; give the seconds to wait between the attempts.

        Raises:
            WouldBlock: there was none in time, or it is not to be waited for.
            ClosedError: the publisher was closed meanwhile.
        """
        if self.on_full != "block":
            self.refuse(subject)
        deadline = inf if self.full_timeout is None else time.monotonic() + self.full_timeout
        for pause in pauses():
            # Looked at before the attempt: whoever was not scheduled until the end still has one.
            is_over = time.monotonic() >= deadline
            if self.publish_again(refused):
                return
            if is_over:
                self.refuse(subject)
            yield pause

    def refuse(self, subject: str | bytes) -> NoReturn:
        """Refuse a message that was published, and count it.

        Raises:
            WouldBlock: always.
        """
        self.sender.stats.dropped += 1
        has_waited = self.on_full == "block" and self.full_timeout is not None
        waited = f" for {self.full_timeout:g} s" if has_waited else ""
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
        self.check_open()
        with self.guard:
            # What was published before stays before.
            self.sender.accumulator.flush(self.socket)
            self.dispatch.skip(count)
            self.dispatch.beats_at = 0.0
            self.dispatch.beat(time.monotonic())
            self._shell.in_use()

    def resume(self, origin: bytes, epoch: int, sequence: int, age: float) -> None:
        """Go on for a multicast publisher that has ended; to be called before the first endpoint is given."""
        assert isinstance(self.dispatch, MulticastDispatch)
        self.dispatch.resume(origin, epoch, sequence, age)

    # who wants what --------------------------------------------------------------------------------------

    def interest(self, subject: str | bytes) -> bool:
        """Tell whether any subscriber has asked for what a subject begins with.

        Args:
            subject: a valid subject of the dialect.

        Raises:
            SubjectError: it is not.
            ClosedError: the publisher is closed.
        """
        self.check_open()
        if subject is None:
            raise TypeError("which subject? It is str or bytes, not None")
        return self.enough(1, subject)

    def enough(self, wanted: int, subject: str | bytes | None) -> bool:
        """Tell whether there are so many subscriptions; for a subject, of those that let it through."""
        if not isinstance(wanted, int):
            raise TypeError(
                f"n is how many subscriptions to wait for, not {wanted!r}; a subject is subject=…"
            )
        self.listen()
        return self._count(subject) >= wanted

    def _count(self, subject: str | bytes | None) -> int:
        with self.guard:
            if subject is None:
                return self.router.count(None, None)
            recipients, wire, raw = self.sender.routes.find(subject)
            return self.router.count(raw, wire, recipients)

    def too_few(self, wanted: int, subject: str | bytes | None, timeout: float | None) -> str:
        """Say that there were fewer in that time."""
        what = "" if subject is None else f" for {subject!r}"
        return f"{self._count(subject)} of {wanted} subscriptions{what} came within {timeout or 0:g} s"
