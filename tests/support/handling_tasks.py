"""What the tests of handlers on a loop share."""

import asyncio

from support.waiting import DEADLINE


class Gate:
    """An async handler that stays until it is opened."""

    def __init__(self):
        self.entered = asyncio.Semaphore(0)
        self.numbers = []
        self._open = asyncio.Event()

    async def __call__(self, message):
        self.entered.release()
        await self._open.wait()
        self.numbers.append(message.number)

    def open(self):
        self._open.set()


def in_loop(test):
    """Run an async test with a deadline; no task may be left when it is over."""

    def run_it():
        async def whole():
            async with asyncio.timeout(DEADLINE):
                await test()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left

        asyncio.run(whole())

    run_it.__name__ = test.__name__
    return run_it
