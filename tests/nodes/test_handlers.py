"""Handlers of a node in threads, in tasks, and inline; the node is a recorder."""

import asyncio
import threading
from collections import defaultdict
from contextlib import contextmanager

import pytest

from oz.errors import OwnershipError
from oz.node.handlers import InlineRunner, Runner
from oz.node.tasks import TaskPool
from oz.node.threads import ThreadPool
from oz.subscriber.message import Arrival, HandledMessage, Message

DEADLINE = 30.0


class Owner:
    """Node of the handlers: records what it is asked to do."""

    def __init__(self):
        self.replies, self.failures, self.acked = [], [], []
        self.overflowed = 0
        self.ended = threading.Semaphore(0)

    def answer(self, message, value, *, is_alone=True):
        self.replies.append((message.payload, value))

    def handler_failed(self, handler, message, error):
        self.failures.append((message.payload, error))

    def acknowledge(self, message):
        self.acked.append(message.payload)

    def handler_ended(self):
        self.ended.release()


def make_message(payload, subject="s", kind=Message, acknowledge=None):
    arrival = Arrival(None, 0, acknowledge=acknowledge)
    return tuple.__new__(kind, (subject, payload, None, arrival, 0))


def make_messages(count, subject="s"):
    return [make_message(str(at).encode(), subject) for at in range(count)]


@contextmanager
def running(size=1):
    pool = ThreadPool(size)
    try:
        yield pool
    finally:
        assert pool.finish(DEADLINE)


class Gate:
    """Handler that records its messages and waits until it is opened."""

    def __init__(self):
        self.seen = []
        self.entered, self.opened = threading.Semaphore(0), threading.Event()

    def __call__(self, message):
        self.seen.append(message.payload)
        self.entered.release()
        assert self.opened.wait(DEADLINE)

    def wait_until_entered(self):
        assert self.entered.acquire(timeout=DEADLINE)


def wait_until_idle(owner, runner):
    while not runner.lanes.is_idle:
        assert owner.ended.acquire(timeout=DEADLINE)


# threads


def test_a_thread_handles_messages_in_order():
    owner, seen = Owner(), []
    with running(4) as pool:
        runner = Runner(pool, owner, lambda message: seen.append(message.payload))
        messages = make_messages(1_000)
        for at in range(0, 1_000, 50):
            runner.put(messages[at : at + 50])
        wait_until_idle(owner, runner)
    assert seen == [one.payload for one in messages]
    assert owner.replies == []


def test_results_are_replies_and_exceptions_are_reported():
    owner, error = Owner(), ValueError("x")

    def handle(message):
        if message.payload == b"1":
            raise error
        if message.payload == b"2":
            raise SystemExit
        return None if message.payload == b"3" else message.payload * 2

    with running() as pool:
        runner = Runner(pool, owner, handle)
        runner.put(make_messages(5))
        wait_until_idle(owner, runner)
    assert owner.replies == [(b"0", b"00"), (b"4", b"44")]
    assert owner.failures[0] == (b"1", error)
    assert isinstance(owner.failures[1][1], SystemExit)


def test_handled_messages_are_acknowledged_after_the_handler():
    owner, acked_before = Owner(), []

    def handle(message):
        acked_before.append(list(owner.acked))
        if message.payload == b"b":
            raise ValueError

    with running() as pool:
        runner = Runner(pool, owner, handle)
        runner.put([make_message(payload, kind=HandledMessage) for payload in (b"a", b"b", b"c")])
        wait_until_idle(owner, runner)
    assert acked_before == [[], [b"a"], [b"a", b"b"]]
    assert owner.acked == [b"a", b"b", b"c"]


def test_a_dropped_handled_message_is_acknowledged():
    acked, gate = [], Gate()
    with running() as pool:
        runner = Runner(pool, Owner(), gate, max_pending=1)
        runner.put([make_message(b"0")])
        gate.wait_until_entered()
        runner.put(
            [make_message(b, kind=HandledMessage, acknowledge=acked.append) for b in (b"1", b"2", b"3")]
        )
        gate.opened.set()
    assert [one.payload for one in acked] == [b"2", b"3"]
    assert runner.lanes.dropped == 2


def test_a_slow_handler_does_not_hold_up_other_subscriptions():
    owner, gate = Owner(), Gate()
    with running(2) as pool:
        slow = Runner(pool, Owner(), gate)
        fast = Runner(pool, owner, lambda message: message.payload)
        slow.put(make_messages(3))
        gate.wait_until_entered()
        fast.put(make_messages(100))
        wait_until_idle(owner, fast)
        assert len(owner.replies) == 100
        assert gate.seen == [b"0"]
        gate.opened.set()


def test_subscriptions_share_one_thread_in_turns():
    """A subscription whose queue is never empty lets another one run."""
    owner, done = Owner(), threading.Event()
    with running() as pool:
        busy = Runner(pool, owner, lambda message: done.is_set() or busy.put([message]))
        other = Runner(pool, owner, lambda message: done.set())
        busy.put(make_messages(1))
        other.put(make_messages(1))
        assert done.wait(DEADLINE)


def test_concurrency_handles_several_subjects_at_once_and_each_in_order():
    owner, gate, seen = Owner(), Gate(), defaultdict(list)

    def handle(message):
        seen[message.subject].append(message.payload)
        if message.payload == b"0":
            gate(message)

    with running(8) as pool:
        runner = Runner(pool, owner, handle, concurrency=3)
        by_lane = {}
        for number in range(100):
            message = make_message(b"0", f"s.{number}")
            (lane,) = runner.lanes.put([message])
            by_lane.setdefault(id(lane), message.subject)
            lane.items.clear()
            runner.lanes.release(lane)
        subjects = list(by_lane.values())
        assert len(subjects) == 3
        for at in range(3):
            runner.put([make_message(str(at).encode(), subject) for subject in subjects])
        for _ in subjects:
            gate.wait_until_entered()
        assert all(found == [b"0"] for found in seen.values())
        gate.opened.set()
        wait_until_idle(owner, runner)
    assert [seen[subject] for subject in subjects] == 3 * [[b"0", b"1", b"2"]]


def test_a_handler_that_waits_for_another_lends_its_thread():
    owner = Owner()
    done = threading.Event()
    with running(1) as pool:
        inner = Runner(pool, owner, lambda message: done.set())

        def ask(message):
            inner.put([message])
            with pool.lend():
                assert done.wait(DEADLINE)

        outer = Runner(pool, owner, ask)
        outer.put(make_messages(1))
        wait_until_idle(owner, outer)
        assert owner.failures == []


def test_lent_threads_end_again():
    owner, gates = Owner(), [Gate() for _ in range(5)]
    with running(1) as pool:

        def ask(gate, message):
            with pool.lend():
                gate(message)

        runners = [Runner(pool, owner, lambda message, gate=gate: ask(gate, message)) for gate in gates]
        for runner, gate in zip(runners, gates, strict=True):
            runner.put(make_messages(1))
            gate.wait_until_entered()
        assert len(pool._threads) == 5
        for runner, gate in zip(runners, gates, strict=True):
            gate.opened.set()
            wait_until_idle(owner, runner)
        last = Runner(pool, owner, lambda message: None)
        last.put(make_messages(1))
        wait_until_idle(owner, last)
        # The other threads end, or have been asked to.
        with pool.lock:
            assert len(pool._threads) - pool._ending == 1


def test_a_thread_that_ends_is_not_counted():
    """A handler that asks again and again needs a new thread each time, because the last one was too many."""
    owner, asked = Owner(), threading.Semaphore(0)
    with running(1) as pool:
        inner = Runner(pool, owner, lambda message: asked.release())

        def ask(message):
            inner.put([message])
            with pool.lend():
                assert asked.acquire(timeout=DEADLINE)

        outer = Runner(pool, owner, ask)
        outer.put(make_messages(200))
        wait_until_idle(owner, outer)
    assert owner.failures == []


def test_lending_in_another_thread_has_no_effect():
    with running(1) as pool:
        assert not pool.is_worker()
        with pool.lend():
            assert pool._lent == 0


def test_close_waits_for_handlers_that_run():
    gate, pool = Gate(), ThreadPool(1)
    runner = Runner(pool, Owner(), gate)
    runner.put(make_messages(3))
    gate.wait_until_entered()
    assert not pool.finish(0.01)
    gate.opened.set()
    assert pool.finish(DEADLINE)
    assert gate.seen == [b"0"]
    runner.put(make_messages(1))
    assert not pool._threads


def test_close_from_a_handler_does_not_wait_for_itself():
    owner, results = Owner(), []
    pool = ThreadPool(2)
    runner = Runner(pool, owner, lambda message: results.append(pool.finish(DEADLINE)))
    runner.put(make_messages(1))
    while not results:
        threading.Event().wait(0.001)
    assert results == [True]


def test_a_message_that_comes_while_a_thread_leaves_its_lane_is_handled():
    owner, late = Owner(), make_messages(1)
    with running() as pool:
        runner = Runner(pool, owner, lambda message: 1)
        release = runner.lanes.release

        def release_late(lane):
            if late:
                lane.items.append(late.pop())
            return release(lane)

        runner.lanes.release = release_late
        runner.put(make_messages(1))
        wait_until_idle(owner, runner)
    assert len(owner.replies) == 2


def test_many_threads_put_and_handle_without_a_loss():
    owner, counts, lock = Owner(), defaultdict(int), threading.Lock()

    def handle(message):
        with lock:
            counts[message.payload] += 1

    with running(4) as pool:
        runners = [Runner(pool, owner, handle, concurrency=at + 1) for at in range(3)]

        def put(name):
            for at in range(500):
                runners[at % 3].put([make_message(name, f"s.{at}")])

        threads = [threading.Thread(target=put, args=(b"%d" % at,)) for at in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        for runner in runners:
            wait_until_idle(owner, runner)
    assert counts == {b"%d" % at: 500 for at in range(4)}


# tasks


def run(main):
    return asyncio.run(asyncio.wait_for(main(), DEADLINE))


async def settle(runner):
    while not runner.lanes.is_idle:
        await asyncio.sleep(0)


def test_tasks_handle_plain_and_async_functions_in_order():
    async def main():
        owner, pool = Owner(), TaskPool()

        async def handle(message):
            await asyncio.sleep(0)
            return message.payload

        slow = Runner(pool, owner, handle)
        plain = Runner(pool, owner, lambda message: message.payload if message.payload != b"1" else None)
        slow.put(make_messages(3))
        plain.put(make_messages(3))
        assert owner.replies == []
        await settle(slow)
        await settle(plain)
        assert sorted(owner.replies) == [(b"0", b"0")] * 2 + [(b"1", b"1")] + [(b"2", b"2")] * 2
        assert not pool._tasks or await pool.close(DEADLINE)

    run(main)


def test_an_exception_in_a_task_is_reported_and_the_next_message_handled():
    async def main():
        owner, pool = Owner(), TaskPool()

        async def handle(message):
            if message.payload == b"0":
                raise ValueError
            return 1

        runner = Runner(pool, owner, handle)
        runner.put(make_messages(2))
        await settle(runner)
        assert [payload for payload, _ in owner.failures] == [b"0"]
        assert owner.replies == [(b"1", 1)]

    run(main)


def test_a_task_lets_the_loop_run_while_messages_keep_coming():
    async def main():
        owner, pool, turns = Owner(), TaskPool(), []

        def handle(message):
            if len(turns) < 3:
                runner.put([message])

        runner = Runner(pool, owner, handle)
        runner.put(make_messages(1))
        for _ in range(3):
            await asyncio.sleep(0)
            turns.append(1)
        await settle(runner)

    run(main)


def test_concurrency_awaits_several_subjects_at_once():
    async def main():
        owner, pool, running_now, most = Owner(), TaskPool(), [0], [0]

        async def handle(message):
            running_now[0] += 1
            most[0] = max(most[0], running_now[0])
            await asyncio.sleep(0)
            running_now[0] -= 1

        runner = Runner(pool, owner, handle, concurrency=4)
        runner.put([make_message(b"", f"s.{at}") for at in range(100)])
        await settle(runner)
        assert most[0] == 4

    run(main)


def test_close_of_a_loop_waits_and_then_cancels():
    async def main():
        owner, pool = Owner(), TaskPool()
        entered, opened = asyncio.Event(), asyncio.Event()

        async def handle(message):
            entered.set()
            await opened.wait()

        runner = Runner(pool, owner, handle)
        runner.put(make_messages(1))
        await entered.wait()
        assert not await pool.close(0.01)
        assert not pool._tasks
        assert runner.lanes.is_idle

    run(main)


# inline


def test_an_inline_handler_replies_and_fails():
    owner = Owner()

    def handle(message):
        if message.payload == b"1":
            raise ValueError
        return message.payload or None

    call = InlineRunner(owner, handle)
    for payload in (b"", b"1", b"2"):
        call(make_message(payload))
    assert owner.replies == [(b"2", b"2")]
    assert [payload for payload, _ in owner.failures] == [b"1"]


class Turns:
    def __init__(self, count):
        self.count = count

    def __await__(self):
        for _ in range(self.count):
            yield
        return self.count


@pytest.mark.parametrize("count", [0, 1, 2])
def test_an_inline_handler_may_await_what_is_done(count):
    owner = Owner()
    InlineRunner(owner, lambda message: Turns(count))(make_message(b"x"))
    assert owner.replies == [(b"x", count)]


def test_an_inline_handler_cannot_wait():
    async def main():
        owner = Owner()

        async def handle(message):
            await asyncio.sleep(1)

        InlineRunner(owner, handle)(make_message(b"x"))
        assert isinstance(owner.failures[0][1], OwnershipError)

    run(main)
