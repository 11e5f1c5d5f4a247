"""The publisher for asyncio."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterable, Iterable
from typing import Any, Self

import zmq
import zmq.asyncio

from oz.asyncio.closing import Closing
from oz.asyncio.publisher_engine import LoopPublisher, LoopSocket
from oz.transport.publisher.front import PublisherFront, PublisherSocket
from oz.transport.publisher.options import PublisherOptions
from oz.transport.publisher.publish import as_pair, by_fields

_TURN = 256
"""Messages published in one turn of the loop; after them other tasks have theirs."""


class LoopPublishing(PublisherFront):
    """A publisher that waits in a loop, whatever ZeroMQ is below it."""

    _engine: LoopPublisher

    async def publish(
        self,
        subject: str | bytes,
        payload: Any = b"",
        *,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
        message_id: bytes | tuple[bytes, int] | None = None,
    ) -> None:
        """Publish one message; see `oz.Publisher.publish`.

        It is published before anything is awaited, so that cancelling cannot lose it; only a publisher
        with `on_full="block"` at a high-water mark waits. Batches go out at the end of the loop's turn.

        Raises:
            SubjectError, WouldBlock, ProtocolError, ClosedError, OwnershipError: as `oz.Publisher.publish`.
        """
        await self._publish_fields(subject, payload, headers=headers, key=key, message_id=message_id)

    async def flush(self) -> None:
        """Send now what waits for others to make a batch.

        Raises:
            ClosedError: the publisher is closed.
            OwnershipError: it was made before a fork.
        """
        self._engine.flush_now()

    async def publish_many(
        self, pairs: Iterable[tuple[str | bytes, Any]] | AsyncIterable[tuple[str | bytes, Any]]
    ) -> int:
        """Publish messages one after another; see `oz.Publisher.publish_many`.

        Args:
            pairs: of subject and payload, from an ordinary or an asynchronous iterable.

        Returns:
            How many were published.

        Raises:
            SubjectError, WouldBlock, ProtocolError, ClosedError, OwnershipError: as `publish`.
            TypeError: something is no pair; or as `publish`.
        """
        count = 0
        if isinstance(pairs, AsyncIterable):
            async for pair in pairs:
                await self.publish(*as_pair(pair))
                count += 1
            return count
        for pair in pairs:
            await self.publish(*as_pair(pair))
            count += 1
            if not count % _TURN:
                await asyncio.sleep(0)
        return count

    async def wait_for_subscribers(
        self, n: int = 1, subject: str | bytes | None = None, timeout: float | None = None
    ) -> None:
        """Wait until subscriptions have arrived; see `oz.Publisher.wait_for_subscribers`.

        Raises:
            Timeout, PermissionDenied, SubjectError, ClosedError: as there.
        """
        await self._engine.wait_for_subscribers(n, subject, timeout)

    def close(self, linger: int | None = None, *, timeout: float | None = None) -> Closing:
        """Close, as `oz.Publisher.close`; await what it gives to know that all is sent.

        Args:
            linger: as in pyzmq, milliseconds; -1 waits for ever, or until whoever awaits it is cancelled.
            timeout: the same in seconds.
        """
        return self._engine.close(linger, timeout=timeout)

    async def __aenter__(self) -> Self:
        """Use it in `async with`."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close, and wait until all is sent."""
        await self.close()


class Publisher(LoopPublishing, PublisherSocket, LoopSocket):  # type: ignore[misc]
    """Publishes messages by subject, as `oz.Publisher` does; in place of a `zmq.asyncio` PUB socket."""

    _engine: LoopPublisher

    def _begin(self, options: PublisherOptions) -> None:
        self._engine = engine = LoopPublisher(options)
        try:
            LoopSocket.__init__(self, engine)
            self._register()
            engine.attach(options.bind, options.connect)
        except BaseException:
            engine.close(0)
            raise
        self._publish_fields = by_fields(engine.publish)
        quick = engine.quick_publish(self._publish_fields)
        if type(self).publish is Publisher.publish and quick is not None:
            quick.__doc__ = Publisher.publish.__doc__
            self.__dict__["publish"] = quick

    def get(self, option: int) -> Any:
        """Get a socket option, as `zmq.Socket.get` does; TYPE is PUB.

        Raises:
            OwnershipError: the publisher was made before a fork.
        """
        found = super().get(option)
        if option == zmq.EVENTS:
            self._schedule_remaining_events(found)  # type: ignore[operator]
        return found

    getsockopt = get

    def poll(self, timeout: int | None = None, flags: int = zmq.POLLIN) -> Any:
        """Wait for events, as `zmq.asyncio.Socket.poll`: milliseconds.

        Raises:
            OwnershipError: the publisher was made before a fork.
        """
        self._engine.stay_watchful()
        return super().poll(timeout, flags)

    def __del__(self) -> None:
        """Close what nobody closed, as pyzmq's sockets do."""
        if "_engine" in self.__dict__ and not self._engine.closed:
            warnings.warn(f"Unclosed socket {self}", ResourceWarning, stacklevel=2, source=self)
            self._engine.close()
