"""Handlers where a process forks or ends."""

from support.scripts import run

SET_UP = """
import os, sys, threading, warnings
from types import SimpleNamespace
import oz
from oz.protocol.node.handler_queue import HandlerQueue
from oz.sync.handlers import ThreadPool
from oz.transport.node.handlers import HandlerRunner

# Python 3.12 and later warn of any fork beside a thread.
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)

def queue_of(handlers, handler):
    return HandlerRunner(handlers, HandlerQueue(), handler, print, print)

def message(number):
    return SimpleNamespace(subject="a", number=number)

def ended_well(pid):
    assert os.waitpid(pid, 0)[1] == 0

def refused(use):
    try:
        use()
    except oz.OwnershipError as error:
        assert "fork" in str(error)
    else:
        raise AssertionError("not refused")

class Stuck:
    def __init__(self):
        self.entered, self.leave = threading.Event(), threading.Event()

    def __call__(self, message):
        self.entered.set()
        self.leave.wait(60)
"""


def program(text):
    assert run("-c", SET_UP + text) == ""


def test_in_the_child_of_a_fork_all_is_refused_or_empty_and_the_parents_goes_on():
    program("""
handlers = ThreadPool(2)
stuck = Stuck()
queue = queue_of(handlers, stuck)
for number in range(5):
    queue.put(message(number))
stuck.entered.wait(60)
with queue.guard, handlers.guard:
    # As when another thread has them while this one forks.
    pid = os.fork()
    if not pid:
        refused(lambda: queue.put(message(9)))
        refused(lambda: handlers.submit(print))
        refused(lambda: queue_of(handlers, print))
        assert queue.waiting == queue.clear() == queue.close() == 0
        assert queue.drain() and handlers.close()
        own = ThreadPool(1)
        mine = queue_of(own, lambda message: None)
        mine.put(message(0))
        assert mine.drain(60) and mine.handled == 1 and own.close(60)
        os._exit(0)
ended_well(pid)
stuck.leave.set()
assert queue.drain(60) and queue.handled == 5
assert handlers.close(60)
""")


def test_a_handler_that_forks_and_returns_handles_nothing_more_in_the_child():
    program("""
children = []
def handler(message):
    if message.number == 0:
        pid = os.fork()
        if pid:
            children.append(pid)
    elif os.getpid() != parent:
        os._exit(1)

parent = os.getpid()
handlers = ThreadPool(1)
stuck = Stuck()
handlers.submit(lambda: stuck(None))
queue = queue_of(handlers, handler)
for number in range(50):
    queue.put(message(number))
stuck.leave.set()
assert queue.drain(60) and queue.handled == 50
ended_well(*children)
assert handlers.close(60)
""")


def test_a_handler_that_never_returns_does_not_hold_up_the_end_of_the_process():
    program("""
handlers = ThreadPool(1)
stuck = Stuck()
queue = queue_of(handlers, stuck)
queue.put(message(0))
stuck.entered.wait(60)
""")
