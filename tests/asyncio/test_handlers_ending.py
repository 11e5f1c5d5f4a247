"""How queues are drained and pools closed on a loop, also by handlers."""

import asyncio

import pytest

import oz
from oz.asyncio.handlers import TaskPool
from oz.transport.node.handlers import HandlerRunner
from support.handling import Heard, filled, message
from support.handling_tasks import Gate, in_loop
from support.waiting import DEADLINE


@in_loop
async def test_a_handler_may_end_its_own_subscription():
    numbers = []

    async def handler(message):
        numbers.append(message.number)
        if message.number == 3:
            assert queue.close() == 6
            queue.put(message)

    heard, handlers = Heard(HandlerRunner), TaskPool(1)
    queue = heard.queue(handlers, handler)
    filled(queue, 10)
    assert await queue.drain(DEADLINE)
    assert heard.failed == []
    assert numbers == [0, 1, 2, 3]
    assert await handlers.close(DEADLINE)


@in_loop
async def test_draining_gives_up_in_time_and_waits_for_what_is_being_handled():
    heard, handlers, gate = Heard(HandlerRunner), TaskPool(1), Gate()
    queue = heard.queue(handlers, gate)
    filled(queue, 1)
    await gate.entered.acquire()
    assert queue.waiting == 0
    assert not await queue.drain(0)
    assert not await queue.drain(0.01)
    gate.open()
    assert await queue.drain(DEADLINE)
    assert gate.numbers == [0]
    assert await handlers.close(DEADLINE)


@in_loop
async def test_a_handler_may_drain_another_queue_though_the_pool_has_one_task():
    results = []
    heard, handlers = Heard(HandlerRunner), TaskPool(1)
    other = heard.queue(handlers, lambda message: None)

    async def handler(message):
        filled(other, 3)
        results.append((await other.drain(DEADLINE), other.handled))

    queue = heard.queue(handlers, handler)
    filled(queue, 1)
    assert await queue.drain(DEADLINE)
    assert results == [(True, 3)]
    assert await handlers.close(DEADLINE)


@in_loop
async def test_a_handler_that_drains_its_own_queue_does_not_wait_for_itself():
    results = []

    async def handler(message):
        results.append((message.number, await queue.drain()))

    heard, handlers = Heard(HandlerRunner), TaskPool(1)
    queue = heard.queue(handlers, handler)
    filled(queue, 2)
    assert await queue.drain(DEADLINE)
    assert results == [(0, False), (1, True)]
    assert await handlers.close(DEADLINE)


@in_loop
async def test_handlers_that_drain_each_others_queues_do_not_wait_for_each_other():
    together = asyncio.Barrier(2)
    results = []

    async def handler(message):
        await together.wait()
        results.append([await queue.drain() for queue in queues])

    heard, handlers = Heard(HandlerRunner), TaskPool(2)
    queues = [heard.queue(handlers, handler) for _ in range(2)]
    for queue in queues:
        filled(queue, 1)
    for queue in queues:
        assert await queue.drain(DEADLINE)
    assert results == [[True, True], [True, True]]
    assert await handlers.close(DEADLINE)


@in_loop
async def test_closing_cancels_what_runs_and_begins_nothing_more():
    heard, handlers = Heard(HandlerRunner), TaskPool(1)
    entered, ended = asyncio.Event(), []

    async def handler(message):
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(message.number)

    queue, other = heard.queue(handlers, handler), heard.queue(handlers, ended.append)
    filled(queue, 3)
    filled(other, 3)
    await entered.wait()
    draining = asyncio.create_task(queue.drain())
    await asyncio.sleep(0)
    assert await handlers.close(DEADLINE)
    assert ended == [0]
    assert heard.failed == []
    assert (queue.failed, queue.waiting, other.waiting) == (1, 2, 3)
    assert not await draining
    with pytest.raises(oz.ClosedError):
        handlers.submit(handler)


@in_loop
async def test_closing_gives_up_in_time_on_a_handler_that_cleans_up_slowly():
    heard, handlers, gate = Heard(HandlerRunner), TaskPool(1), Gate()

    async def handler(message):
        try:
            await gate(message)
        finally:
            await gate(message)

    queue = heard.queue(handlers, handler)
    filled(queue, 1)
    await gate.entered.acquire()
    assert not await handlers.close(0.01)
    await gate.entered.acquire()
    gate.open()
    assert await handlers.close(DEADLINE)


@in_loop
async def test_handlers_may_close_the_pool_even_while_they_are_being_cancelled():
    together = asyncio.Barrier(2)
    results = []

    async def handler(message):
        try:
            await together.wait()
            await handlers.close()
        finally:
            results.append(await handlers.close())

    heard, handlers = Heard(HandlerRunner), TaskPool(2)
    queue = heard.queue(handlers, handler, concurrency=2)
    filled(queue, 2)
    assert await queue.drain(DEADLINE)
    assert await handlers.close(DEADLINE)
    assert results == [True, True]
    assert queue.failed == 2


def test_the_end_of_the_loop_cancels_handlers_and_the_queue_can_go_on_in_another():
    heard, handlers, numbers = Heard(HandlerRunner), TaskPool(2), []

    async def handler(message):
        if message.number == 0:
            await asyncio.Event().wait()
        numbers.append(message.number)

    queue = heard.queue(handlers, handler)

    async def begin():
        filled(queue, 3)
        await asyncio.sleep(0)

    async def go_on():
        queue.put(message("a", 3))
        assert await queue.drain(DEADLINE)
        assert await handlers.close(DEADLINE)

    asyncio.run(begin())
    asyncio.run(go_on())
    assert numbers == [1, 2, 3]
