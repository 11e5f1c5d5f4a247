"""The members of a bus in one process as code sees them, publishers and subscribers, awaited or blocking.

They are those of `oz.asyncio` but for what is pyzmq's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from inspect import isasyncgen, isawaitable
from typing import Any, Self

import zmq

import oz.asyncio
from oz.asyncio.publisher import LoopPublishing
from oz.asyncio.subscriber import LoopSubscriber
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.testing.awaiting import AwaitedContext, AwaitedSocket
from oz.testing.places import VirtualProcess
from oz.transport.publisher.options import PublisherOptions
from oz.transport.publisher.publish import by_fields


class Publisher(LoopPublishing):
    """A publisher of `oz.testing.Bus`: `oz.asyncio.Publisher`, on a virtual network."""

    def __init__(self, place: VirtualProcess, **options: Any) -> None:
        """Make a publisher; `oz.testing.Bus.publisher` does.

        Args:
            place: the process that it runs in.
            options: as of `oz.asyncio.Publisher`.
        """
        self.place = place
        super().__init__(**options)

    def _begin(self, options: PublisherOptions) -> None:
        self._engine = engine = self.place.make_publisher(options)
        try:
            engine.attach(options.bind, options.connect)
        except BaseException:
            engine.close(0)
            raise
        self._publish_fields = by_fields(engine.publish)

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._engine.closed

    @property
    def is_looked_after(self) -> bool:
        """Whether a loop answers its subscribers, or nobody has to any more."""
        return self._engine.loop is not None or self.closed

    def adopt(self) -> None:
        """Be looked after by the loop that runs."""
        self._engine.adopt(asyncio.get_running_loop())

    def die(self) -> None:
        """End without a word, when its process has."""
        # What nobody wants would not touch the socket, and so not find it closed.
        self._engine.sender.routes.close()


class Subscriber(LoopSubscriber, AwaitedSocket):  # type: ignore[misc]
    """A subscriber of `oz.testing.Bus`: `oz.asyncio.Subscriber`, on a virtual network."""

    def __init__(self, place: VirtualProcess, **options: Any) -> None:
        """Make a subscriber; `oz.testing.Bus.subscriber` does.

        Args:
            place: the process that it runs in.
            options: as of `oz.asyncio.Subscriber`.
        """
        self.place = place
        super().__init__(**options)

    # Those of pyzmq's calls that programs use most, as `oz.asyncio.Subscriber` has them.
    recv = oz.asyncio.Subscriber.recv
    recv_multipart = oz.asyncio.Subscriber.recv_multipart  # type: ignore[assignment]
    recv_string = oz.asyncio.Subscriber.recv_string
    recv_json = oz.asyncio.Subscriber.recv_json
    recv_pyobj = oz.asyncio.Subscriber.recv_pyobj
    _wanted_frames = oz.asyncio.Subscriber._wanted_frames
    _deserialize = oz.asyncio.Subscriber._deserialize

    def _context_class(self) -> AwaitedContext:  # type: ignore[override]
        return self.place.context

    def _open_handle(self, context: Any) -> None:
        AwaitedSocket.__init__(self, context, zmq.SUB)

    def _close_handle(self, linger: int) -> None:
        AwaitedSocket.close(self, linger)

    def _add_recv_event(self, future: asyncio.Future[int], flags: int) -> asyncio.Future[int]:
        super()._add_recv_event(future, flags)
        self._waiter.begin()
        return future


Run = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine to its end."""


class Blocking:
    """A member or a subscription as code sees it that blocks, with the calls of `oz`: see `Bus.blocking`.

    Each call runs the bus's loop until it is done. Handlers run in that loop, where nothing may block: they
    are plain or async functions that use what the bus itself gives.
    """

    def __init__(self, run: Run, awaited: Any) -> None:
        """Keep whose calls are to block.

        Args:
            run: runs a coroutine to its end.
            awaited: has the calls that are to be awaited.
        """
        self._run = run
        self._awaited = awaited

    def __getattr__(self, name: str) -> Any:
        """Return an attribute, or a function that blocks in place of one to await."""
        found = getattr(self._awaited, name)
        return self._call(found) if callable(found) else found

    def __repr__(self) -> str:
        """Show what it is of."""
        return repr(self._awaited)

    def __enter__(self) -> Self:
        """Join, where it is a node, and use it in `with`."""
        self._run(_awaiting(self._awaited.__aenter__()))
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self._run(_awaiting(self._awaited.close()))

    def __iter__(self) -> Iterator[Any]:
        """Receive until the end."""
        yield from self._each(aiter(self._awaited))

    def _call(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            result = self._run(_called(function, arguments, options))
            if isasyncgen(result):
                return self._each(result)
            return Blocking(self._run, result) if isinstance(result, Subscribed) else result

        return call

    def _each(self, found: AsyncIterator[Any]) -> Iterator[Any]:
        while True:
            try:
                one = self._run(_awaiting(anext(found)))
            except StopAsyncIteration:
                return
            yield one


async def _awaiting(found: Any) -> Any:
    return await found


async def _called(function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    result = function(*arguments, **options)
    return await result if isawaitable(result) else result
