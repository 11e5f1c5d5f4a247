"""Calls that block, in place of those to await: what `Bus.blocking` gives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from inspect import isasyncgen, isawaitable
from typing import Any, Self

from oz.protocol.subscriber.subscriptions import Subscribed

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
