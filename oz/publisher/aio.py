"""The publisher for asyncio. It has no thread: the event loop attends to it."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import AsyncIterable, Awaitable, Callable, Generator, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from oz.errors import ClosedError, OwnershipError
from oz.logs import peer_logger
from oz.numbers import check_count, check_wait
from oz.program_end import close_all
from oz.publisher.base import PublisherBase, PublishingBase
from oz.publisher.engine import UNKNOWN, Engine
from oz.publisher.thread import Attendance, Attended
from oz.transport.runtime import Runtime
from oz.transport.steps import Steps, run, run_async
from oz.transport.waiting import Waiters

TURN = 0.001
"""Seconds after which `await publish(...)` gives the loop a turn."""
_DROPPED_LINGER = 0.05  # Seconds for the last frames of a publisher that became garbage.
_MAX_COUNT = 2**31

_log = peer_logger("oz.publisher")
_Result = TypeVar("_Result")


class AttendedInLoop(Attended, Protocol):
    """Engine of a publisher or of a node, as an event loop needs it."""

    @property
    def runtime(self) -> Runtime:
        """Clocks."""

    @property
    def waiters(self) -> Waiters:
        """Functions of the tasks that wait."""

    @property
    def is_closing(self) -> bool:
        """Whether `close` was called."""

    @property
    def is_closed(self) -> bool:
        """Whether the sockets are closed."""

    def flush_due(self) -> None:
        """Send the waiting messages, unless they are held."""


class LoopAttendance:
    """Rounds of `Engine.attend` in an event loop: for descriptors, `wake` and the next deadline.

    Messages that wait for a batch are sent at the end of the loop's turn. So the engine rests whenever no
    round is scheduled, and the first message that waits schedules one.

    A peer that floods the publisher has half of the loop's time at most: after a long round that left more to
    do, the next one waits for as long as the round took. Messages of the program are sent meanwhile.

    Attributes:
        turned_at: time of the last turn that a task gave the loop by `await publish(...)`.
        clock, busy_clock: of the engine.
    """

    def __init__(self, engine: AttendedInLoop, kind: str = "publisher") -> None:
        """Let the engine wake the loop that `start` finds.

        Args:
            engine: of the publisher or the node.
            kind: "publisher" or "node", for the log.
        """
        self._engine, self._kind = engine, kind
        self._loop: asyncio.AbstractEventLoop | None = None
        self._descriptors: tuple[int, ...] = ()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._is_scheduled = False
        self._pause: asyncio.TimerHandle | None = None
        self.turned_at = 0.0
        self.clock, self.busy_clock = engine.runtime.clock, engine.runtime.busy_clock
        engine.wake = self._wake

    @property
    def is_started(self) -> bool:
        """Whether a loop attends."""
        return self._loop is not None

    def start(self) -> None:
        """Attend in the running loop; do nothing outside a loop, and in a loop that attends.

        Raises:
            OwnershipError: another loop attends.
        """
        if self._loop is not None:
            self.check_loop()
            return
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._engine.is_resting = True
        self._wake()

    def check_loop(self) -> None:
        """Raise OwnershipError in a loop that does not attend."""
        running = asyncio._get_running_loop()
        if running is not None and self._loop is not None and running is not self._loop:
            raise OwnershipError(f"this {self._kind} belongs to another event loop: make one in this loop")

    def leave_closed_loop(self) -> None:
        """Forget a loop that was closed, so that `close` works in another one."""
        if self._loop is not None and self._loop.is_closed():
            self.stop()

    def _wake(self) -> None:
        if self._loop is not None and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn if self._pause is None else self._flush)

    def _turn(self) -> None:
        self._is_scheduled = False
        engine, loop = self._engine, self._loop
        self._end_pause()
        if loop is None:
            return
        if engine.is_closed:
            self.stop()
            return
        began = self.clock()
        try:
            more = engine.attend(flushes=True)
        except ClosedError:
            # The context was terminated, which closes the publisher.
            self.stop()
            return
        except Exception:
            _log.exception("a %s failed to attend to its links; it goes on", self._kind)
            more = False
        engine.is_resting = True
        spent = self.clock() - began
        if more and spent >= TURN:
            self._remove_readers(loop)
            self._pause = loop.call_later(spent, self._turn)
            self._set_timer(loop)
            return
        try:
            descriptors = engine.descriptors()
        except ClosedError:
            self.stop()
            return
        if descriptors != self._descriptors:
            for one in descriptors:
                loop.add_reader(one, self._turn)
            self._descriptors = descriptors
        if more:
            self._wake()
        self._set_timer(loop)

    def _flush(self) -> None:
        """Send the messages of the program in a pause between two rounds."""
        if self._pause is None or self._engine.is_closing:
            self._turn()
            return
        # Still scheduled, so that what arrives during the flush waits for the end of the pause.
        try:
            self._engine.flush_due()
        except ClosedError:
            self.stop()
        except Exception:
            _log.exception("a %s failed to send; it goes on", self._kind)
        self._engine.is_resting, self._is_scheduled = True, False

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def _remove_readers(self, loop: asyncio.AbstractEventLoop) -> None:
        for one in self._descriptors:
            loop.remove_reader(one)
        self._descriptors = ()

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        deadline = self._engine.next_deadline()
        if deadline is None or deadline >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = loop.call_later(max(deadline - self.clock(), 0.0), self._ring)

    def _ring(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        self._turn()

    def stop(self) -> None:
        """Leave the loop. The caller is in the loop, or the loop does not run."""
        loop, self._loop = self._loop, None
        self._end_pause()
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, float("inf")
        if loop is not None and loop.is_closed():
            # What was scheduled there never runs.
            self._is_scheduled, self._descriptors = False, ()
        elif loop is not None:
            self._remove_readers(loop)

    def call(self, work: Callable[[], None]) -> None:
        """Call something in the loop; at once if there is none, or if it is closed."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with suppress(RuntimeError):  # It may be closed in this moment.
                loop.call_soon_threadsafe(work)
                return
        work()

    async def wait(self, steps: Steps[_Result], waiters: Waiters | None = None) -> _Result:
        """Run steps of the engine. A cancellation ends them where they hold nothing.

        Args:
            steps: of the engine.
            waiters: of the engine, in place of `Engine.waiters`.
        """
        self.start()
        news = asyncio.Event()

        async def wait(until: float | None) -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if until is None else max(until - self.clock(), 0.0)):
                    await news.wait()
            news.clear()

        waiters = self._engine.waiters if waiters is None else waiters
        waiters[news.set] = None
        try:
            return await run_async(steps, wait)
        finally:
            waiters.pop(news.set, None)


class _Done:
    """Result of a call that is done. To await it gives the loop a turn now and then."""

    __slots__ = ("_attendance",)

    def __init__(self, attendance: LoopAttendance) -> None:
        self._attendance = attendance

    def __await__(self) -> Generator[None, None, None]:
        attendance = self._attendance
        now = attendance.busy_clock()
        if now - attendance.turned_at >= TURN:
            attendance.check_loop()
            # Before and after: other tasks that publish have a turn each, and so has this one.
            attendance.turned_at = now
            yield
            attendance.turned_at = attendance.busy_clock()


class _Life:
    """Engine and attendance of a publisher, for the end of the program."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.attendance = engine, LoopAttendance(engine)
        _open.add(self)

    def forget(self) -> None:
        """Leave the publisher open at the end of the program."""
        _open.discard(self)

    def finish(self, end: float) -> int:
        """Close the sockets, but not the context."""
        self.attendance.stop()
        self.forget()
        return self.engine.finish(end)

    def abort(self) -> None:
        """Close without BYE, because the sockets are dead."""
        self.attendance.stop()
        self.forget()
        self.engine.abort()

    def drop(self) -> None:
        """Close without a wait."""
        if not self.engine.is_closed:
            self.finish(self.engine.runtime.clock() + _DROPPED_LINGER)
            self.engine.end_context()

    def _close_at_exit(self, timeout: float) -> None:
        """Close at the end of the program, where no loop runs; see `close_all`."""
        engine = self.engine
        if engine.is_foreign:
            return
        self.attendance.stop()
        turn = Attendance(engine).turn
        with suppress(ClosedError):
            self.finish(run(engine.acknowledgements(timeout), turn))
        engine.end_context()


_open: set[_Life] = set()
"""Publishers that are not closed, so that the end of the program closes them."""


@atexit.register
def _close_all() -> None:
    close_all(_open)


class Publishing(PublishingBase):
    """Calls of an object that publishes in an event loop: a publisher or a node."""

    _attendance: LoopAttendance
    _done: _Done

    def _attend_with(self, attendance: LoopAttendance) -> None:
        """Let the calls wait with an attendance."""
        self._attendance = attendance
        self._done = _Done(attendance)

    def publish(
        self,
        subject: str | bytes,
        payload: Any = b"",
        *,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
        id: bytes | tuple[bytes, int] | None = None,
    ) -> Awaitable[None]:
        """Publish one message; the arguments and errors are those of `oz.publisher.sync.Publisher.publish`.

        The message is published by the call itself, and need not be awaited. To await it gives the loop a
        turn every millisecond. Only with `on_full="block"` and a full subscriber it is published when it is
        awaited.

        Returns:
            Awaitable. If the wait for a full subscriber is cancelled, the message is not published.
        """
        # One look-up in this object, because `__getattr__` makes each one slow.
        engine = self._engine
        try:
            way = engine.quick[subject]
        except (KeyError, TypeError):
            # A bytearray has no hash.
            way = UNKNOWN
        if (
            headers is None
            and key is None
            and id is None
            and type(payload) is bytes
            and len(payload) <= engine.most_quick
        ):
            if type(way) is tuple and way:
                waiting = engine.waiting
                if not engine.is_pressed and (waiting or self._attendance.is_started):
                    if not waiting:
                        engine.begin_batch(way, payload)
                        return self._done
                    streams, raw = way
                    waiting.extend((streams, raw, payload, None))
                    if engine.is_resting or len(waiting) >= engine.full_length:
                        engine.appended()
                    return self._done
            elif way is None:
                engine.batcher.unmatched += 1
                return self._done
            elif type(way) is bytes and engine.send_plain(way, payload):
                return self._done
        return self._publish(subject, payload, headers, key, id)

    def _publish(
        self, subject: Any, payload: Any, headers: Any, key: Any, message_id: Any
    ) -> Awaitable[None]:
        engine = self._engine
        self._attendance.start()
        message = engine.prepare(subject, payload, headers, key, message_id)
        if engine.offer(message):
            return self._done
        if engine.on_full == "raise":
            raise engine.refuse(message.subject)
        return self._attendance.wait(engine.room(message))

    async def publish_many(
        self, pairs: Iterable[tuple[str | bytes, Any]] | AsyncIterable[tuple[str | bytes, Any]]
    ) -> int:
        """Publish messages one after another.

        Args:
            pairs: of subject and payload, from an ordinary or an asynchronous iterable.

        Returns:
            Number of published messages. The messages before an error or a cancellation are published.

        Raises:
            ConfigurationError: an element is no pair.
            TypeError: the argument is a mapping or text.
            Exception: as `publish`.
        """
        self._check_pairs(pairs)
        count = 0
        if isinstance(pairs, AsyncIterable):
            async for element in pairs:
                await self._publish_pair(element, count)
                count += 1
        else:
            for element in pairs:
                await self._publish_pair(element, count)
                count += 1
        return count

    def _publish_pair(self, element: Any, index: int) -> Awaitable[None]:
        try:
            subject, payload = element
        except (TypeError, ValueError):
            raise self._no_pair(element, index) from None
        return self.publish(subject, payload)

    def flush(self) -> Awaitable[None]:
        """Send the messages that wait for a batch. It is done by the call itself.

        Raises:
            ClosedError, OwnershipError: as `publish`.
        """
        self._engine.flush()
        return self._done

    async def wait_for_subscribers(
        self, subject: str | bytes | None = None, *, count: int = 1, timeout: float | None = 10.0
    ) -> None:
        """Wait until subscriptions have arrived; see `oz.publisher.sync.Publisher.wait_for_subscribers`.

        A cancellation ends the wait.

        Args:
            subject: count only subscribers that receive this subject.
            count: number of subscribers to wait for.
            timeout: seconds; None waits for ever, 0 only checks.

        Raises:
            Timeout: there were fewer.
            SubjectError, ClosedError, OwnershipError: as `publish`.
        """
        check_count("count", count, 1, _MAX_COUNT)
        check_wait("timeout", timeout)
        await self._attendance.wait(self._engine.subscribers(subject, count, timeout))


class Publisher(Publishing, PublisherBase):
    """Publishes messages by subject, as `oz.publisher.sync.Publisher` does, in an event loop.

    All calls belong to the thread of the loop. Messages that wait for a batch are sent at the end of the
    loop's turn.
    """

    _class_name = "oz.asyncio.Publisher"

    def _begin(self, engine: Engine) -> None:
        self._life = _Life(engine)
        self._attend_with(self._life.attendance)

    def _start(self) -> None:
        self._attendance.start()

    def _abort(self) -> None:
        self._life.drop()

    def _drop(self) -> None:
        self._attendance.call(self._life.drop)

    def bind(self, endpoint: str | bytes) -> Awaitable[None]:  # type: ignore[override]
        """Bind to an endpoint at once; see `oz.publisher.sync.Publisher.bind`. The result may be awaited."""
        super().bind(endpoint)
        return self._done

    def connect(self, endpoint: str | bytes) -> Awaitable[None]:  # type: ignore[override]
        """Connect to an endpoint at once; see `oz.publisher.sync.Publisher.connect`. The result may be awaited."""
        super().connect(endpoint)
        return self._done

    def unbind(self, endpoint: str | bytes) -> Awaitable[None]:  # type: ignore[override]
        """Undo `bind` at once; see `oz.publisher.sync.Publisher.unbind`. The result may be awaited."""
        super().unbind(endpoint)
        return self._done

    def disconnect(self, endpoint: str | bytes) -> Awaitable[None]:  # type: ignore[override]
        """Undo `connect` at once; see `oz.publisher.sync.Publisher.disconnect`. The result may be awaited."""
        super().disconnect(endpoint)
        return self._done

    async def close(self, *, timeout: float | None = 5.0) -> int:
        """Close. A second call does nothing, and so does a call in the child of a fork.

        Waits as `oz.publisher.sync.Publisher.close`. After a cancellation no message can be published, and
        `close` may be called again.

        Args:
            timeout: seconds for all of it; None as there.

        Returns:
            Number of messages that sessions have not acknowledged.
        """
        check_wait("timeout", timeout)
        engine = self._engine
        if engine.is_foreign:
            return 0
        if engine.is_closed:
            # Perhaps by the end of the context.
            return self._life.finish(0.0)
        self._attendance.leave_closed_loop()
        left = self._life.finish(await self._attendance.wait(engine.acknowledgements(timeout)))
        if engine.owns_context:
            # It waits for libzmq.
            await asyncio.get_running_loop().run_in_executor(None, engine.end_context)
        return left

    async def __aenter__(self) -> Self:
        """Return the publisher; the `async with` block closes it."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()
