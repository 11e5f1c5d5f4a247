"""The thread of a blocking node, and how its callers wait."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any, Self, TypeVar

import zmq

from oz.errors import ClosedError, NameserverUnavailable, OwnershipError, Timeout
from oz.logs import peer_logger
from oz.numbers import check_wait
from oz.protocol.messages import Message
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.sync.answer_line import make_line
from oz.sync.handlers import ThreadPool
from oz.sync.io_thread import IOThread
from oz.sync.publisher_engine import ThreadedPublisher
from oz.sync.requesting import ThreadRequester
from oz.sync.subscriptions import NodeSubscription, ReceivedSubscription
from oz.sync.waiting import ThreadNews
from oz.transport.guard import StrictGuard, apart
from oz.transport.node.node import NodeEngine
from oz.transport.node.opening import NodeSettings, SocketKinds
from oz.transport.node.readiness import Wait
from oz.transport.node.subscriptions import Missing, Steps
from oz.transport.option_checks import closing_time
from oz.transport.subscriber.subscribing import refuse_async

T = TypeVar("T")

_log = peer_logger("oz.node")

_NOBLOCK, _EVENTS, _POLLIN = int(zmq.NOBLOCK), int(zmq.EVENTS), int(zmq.POLLIN)

_MOST_HEARD = 1_000
"""Frames of a name server in one turn."""

_TURN_SECONDS = 0.05
"""Seconds for what has come in one turn; then the rest has its own."""

_LAST_TURN = 5.0
"""Seconds that the I/O thread has at least to end its turn: nobody may close its sockets under it."""


class ThreadedNode:
    """The threads of one node: its I/O thread, and a pool for its handlers.

    Attributes:
        engine: the node without them.
        pool: calls handlers.
        requester: asks, and waits for answers.
        answer: publishes a reply.
    """

    subscription = NodeSubscription
    received = ReceivedSubscription
    kinds = SocketKinds(zmq.Context, ThreadedPublisher)
    may_call = True

    def __init__(self, settings: NodeSettings) -> None:
        """Make none of it yet: see `open`."""
        self._settings = settings
        self._has_opened = self._is_over = False

    def open(self) -> Self:
        """Join the bus. Where it does not come to that, also by Ctrl-C, nothing is left open.

        Raises:
            NameserverUnavailable, ConfigurationError, ValueError, TransportUnavailable, zmq.ZMQError: see
                `oz.Node`.
        """
        try:
            apart(self._open, self._settings)
            finish(self.engine.lifecycle.join())
        except BaseException as error:
            self.give_up(1.0 if isinstance(error, NameserverUnavailable) else 0)
            raise
        return self

    def _open(self, settings: NodeSettings) -> None:
        self.pool = ThreadPool(settings.configuration.threads)
        self.engine = engine = NodeEngine(settings, self)
        self.answer = engine.replies.answer
        self._line = make_line()
        self.requester = ThreadRequester(
            engine.client, self.wait, self.pool.lend, self.check_may_ask, self._line.waiter
        )
        self._news = ThreadNews(nullcontext())
        self._closing = StrictGuard()
        self._io = IOThread(f"oz-node-{settings.name}", self._take_turns)
        self.pool.check_may_wait = self.check_may_ask
        self.pool.before_inline = self._line.wake_all
        try:
            engine.open()
            self._bell = self._io.bell
            engine.sockets.sub.between_frames = self._line.look
            self._sign = engine.sockets.sub.socket.fileno()
            self._signs_of_servers = {one.fileno() for one in engine.sockets.servers.values()}
            for descriptor in (self._bell, self._sign, *self._signs_of_servers):
                self._line.watch(descriptor)
            self._io.start()
        except BaseException:
            self._io.abandon()
            if engine.has_joined:
                engine.sockets.abandon()
            raise
        self._has_opened = True

    def give_up(self, timeout: float = 0) -> None:
        """Close whatever there is, where something was cut short: in a thread, which is not."""
        if self._has_opened:
            options = {"drain": False, "timeout": timeout}
            closing = threading.Thread(target=self.close, kwargs=options, name="oz-closing")
            closing.start()
            closing.join()

    # the I/O thread --------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Have the I/O thread look at what is due soon; any thread may ask for it."""
        self._io.ring()

    def changed(self) -> None:
        """Tell those who wait for peers or readiness to look again."""
        self._news.tell()

    def _take_turns(self) -> None:
        """Wait for something to do, and do it, until another thread wants something done in between.

        libzmq signs a descriptor once for all that comes until it is asked, and whatever is done with a
        socket takes that sign: so they are asked before a wait, unless nothing was done since.
        `zmq.Poller` asks each time, before and after.
        """
        try:
            self._take_turns_in_line()
        finally:
            self._line.leave()

    def _take_turns_in_line(self) -> None:
        engine, io, sub, poll = self.engine, self._io, self.engine.sockets.sub, self._line.poll
        may_have_some = True
        while True:
            has_come = may_have_some and self._ask_sockets()
            left = 0.0 if has_come or io.commands or io.is_stopped else engine.seconds_left()
            ready = poll(left)
            if self._bell in ready:
                io.hear()
            has_come = has_come or self._sign in ready
            may_have_some, now = not self._signs_of_servers.isdisjoint(ready), time.monotonic()
            if has_come or sub.has_due(now):
                may_have_some |= sub.take_in(_TURN_SECONDS, is_signed=has_come)
                if sub.taken_in.is_handled:
                    # What inline handlers have replied to several messages of this turn.
                    for publisher in engine.sockets.publishers:
                        publisher.go()
                if has_come and engine.waits:
                    engine.note_news(now)
            if engine.has_due(now):
                # It may take a while.
                self._line.wake_all()
                engine.tick(now)
                may_have_some = True
            io.failures = 0
            if io.commands or io.is_stopped:
                return

    def _ask_sockets(self) -> bool:
        """Take in what name servers say; tell whether anything has come of peers."""
        sockets = self.engine.sockets
        for endpoint, dealer in sockets.servers.items():
            count = 0
            while count < _MOST_HEARD and int(dealer.get(_EVENTS)) & _POLLIN:
                self.engine.receive(endpoint, dealer.recv(_NOBLOCK), time.monotonic())
                count += 1
        return sockets.sub.has_come

    def call(self, work: Callable[[], T]) -> T:
        """Run something in the I/O thread; return its result.

        Raises:
            ClosedError: the node is closed.
            OwnershipError: it was made before a fork; or as `check_interrupts_nobody`.
        """
        self.engine.publishing.check_owner()
        if not self._io.is_current():
            self.check_interrupts_nobody()
        result: T = self._io.call(work)
        return result

    def wait(self, missing: Missing, timeout: float | None) -> None:
        """Wait until nothing is missing; it is asked for in the I/O thread.

        Raises:
            Timeout: something was, after so many seconds; says what.
            ClosedError: the node is closed.
            OwnershipError: as `check_may_ask`.
        """
        check_wait("timeout", timeout)
        self.check_may_ask()
        what: str | None = None

        def has_come() -> bool:
            nonlocal what
            what = self.call(missing)
            return what is None

        wait, waits = Wait(), self.engine.waits
        waits.add(wait)
        try:
            with self.pool.lend():
                if not self._news.wait_for(has_come, timeout):
                    raise Timeout(f"not within {timeout:g} s: {what}")
        finally:
            waits.discard(wait)

    # handlers --------------------------------------------------------------------------------------------

    def check_may_wait(self) -> None:
        """Refuse to wait in the I/O thread for what only that can bring.

        Raises:
            OwnershipError: this is it.
        """
        if self._io.is_current():
            raise OwnershipError(
                f"an inline handler of node {self.engine.settings.name} runs on the thread that reads what "
                "comes, and cannot wait for it: leave inline=True out"
            )

    def check_interrupts_nobody(self) -> None:
        """Refuse to wait for the I/O thread in a signal handler that it may wait for itself.

        Raises:
            OwnershipError: this is one, and has interrupted a publisher of the node.
        """
        if self.engine.publishing.is_interrupted:
            raise OwnershipError(
                f"a signal handler has interrupted a publisher of node {self.engine.settings.name}, which "
                "goes on when it returns, and cannot wait for the node until then: have a thread do this"
            )

    def check_may_ask(self) -> None:
        """Refuse to wait for what others send, where the I/O thread cannot read it.

        Raises:
            OwnershipError: as `check_may_wait` and `check_interrupts_nobody`.
        """
        self.check_may_wait()
        self.check_interrupts_nobody()

    def check_handler(self, handler: Callable[[Message], Any]) -> None:
        """Refuse an `async` handler.

        Raises:
            TypeError: it is one.
        """
        refuse_async(handler, "oz.asyncio.Node")

    def drain(self, subscription: Subscribed, timeout: float) -> bool:
        """End a subscription when it has handled what is on its way; see `Subscription.drain`."""
        self.engine.check_open()
        self.check_may_ask()
        return finish(self.engine.lifecycle.drain_subscription(subscription, timeout))

    # closing ---------------------------------------------------------------------------------------------

    def close(self, *, drain: bool, timeout: float | None) -> None:
        """Leave the bus; see `oz.Node.close`."""
        check_wait("timeout", timeout)
        engine = self.engine
        # While the interpreter is finalizing, the threads of the node are stopped.
        if engine.sockets.local.engine.guard.is_foreign or sys.is_finalizing():
            return
        if engine.publishing.is_interrupted or self._io.is_current():
            # The I/O thread, which has to help, may wait for what this thread has until the handler returns;
            # or this is it, in an inline handler.
            options = {"drain": drain, "timeout": timeout}
            threading.Thread(target=self.close, kwargs=options, name="oz-closing").start()
            return
        if self._is_over or self._closing.is_mine:
            return
        # Taken inside: a signal handler may raise right behind that, and who closes again goes on.
        is_mine = None
        try:
            is_mine = self._closing.acquire(False)
            if is_mine:
                self._close(time.monotonic() + closing_time(timeout), drain=drain)
                self._is_over = True
        finally:
            if is_mine is not False:
                with suppress(RuntimeError):
                    self._closing.release()

    def _close(self, ends: float, *, drain: bool) -> None:
        engine = self.engine
        if drain and not engine.is_closed:
            finish(engine.lifecycle.drain(ends))
        engine.is_closed = True
        with suppress(ClosedError):
            self._io.call(engine.lifecycle.take_leave)
        has_ended = self._io.stop(max(_LAST_TURN, ends - time.monotonic()))
        self.changed()
        engine.close_queues()
        self.pool.close(max(0.0, ends - time.monotonic()) if drain else 0)
        if has_ended:
            self._close_sockets(ends, drain=drain)
        else:
            name = engine.settings.name
            _log.warning("closed, but the thread of node %s is still busy; its sockets stay open", name)

    def _close_sockets(self, ends: float, *, drain: bool) -> None:
        sockets = self.engine.sockets
        # With a drain the goodbye has been said, and answered by those who are there.
        sockets.sub.close(is_drained=drain)
        sockets.close_servers()
        closed_at = time.monotonic()
        publisher: Any
        for publisher in sockets.publishers:
            publisher.engine.close(timeout=max(0.0, ends - time.monotonic()))
        sockets.end_context(max(0.0, ends - closed_at), closed_at)


def finish(steps: Steps[T]) -> T:
    """Take steps to the end: what they yield is done already."""
    done = None
    while True:
        try:
            done = steps.send(done)
        except StopIteration as end:
            result: T = end.value
            return result
