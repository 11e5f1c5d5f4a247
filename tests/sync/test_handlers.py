import gc
import logging
import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oz.protocol.node.handler_queue import HandlerQueue
from oz.sync.handlers import ThreadPool
from oz.transport.node.handlers import HandlerRunner
from support.handling import Heard, filled, message
from support.waiting import DEADLINE, Thread, until


def test_messages_are_handled_one_after_the_other_in_order(pool, heard):
    numbers, inside, most = [], [0], [0]

    def handler(message):
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        numbers.append(message.number)
        inside[0] -= 1

    queue = heard.queue(pool(4), handler)
    filled(queue, 2000)
    assert queue.drain(DEADLINE)
    assert numbers == list(range(2000))
    assert most == [1]
    assert (queue.handled, queue.failed, queue.dropped, queue.waiting) == (2000, 0, 0, 0)


@given(
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    overflow=st.sampled_from([None, "conflate", "drop_oldest"]),
    order_by=st.sampled_from([None, "subject"]),
    limit=st.sampled_from([1, 3, 1000]),
    subjects=st.text("abc", max_size=60),
)
def test_every_message_is_accounted_for_and_a_subject_keeps_its_order(
    sizes, overflow, order_by, limit, subjects
):
    heard, got = Heard(HandlerRunner), []
    handlers = ThreadPool(sizes[0])
    queue = heard.queue(
        handlers, got.append, overflow=overflow, order_by=order_by, limit=limit, concurrency=sizes[1]
    )
    for number, subject in enumerate(subjects):
        queue.put(message(subject, number))
    assert queue.drain(DEADLINE)
    assert handlers.close(DEADLINE)
    assert len(subjects) == len(got) + queue.dropped
    assert sum(count for count, _ in heard.dropped) == queue.dropped
    assert max(Counter(one.number for one in got).values(), default=1) == 1
    if sizes[1] == 1 or order_by:
        for subject in "abc":
            numbers = [one.number for one in got if one.subject == subject]
            assert numbers == sorted(numbers)


def test_threads_that_put_at_the_same_time_keep_their_own_order(pool, heard):
    got = []
    queue = heard.queue(pool(2), got.append)
    threads = [Thread(lambda subject=subject: filled(queue, 2000, subject)) for subject in "abcd"]
    for thread in threads:
        thread.outcome()
    assert queue.drain(DEADLINE)
    for subject in "abcd":
        assert [one.number for one in got if one.subject == subject] == list(range(2000))


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_handler_that_raises_is_reported_and_harms_nobody(pool, heard, error, running):
    def handler(message):
        if message.number % 2:
            raise error(message.number)

    handlers = pool(1)
    queue = heard.queue(handlers, handler)
    filled(queue, 4)
    assert queue.drain(DEADLINE)
    assert heard.failed == [(1, repr(error(1))), (3, repr(error(3)))]
    assert (queue.handled, queue.failed) == (2, 2)
    assert running() == 1
    other = heard.queue(handlers, lambda message: None)
    filled(other, 1)
    assert other.drain(DEADLINE)


def test_reports_that_raise_are_logged_and_the_next_message_is_handled(pool, caplog):
    def refuse(*_):
        raise RuntimeError("no reports, please")

    queue = HandlerRunner(pool(1), HandlerQueue(limit=1), lambda message: 1 / message.number, refuse, refuse)
    with caplog.at_level(logging.ERROR, "oz.handlers"):
        queue.put(message("a", 0))
        assert queue.drain(DEADLINE)
        queue.put(message("a", 1))
        assert queue.drain(DEADLINE)
    assert (queue.handled, queue.failed) == (1, 1)
    assert "no reports, please" in caplog.text


def test_a_slow_handler_fills_only_its_own_queue(pool, heard, gate):
    handlers = pool(2)
    slow = heard.queue(handlers, gate, limit=3)
    quick = heard.queue(handlers, lambda message: None)
    filled(slow, 1)
    gate.wait_for_entry()
    for number in range(1, 6):
        slow.put(message("a", number))
    assert slow.waiting == 3
    assert heard.dropped == [(1, 4), (1, 5)]
    filled(quick, 1000)
    assert quick.drain(DEADLINE)
    gate.open()
    assert slow.drain(DEADLINE)
    assert gate.numbers == [0, 1, 2, 3]
    assert slow.dropped == 2


def test_a_queue_that_never_empties_starves_nobody(pool, heard):
    reached = threading.Event()

    def endless(message):
        if not reached.is_set():
            endless_queue.put(message)

    handlers = pool(1)
    endless_queue = heard.queue(handlers, endless)
    endless_queue.put(message("a"))
    other = heard.queue(handlers, lambda message: reached.set())
    other.put(message("b"))
    assert reached.wait(DEADLINE)
    assert endless_queue.drain(DEADLINE)


def test_as_many_handlers_as_asked_for_run_at_once(pool, heard):
    together = threading.Barrier(3)
    queue = heard.queue(pool(8), lambda message: together.wait(DEADLINE), concurrency=3)
    filled(queue, 9)
    assert queue.drain(DEADLINE)
    assert heard.failed == []
    assert queue.handled == 9


def test_by_subject_one_that_is_held_up_holds_up_only_itself(pool, heard, gate):
    letters = "abcdefghijklmnopqrstuvwxyz"
    apart = [subject for subject in letters if hash(subject) % 4 != hash("a") % 4]
    got = []

    def handler(message):
        if message.subject == "a":
            gate(message)
        got.append((message.subject, message.number))

    queue = heard.queue(pool(4), handler, concurrency=4, order_by="subject")
    filled(queue, 3, "a")
    gate.wait_for_entry()
    for subject in apart:
        filled(queue, 3, subject)
    until(lambda: queue.handled == 3 * len(apart))
    assert queue.waiting == 2
    gate.open()
    assert queue.drain(DEADLINE)
    assert got[-3:] == [("a", 0), ("a", 1), ("a", 2)]


def test_threads_start_when_needed_and_never_more_than_asked_for(pool, heard, gate, running):
    handlers = pool(2)
    queues = [heard.queue(handlers, gate) for _ in range(5)]
    assert running() == 0
    for queue in queues:
        filled(queue, 1)
    for _ in range(2):
        gate.wait_for_entry()
    assert running() == 2
    gate.open()
    for queue in queues:
        assert queue.drain(DEADLINE)
    assert running() == 2


def test_work_that_raises_is_logged_and_the_thread_goes_on(pool, caplog):
    done = threading.Event()
    handlers = pool(1)
    with caplog.at_level(logging.ERROR, "oz.handlers"):
        handlers.submit(lambda: 1 / 0)
        handlers.submit(done.set)
        assert done.wait(DEADLINE)
    assert "ZeroDivisionError" in caplog.text


def test_a_thread_that_waits_keeps_no_message(pool, heard):
    kept = []

    class Seen:
        subject, number = "a", 0

        def __del__(self):
            kept.append("gone")

    queue = heard.queue(pool(1), lambda message: None)
    queue.put(Seen())
    assert queue.drain(DEADLINE)
    until(lambda: gc.collect() is not None and kept == ["gone"])


@pytest.mark.parametrize("size", [0, -1, 1025])
def test_sizes_that_make_no_sense_are_refused(size):
    with pytest.raises(ValueError, match=f"{size} cannot handle anything"):
        ThreadPool(size)
