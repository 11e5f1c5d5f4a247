"""Objects of `oz` and of `oz.asyncio` whose calls block, so that a test is written once for both."""

import asyncio
import contextlib
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import oz
import oz.asyncio
from support.waiting import DEADLINE


class Direct:
    """Shell of `oz`: calls run in the calling thread."""

    name = "sync"
    module = oz

    def call(self, function, *arguments, **options):
        return function(*arguments, **options)

    def iterate(self, iterable):
        return iter(iterable)

    def handler(self, handler, inline):
        return handler

    def close(self):
        pass


class Stepped(Direct):
    """Shell of `oz.asyncio` whose loop runs in the calling thread, and only while a call runs."""

    name = "asyncio"
    module = oz.asyncio

    def __init__(self):
        self._loop = asyncio.new_event_loop()

    def call(self, function, *arguments, **options):
        return self._loop.run_until_complete(_done(function, arguments, options))

    def iterate(self, iterable):
        iterator = self.call(iterable.__aiter__)
        while True:
            try:
                yield self.call(iterator.__anext__)
            except StopAsyncIteration:
                return

    def close(self):
        self._loop.close()


class Portal(Stepped):
    """Shell of `oz.asyncio` whose loop runs in a background thread.

    A handler runs in a thread of a pool, and the loop awaits it, so that a handler may call any method. An
    inline handler runs on the loop, where only `publish` and `reply` work.
    """

    def __init__(self):
        super().__init__()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._pool = ThreadPoolExecutor(32)
        self._current = threading.local()

    def call(self, function, *arguments, **options):
        if threading.get_ident() == self._thread.ident:
            outcome = function(*arguments, **options)
            return asyncio.ensure_future(outcome) if inspect.isawaitable(outcome) else outcome
        made = _done(function, arguments, options)
        try:
            future = asyncio.run_coroutine_threadsafe(made, self._loop)
        except RuntimeError:  # A handler that has not ended calls after `close`.
            made.close()
            raise
        if (futures := getattr(self._current, "futures", None)) is not None:
            futures.append(future)
        return future.result()

    def record_futures(self, futures):
        """Append the futures of this thread's calls to a list, so that they can be cancelled."""
        self._current.futures = futures

    def handler(self, handler, inline):
        if handler is None or inline:
            return handler

        async def handle(message):
            return await asyncio.get_running_loop().run_in_executor(self._pool, handler, message)

        return handle

    def close(self):
        async def end_tasks():
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.call(end_tasks)
        self.call(self._loop.shutdown_asyncgens)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE)
        # Calls of handlers that came after the first time.
        self._loop.run_until_complete(end_tasks())
        self._loop.close()
        self._pool.shutdown(wait=False)


async def _done(function, arguments, options):
    outcome = function(*arguments, **options)
    return await outcome if inspect.isawaitable(outcome) else outcome


SHELLS = {"sync": Direct, "asyncio": Portal}


class Blocking:
    """Object of oz in a shell: each call returns when it is done.

    Attributes:
        shell: where calls run.
        raw: the object itself. Private names are those of `raw`.
    """

    def __init__(self, shell, raw):
        self.shell = shell
        self.raw = raw

    def call(self, name, *arguments, **options):
        """Call a method of the object by its name."""
        made = self.shell.call(getattr(self.raw, name), *arguments, **options)
        return Blocking(self.shell, made) if isinstance(made, oz.asyncio.Subscription) else made

    def __getattr__(self, name):
        if name.startswith("_"):
            return getattr(self.raw, name)
        if _is_method(type(self.raw), name):
            return lambda *arguments, **options: self.call(name, *arguments, **options)
        return self.shell.call(lambda: getattr(self.raw, name))

    def __iter__(self):
        return self.shell.iterate(self.raw)

    @contextlib.contextmanager
    def batch(self):
        batch = self.call("batch")
        self.shell.call(batch.__enter__)
        try:
            yield
        finally:
            self.shell.call(batch.__exit__, None, None, None)


@cache
def _is_method(kind, name):
    return callable(inspect.getattr_static(kind, name, None))
