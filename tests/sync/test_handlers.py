import gc
import logging
import threading
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oz
from oz.protocol.lanes import Lanes
from oz.sync.handlers import HandledQueue, Handlers
from waiting import DEADLINE, Thread, until


def message(subject, number=0):
    return SimpleNamespace(subject=subject, number=number)


class Heard:
    """What a queue reported."""

    def __init__(self):
        self.failed = []
        self.dropped = []

    def queue(self, handlers, handler, **lanes):
        return HandledQueue(
            handlers,
            Lanes(**lanes),
            handler,
            lambda of, error: self.failed.append((of.number, repr(error))),
            lambda count, of: self.dropped.append((count, of.number)),
        )


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture
def pool():
    """Makes pools, and ends them."""
    made = []

    def make(size):
        made.append(Handlers(size))
        return made[-1]

    yield make
    for one in made:
        assert one.close(DEADLINE)


class Gate:
    """A handler that stays until it is opened."""

    def __init__(self):
        self.entered = threading.Semaphore(0)
        self._open = threading.Event()
        self.numbers = []

    def __call__(self, message):
        self.entered.release()
        assert self._open.wait(DEADLINE)
        self.numbers.append(message.number)

    def wait_for_entry(self):
        assert self.entered.acquire(timeout=DEADLINE)

    def open(self):
        self._open.set()


@pytest.fixture
def gate():
    made = Gate()
    yield made
    made.open()


def filled(queue, count, subject="a"):
    for number in range(count):
        queue.put(message(subject, number))


@pytest.fixture
def running():
    """Counts the threads that handle, but for those that were there before."""
    before = set(threading.enumerate())

    def count():
        new = set(threading.enumerate()) - before
        return sum(thread.name.startswith("oz-handler-") for thread in new)

    return count


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
    keep=st.sampled_from(["all", "latest", "drop_oldest"]),
    order_by=st.sampled_from([None, "subject"]),
    limit=st.sampled_from([1, 3, 1000]),
    subjects=st.text("abc", max_size=60),
)
def test_every_message_is_accounted_for_and_a_subject_keeps_its_order(sizes, keep, order_by, limit, subjects):
    heard, got = Heard(), []
    handlers = Handlers(sizes[0])
    queue = heard.queue(handlers, got.append, keep=keep, order_by=order_by, limit=limit, concurrency=sizes[1])
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

    queue = HandledQueue(pool(1), Lanes(limit=1), lambda message: 1 / message.number, refuse, refuse)
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


def test_a_handler_may_end_its_own_subscription(pool, heard):
    numbers = []

    def handler(message):
        numbers.append(message.number)
        if message.number == 3:
            assert queue.close() == queue_length - 4
            queue.put(message)

    queue_length = 10
    handlers = pool(1)
    held = Gate()
    blocked = heard.queue(handlers, held)
    filled(blocked, 1)
    queue = heard.queue(handlers, handler)
    filled(queue, queue_length)
    held.open()
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
        Handlers(size)
