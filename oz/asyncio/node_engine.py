"""The tasks of a node for asyncio, and how its callers wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, TypeVar

import zmq
import zmq.asyncio

from oz.asyncio.closing import Closing, end_in_loop, in_thread, is_cancelled
from oz.asyncio.handlers import TaskPool
from oz.asyncio.publisher_engine import LoopPublisher
from oz.asyncio.reading import LoopReader
from oz.asyncio.requesting import TaskRequester
from oz.asyncio.subscriptions import NodeSubscription, ReceivedSubscription
from oz.asyncio.waiting import TURN_SECONDS
from oz.errors import NameserverUnavailable, OwnershipError, Timeout
from oz.numbers import check_wait
from oz.protocol.messages import Message
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.transport.node.node import NodeEngine
from oz.transport.node.opening import NodeSettings, SocketKinds
from oz.transport.node.readiness import Wait
from oz.transport.node.subscriptions import Missing, Steps
from oz.transport.option_checks import closing_time

T = TypeVar("T")

_PATIENCE = 5.0
"""Seconds beyond its own time for which another loop waits for a node's own to close it."""


class _Done:
    """Something to await that is done already."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


PYZMQ_KINDS = SocketKinds(zmq.asyncio.Context, LoopPublisher)
"""Sockets of pyzmq."""


class LoopNode:
    """The tasks of one node: those that receive and attend, and a pool for its handlers.

    Attributes:
        kinds: of its sockets.
        engine: the node without them.
        pool: calls handlers.
        requester: asks, and waits for answers.
        has_started: `start` was called.
    """

    subscription = NodeSubscription
    received = ReceivedSubscription

    def __init__(self, settings: NodeSettings, kinds: SocketKinds = PYZMQ_KINDS) -> None:
        """Prepare; `start` joins the bus.

        Args:
            settings: of the node.
            kinds: of its sockets.
        """
        self.kinds = kinds
        self.engine = NodeEngine(settings, self)
        self.pool: TaskPool
        self.requester = TaskRequester(
            self.engine.client, self.wait, lambda: self.pool.lend(), self.check_loop, self.engine.monotonic
        )
        self.tasks: list[asyncio.Task[None]] = []
        self.has_started = self._is_closing = False
        self._closing = Closing()
        self._number_of_news = 0

    async def start(self) -> None:
        """Join the bus; a second call does nothing.

        Raises:
            NameserverUnavailable, ConfigurationError, ValueError, TransportUnavailable, zmq.ZMQError: see
                `oz.asyncio.Node.start`.
        """
        if self.has_started:
            return
        self.has_started = True
        engine = self.engine
        self._loop = asyncio.get_running_loop()
        self.pool = TaskPool(engine.settings.configuration.threads, engine.monotonic)
        self._woken = asyncio.Event()
        self._news = asyncio.Condition()
        engine.open()
        self._reader = LoopReader(engine.sockets.sub.socket, self._take_in)
        self._work()
        try:
            await finish(engine.lifecycle.join())
        except BaseException as error:
            await self.close(drain=False, timeout=1.0 if isinstance(error, NameserverUnavailable) else 0)
            raise

    # the I/O side ----------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Begin the tasks that read, and do what is due."""
        working = [self._attend(), *map(self._read, self.engine.sockets.servers)]
        if not self._reader.start():
            working.append(self._receive())
        name = f"oz-node-{self.engine.settings.name}"
        self.tasks = [asyncio.create_task(one, name=name) for one in working]

    @property
    def may_call(self) -> bool:
        """Whether `call` may be called here.

        Nobody else may touch the subscriber; in another loop nothing says what comes before what.
        """
        return asyncio._get_running_loop() is self._loop

    def wake(self) -> None:
        """Make `_attend` look at what is due soon; any thread may ask for it."""
        if asyncio._get_running_loop() is self._loop:
            self._woken.set()
        else:
            # An error: the loop has ended, and does nothing more.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._woken.set)

    def changed(self) -> None:
        """Do nothing: `_tell_news` tells those who wait, as that is awaited."""

    async def _tell_news(self) -> None:
        """Wake those who wait, to look again."""
        async with self._news:
            self._number_of_news += 1
            self._news.notify_all()

    async def _receive(self) -> None:
        """Read what comes, where the loop watches no descriptors."""
        await self._reader.run()

    def _take_in(self) -> bool:
        """Hand what has come to handlers; nothing here is for anybody else. Tell whether there is more."""
        sub = self.engine.sockets.sub
        may_have_more = sub.take_in(TURN_SECONDS, is_signed=True)
        if self.engine.waits:
            self.engine.note_news(self.engine.monotonic())
            self._woken.set()
        return may_have_more and (sub.has_some or sub.has_come)

    async def _attend(self) -> None:
        """Do what is due, and what has been asked for."""
        engine, sub = self.engine, self.engine.sockets.sub
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(engine.seconds_left()):
                    await self._woken.wait()
            self._woken.clear()
            sub.take_in(TURN_SECONDS)
            if engine.has_due(now := self.engine.monotonic()):
                engine.tick(now)
                await self._tell_news()
            # What was done to the socket may have taken the news of its descriptor.
            self._reader.look()

    async def _read(self, endpoint: str) -> None:
        dealer: Any = self.engine.sockets.servers[endpoint]
        while True:
            frame = await dealer.recv()
            self.engine.receive(endpoint, frame, self.engine.monotonic())
            self.wake()

    def call(self, work: Callable[[], T]) -> T:
        """Run something that is for the loop only; return its result.

        Raises:
            OwnershipError: the node was made before a fork.
        """
        self.engine.publishing.check_owner()
        try:
            return work()
        finally:
            # Something may be due, or have come, that nobody was told of.
            self.wake()

    async def wait(self, missing: Missing, timeout: float | None) -> None:
        """Wait until nothing is missing.

        Raises:
            Timeout: something was, after so many seconds; says what.
            ClosedError: the node is closed, or has not joined.
        """
        check_wait("timeout", timeout)
        ends = None if timeout is None else self.engine.monotonic() + timeout
        self.check_loop()
        engine, wait = self.engine, Wait()
        engine.waits.add(wait)
        try:
            while True:
                seen, what = self._number_of_news, missing()
                if what is None:
                    return
                engine.publishing.check_owner()
                engine.check_open()
                left = None if ends is None else ends - self.engine.monotonic()
                if left is not None and left <= 0:
                    raise Timeout(f"not within {timeout:g} s: {what}")
                # The look itself may have set a time for the next one, or asked something.
                self._woken.set()
                await self._await_news(seen, left)
        finally:
            engine.waits.discard(wait)

    async def _await_news(self, seen: int, seconds: float | None) -> None:
        """Wait for more news than so many."""
        with self.pool.lend(), suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._news:
                await self._news.wait_for(lambda: self._number_of_news != seen)

    def check_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop that runs, and refuse what is done in another loop than the node's.

        Raises:
            OwnershipError: it is.
        """
        loop = asyncio.get_running_loop()
        if self.has_started and loop is not self._loop:
            raise OwnershipError(
                f"the node {self.engine.settings.name} belongs to the loop that started it; "
                "make one in this loop"
            )
        return loop

    # handlers --------------------------------------------------------------------------------------------

    def check_handler(self, handler: Callable[[Message], Any]) -> None:
        """Take any handler: what it gives is awaited, if it can be."""

    def answer(self, message: Message, payload: Any, headers: dict[str, Any] | None) -> _Done:
        """Publish a reply; it may be awaited, and is done already."""
        self.engine.replies.answer(message, payload, headers)
        return _Done()

    async def drain(self, subscription: Subscribed, timeout: float) -> bool:
        """End a subscription when it has handled what is on its way; see `Subscription.drain`."""
        self.engine.check_open()
        return await finish(self.engine.lifecycle.drain_subscription(subscription, timeout))

    # closing ---------------------------------------------------------------------------------------------

    async def close(self, *, drain: bool, timeout: float | None) -> None:
        """Leave the bus; see `oz.asyncio.Node.close`."""
        check_wait("timeout", timeout)
        engine = self.engine
        if not engine.has_joined or engine.sockets.local.engine.guard.is_foreign:
            return
        is_own, me = asyncio.get_running_loop() is self._loop, asyncio.current_task()
        # A handler that waited for a task that closes would be waited for by that.
        may_wait = is_own and me not in self.pool.workers.members
        if self._is_closing:
            if may_wait:
                await self._closing
            return
        seconds = closing_time(timeout)
        ends = self.engine.monotonic() + seconds
        if not is_own and self._loop.is_running():
            await self._close_there(drain, timeout, seconds + _PATIENCE)
            return
        self._is_closing = True
        leaving = self._leave(ends, me, drain=drain and is_own)
        if not may_wait:
            await leaving
            return
        # It goes on, for its time, also if whoever awaits it is cancelled.
        self._closing = Closing(later=leaving, surely=self._close_rest)
        await self._closing

    async def _close_there(self, drain: bool, timeout: float | None, patience: float) -> None:
        """Wait for so many seconds at most until the node's own loop has closed it."""
        closing = self.close(drain=drain, timeout=timeout)
        there = asyncio.run_coroutine_threadsafe(closing, self._loop)
        try:
            await asyncio.wait_for(asyncio.wrap_future(there), patience)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            # That loop has ended meanwhile, and closes the rest.
            ends = self.engine.monotonic() + _PATIENCE
            while not self.engine.sockets.context.closed and self.engine.monotonic() < ends:
                await asyncio.sleep(0.01)

    def _close_rest(self) -> None:
        """Close what is open still, at once: a loop that ends cancels also the task that was closing."""
        context = self.engine.sockets.context
        if isinstance(context, zmq.Context) and not context.closed:
            leaving = self._leave(self.engine.monotonic(), None, drain=False)
            # As from any other loop, once that of the node has ended; it stands still here meanwhile.
            thread = threading.Thread(target=asyncio.run, args=(leaving,), name="oz-closing")
            thread.start()
            thread.join(_PATIENCE)

    async def _leave(self, ends: float, caller: asyncio.Task[Any] | None, *, drain: bool) -> None:
        """Leave the bus until a time, on behalf of a task, which is not cancelled."""
        engine, is_own = self.engine, asyncio.get_running_loop() is self._loop
        if drain:
            working = [one for one in self.tasks if one is not caller]
            if any(one.done() or one.cancelling() for one in working):
                # A loop that ends has cancelled them, as all tasks, and draining needs them. A time that is
                # up within one of them looks the same, and does not end it.
                for one in working:
                    one.cancel()
                await asyncio.gather(*working, return_exceptions=True)
                self._work()
            await finish(engine.lifecycle.drain(ends))
        engine.is_closed = True
        engine.lifecycle.take_leave()
        self._reader.stop()
        for task in self.tasks:
            if task is not caller and not self._loop.is_closed():
                task.cancel()
        if is_own:
            await asyncio.gather(*(one for one in self.tasks if one is not caller), return_exceptions=True)
            await self._tell_news()
        engine.close_queues()
        if is_own:
            await self.pool.close(max(0.0, ends - self.engine.monotonic()))
        else:
            self.pool.cancel()
        await self._close_sockets(ends, drain=drain)

    async def _close_sockets(self, ends: float, *, drain: bool) -> None:
        sockets = self.engine.sockets
        # With a drain the goodbye has been said, and answered by those who are there.
        sockets.sub.close(is_drained=drain)
        sockets.close_servers()
        closed_at = self.engine.monotonic()
        publisher: Any
        for publisher in sockets.publishers:
            await publisher.engine.close(timeout=max(0.0, ends - self.engine.monotonic()))
        seconds = max(0.0, ends - closed_at)
        if (ending := end_in_loop(sockets.context, seconds)) is not None:
            sockets.leave_directory()
            await ending
        else:
            await in_thread(lambda: sockets.end_context(seconds, closed_at))


async def finish(steps: Steps[T]) -> T:
    """Take steps to the end, and await each of them."""
    try:
        step = steps.send(None)
        while True:
            try:
                done = await step
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(done)
    except StopIteration as end:
        result: T = end.value
        return result
