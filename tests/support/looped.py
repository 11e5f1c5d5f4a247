"""Sockets of `oz.asyncio` for tests that are written without a loop: each has one in a thread of its own."""

import asyncio
import inspect
import threading

from support.waiting import DEADLINE


class Looped:
    """A socket that lives in a loop of its own; its calls wait until they are done there."""

    def __init__(self, make, *arguments, **options):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._socket = self._do(make, *arguments, **options)

    def __getattr__(self, name):
        found = getattr(self._socket, name)
        if not callable(found):
            return found
        return lambda *arguments, **options: self._do(found, *arguments, **options)

    def close(self):
        self._do(self._socket.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE)
        self._loop.close()

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        self.close()

    def _do(self, call, *arguments, **options):
        async def done():
            outcome = call(*arguments, **options)
            return await outcome if inspect.isawaitable(outcome) else outcome

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(2 * DEADLINE)
