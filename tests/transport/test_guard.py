import logging
import signal
import threading

import pytest

from oz import logs
from oz.transport.guard import Guard
from support.scripts import run
from support.waiting import until, wait_until_stuck

FORKED = """
import os, sys, warnings
import oz
import zmq

# Python 3.12 and later warn of any fork beside a thread, and ZeroMQ has threads.
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)

def child_of_fork(work):
    pid = os.fork()
    if not pid:
        work()
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0

def refused(use):
    try:
        use()
    except oz.OwnershipError as error:
        assert "fork" in str(error)
    else:
        raise AssertionError("not refused")
"""


def program(text):
    assert run("-c", FORKED + text) == ""


def test_an_inherited_socket_is_refused_and_the_parents_goes_on():
    program("""
with oz.Publisher("tcp://127.0.0.1:*") as pub, oz.Subscriber(pub.endpoint) as sub:
    own = sub.subscribe("a")
    poller = oz.Poller()
    poller.register(sub, zmq.POLLIN)
    pub.wait_for_subscribers(timeout=60)

    def work():
        for use in (
            lambda: sub.run(timeout=0),
            lambda: sub.disconnect(pub.endpoint),
            lambda: sub.unbind("tcp://127.0.0.1:1"),
            lambda: pub.publish("a", b"child"),
            lambda: pub.has_subscribers("a"),
            lambda: pub.wait_for_subscribers(timeout=1),
            lambda: pub.bind("tcp://127.0.0.1:*"),
            lambda: sub.receive(timeout=1),
            lambda: sub.receive(),
            lambda: sub.wait_ready(timeout=1),
            lambda: sub.drain(timeout=1),
            lambda: next(iter(sub)),
            lambda: sub.subscribe("b"),
            lambda: own.unsubscribe(),
            lambda: sub.connect("tcp://127.0.0.1:1"),
            lambda: sub.fileno(),
            lambda: poller.poll(10),
        ):
            refused(use)

    child_of_fork(work)
    pub.publish("a", b"parent")
    assert sub.receive(timeout=60).payload == b"parent"
""")


def test_a_child_that_ends_inside_the_parents_with_block_ends_quietly():
    program("""
with oz.Publisher("tcp://127.0.0.1:*") as pub, oz.Subscriber(pub.endpoint) as sub:
    sub.subscribe("a")
    pub.wait_for_subscribers(timeout=60)
    for _ in range(3):
        child_of_fork(lambda: None)
    pub.publish("a", b"parent")
    assert sub.receive(timeout=60).payload == b"parent"
""")


def test_a_child_may_make_sockets_of_its_own_and_close_what_it_inherited():
    program("""
pub = oz.Publisher("tcp://127.0.0.1:*")
sub = oz.Subscriber(pub.endpoint)
sub.subscribe("a")
pub.wait_for_subscribers(timeout=60)

def work():
    sub.close()
    pub.close()
    with oz.Publisher("tcp://127.0.0.1:*") as own, oz.Subscriber(own.endpoint) as mine:
        mine.subscribe("a")
        own.wait_for_subscribers(timeout=60)
        own.publish("a", b"child")
        assert mine.receive(timeout=60).payload == b"child"

child_of_fork(work)
pub.publish("a", b"parent")
assert sub.receive(timeout=60).payload == b"parent"
sub.close()
pub.close()
""")


def test_a_fork_in_the_middle_of_iterating_is_refused_in_the_child():
    program("""
with oz.Publisher("tcp://127.0.0.1:*") as pub, oz.Subscriber(pub.endpoint) as sub:
    sub.subscribe("a")
    pub.wait_for_subscribers(timeout=60)
    pub.publish("a", b"1")
    pub.publish("a", b"2")
    messages = iter(sub)
    next(messages)
    child_of_fork(lambda: refused(lambda: next(messages)))
    assert next(messages).payload == b"2"
""")


@pytest.mark.heavy
def test_a_fork_while_another_thread_publishes_leaves_both_well():
    program("""
import threading
stop = threading.Event()
with oz.Publisher("tcp://127.0.0.1:*") as pub:
    def publish():
        while not stop.is_set():
            pub.publish("a", b"x")
    thread = threading.Thread(target=publish)
    thread.start()
    for _ in range(10):
        child_of_fork(lambda: refused(lambda: pub.publish("a")))
    stop.set()
    thread.join()
""")


def test_asyncio_sockets_are_refused_in_a_child_too():
    program("""
import asyncio

async def main():
    async with oz.asyncio.Publisher("tcp://127.0.0.1:*") as pub, oz.asyncio.Subscriber(pub.endpoint) as sub:
        sub.subscribe("a")
        await pub.wait_for_subscribers(timeout=60)
        pid = os.fork()
        if not pid:
            for use in (lambda: pub.publish("a"), sub.receive, lambda: sub.receive(timeout=0)):
                try:
                    await use()
                except oz.OwnershipError:
                    continue
                os._exit(1)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        await pub.publish("a", b"parent")
        assert (await sub.receive(timeout=60)).payload == b"parent"

asyncio.run(main())
""")


class Listed(logging.Handler):
    """Writes down by which thread each line is written."""

    def __init__(self):
        super().__init__()
        self.threads = []

    def emit(self, record):
        self.threads.append(threading.current_thread())


def test_what_is_done_apart_is_logged_by_whoever_waits_for_it():
    log, listed = logs.peer_logger("oz.publisher"), Listed()
    log.addHandler(listed)
    listed.acquire()
    try:
        # As when a handler of logging publishes, and has its lock.
        assert Guard().apart(lambda: log.warning("refused") or "done") == "done"
    finally:
        listed.release()
        log.removeHandler(listed)
    assert listed.threads == [threading.main_thread()]


def test_a_signal_handler_that_takes_the_guard_waits_for_what_is_done_apart():
    guard, order = Guard(), []

    def handler(*_):
        order.append("a handler begins")
        with guard:
            order.append("it has the guard")

    def work():
        main = threading.main_thread()
        # Python runs no handler of what comes just before it waits, until that wait is over.
        wait_until_stuck(main)
        signal.pthread_kill(main.ident, signal.SIGUSR1)
        until(lambda: order)
        wait_until_stuck(main)
        order.append("it is done")
        return "a result"

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with guard:
            assert guard.apart(work) == "a result"
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert order == ["a handler begins", "it is done", "it has the guard"]
    assert type(guard) is Guard


def test_where_no_thread_can_be_had_a_signal_handler_waits_for_nobody(monkeypatch):
    def refuse(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("_thread.start_new_thread", refuse)
    guard = Guard()

    def work():
        with guard:
            return "as in a handler"

    with guard:
        assert guard.apart(work) == "as in a handler"


def test_a_child_of_a_signal_handler_does_not_wait_for_a_thread_that_stayed_with_the_parent():
    program("""
import signal, threading, time
from oz.transport.guard import Guard
guard, pids, forks = Guard(), [], [os.fork]

def fork_once(*_):
    try:
        fork = forks.pop()
    except IndexError:
        return
    pids.append(fork())

def work():
    # Python runs no handler of what comes just before it waits, until another signal comes.
    while not pids:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
        time.sleep(0.001)

signal.signal(signal.SIGUSR1, fork_once)
with guard:
    try:
        guard.apart(work)
    except oz.OwnershipError:
        os._exit(pids != [0])
assert os.waitpid(pids[0], 0)[1] == 0
""")
