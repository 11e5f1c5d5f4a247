"""The publisher for asyncio, which runs in the event loop without a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Generator, Iterable
from types import TracebackType
from typing import Any, Self

from oz.numbers import check_count, check_wait
from oz.publisher.base import PublisherBase, PublishingBase
from oz.publisher.engine import UNKNOWN, Engine
from oz.publisher.loop import TURN, LoopAttendance, LoopLifetime

_MAX_COUNT = 2**31


class _Done:
    """Awaitable result of a call that has finished. An await yields to the loop at most every `TURN` seconds."""

    __slots__ = ("_attendance",)

    def __init__(self, attendance: LoopAttendance) -> None:
        self._attendance = attendance

    def __await__(self) -> Generator[None, None, None]:
        attendance = self._attendance
        now = attendance.busy_clock()
        if now - attendance.turned_at >= TURN:
            attendance.check_loop()
            # `turned_at` is set before and after the yield, because other tasks read it during the yield.
            attendance.turned_at = now
            yield
            attendance.turned_at = attendance.busy_clock()


class Publishing(PublishingBase):
    """Publish calls that `oz.asyncio.Publisher` and `oz.asyncio.Node` share."""

    _attendance: LoopAttendance
    _done: _Done

    def _attend_with(self, attendance: LoopAttendance) -> None:
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
        """Publish one message; the arguments and errors are those of `oz.Publisher.publish`.

        The call publishes the message before it returns, so that the result need not be awaited. An await yields to
        the loop at most once in a millisecond. If a subscriber is full and `on_full` is "block", the result must be
        awaited: the message is published when the subscriber has space again.

        Returns:
            Awaitable. If an await is cancelled while it waits for a full subscriber, the message is not published.
        """
        # Each read of an attribute of `self` is slow, because the class defines `__getattr__`: read only `_engine`.
        engine = self._engine
        try:
            way = engine.quick[subject]
        except (KeyError, TypeError):
            # TypeError: a bytearray has no hash.
            way = UNKNOWN
        if (
            headers is None
            and key is None
            and id is None
            and type(payload) is bytes
            and len(payload) <= engine.max_fast_bytes
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
            pairs: pairs (subject, payload), in an ordinary or an asynchronous iterable.

        Returns:
            Number of published messages. If `publish` raises for a message, or a cancellation interrupts the call, all
            earlier messages are still published.

        Raises:
            ConfigurationError: an element is not a pair.
            TypeError: the argument is a mapping or text.
            Exception: any error of `publish`.
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
        """Send all messages that wait in a batch. The call sends before it returns; the result may be awaited.

        Raises:
            ClosedError, OwnershipError: see `publish`.
        """
        self._engine.flush()
        return self._done

    async def wait_for_subscribers(
        self, subject: str | bytes | None = None, *, count: int = 1, timeout: float | None = 10.0
    ) -> None:
        """Wait until subscriptions have arrived; see `oz.Publisher.wait_for_subscribers`. The wait can be cancelled.

        Args:
            subject: count only subscribers that receive this subject.
            count: number of subscribers to wait for.
            timeout: seconds to wait; None waits for ever, 0 only checks.

        Raises:
            Timeout: fewer subscribers than `count` were found within `timeout` seconds.
            SubjectError, ClosedError, OwnershipError: see `publish`.
        """
        check_count("count", count, 1, _MAX_COUNT)
        check_wait("timeout", timeout)
        await self._attendance.wait(self._engine.subscribers(subject, count, timeout))


class Publisher(Publishing, PublisherBase):
    """Publishes messages by subject, as `oz.Publisher` does, in an event loop.

    All calls must be made in the thread of the loop. Messages that wait in a batch are sent at the end of the
    loop's current iteration.
    """

    _class_name = "oz.asyncio.Publisher"

    def _begin(self, engine: Engine) -> None:
        self._life = LoopLifetime(engine)
        self._attend_with(self._life.attendance)

    def _start(self) -> None:
        self._attendance.start()

    def _abort(self) -> None:
        self._life.drop()

    def _drop(self) -> None:
        self._attendance.call(self._life.drop)

    def bind(self, endpoint: str | bytes) -> Awaitable[None]:  # type: ignore[override]
        """Bind to an endpoint before the call returns; see `oz.Publisher.bind`. The result may be awaited."""
        super().bind(endpoint)
        return self._done

    def connect(self, endpoint: str | bytes) -> Awaitable[None]:  # type: ignore[override]
        """Connect to an endpoint before the call returns; see `oz.Publisher.connect`. The result may be awaited."""
        super().connect(endpoint)
        return self._done

    def unbind(self, endpoint: str | bytes) -> Awaitable[None]:  # type: ignore[override]
        """Undo `bind` before the call returns; see `oz.Publisher.unbind`. The result may be awaited."""
        super().unbind(endpoint)
        return self._done

    def disconnect(self, endpoint: str | bytes) -> Awaitable[None]:  # type: ignore[override]
        """Undo `connect` before the call returns; see `oz.Publisher.disconnect`. The result may be awaited."""
        super().disconnect(endpoint)
        return self._done

    async def close(self, *, timeout: float | None = 5.0) -> int:
        """Close the publisher. A second call does nothing. In the child of a fork, `close` does nothing.

        The call waits for the same events as `oz.Publisher.close`. After a cancelled `close`, the program can publish
        no message, and may call `close` again.

        Args:
            timeout: maximum time in seconds for the whole call; None has the same meaning as in `oz.Publisher.close`.

        Returns:
            Number of messages that subscribers have not acknowledged. A message for a group with `ack="handled"` counts
            until a member has handled it.
        """
        check_wait("timeout", timeout)
        engine = self._engine
        if engine.is_foreign:
            return 0
        if engine.is_closed:
            # The sockets are closed already if the program has terminated their context.
            return self._life.finish(0.0)
        self._attendance.leave_closed_loop()
        left = self._life.finish(await self._attendance.wait(engine.acknowledgements(timeout)))
        if engine.owns_context:
            # `end_context` waits for libzmq. Call it in a thread, so that the loop runs meanwhile.
            await asyncio.get_running_loop().run_in_executor(None, engine.end_context)
        return left

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
