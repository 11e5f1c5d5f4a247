"""Publishers of both kinds, with calls that block, and scripted subscribers."""

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Awaitable

import pytest

import oz.publisher.aio
import oz.publisher.sync
from oz.options import Limits, Options
from publisher.scripted import Peer
from support.keyring import Keyring
from support.waiting import DEADLINE


class Loop:
    """An event loop in a thread."""

    def __init__(self, new_loop=asyncio.new_event_loop):
        self.loop = new_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, function, *args, **kwargs):
        async def work():
            result = function(*args, **kwargs)
            return await result if isinstance(result, Awaitable) else result

        future = asyncio.run_coroutine_threadsafe(work(), self.loop)
        try:
            return future.result(DEADLINE)
        except TimeoutError:
            if not future.done():
                future.cancel()
            raise

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


class Portal:
    """An asyncio publisher whose calls block."""

    def __init__(self, loop, raw):
        self.raw, self._loop = raw, loop

    def __getattr__(self, name):
        found = inspect.getattr_static(type(self.raw), name)
        if isinstance(found, property):
            return self._loop.call(lambda: getattr(self.raw, name))
        return lambda *args, **kwargs: self._loop.call(getattr(self.raw, name), *args, **kwargs)

    @contextlib.contextmanager
    def batch(self):
        batch = self.raw.batch()
        self._loop.call(batch.__enter__)
        try:
            yield
        finally:
            self._loop.call(batch.__exit__, None, None, None)


@pytest.fixture(params=["sync", "asyncio"])
def kind(request):
    return request.param


@pytest.fixture
def make(kind):
    """Make publishers. Keyword arguments that are fields of `Options` or `Limits` may be given directly."""
    with contextlib.ExitStack() as stack:
        loop = None
        if kind == "asyncio":
            loop = Loop()
            stack.callback(loop.close)

        def make(bind="tcp://127.0.0.1:*", **arguments):
            limits = {
                name: arguments.pop(name) for name in [*arguments] if name in Limits.__dataclass_fields__
            }
            fields = {
                name: arguments.pop(name) for name in [*arguments] if name in Options.__dataclass_fields__
            }
            options = Options(limits=Limits(**limits), **fields) if fields or limits else None
            arguments |= {"bind": bind, "options": options}
            if loop is None:
                made = oz.publisher.sync.Publisher(**arguments)
            else:
                made = Portal(loop, loop.call(oz.publisher.aio.Publisher, **arguments))
            stack.callback(made.close, timeout=0)
            return made

        yield make


@pytest.fixture
def ring(tmp_path, rules):
    """Keys of a feed, a desk and another program, with the permissions of the fixture `rules` of a module."""
    made = Keyring(tmp_path, "feed", "desk", "other")
    made.permit(**rules)
    return made


@pytest.fixture
def pub(make, ring):
    return make(security=ring.security("feed", permissions=True))


@pytest.fixture
def loop_of():
    """Return a function that calls something where a publisher runs: in its loop, or in this thread."""
    return lambda publisher: publisher._loop.call if isinstance(publisher, Portal) else lambda work: work()


@pytest.fixture
def join():
    """Connect scripted subscribers to publishers; see `Peer`. They are ready, unless told otherwise."""
    with contextlib.ExitStack() as stack:

        def join(publisher, *texts, ready=True, **options):
            endpoint = publisher if isinstance(publisher, str) else publisher.link_endpoints[0]
            peer = Peer(endpoint, *texts, **options)
            stack.callback(peer.close)
            return peer.ready() if ready else peer

        yield join
