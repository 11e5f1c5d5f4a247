"""The attendant of a publisher: it takes in subscriptions and retries what waits for room."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import zmq

from oz.logs import peer_logger
from oz.protocol.publisher.interest_queue import SWEEP_EVERY, InterestQueue
from oz.protocol.publisher.records import RECORD_PATIENCE
from oz.security.access import Access
from oz.security.limits import Limits
from oz.transport.backend import Peer, backend_of, make_asking
from oz.transport.calls import Calls
from oz.transport.guard import Guard
from oz.transport.publisher.closing import PublisherClosing
from oz.transport.publisher.sender import Sender
from oz.transport.publisher.sink import SendingParts

_log = peer_logger("oz.publisher")

_NOBLOCK = int(zmq.NOBLOCK)
_SUBSCRIBE = int(zmq.SUBSCRIBE)
_UNSUBSCRIBE = int(zmq.UNSUBSCRIBE)

_TAKES_BACK = b"\x00"
_SUBSCRIPTIONS = (b"\x01", _TAKES_BACK)
"""What a frame that subscribes, or takes that back, begins with. Source: ZeroMQ RFC 29."""

_MOST_READ = 5_000
"""Subscriptions that are read in one go: a count, as those of the program itself must all be read."""

_READ_AT_LEAST = 100
"""Those that came over connections are read for `Limits.interest_time`, and so many at least: at every
hundredth libzmq looks at its connections all the same."""

SOON = 0.1
"""Seconds after the last use of the socket in which its thread or loop looks once, as no sign may come."""

LONGEST_ROOM = 0.02
"""Seconds for which its thread or loop makes room for those who publish, at most."""


def room_after(seconds: float) -> float:
    """Return for how long to make room after a look of so many seconds: who asks is to be heard too."""
    return min(seconds / 2, LONGEST_ROOM)


RIGHTS_EVERY = 0.5
"""Seconds between two looks at whether permissions have changed, and at connections that it made."""

_FIRST_PAUSE = 0.0005
"""Seconds before the first attempt without a sign to send what found no room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """The thread or the loop that an engine is for, as far as the engine asks it for something.

    Attributes:
        expect_more: a message waits for others: see to it that `attend` is called in time.
        attached: the socket was bound or connected anew.
        in_use: something was done with the socket that no look follows, or is about to be: that may take the
            sign of news, so call `attend` once, `SOON` seconds after the last of these calls. Called once in
            `LISTEN_EVERY` seconds at most while messages are sent.
        heard: subscriptions have come, or room perhaps: wake those who wait for either. Called by whichever
            thread has found that, under the guard.
        in_turns: see `Accumulator`.
    """

    expect_more: Callable[[], object]
    attached: Callable[[], object]
    in_use: Callable[[], object]
    heard: Callable[[], object]
    in_turns: bool = False


class KeyedInterest(NamedTuple):
    """The means by which a publisher with keys reads its subscriptions and grants them.

    Attributes:
        receive: reads a frame of the socket, and tells by which connection it came, with the key.
        access: who may have what.
        calls: looks after the connections that it made.
    """

    receive: Callable[[Any, int], tuple[bytes, Peer | None]]
    access: Access
    calls: Calls


def _at_once(do: Callable[..., Any], *given: Any) -> Any:
    return do(*given)


class Attendant:
    """Attends to one publisher's socket, for the thread or loop behind it and for those who send."""

    __slots__ = (
        "_access",
        "_backend",
        "_calls",
        "_closing",
        "_dispatch",
        "_do_apart",
        "_guard",
        "_has_come",
        "_has_news",
        "_heard",
        "_in_use",
        "_interest_changed",
        "_is_astray",
        "_pause",
        "_queue",
        "_read_time",
        "_receive",
        "_records",
        "_router",
        "_sender",
        "_sink",
        "_socket",
    )

    def __init__(
        self,
        socket: zmq.Socket[Any],
        guard: Guard,
        parts: SendingParts,
        sender: Sender,
        closing: PublisherClosing,
        shell: Shell,
        *,
        limits: Limits,
        security: KeyedInterest | None,
        interest_changed: Callable[[], object],
    ) -> None:
        """Put together what a publisher has.

        Args:
            socket: of the publisher.
            guard: of the publisher.
            parts: what sends to those who ask.
            sender: what is published passes through.
            closing: the end of it all.
            shell: the thread or the loop.
            limits: how much subscribers may ask for.
            security: tells who asks for something, and who may have it; None where everybody may everything.
            interest_changed: called when an interest has come or gone, under the guard.
        """
        self._socket = socket
        self._backend = backend = backend_of(socket)
        self._has_come = make_asking(socket)
        self._guard = guard
        self._router = parts.router
        self._access = access = None if security is None else security.access
        self._calls = None if security is None else security.calls
        self._receive = backend.recv_named if security is None else security.receive
        self._queue = InterestQueue(
            parts.router, limits, self._is_alive if backend.tells_peers else None, access
        )
        self._read_time = limits.interest_time
        self._dispatch = parts.dispatch
        self._records = parts.records
        self._sink = sink = parts.sink
        sink.peers = self._queue.peers
        sink.cut = self._cut
        self._sender = sender
        sender.listen = self.listen
        self._closing = closing
        self._in_use = shell.in_use
        self._heard = shell.heard
        self._interest_changed = interest_changed
        self._pause = _FIRST_PAUSE
        # A model of ZeroMQ is for one thread, and knows no signals. A loop would stand still for another one,
        # and its handlers of signals hardly ever raise: docs/decisions/017-publisher-thread.md
        is_apart = backend.has_handle and not shell.in_turns
        self._do_apart: Callable[..., Any] = guard.apart if is_apart else _at_once
        self._is_astray = self._has_news = False

    def listen(self) -> bool:
        """Take in the subscriptions that have arrived, and answer them; tell whether any interest changed."""
        try:
            return self._listen()
        except BaseException:
            # A signal handler has raised, and nothing tells again of what it has cut short.
            self._in_use()
            raise

    def _listen(self) -> bool:
        with self._guard:
            if self._socket.closed or self._guard.is_interrupted:
                return False
            router = self._router
            # Asking costs a third of what `zmq.Again` does, and loses no Ctrl-C: from Python 3.12 on, pyzmq
            # drops what a signal handler raises while it raises that itself.
            has_come = self._has_come()
            has_left_some = False
            if has_come or self._queue.waits:
                has_left_some = self._guard.undivided(self._do_apart, self._take_in, has_come)
            if self._has_news:
                self._heard()
                self._has_news = False
            self._sender.is_behind = self._queue.waits or has_left_some
            if self._sender.is_behind:
                # Nothing tells of that again.
                self._in_use()
            has_changed = router.interest.has_changed
            if has_changed:
                # Before the answer: what is published once it has arrived must go to whom it was given.
                self._sender.routes.forget()
                self._interest_changed()
                # At last: if a signal handler raises, the next look does so too.
                router.interest.has_changed = False
            if (router.to_answer or router.acceptance.to_serve) and not self._closing.said_goodbye:
                # What was published before goes out before.
                self._sender.accumulator.flush(self._socket)
                self._guard.undivided(self._do_apart, self._records.answer)
                self._in_use()
            return has_changed

    def rest(self) -> float | None:
        """Return how long the thread or loop behind it may sleep, unless the socket or others wake it first.

        To be asked last, with nothing done in between: what it finds to be done is not told again.

        Returns:
            Seconds; 0 where `attend` is to be called at once, None for as long as nothing comes.
        """
        with self._guard:
            if self._socket.closed or self._closing.said_goodbye:
                return None
            if self._queue.waits or self._has_come():
                return 0.0
            # What it has just taken notice of may have been room.
            self._heard()
            now = self._backend.monotonic()
            due = self._records.next_deadline(now)
            if self._dispatch.full:
                due = min(inf if due is None else due, now + self._pause)
            if self._access is not None:
                due = min(inf if due is None else due, now + RIGHTS_EVERY)
            if self._queue.has_doubts:
                due = min(inf if due is None else due, now + SWEEP_EVERY)
            return None if due is None else max(0.0, due - now)

    def _is_alive(self, peer: Peer) -> bool:
        return self._backend.inode(peer.descriptor) == peer.inode

    def _take_in(self, has_come: bool) -> bool:
        """Take in the subscriptions that have arrived, and look at some of all that wait; are some left?"""
        has_left_some = has_come and not self._read()
        self._queue.work(self._backend.monotonic)
        self._has_news = True
        return has_left_some

    def _read(self) -> bool:
        """Read the subscriptions that have arrived, and tell ZeroMQ what comes of each; were those all?

        Many of them in one go, without asking for EVENTS in between, which may end connections: libzmq looks
        at the connection that a subscription came from when that is read, even if its memory was freed since.
        docs/libzmq.md

        A frame that is no subscription leads libzmq 4.3.5 astray: `xpub_t::xrecv` takes a connection from its
        list for that too, and then applies what is granted to the connection of the next frame. So nothing is
        granted until all was read, when that list is empty.
        """
        queue, backend, socket, receive = self._queue, self._backend, self._socket, self._receive
        now, peer = backend.monotonic(), None
        try:
            for number in range(1, _MOST_READ + 1):
                frame, peer = receive(socket, _NOBLOCK)
                if frame[:1] not in _SUBSCRIPTIONS:
                    self._is_astray = True
                if self._is_astray and frame[:1] != _TAKES_BACK:
                    queue.pass_over(frame, peer)
                    continue
                wanted, dropped = queue.take(frame, peer, now)
                if self._is_astray:
                    continue
                # ZeroMQ applies these to the connection that the frame came from.
                for key in wanted:
                    backend.set(socket, _SUBSCRIBE, key)
                for key in dropped:
                    backend.set(socket, _UNSUBSCRIBE, key)
                if peer and number % _READ_AT_LEAST == 0 and backend.monotonic() - now >= self._read_time:
                    queue.look_behind(peer, backend.read_by_zmq)
                    break
        except zmq.Again:
            self._is_astray = False
            if peer is not None:
                queue.is_all_read(peer, backend.read_by_zmq)
            return True
        finally:
            self._cut(queue.to_cut)
        return False

    def _end_revoked(self, peers: list[Peer]) -> None:
        """End connections whose keys may not have any more what they have; they may ask again."""
        for peer in peers:
            if self._is_alive(peer):
                _log.warning(
                    "a connection of key %s is ended: what is trusted or allowed has changed, and "
                    "it may not have any more all that it has; it may ask again",
                    peer.key,
                )
        self._end(peers)

    def _cut(self, peers: list[Peer]) -> None:
        """End connections that take too much."""
        if peers and not self._router.stats.cut:
            _log.warning(
                "a connection is ended: it asks for more and more of what it is refused, or takes nothing "
                "while more than Limits.unsent waits; `stats.cut` counts more of them"
            )
        self._end(peers)

    def _end(self, peers: list[Peer]) -> None:
        while peers:
            self._router.stats.cut += 1
            self._backend.cut(peers.pop())

    def attend(self) -> bool:
        """Do what is due: send what waits, take in subscriptions, tell streams where they stand.

        Returns:
            Whether there was anything to send, or still is and may soon find room.
        """
        with self._guard:
            if self._socket.closed or self._closing.said_goodbye:
                return False
            if self._access is not None and self._access.has_changed():
                self._guard.undivided(self._queue.revoke, self._backend.monotonic())
                self._end_revoked(self._queue.to_cut)
            if self._calls is not None:
                self._calls.look(self._socket, self._backend.monotonic())
            accumulator, records = self._sender.accumulator, self._records
            was_busy = bool(accumulator)
            records.is_halfway = False
            if not accumulator.expects_others():
                accumulator.flush(self._socket)
            self.listen()
            self._guard.undivided(self._tell)
            self._heard()
            return was_busy or records.is_halfway

    def _tell(self) -> None:
        """Send what waits for room, and tell streams where they stand."""
        if not self._sender.is_behind:
            self._queue.sweep(self._backend.monotonic())
        self._retry()
        self._records.beat(self._backend.monotonic())

    def _retry(self) -> None:
        """Send what waits for room; the longer there is none, the later it tries again without a sign."""
        if self._dispatch.full:
            before = self._sink.taken
            self._dispatch.retry()
            has_moved = self._sink.taken != before
            self._pause = _FIRST_PAUSE if has_moved else min(2 * self._pause, RECORD_PATIENCE)
