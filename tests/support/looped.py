"""Objects of asyncio for tests that are written without a loop."""

import asyncio
import inspect
import threading
from types import FunctionType


class Loop:
    """Event loop in a thread of its own."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, function, *arguments, **options):
        """Call a function in the loop; return its result, or the result of its awaitable."""

        async def done():
            outcome = function(*arguments, **options)
            return await outcome if inspect.isawaitable(outcome) else outcome

        return asyncio.run_coroutine_threadsafe(done(), self.loop).result()

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(30.0)
        self.loop.close()


class Looped:
    """Object of asyncio whose calls wait until they are done in its loop."""

    def __init__(self, call, wrapped):
        self._call, self.wrapped = call, wrapped

    def __getattr__(self, name):
        if isinstance(getattr(type(self.wrapped), name, None), FunctionType):
            return lambda *arguments, **options: self._wrap(
                self._call(getattr(self.wrapped, name), *arguments, **options)
            )
        return self._call(lambda: getattr(self.wrapped, name))

    def _wrap(self, found):
        return type(self)(self._call, found) if type(found).__name__ == "Subscription" else found
