"""What sync and asyncio publishers share: all but the waiting."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import Any, Literal, NoReturn

import zmq

from oz.errors import ProtocolError, WouldBlock
from oz.protocol.retained import Retained
from oz.protocol.routing import UNREACHABLE, Router
from oz.protocol.stats import PublisherStats
from oz.subjects.pattern import DEFAULT_DIALECT
from oz.transport.admission import check_subject
from oz.transport.dispatch import MAX_BATCH, Dispatch
from oz.transport.guard import Guard
from oz.transport.joining import JoiningOutlet
from oz.transport.outlet import LONGEST_REMEMBERED, SUBJECTS_REMEMBERED, Outlet, Refused, Route
from oz.transport.payloads import extras_of, is_utf8
from oz.transport.socket import CLOSE_TIMEOUT, BaseSocket, backend_recv, backend_set, check_delimiter
from oz.transport.terms import check_count, check_seconds
from oz.wire.batch import MAX_COUNT
from oz.wire.codec import Codec, find_codec
from oz.wire.keys import ID_SIZE
from oz.wire.keys import OWN as OWN_KEYS

OnFull = Literal["drop", "block", "error"]

LONGEST_TIMEOUT = 2_000_000.0
"""Seconds; ZeroMQ counts milliseconds in 32 bits."""

MAX_SUBSCRIPTION = 131_072
"""Bytes of a subscription; a peer that sends a longer one is cut off."""

MAX_DELAY = 0.0005
"""Seconds for which a message waits for others at most, unless said otherwise."""

_NOBLOCK = int(zmq.NOBLOCK)
_SNDMORE = int(zmq.SNDMORE)
_SUBSCRIBE = int(zmq.SUBSCRIBE)
_UNSUBSCRIBE = int(zmq.UNSUBSCRIBE)
_LISTEN_EVERY_SENDS = 64
_FAREWELL = 0.02
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0002, 0.005


class PublisherBase(BaseSocket):
    """An XPUB socket that checks subjects. `oz.Publisher` and `oz.asyncio.Publisher` add the waiting."""

    _kind = zmq.XPUB
    _accepted_kinds = (zmq.PUB, zmq.XPUB)
    _outlet: Outlet
    _router: Router
    _dispatch: Dispatch
    _delimiter: bytes
    _on_full: OnFull
    _full_timeout: float | None
    _max_delay: float
    _plain_sends: int = 0
    _raw: list[Any]

    def __init__(
        self,
        bind: Any = None,
        connect: Any = None,
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
    ) -> None:
        r"""Make a publisher.

        Args:
            bind: an endpoint to bind to, or a list of them; `tcp://127.0.0.1:*` lets the system choose.
            connect: an endpoint to connect to, or a list of them.
            dialect: the dialect that subjects must be valid in; one of `oz.DIALECTS`.
            context: the ZeroMQ context to share; without it the publisher has one of its own.
            codec: `"msgpack"`, or an object with `encode` and `decode`; without it payloads are bytes.
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

        Raises:
            ValueError: no such dialect, codec, `on_full` or endpoint, an empty delimiter, a number that is
                out of bounds.
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
        self._create(context, kind, dialect, Guard())
        retained = Retained() if last_value else None
        self._router = Router(os.urandom(ID_SIZE), PublisherStats())
        self._dispatch = Dispatch(self._router, retained, drops=on_full == "drop")
        kind_of_outlet = Outlet if ends is None else JoiningOutlet
        self._outlet = kind_of_outlet(self._guard, found, self._router, self._dispatch, retained, max_batch)
        self._delimiter = ends or b""
        self._on_full = on_full
        self._full_timeout = full_timeout
        self._max_delay = max_delay
        self._raw = []
        with self._closed_on_failure():
            self._set_options(high_water_mark)
            self._attach(bind, connect)
        self._take_shortcut()

    def _take_shortcut(self) -> None:
        """Publish by the shortest way: see `Outlet.shortcut`."""

    def _set_options(self, high_water_mark: int | None) -> None:
        self._set_high_water_mark(high_water_mark)
        # Every subscription and unsubscription is reported, and counts only once it was accepted here.
        self.set(zmq.XPUB_MANUAL, 1)
        # Nothing arrives but subscriptions, which libzmq walks by recursion: a huge one would crash it.
        self.set(zmq.MAXMSGSIZE, MAX_SUBSCRIPTION)
        if self._on_full != "drop":
            self.set(zmq.XPUB_NODROP, 1)

    def connect(self, addr: str) -> Any:
        """Connect to an endpoint, such as a proxy's; see `BaseSocket.connect`."""
        # Without it the pipe to a peer that is gone stays, and with it interests that nobody has.
        self.set(zmq.IMMEDIATE, 1)
        return super().connect(addr)

    @property
    def stats(self) -> PublisherStats:
        """What this publisher did so far; see `PublisherStats`."""
        return self._outlet.stats if self._guard.is_foreign else self._outlet.count()

    # subjects --------------------------------------------------------------------------------------------

    def _admit(self, subject: Any) -> Route:
        """Work out the route of a subject that is not remembered.

        Raises:
            SubjectError, ProtocolError, TypeError: it may not be published.
            ClosedError: the publisher is closed.
        """
        self._check_open()
        can_remember = isinstance(subject, (str, bytes))
        forms = self._outlet.subjects.get(subject) if can_remember else None
        if forms is None:
            forms = check_subject(subject, self.dialect, self._delimiter, self._endpoints)
            if can_remember and len(subject) <= LONGEST_REMEMBERED:
                if len(self._outlet.subjects) >= SUBJECTS_REMEMBERED:
                    self._outlet.subjects.clear()
                self._outlet.subjects[subject] = forms
        # At once, or an interest that another thread takes in between would stay unknown here.
        with self._guard:
            route = self._route(*forms)
            if can_remember:
                self._outlet.remember(subject, route)
        return route

    def _route(self, wire: bytes, raw: bytes) -> Route:
        """Find out who wants a subject that is valid."""
        # Under the guard: another thread may be taking in an interest.
        with self._guard:
            return self._router.find(raw, wire), wire, raw

    def _endpoints_changed(self) -> None:
        # What was allowed to leave, `_LOCAL.` subjects above all, may not be any more.
        self._outlet.subjects.clear()
        self._outlet.forget()

    def _refused(self, subject: str | bytes) -> NoReturn:
        self._outlet.stats.dropped += 1
        has_waited = self._on_full == "block" and self._full_timeout is not None
        waited = f" for {self._full_timeout:g} s" if has_waited else ""
        raise WouldBlock(
            f"a subscriber is at its high-water mark{waited}; {subject!r} was not sent to anybody"
        ) from None

    # interest --------------------------------------------------------------------------------------------

    def _listen(self) -> bool:
        """Take in the subscriptions that have arrived, and answer them; tell whether any interest changed."""
        with self._guard:
            if self.closed:
                return False
            router, now = self._router, time.monotonic()
            try:
                while True:
                    frame = backend_recv(self, _NOBLOCK)
                    wanted, dropped = router.learn(frame, now)
                    # ZeroMQ applies these to the connection that the frame came from.
                    for key in wanted:
                        backend_set(self, _SUBSCRIBE, key)
                    for key in dropped:
                        backend_set(self, _UNSUBSCRIBE, key)
            except zmq.Again:
                pass
            has_changed, router.has_changed = router.has_changed, False
            if has_changed:
                # Before the answer: what is published once it has arrived must go to whom it was given.
                self._outlet.forget()
            if router.to_answer or router.to_serve:
                # What was published before goes out before.
                self._outlet.flush(self)
                self._dispatch.answer(self)
            return has_changed

    def _attend(self) -> bool:
        """Do what is due: send what waits, take in subscriptions, tell streams where they stand.

        Returns:
            Whether there was anything to send.
        """
        with self._guard:
            if self.closed:
                return False
            outlet, dispatch = self._outlet, self._dispatch
            was_busy = bool(outlet.window or dispatch.full)
            if not outlet.is_held:
                outlet.flush(self)
            self._listen()
            dispatch.retry(self)
            dispatch.beat(self, time.monotonic())
            return was_busy

    def _expect_more(self) -> None:
        """Called when a message waits for others in the window: see to it that they go out in time."""
        raise NotImplementedError

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Hold what is published until the end of a `with` block, or until a batch is full.

        Only subscribers that have the publisher filter get batches; others get their messages at once.
        """
        outlet = self._outlet
        with self._guard:
            outlet.is_held += 1
        try:
            yield
        finally:
            # Counted: two threads may each have one, and they end in any order.
            with self._guard:
                outlet.is_held -= 1
            if not outlet.is_held and not self.closed:
                outlet.flush(self)

    def _publish(
        self, subject: Any, payload: Any, headers: dict[str, Any] | None, key: str | bytes | None
    ) -> Refused | None:
        """Publish with headers or a key; see `Outlet.publish`."""
        if isinstance(key, str):
            if not is_utf8(key):
                raise ValueError(f"a key is text with a UTF-8 form, or bytes, not {key!r}")
            key = key.encode()
        elif not (key is None or isinstance(key, bytes)):
            raise TypeError(f"a key is str or bytes, not {type(key).__name__}: {key!r}")
        return self._outlet.publish_with(self, subject, payload, extras_of(headers), key)

    @staticmethod
    def _seconds_to_close(linger: int | None, timeout: float | None) -> float:
        """Say how long closing may take: linger is in milliseconds, and has no end below 0."""
        if linger is not None:
            return inf if linger < 0 else linger / 1000
        return CLOSE_TIMEOUT if timeout is None else timeout

    def _close_socket(self, linger: int | None, timeout: float | None) -> bool:
        if not self.closed and not self._guard.is_foreign:
            seconds = self._seconds_to_close(linger, timeout)
            started = time.monotonic()
            self._send_rest(seconds)
            if (linger is not None or timeout is not None) and seconds < inf:
                # One time for both: what oz holds, and what ZeroMQ does.
                linger, timeout = None, max(0.0, seconds - (time.monotonic() - started))
        is_own = super()._close_socket(linger, timeout)
        # A message that nobody wants would not touch the socket, and so not find it closed.
        self._outlet.forget()
        return is_own

    def _send_rest(self, seconds: float) -> None:
        """Send what has not gone out yet, for so long at most."""
        deadline, pause = time.monotonic() + seconds, _FIRST_PAUSE
        with self._guard:
            while not self._send_what_fits() and time.monotonic() < deadline:
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            if self._router.streams:
                with suppress(zmq.ZMQError):
                    self._dispatch.say_goodbye(self)
                # Ending the context can hang, of plain sockets too, when a peer leaves as it is sent
                # something. A moment for ZeroMQ to see it leave: 1 close in 16 hung without, 0 in 60 with it.
                time.sleep(_FAREWELL)
                self._listen()

    def _send_what_fits(self) -> bool:
        """Send what has not gone out yet, as far as there is room; tell whether that was all."""
        with self._guard:
            if self.closed:
                return True
            try:
                self._outlet.flush(self)
                self._dispatch.retry(self)
            except zmq.ZMQError:
                # The context was ended under the socket: nothing can be sent any more.
                return True
            return not self._dispatch.full

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
            raise TypeError("which subject? wait_for_subscribers() is for all of them")
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
            _, wire, raw = self._outlet.route(self, subject)
            return self._router.count(raw, wire)

    def _too_few(self, wanted: int, subject: str | bytes | None, timeout: float | None) -> str:
        what = "" if subject is None else f" for {subject!r}"
        return f"{self._count(subject)} of {wanted} subscriptions{what} came within {timeout or 0:g} s"

    # the pyzmq surface -----------------------------------------------------------------------------------

    def send(  # type: ignore[override]
        self, data: Any, flags: int = 0, copy: bool = True, track: bool = False, **kwargs: Any
    ) -> Any:
        """Send one frame, as `zmq.Socket.send` does: subjects are not checked here."""
        with self._guard:
            if self._outlet.is_nested:
                # pyzmq sends the frames of `send_multipart` by this method.
                return super().send(data, flags, copy=copy, track=track, **kwargs)
            if not self._raw:
                self._check_first(data)
                self._listen_at_times()
            result = super().send(data, flags, copy=copy, track=track, **kwargs)
            self._sent_raw((data,), flags)
            return result

    def send_multipart(
        self, msg_parts: Iterable[Any], flags: int = 0, copy: bool = True, track: bool = False, **kwargs: Any
    ) -> Any:
        """Send the frames of one message, as `zmq.Socket.send_multipart` does, unchecked."""
        frames = list(msg_parts)
        with self._guard:
            if frames and not self._raw:
                self._check_first(frames[0])
                self._listen_at_times()
            self._outlet.is_nested = True
            try:
                result = super().send_multipart(frames, flags, copy=copy, track=track, **kwargs)
            finally:
                self._outlet.is_nested = False
            self._sent_raw(frames, flags)
            return result

    def _sent_raw(self, frames: Iterable[Any], flags: int) -> None:
        """Send what went out by the calls of pyzmq to those too who have this publisher filter."""
        self._raw.extend(frames)
        if flags & _SNDMORE:
            return
        whole = [bytes(frame) for frame in self._raw] if self._router.streams else []
        self._raw.clear()
        if whole:
            first, *rest = whole
            if self._delimiter:
                first, _, start = first.partition(self._delimiter)
                rest.insert(0, start)
            self._outlet.route_raw(self, first, rest)

    def _check_first(self, frame: Any) -> None:
        """Refuse a first frame that would not arrive where it should.

        Raises:
            ProtocolError: it begins as oz's own keys do; or it is empty or a zero byte, and there are
                subscribers to everything, who would not get it.
        """
        first = frame.bytes if isinstance(frame, zmq.Frame) else bytes(memoryview(frame)[:2])
        if first[:2] == OWN_KEYS:
            raise ProtocolError(f"a first frame begins with {OWN_KEYS!r}, which opens oz's own keys")
        if first in UNREACHABLE and len(frame) < 2 and self._router.plain.matches(first):
            raise ProtocolError(f"a first frame of {first!r} does not reach subscribers to everything")

    def _listen_at_times(self) -> None:
        self._dispatch.make_lossy(self)
        self._plain_sends += 1
        if not self._plain_sends % _LISTEN_EVERY_SENDS:
            self._listen()

    def poll(self, timeout: int | None = None, flags: int = zmq.POLLIN) -> Any:
        """Wait for events, as `zmq.Socket.poll`: milliseconds.

        Raises:
            OwnershipError: the publisher was made before a fork.
        """
        self.check_owner()
        return super().poll(timeout, flags)

    def recv(self, flags: int = 0, copy: bool = True, track: bool = False) -> NoReturn:
        """Refuse, as a PUB socket does; see `interest` for what subscribers want."""
        raise zmq.ZMQError(zmq.ENOTSUP)
