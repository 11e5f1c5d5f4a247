"""How queues are drained and cleared, and pools closed, also by handlers."""

import threading

import pytest

import oz
from support.handling import filled, message
from support.waiting import DEADLINE, Thread, until


def test_a_handler_may_end_its_own_subscription(pool, heard, gate):
    numbers = []

    def handler(message):
        numbers.append(message.number)
        if message.number == 3:
            assert queue.close() == queue_length - 4
            queue.put(message)

    queue_length = 10
    handlers = pool(1)
    blocked = heard.queue(handlers, gate)
    filled(blocked, 1)
    queue = heard.queue(handlers, handler)
    filled(queue, queue_length)
    gate.open()
    assert queue.drain(DEADLINE)
    assert heard.failed == []
    assert numbers == [0, 1, 2, 3]


def test_what_is_cleared_is_not_handled_and_what_comes_then_is(pool, heard, gate):
    queue = heard.queue(pool(1), gate)
    filled(queue, 5)
    gate.wait_for_entry()
    assert queue.clear() == 4
    queue.put(message("a", 9))
    gate.open()
    assert queue.drain(DEADLINE)
    assert gate.numbers == [0, 9]


def test_draining_gives_up_in_time_and_waits_for_what_is_being_handled(pool, heard, gate):
    queue = heard.queue(pool(1), gate)
    filled(queue, 1)
    gate.wait_for_entry()
    assert queue.waiting == 0
    assert not queue.drain(0)
    assert not queue.drain(0.01)
    draining = Thread(lambda: queue.drain(DEADLINE))
    draining.wait_until_stuck()
    gate.open()
    assert draining.outcome()
    assert gate.numbers == [0]


def test_clearing_ends_the_wait_of_who_drains(pool, heard, gate):
    handlers = pool(1)
    blocked = heard.queue(handlers, gate)
    filled(blocked, 1)
    gate.wait_for_entry()
    queue = heard.queue(handlers, lambda message: None)
    filled(queue, 3)
    draining = Thread(lambda: queue.drain(DEADLINE))
    draining.wait_until_stuck()
    queue.clear()
    assert draining.outcome()


def test_a_handler_may_drain_another_queue_though_the_pool_has_one_thread(pool, heard, running):
    results = []
    handlers = pool(1)
    other = heard.queue(handlers, lambda message: None)

    def handler(message):
        filled(other, 3)
        results.append((other.drain(DEADLINE), other.handled))

    queue = heard.queue(handlers, handler)
    filled(queue, 1)
    assert queue.drain(DEADLINE)
    assert results == [(True, 3)]
    until(lambda: running() == 1)


def test_a_handler_that_drains_its_own_queue_does_not_wait_for_itself(pool, heard, gate):
    results = []

    def handler(message):
        if message.number == 0:
            gate(message)
        results.append((message.number, queue.drain()))

    queue = heard.queue(pool(1), handler)
    filled(queue, 2)
    gate.open()
    assert queue.drain(DEADLINE)
    assert results == [(0, False), (1, True)]


def test_handlers_that_drain_each_others_queues_do_not_wait_for_each_other(pool, heard):
    together = threading.Barrier(2)
    results = []

    def handler(message):
        together.wait(DEADLINE)
        results.append([queue.drain() for queue in queues])

    handlers = pool(2)
    queues = [heard.queue(handlers, handler) for _ in range(2)]
    for queue in queues:
        filled(queue, 1)
    for queue in queues:
        assert queue.drain(DEADLINE)
    assert results == [[True, True], [True, True]]


def test_a_handler_that_goes_on_after_draining_is_waited_for_again(pool, heard, gate):
    results = []
    handlers = pool(2)
    empty = heard.queue(handlers, lambda message: None)
    going_on = heard.queue(handlers, lambda message: empty.drain() and gate(message))
    filled(going_on, 1)
    gate.wait_for_entry()
    other = heard.queue(handlers, lambda message: results.append(going_on.drain(0)))
    filled(other, 1)
    assert other.drain(DEADLINE)
    assert results == [False]


def test_a_handler_may_close_the_pool(pool, heard, running):
    results = []
    handlers = pool(2)
    queue = heard.queue(handlers, lambda message: results.append(handlers.close()))
    filled(queue, 1)
    until(lambda: results == [True])
    assert handlers.close(DEADLINE)
    assert running() == 0


def test_handlers_that_close_at_the_same_time_do_not_wait_for_each_other(pool, heard, running):
    together = threading.Barrier(3)
    results = []

    def handler(message):
        together.wait(DEADLINE)
        results.append(handlers.close())

    handlers = pool(3)
    queue = heard.queue(handlers, handler, concurrency=3)
    filled(queue, 3)
    until(lambda: results == [True] * 3)
    assert handlers.close(DEADLINE)
    assert running() == 0


def test_closing_gives_up_in_time_on_a_handler_that_stays(pool, heard, gate, running):
    handlers = pool(1)
    queue = heard.queue(handlers, gate)
    filled(queue, 3)
    gate.wait_for_entry()
    assert not handlers.close(0.01)
    assert not handlers.close(0)
    with pytest.raises(oz.ClosedError, match="closed"):
        handlers.submit(lambda: None)
    gate.open()
    assert handlers.close(DEADLINE)
    assert running() == 0
    assert queue.handled + queue.waiting == 3


def test_closing_ends_the_wait_of_who_drains(pool, heard, gate):
    handlers = pool(1)
    blocked = heard.queue(handlers, gate)
    filled(blocked, 1)
    gate.wait_for_entry()
    queue = heard.queue(handlers, lambda message: None)
    filled(queue, 3)
    draining = Thread(lambda: queue.drain(DEADLINE))
    draining.wait_until_stuck()
    assert not handlers.close(0)
    assert not draining.outcome()
    assert queue.waiting == 3


def test_a_closed_pool_refuses_messages_and_has_nothing_to_wait_for(pool, heard):
    handlers = pool(1)
    queue = heard.queue(handlers, lambda message: None)
    assert handlers.close(0)
    assert queue.drain()
    with pytest.raises(oz.ClosedError):
        filled(queue, 1)
    assert not queue.drain()
    assert queue.clear() == 1
