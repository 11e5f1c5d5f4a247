"""Publishers and subscribers of a test bus, and the wrapper that gives blocking methods to a member."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from inspect import isawaitable
from typing import Any, Self

import oz.publisher.aio
import oz.subscriber.aio
from oz.subscriber.base import SubscriptionBase
from oz.testing.context import Context


class Publisher(oz.publisher.aio.Publisher):
    """Publisher of `oz.testing.Bus`: `oz.asyncio.Publisher` on a virtual network.

    Attributes:
        place: process of the publisher on the virtual network.
    """

    def __init__(self, place: Context, **options: Any) -> None:
        self.place = place
        context: Any = place
        super().__init__(context=context, **options)
        # The bus closes the publisher. Therefore the publisher must not be closed at the end of the program.
        self._life.forget()

    @property
    def closed(self) -> bool:
        """Whether the publisher is closed."""
        return self._engine.is_closed

    def adopt(self) -> None:
        """Start the tasks of the publisher in the running loop."""
        if not self.closed:
            self._start()

    def die(self) -> None:
        """Close without BYE (the last message to peers) after `kill` has killed the process of the publisher."""
        self._life.abort()


class Subscriber(oz.subscriber.aio.Subscriber):
    """Subscriber of `oz.testing.Bus`: `oz.asyncio.Subscriber` on a virtual network.

    Attributes:
        place: process of the subscriber on the virtual network.
    """

    def __init__(self, place: Context, **options: Any) -> None:
        self.place = place
        context: Any = place
        super().__init__(context=context, **options)

    def die(self) -> None:
        """Close without BYE (the last message to peers) after `kill` has killed the process of the subscriber."""
        self.close()


Run = Callable[[Coroutine[Any, Any, Any]], Any]
"""Function that runs a coroutine to its end and returns its result."""


class Blocking:
    """Wrapper of a member or a subscription with blocking methods; see `Bus.blocking`.

    A call of a method runs the loop of the bus until the method has returned. Handlers run in this loop and must not
    block: a blocking call in a handler raises `OwnershipError`.
    """

    def __init__(self, run: Run, awaited: Any) -> None:
        self._run = run
        self._awaited = awaited

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the wrapped object. A coroutine method becomes a method that blocks."""
        found = getattr(self._awaited, name)
        return self._call(found) if callable(found) else found

    def __repr__(self) -> str:
        return repr(self._awaited)

    def __enter__(self) -> Self:
        """Return the wrapper, after `__aenter__` of the wrapped object has run."""
        self._run(_called(self._awaited.__aenter__, (), {}))
        return self

    def __exit__(self, *_: object) -> None:
        self._run(_called(self._awaited.close, (), {}))

    def __iter__(self) -> Iterator[Any]:
        """Receive until the subscription or subscriber ends."""
        yield from self._each(aiter(self._awaited))

    def _call(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            result = self._run(_called(function, arguments, options))
            if isinstance(result, AsyncIterator):
                return self._each(result)
            return Blocking(self._run, result) if isinstance(result, SubscriptionBase) else result

        return call

    def _each(self, found: AsyncIterator[Any]) -> Iterator[Any]:
        while True:
            try:
                item = self._run(_called(anext, (found,), {}))
            except StopAsyncIteration:
                return
            yield item


async def _called(function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    result = function(*arguments, **options)
    return await result if isawaitable(result) else result
