"""The engine of a blocking publisher; `oz.Publisher` is the object that you hold."""

from __future__ import annotations

import atexit
import os
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import ceil, inf
from typing import Any

import zmq

from oz.errors import ProtocolError
from oz.logs import peer_logger
from oz.numbers import check_wait
from oz.program_end import CLOSE_TIMEOUT, check_running, close_all
from oz.sync.ticker import Ticker
from oz.sync.waiting import ThreadNews
from oz.system import POLLIN, make_poll
from oz.transport.frames import FrameReader, frame_reader
from oz.transport.publisher.attending import Shell
from oz.transport.publisher.closing import seconds_to_close
from oz.transport.publisher.engine import PublisherEngine
from oz.transport.publisher.options import PublisherOptions, Role
from oz.transport.publisher.publish import long_way, short_way
from oz.transport.publisher.sender import Refused

_log = peer_logger("oz.publisher")

_EVENTS, _POLLIN, _NOBLOCK = int(zmq.EVENTS), int(zmq.POLLIN), int(zmq.NOBLOCK)

_MARK = 1_000
_MOST_HELD = 2 * _MARK + 1
"""Messages from code in C that wait at most: more have it wait, as nothing tells it of a loss."""

_RETRY = 0.25
"""Seconds before the thread tries again, if there is no sign, what code in C sent and nobody had room for."""

_SHARE = 200
"""Messages that are passed on for code in C before the publisher's thread looks at all else again."""

_open: set[ThreadedPublisher] = set()
"""Those that nobody has closed. They keep contexts from becoming garbage together with these: Python may end
such a context first, and wait for ever for the socket to be closed."""


@atexit.register
def _close_all() -> None:
    """Send the messages of publishers that the program did not close."""
    close_all(_open)


class ThreadedPublisher(PublisherEngine):
    """A publisher's engine with a thread that looks after it, and calls that block.

    Its socket is not for users: what calls into libzmq with its handle and without its guard, `zmq_poll` or
    `zmq_proxy`, would use it at the same time as that thread, and no ZeroMQ socket stands that.

    Attributes:
        publish: publishes one message of a subject, a payload and extras; see `oz.Publisher.publish`.
        publish_slowly: the same for messages of any kind.
        news: wakes those who wait for subscriptions, for room, or for the end of it.
    """

    publish: Callable[..., None]

    def __init__(self, options: PublisherOptions, role: Role | None = None) -> None:
        """Make one, bound and connected to the endpoints of its options.

        Args:
            options: as `oz.Publisher` is given them.
            role: what the publisher knows beyond others, if it does.
        """
        check_running("publisher")
        self._ticker: Ticker | None = None
        self._relay: Relay | None = None
        self._front: weakref.ref[zmq.Socket[Any]] | None = None
        self._max_delay = options.max_delay
        shell = Shell(
            context_class=zmq.Context,
            expect_more=self._expect_more,
            attached=self._start,
            in_use=self._stay_watchful,
            heard=self._tell,
            send_whole=None if options.on_full == "drop" else self._send_whole,
            take_more=self._pass_on_all,
        )
        super().__init__(options, shell, role)
        self.news = ThreadNews(self.guard)
        _open.add(self)
        try:
            if options.on_full != "drop":
                self.sender.flags = _NOBLOCK
            if options.on_full == "block" and options.full_timeout is not None:
                self.set(zmq.SNDTIMEO, round(options.full_timeout * 1000))
            self.publish_slowly = long_way(self.sender, self.socket, self._wait_for_room)
            self.publish = self.quick_publish(self.publish_slowly) or self.publish_slowly
            self.attach(options.bind, options.connect)
        except BaseException:
            self.close(0)
            raise

    def _start(self) -> None:
        """Have a thread look after the socket, from its first endpoint on."""
        if self._ticker is None:
            self._ticker = ticker = Ticker(self, self._max_delay)
            # Bound here, as nearly each message that comes alone calls it.
            self.sender.in_use = ticker.watch_out
        front = self._front() if self._front is not None else None
        if self._relay is None and front is not None:
            self._relay = Relay(front)
            self._ticker.watch(self._relay.descriptor)

    def serve(self, front: zmq.Socket[Any]) -> None:
        """Pass on to subscribers, from the first endpoint on, what code in C sends into another socket.

        Args:
            front: a PUB of the same context, which this thread may use now.
        """
        self._front = weakref.ref(front)
        if self._ticker is not None:
            self._start()

    def look_after(self) -> bool:
        """Do what is due, and pass on what code in C sent; see `attend`."""
        had_work = self.attend()
        return self._pass_on(_SHARE) or had_work

    def _pass_on(self, most: int) -> bool:
        """Send what code in C sent into the front, so many messages at most; tell whether there was any."""
        with self.guard:
            relay, count = self._relay, 0
            if relay is None or self.closed or self.closing.said_goodbye:
                return False
            # Not past what waits for room already.
            while count < most and not self.dispatch.is_blocked and relay.has_some():
                try:
                    # Never waiting: this thread answers subscribers. What has no room stays first.
                    self.raw.send_message(relay.first, _NOBLOCK, None)
                except zmq.Again:
                    break
                except ProtocolError as error:
                    self.sender.stats.dropped += 1
                    _log.warning("refused a message that was sent into a publisher by its handle: %s", error)
                relay.done()
                count += 1
            return bool(count)

    def _pass_on_all(self) -> bool:
        """Send what code in C sent, with an end should it go on sending; tell whether that was all."""
        self._pass_on(_MOST_HELD)
        relay = self._relay
        return relay is None or self.closed or self.closing.said_goodbye or not relay.has_some()

    def _send_whole(self, frames: Sequence[Any], flags: int, tracker: Any) -> Any:
        if flags & _NOBLOCK:
            return self.raw.send_message(frames, flags, tracker)
        # Not in libzmq: whoever waits there has the guard, which the answers to subscribers wait for.
        sent: list[Any] = []

        def send() -> bool:
            with suppress(zmq.Again):
                sent.append(self.raw.send_message(frames, flags | _NOBLOCK, tracker))
            return bool(sent)

        limit = int(self.get(zmq.SNDTIMEO))
        if not self._wait_for(send, None if limit < 0 else limit / 1000):
            raise zmq.Again
        return sent[0]

    def quick_sends(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Return the quickest `send` and `send_multipart` that this publisher can have."""
        if self.on_full != "drop":
            return self.raw.send, self.raw.send_multipart
        return self.raw.quick_sends()

    def _stay_watchful(self) -> None:
        ticker = self._ticker
        if ticker is not None:
            ticker.watch_out()

    def rest_for(self, most: float | None) -> float | None:
        """Say how long the thread may sleep, and so long at most; see `rest`.

        Args:
            most: seconds; None has no limit.
        """
        with self.guard:
            seconds = self.rest()
            if self._relay is not None and self._relay.first:
                # It has found no room; the sign of some may be taken by whoever sends.
                most = _RETRY if most is None else min(most, _RETRY)
        return most if seconds is None else seconds if most is None else min(seconds, most)

    def _expect_more(self) -> None:
        ticker = self._ticker
        if ticker is not None and not ticker.is_awake:
            ticker.wake()

    def quick_publish(self, otherwise: Callable[..., Any]) -> Callable[..., Any] | None:
        """Return the quickest `publish` that this publisher can have, if any; see `short_way`."""
        return short_way(self.sender, self.socket, otherwise, looks=False)

    def _wait_for_room(self, subject: str | bytes, refused: Refused) -> None:
        """Publish a message when there is room for it, if that is to be waited for."""
        if not (
            self.on_full == "block" and self._wait_for(lambda: self.publish_again(refused), self.full_timeout)
        ):
            self.refuse(subject)

    def wait_for_subscribers(
        self, n: int = 1, subject: str | bytes | None = None, timeout: float | None = None
    ) -> None:
        """Wait until subscriptions have arrived; see `oz.Publisher.wait_for_subscribers`."""
        check_wait("timeout", timeout)

        def has_enough() -> bool:
            self.check_open()
            return self.enough(n, subject)

        if not self._wait_for(has_enough, timeout):
            raise self.too_few(n, subject, timeout)

    def _wait_for(self, is_so: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until something is so that news of the socket tell of; give whether it is.

        The publisher's thread waits for the socket's file descriptor, and tells: no other could, as whoever
        uses the socket may take the sign.

        Args:
            is_so: is called with the guard held, now and whenever there may be news.
            timeout: seconds; None waits for ever.
        """
        if not self.guard.is_mine:
            return self.news.wait_for(is_so, timeout)
        if self.guard.is_interrupted:
            # A signal handler in the middle of a message, or of an answer: nothing new is heard.
            return is_so()
        # A signal handler that interrupts oz: nobody else may get in between, nor take the sign.
        deadline = inf if timeout is None else time.monotonic() + timeout
        while not is_so():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            poller = make_poll()
            poller.register(self.socket.fileno(), POLLIN)
            poller.poll(None if left == inf else ceil(1000 * left))
        return True

    def _tell(self) -> None:
        self.news.tell()

    def close(self, linger: int | None = None, *, timeout: float | None = None) -> None:
        """Close, and send what is still to be sent; see `oz.Publisher.close`."""
        if self.is_foreign:
            return
        closed_at = time.monotonic()
        try:
            if self._close(linger, timeout):
                self.closing.end_context(seconds_to_close(linger, timeout), closed_at)
        finally:
            _open.discard(self)

    def close_dropped(self) -> None:
        """Close a publisher that became garbage.

        The program may be at its end, and must end within 5 s also beside a subscriber that reads nothing.
        """
        self.close(timeout=CLOSE_TIMEOUT if self.attachments.own_context else None)

    def _close_at_exit(self, timeout: float) -> None:
        """Close at the end of the program; see `close_all`."""
        self.close(timeout=timeout)

    def _close(self, linger: int | None, timeout: float | None) -> bool:
        """Close all but the context; tell whether that is still to be ended."""
        if self._ticker is not None:
            self._ticker.stop(waits=not self.guard.is_mine)
        is_own = self.closing.close_socket(linger, timeout)
        self.news.tell()
        if self._relay is not None:
            with self.guard:
                unsent = self._relay.close()
                self.sender.stats.dropped += unsent
            if unsent:
                _log.warning("closed with %d messages unsent that were sent into it by its handle", unsent)
        return is_own


class Relay:
    """The way of what code in C sends by the handle that the user holds; the caller holds the guard.

    `zmq_proxy` and the like take that handle. It is of a PUB of which oz uses nothing but the end of a pipe
    inside the process. This is the other end, of the publisher's thread.

    Attributes:
        descriptor: readable when something may have come; it tells only once.
        first: the frames of the message that is to go next; `has_some` has it taken in.
    """

    __slots__ = ("_incoming", "_read", "descriptor", "first")

    def __init__(self, front: zmq.Socket[Any]) -> None:
        """Listen to a PUB socket, which this thread may use now.

        Raises:
            zmq.ZMQError: there are too many sockets.
        """
        endpoint = f"inproc://oz-publisher-{os.urandom(16).hex()}"
        # By the unbound methods: those of a publisher lead elsewhere.
        back = zmq.backend.Socket
        # Otherwise it drops in silence what there is no room for.
        back.set(front, zmq.XPUB_NODROP, 1)
        back.set(front, zmq.SNDHWM, _MARK)
        # What has been sent before it closes is passed on; the end of the pipe drops it in any case.
        back.set(front, zmq.LINGER, -1)
        self._incoming = incoming = zmq.Socket(front.context, zmq.SUB)
        try:
            incoming.set(zmq.RCVHWM, _MARK)
            incoming.set(zmq.LINGER, 0)
            incoming.set(zmq.SUBSCRIBE, b"")
            back.bind(front, endpoint)
            incoming.connect(endpoint)
        except BaseException:
            incoming.close(0)
            raise
        # It learns of the subscription now, and not in the middle of what is sent first.
        zmq.backend.Socket.get(front, _EVENTS)
        self._read: FrameReader = frame_reader(incoming)
        self.descriptor = int(incoming.get(zmq.FD))
        self.first: list[bytes] = []

    def has_some(self) -> bool:
        """Take in the next message, if there is one; tell whether there is one to go."""
        if not self.first and int(zmq.backend.Socket.get(self._incoming, _EVENTS)) & _POLLIN:
            self.first = self._read(self._incoming, _NOBLOCK)
        return bool(self.first)

    def done(self) -> None:
        """Be done with the first message."""
        self.first = []

    def close(self) -> int:
        """Close; give the number of messages that have not gone."""
        count = 0
        if not self._incoming.closed:
            # A context that was ended under it allows nothing but closing.
            with suppress(zmq.ZMQError):
                while count < _MOST_HELD and self.has_some():
                    self.done()
                    count += 1
            self._incoming.close(0)
        return count
