import asyncio
import inspect
import types

import pytest

from oz.subscriber import aio, sync
from subscriber.publishing import Feed


class Looped:
    """An asyncio object whose methods run a loop until they return."""

    def __init__(self, loop, wrapped):
        self._loop, self.wrapped = loop, wrapped

    def __getattr__(self, name):
        if not isinstance(getattr(type(self.wrapped), name, None), types.FunctionType):
            return getattr(self.wrapped, name)
        method = getattr(self.wrapped, name)

        def call(*arguments, **options):
            async def work():
                result = method(*arguments, **options)
                return await result if inspect.isawaitable(result) else result

            result = self._loop.run_until_complete(work())
            return Looped(self._loop, result) if isinstance(result, aio.Subscription) else result

        return call


class Kind:
    """Subscribers of one kind."""

    def __init__(self, name):
        self.name = name
        self.loop = asyncio.new_event_loop() if name == "asyncio" else None
        self._open = []

    def __call__(self, *arguments, **options):
        if self.loop is None:
            made = sync.Subscriber(*arguments, **options)
        else:
            made = Looped(self.loop, aio.Subscriber(*arguments, **options))
        self._open.append(made)
        return made

    def close(self):
        for item in self._open:
            item.close()
        if self.loop is not None:
            self.loop.close()


@pytest.fixture(params=["sync", "asyncio"])
def make(request):
    """Return a function that creates subscribers of a kind."""
    kind = Kind(request.param)
    yield kind
    kind.close()


@pytest.fixture
def open_feed():
    """Return a function that creates publishers."""
    made = []

    def create(*arguments, **options):
        made.append(Feed(*arguments, **options))
        return made[-1]

    yield create
    for item in made:
        item.close()


@pytest.fixture
def feed(open_feed):
    return open_feed()
