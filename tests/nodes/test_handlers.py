"""Threads and tasks of handlers, and inline handlers. `Owner` stands for the node."""

import asyncio
import threading
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
        self.replies, self.failures, self.overflowed = [], [], 0
        self.ended = threading.Semaphore(0)

    def answer(self, message, value, *, is_alone=True):
        self.replies.append((message.payload, value))

    def handler_failed(self, handler, message, error):
        self.failures.append((message.payload, error))

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


def test_handled_messages_are_acknowledged_after_the_handler():
    owner, acked, acked_before = Owner(), [], []

    def acknowledge(message):
        acked.append(message.payload)

    def handle(message):
        acked_before.append(list(acked))
        if message.payload == b"b":
            raise ValueError

    with running() as pool:
        runner = Runner(pool, owner, handle)
        runner.put(
            [make_message(one, kind=HandledMessage, acknowledge=acknowledge) for one in (b"a", b"b", b"c")]
        )
        wait_until_idle(owner, runner)
    assert acked_before == [[], [b"a"], [b"a", b"b"]]
    assert acked == [b"a", b"b", b"c"]


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
    assert [message.payload for message in acked] == [b"2", b"3"]
    assert runner.lanes.dropped == 2


def test_subscriptions_share_one_thread_in_turns():
    """A subscription whose queue is never empty lets another one run."""
    owner, done = Owner(), threading.Event()
    with running() as pool:
        busy = Runner(pool, owner, lambda message: done.is_set() or busy.put([message]))
        other = Runner(pool, owner, lambda message: done.set())
        busy.put(make_messages(1))
        other.put(make_messages(1))
        assert done.wait(DEADLINE)


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


# tasks


def run(main):
    return asyncio.run(asyncio.wait_for(main(), DEADLINE))


async def settle(runner):
    while not runner.lanes.is_idle:
        await asyncio.sleep(0)


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


# inline


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
