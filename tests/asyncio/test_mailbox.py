"""The mailbox of a subscription without a handler, in tasks."""

import asyncio
from contextlib import suppress

import pytest

import oz
from oz.asyncio.handlers import TaskPool
from oz.protocol.node.handler_queue import HandlerQueue
from oz.transport.node.mailbox import Mailbox
from support.handling import filled, message
from support.handling_tasks import in_loop
from support.waiting import DEADLINE


def made():
    return Mailbox(TaskPool(1), HandlerQueue(), lambda count, of: None)


@in_loop
async def test_tasks_that_receive_get_each_message_once_and_learn_of_the_end():
    box = made()

    async def receive_all():
        got = []
        with suppress(oz.ClosedError):
            while True:
                got.append((await box.receive(DEADLINE)).number)
        return got

    tasks = [asyncio.create_task(receive_all()) for _ in range(3)]
    await asyncio.sleep(0)
    filled(box, 100)
    box.end()
    assert sorted(number for got in await asyncio.gather(*tasks) for number in got) == list(range(100))
    assert await box.drain(0)


@in_loop
async def test_receiving_that_is_cancelled_or_late_loses_nothing():
    box = made()
    receiving = asyncio.create_task(box.receive(None))
    await asyncio.sleep(0)
    box.put(message("a", 7))
    receiving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await receiving
    assert (await box.receive(0)).number == 7
    with pytest.raises(oz.Timeout, match="no message in 0 s"):
        await box.receive(0)
