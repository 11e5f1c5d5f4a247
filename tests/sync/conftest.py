import threading

import pytest

from oz.sync.handlers import ThreadPool
from oz.transport.node.handlers import HandlerRunner
from support.handling import Heard
from support.waiting import DEADLINE


@pytest.fixture
def heard():
    return Heard(HandlerRunner)


@pytest.fixture
def pool():
    """Makes pools, and ends them."""
    made = []

    def make(size):
        made.append(ThreadPool(size))
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


@pytest.fixture
def running():
    """Counts the threads that handle, but for those that were there before."""
    before = set(threading.enumerate())

    def count():
        new = set(threading.enumerate()) - before
        return sum(thread.name.startswith("oz-handler-") for thread in new)

    return count
