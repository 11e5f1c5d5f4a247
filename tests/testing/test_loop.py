"""The event loop on a virtual clock."""

import asyncio
import signal
import threading
import time

import pytest

import oz.testing


def run(main):
    with asyncio.Runner(loop_factory=oz.testing.VirtualLoop) as runner:
        return runner.run(main())


def now():
    return asyncio.get_running_loop().time()


def test_sleeps_timeouts_and_timers_take_virtual_time_only():
    async def main():
        order = []
        for delay in (3, 1, 2, 1):
            asyncio.get_running_loop().call_later(delay, lambda delay=delay: order.append((delay, now())))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.Event().wait()
        await asyncio.gather(asyncio.sleep(3600), asyncio.sleep(86_400), asyncio.sleep(0.25))
        return order, now()

    assert run(main) == ([(1, 1), (1, 1), (2, 2), (3, 3)], 86_460)


def test_clock_stands_while_a_thread_works():
    async def main():
        async with asyncio.timeout(60):
            done = await asyncio.to_thread(lambda: time.sleep(0.05) or "done")
        return done, now()

    assert run(main) == ("done", 0)


def test_thread_of_the_executor_can_have_the_loop_sleep():
    async def main():
        loop = asyncio.get_running_loop()

        def work():
            return asyncio.run_coroutine_threadsafe(asyncio.sleep(0.05, "slept"), loop).result(30)

        return await asyncio.to_thread(work), now()

    assert run(main) == ("slept", 0.05)


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="loops of Windows hear no signals")
def test_a_signal_is_heard_while_time_goes_on():
    async def main():
        heard = []
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, heard.append, "signal")
        for _ in range(100):
            await asyncio.sleep(1)
        signal.raise_signal(signal.SIGUSR1)
        for _ in range(100):
            await asyncio.sleep(1)
        return heard

    assert run(main) == ["signal"]


def test_a_thread_is_heard_in_the_next_turn_of_a_loop_that_goes_on():
    async def main():
        called, turns = threading.Event(), 0
        loop, heard = asyncio.get_running_loop(), asyncio.Event()

        def call():
            loop.call_soon_threadsafe(heard.set)
            called.set()

        threading.Thread(target=call).start()
        called.wait()
        while not heard.is_set():
            turns += 1
            await asyncio.sleep(1)
        return turns

    assert run(main) == 1


def test_deadlock_is_an_error_that_names_the_waiting_task_and_the_loop_goes_on(monkeypatch):
    monkeypatch.setattr("oz.testing.loop._PATIENCE", 0.1)

    async def waits_for_ever():
        await asyncio.Event().wait()

    async def main():
        async with asyncio.TaskGroup() as group:
            group.create_task(waits_for_ever(), name="the forgotten one")

    async def sleep():
        await asyncio.sleep(1)
        return now()

    with asyncio.Runner(loop_factory=oz.testing.VirtualLoop) as runner:
        with pytest.raises(oz.testing.Deadlock, match="the forgotten one waits in waits_for_ever"):
            runner.run(main())
        assert runner.run(sleep()) == 1
