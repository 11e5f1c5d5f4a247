"""The engine of a publisher for asyncio; `oz.asyncio.Publisher` is the object that you hold."""

from __future__ import annotations

import asyncio
import sys
import weakref
from asyncio import _get_running_loop
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, Protocol

import zmq
import zmq.asyncio

from oz.asyncio.closing import Closing
from oz.asyncio.waiting import TaskNews
from oz.message import Extras
from oz.numbers import check_wait
from oz.transport.publisher.attending import SOON, Shell, room_after
from oz.transport.publisher.closing import seconds_to_close
from oz.transport.publisher.engine import PublisherEngine
from oz.transport.publisher.options import PublisherOptions, Role

_NOBLOCK = int(zmq.NOBLOCK)

_HALFWAY_PAUSE = 0.0005
"""Seconds after which streams that found no room are told again where they stand, when others have been."""


def _look_after(find: weakref.ref[LoopPublisher], loop: asyncio.AbstractEventLoop) -> None:
    """Attend to a publisher now, and again when something is due, for as long as it is there and open."""
    one = find()
    if one is not None and one.loop is loop and not one.closed and not one.is_foreign:
        one.look_after()


class LoopFront(Protocol):
    """The socket of an engine as a loop sees it."""

    def _watch(self) -> None:
        """Have the loop that runs tell the engine of news."""

    def _hide(self) -> None:
        """Have the loop watch it no more; to be called before its engine closes."""


class LoopSocket(zmq.asyncio.Socket):
    """The socket of an engine as a loop sees it: pyzmq's own shadow of it, which tells the engine of news."""

    # zmq.Socket takes attributes that are not declared here for socket options.
    _engine: LoopPublisher

    def __init__(self, engine: LoopPublisher) -> None:
        """Make what a loop sees of an engine's socket. It ends when the engine is closed.

        Args:
            engine: the engine.
        """
        self._engine = engine
        zmq.asyncio.Socket.__init__(self, engine.socket)  # type: ignore[arg-type]
        # A shadow of a handle would have a context of its own.
        self.context = engine.context
        engine.shown_by(self)

    def _watch(self) -> None:
        """Have the loop that runs tell the engine of news."""
        self._get_loop()  # type: ignore[operator]

    def _init_io_state(self, io_loop: Any = None) -> None:
        super()._init_io_state(io_loop)  # type: ignore[no-untyped-call]
        self._engine.adopt(io_loop or asyncio.get_running_loop())

    def _handle_events(self, fd: int = 0, events: int = 0) -> None:
        """Called by pyzmq when the socket has news: subscriptions, as nothing else arrives here."""
        if self._engine.closed:
            return
        self._engine.hear()

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._engine.closed

    def _hide(self) -> None:
        """Have the loop watch it no more; to be called before its engine closes."""
        self._clear_io_state()  # type: ignore[no-untyped-call]


class LoopPublisher(PublisherEngine):
    """A publisher's engine that an asyncio loop looks after.

    Attributes:
        loop: the loop, if there was one so far.
    """

    def __init__(
        self,
        options: PublisherOptions,
        role: Role,
        *,
        front_class: Callable[[LoopPublisher], LoopFront] = LoopSocket,
    ) -> None:
        """Make one that is neither bound nor connected; see `attach`.

        Args:
            options: as `oz.Publisher` is given them.
            role: what the publisher knows beyond others, if it does.
            front_class: makes what a loop sees of its socket, where nothing else shows it.
        """
        self._front_class = front_class
        self.loop: asyncio.AbstractEventLoop | None = None
        self._is_turn_to_end = False
        self._timer: asyncio.TimerHandle | None = None
        # uvloop gives a plain handle, which does not know its time, for what is due at once.
        self._timer_at = 0.0
        self._used_at = -inf
        self._news = TaskNews()
        self._own_front: LoopFront | None = None
        self._shown_by: weakref.ref[LoopFront] | None = None
        shell = Shell(
            expect_more=self._expect_more,
            in_turns=True,
            attached=self._attached_anew,
            in_use=self.stay_watchful,
            heard=self._news.tell,
        )
        super().__init__(options, shell, role)
        # The loop must not be blocked.
        self.sender.flags = _NOBLOCK

    @property
    def front(self) -> LoopFront:
        """The socket as a loop sees it."""
        found = self._shown_by() if self._shown_by is not None else None
        if found is None:
            found = self._own_front = self._front_class(self)
        return found

    def shown_by(self, front: LoopFront) -> None:
        """Have a loop see the socket by another one, which is not kept."""
        self._shown_by = weakref.ref(front)

    def adopt(self, loop: asyncio.AbstractEventLoop) -> None:
        """Be looked after by a loop: the first that there is, or another one after it has ended."""
        if self.loop is not loop:
            self.loop = loop
            # The last one may have ended in the middle of its turn.
            self._is_turn_to_end = False
            self._timer = None
            self.front._watch()
            loop.call_soon(_look_after, weakref.ref(self), loop)

    def look_after(self) -> None:
        """Do what is due, and see to it that the loop comes back in time."""
        began = self.monotonic()
        left = self._used_at + SOON - began
        self.attend()
        rest = _HALFWAY_PAUSE if self.records.is_halfway else self.rest()
        if self.has_to_make_room():
            rest = max(rest or 0.0, room_after(self.monotonic() - began))
        if left > 0:
            # What uses the socket goes on for a moment without saying so.
            rest = left if rest is None else min(rest, left)
        if rest is None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
        else:
            self._come_back(rest)

    def hear(self) -> None:
        """Attend to the news that the loop has a sign of: subscriptions, or room for what waits for some."""
        if self.dispatch.full:
            self.look_after()
        elif not self.sender.is_behind:
            self.listen()
            self._news.tell()

    def _come_back(self, seconds: float) -> None:
        loop = self.loop
        if loop is not None and not loop.is_closed():
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = loop.time() + seconds
            self._timer = loop.call_later(seconds, _look_after, weakref.ref(self), loop)

    def stay_watchful(self) -> None:
        """Look once, `SOON` seconds after the last call: what was done may have taken a sign of news."""
        self._used_at = self.monotonic()
        loop, seconds = self.loop, 0.0 if self.sender.is_behind else SOON
        if loop is not None and (self._timer is None or self._timer_at > loop.time() + seconds):
            self._come_back(seconds)

    def _attached_anew(self) -> None:
        # Without a loop so far: the first `publish` has one.
        with suppress(RuntimeError):
            self.adopt(asyncio.get_running_loop())

    def _expect_more(self) -> None:
        """Send what waits at the end of the loop's turn; a thread beside the loop may ask for it."""
        loop = self.loop
        if self._is_turn_to_end or loop is None:
            return
        self._is_turn_to_end = True
        if loop is _get_running_loop():
            loop.call_soon(self._end_turn)
            return
        try:
            loop.call_soon_threadsafe(self._end_turn)
        except RuntimeError:
            # It has ended; what waits goes out when this is closed, or has another loop.
            self._is_turn_to_end = False

    def _end_turn(self) -> None:
        self._is_turn_to_end = False
        if not self.closed:
            self.sender.accumulator.end_turn(self.socket)

    async def publish(self, subject: str | bytes, payload: Any = b"", extras: Extras | None = None) -> None:
        """Publish one message; see `oz.asyncio.Publisher.publish`."""
        if (loop := _get_running_loop()) is not None and not self.closed:
            self.adopt(loop)
        refused = self.sender.publish(self.socket, subject, payload, extras)
        if refused is not None and not (
            self.on_full == "block"
            and await self._news.wait_for(lambda: self.publish_again(refused), self.full_timeout)
        ):
            self.refuse(subject)

    async def wait_for_subscribers(
        self, n: int = 1, subject: str | bytes | None = None, timeout: float | None = None
    ) -> None:
        """Wait until subscriptions have arrived; see `oz.Publisher.wait_for_subscribers`."""
        check_wait("timeout", timeout)
        self.check_open()
        self.adopt(asyncio.get_running_loop())

        def has_enough() -> bool:
            self.check_open()
            return self.enough(n, subject)

        if not await self._news.wait_for(has_enough, timeout):
            raise self.too_few(n, subject, timeout)

    def close(self, *, timeout: float | None = None) -> Closing:
        """Close; await what it gives to know that all is sent."""
        ends_at = self.monotonic() + seconds_to_close(timeout)
        finish = partial(self._finish, timeout)
        if sys.is_finalizing():
            # pyzmq imports nothing any more, and so cannot create its exceptions.
            with suppress(ImportError):
                finish()
            return Closing()
        is_open = not (self.closed or self.is_foreign)
        if not is_open or _get_running_loop() is None or self.closing.send_what_fits():
            finish()
            return Closing()
        # Subscribers get their time, and the loop goes on meanwhile.
        self.sender.routes.close()
        self._news.tell()
        # Cut short, as by the end of the loop, it does not wait for ever.
        return Closing(later=self._close_later(finish, ends_at), surely=finish)

    async def _close_later(self, finish: Callable[[], object], ends_at: float) -> None:
        for pause in self.closing.leave(ends_at - self.monotonic()):
            await asyncio.sleep(pause)
        finish()

    def _finish(self, timeout: float | None) -> None:
        front = self._shown_by() if self._shown_by is not None else None
        if front is not None and not self.closed and not self.is_foreign:
            front._hide()
        # Within a loop, what there is no room for had its time already.
        self.closing.close_socket(timeout, waits=_get_running_loop() is None)
        self._news.tell()
