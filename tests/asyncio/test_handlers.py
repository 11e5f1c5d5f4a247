import asyncio
import logging
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oz.asyncio.handlers import TaskNews, TaskPool
from oz.protocol.node.handler_queue import HandlerQueue
from oz.transport.node.handlers import HandlerRunner
from support.handling import Heard, filled, message
from support.handling_tasks import Gate, in_loop
from support.scripts import run
from support.waiting import DEADLINE


@in_loop
async def test_messages_are_handled_one_after_the_other_in_order():
    numbers, inside = [], []

    async def handler(message):
        assert not inside
        inside.append(message)
        await asyncio.sleep(0)
        numbers.append(message.number)
        inside.clear()

    heard, handlers = Heard(HandlerRunner), TaskPool(4)
    queue = heard.queue(handlers, handler)
    filled(queue, 200)
    assert queue.waiting == 200
    assert await queue.drain(DEADLINE)
    assert numbers == list(range(200))
    assert (queue.handled, queue.failed, queue.dropped, queue.waiting) == (200, 0, 0, 0)
    assert await handlers.close(DEADLINE)


@given(
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    is_async=st.booleans(),
    overflow=st.sampled_from([None, "conflate", "drop_oldest"]),
    order_by=st.sampled_from([None, "subject"]),
    limit=st.sampled_from([1, 3, 1000]),
    steps=st.text("abc.", max_size=60),
)
def test_every_message_is_accounted_for_and_a_subject_keeps_its_order(
    sizes, is_async, overflow, order_by, limit, steps
):
    heard, got = Heard(HandlerRunner), []

    async def slowly(message):
        for _ in range(message.number % 3):
            await asyncio.sleep(0)
        got.append(message)

    async def whole():
        handlers = TaskPool(sizes[0])
        handler = slowly if is_async else got.append
        queue = heard.queue(
            handlers, handler, overflow=overflow, order_by=order_by, limit=limit, concurrency=sizes[1]
        )
        for number, subject in enumerate(steps):
            if subject == ".":
                await asyncio.sleep(0)
            else:
                queue.put(message(subject, number))
        assert await queue.drain(DEADLINE)
        assert await handlers.close(DEADLINE)
        return queue.dropped

    dropped = asyncio.run(whole())
    assert len(steps) - steps.count(".") == len(got) + dropped
    assert sum(count for count, _ in heard.dropped) == dropped
    assert max(Counter(one.number for one in got).values(), default=1) == 1
    if sizes[1] == 1 or order_by:
        for subject in "abc":
            numbers = [one.number for one in got if one.subject == subject]
            assert numbers == sorted(numbers)


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError])
@pytest.mark.parametrize("is_async", [True, False])
def test_a_handler_that_raises_is_reported_and_harms_nobody(error, is_async):
    def fail(message):
        if message.number % 2:
            raise error(message.number)

    async def fail_later(message):
        await asyncio.sleep(0)
        fail(message)

    async def whole():
        heard, handlers = Heard(HandlerRunner), TaskPool(1)
        queue = heard.queue(handlers, fail_later if is_async else fail)
        filled(queue, 4)
        assert await queue.drain(DEADLINE)
        assert heard.failed == [(1, repr(error(1))), (3, repr(error(3)))]
        assert (queue.handled, queue.failed) == (2, 2)
        assert await handlers.close(DEADLINE)

    asyncio.run(whole())


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_handler_is_reported_and_ends_the_loop(error):
    heard, handlers, got = Heard(HandlerRunner), TaskPool(1), []

    def handler(message):
        if message.number == 1:
            raise error
        got.append(message.number)

    queue, other = heard.queue(handlers, handler), heard.queue(handlers, got.append)

    async def begin():
        filled(queue, 3)
        other.put("other")
        await queue.drain(DEADLINE)

    async def go_on():
        assert await queue.drain(DEADLINE)
        assert await other.drain(DEADLINE)
        assert await handlers.close(DEADLINE)

    loop = asyncio.new_event_loop()
    beginning = loop.create_task(begin())
    with pytest.raises(error):
        loop.run_until_complete(beginning)
    assert heard.failed == [(1, repr(error()))]
    loop.run_until_complete(go_on())
    loop.run_until_complete(asyncio.wait([beginning]))
    loop.close()
    assert sorted(got, key=str) == [0, 2, "other"]


def test_reports_that_raise_are_logged_and_the_next_message_is_handled(caplog):
    def refuse(*_):
        raise RuntimeError("no reports, please")

    async def whole():
        handlers = TaskPool(1)
        queue = HandlerRunner(
            handlers, HandlerQueue(limit=1), lambda message: 1 / message.number, refuse, refuse
        )
        filled(queue, 2)
        assert await queue.drain(DEADLINE)
        queue.put(message("a", 1))
        assert await queue.drain(DEADLINE)
        assert (queue.handled, queue.failed, queue.dropped) == (1, 1, 1)
        assert await handlers.close(DEADLINE)

    with caplog.at_level(logging.ERROR, "oz.handlers"):
        asyncio.run(whole())
    assert caplog.text.count("RuntimeError: no reports, please") == 2


@in_loop
async def test_a_slow_handler_fills_only_its_own_queue():
    heard, handlers, gate = Heard(HandlerRunner), TaskPool(2), Gate()
    slow = heard.queue(handlers, gate, limit=3)
    quick = heard.queue(handlers, lambda message: None)
    filled(slow, 1)
    await gate.entered.acquire()
    for number in range(1, 6):
        slow.put(message("a", number))
    assert slow.waiting == 3
    assert heard.dropped == [(1, 4), (1, 5)]
    filled(quick, 1000)
    assert await quick.drain(DEADLINE)
    gate.open()
    assert await slow.drain(DEADLINE)
    assert gate.numbers == [0, 1, 2, 3]
    assert await handlers.close(DEADLINE)


@in_loop
async def test_a_queue_that_never_empties_starves_neither_others_nor_the_loop():
    turns = asyncio.Event()
    reached = []

    def endless(message):
        if not (reached and turns.is_set()):
            endless_queue.put(message)

    heard, handlers = Heard(HandlerRunner), TaskPool(1)
    endless_queue = heard.queue(handlers, endless)
    endless_queue.put(message("a"))
    other = heard.queue(handlers, reached.append)
    other.put(message("b"))
    asyncio.get_running_loop().call_later(0.001, turns.set)
    assert await endless_queue.drain(DEADLINE)
    assert len(reached) == 1
    assert await handlers.close(DEADLINE)


@in_loop
async def test_as_many_handlers_as_asked_for_run_at_once_and_no_more():
    heard, handlers, gate = Heard(HandlerRunner), TaskPool(3), Gate()
    wide = heard.queue(handlers, gate, concurrency=2)
    others = [heard.queue(handlers, gate) for _ in range(4)]
    filled(wide, 4)
    for _ in range(2):
        await gate.entered.acquire()
    for queue in others:
        filled(queue, 1)
    await gate.entered.acquire()
    assert wide.waiting == 2
    assert sum(queue.waiting for queue in others) == 3
    assert sum(task.get_name() == "oz-handler" for task in asyncio.all_tasks()) == 3
    gate.open()
    for queue in [wide, *others]:
        assert await queue.drain(DEADLINE)
    assert len(gate.numbers) == 8
    assert await handlers.close(DEADLINE)


def test_without_a_loop_messages_are_refused():
    handlers = TaskPool(1)
    queue = Heard(HandlerRunner).queue(handlers, lambda message: None)
    with pytest.raises(RuntimeError, match="no running event loop"):
        filled(queue, 1)
    handlers.cancel()


@pytest.mark.parametrize("size", [0, 65_537])
def test_sizes_that_make_no_sense_are_refused(size):
    with pytest.raises(ValueError, match=f"{size} cannot handle anything"):
        TaskPool(size)


def test_in_the_child_of_a_fork_all_is_refused_or_empty():
    text = """
import asyncio, os
from types import SimpleNamespace
import oz
from oz.asyncio.handlers import TaskNews, TaskPool
from oz.transport.node.handlers import HandlerRunner
from oz.protocol.node.handler_queue import HandlerQueue

handlers = TaskPool(1)
queue = HandlerRunner(handlers, HandlerQueue(), lambda message: None, print, print)

async def child():
    for use in (lambda: queue.put(SimpleNamespace(subject="a")), lambda: handlers.submit(print)):
        try:
            use()
        except oz.OwnershipError as error:
            assert "fork" in str(error)
        else:
            raise AssertionError("not refused")
    assert queue.waiting == queue.clear() == queue.close() == 0
    assert await queue.drain() and await handlers.close()

async def main():
    queue.put(SimpleNamespace(subject="a"))
    assert queue.waiting == 1
    handlers.guard.acquire(), queue.guard.acquire()

asyncio.run(main())
pid = os.fork()
if not pid:
    asyncio.run(child())
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""
    assert run("-c", text) == ""


@in_loop
async def test_a_task_that_waits_is_woken_from_another_thread():
    news, is_so = TaskNews(), []
    waiting = asyncio.create_task(news.wait_for(lambda: bool(is_so), DEADLINE))
    await asyncio.sleep(0)
    await asyncio.to_thread(lambda: is_so.append(True) or news.tell())
    assert await waiting
