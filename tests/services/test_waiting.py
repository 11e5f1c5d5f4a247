"""Services wait for their sockets, for what is due, and for whoever rings: in no slices."""

import os
import signal
import threading
import time
from math import inf

import pytest
import zmq

from oz.services import Proxy
from oz.services.waiting import LOOK_SECONDS, Bell, look_again, wait

DEADLINE = 30.0


class Recorded:
    """A poller that records for how long it is asked to wait."""

    def __init__(self, poller):
        self.poller, self.timeouts, self.is_waiting = poller, [], threading.Event()

    def poll(self, timeout):
        self.timeouts.append(timeout)
        if timeout == -1:
            self.is_waiting.set()
        return self.poller.poll(timeout)


@pytest.fixture
def bell():
    made = Bell()
    yield made
    made.close()


def test_a_bell_is_heard_once_however_often_it_was_rung(bell):
    assert not bell.hear()
    for _ in range(10_000):
        bell.ring()
    assert bell.hear()
    assert not bell.hear()


def test_a_bell_that_is_closed_is_rung_in_vain(bell):
    bell.close()
    bell.ring()
    assert not bell.hear()


@pytest.mark.skipif(os.name == "nt", reason="a process of Windows sends itself no such signal")
def test_a_signal_that_comes_before_the_wait_begins_ends_it(bell):
    # With a handler in Python alone nothing would wake it: here there is none that does anything.
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    poller = zmq.Poller()
    poller.register(bell, zmq.POLLIN)
    try:
        with bell.rung_by_signals():
            signal.raise_signal(signal.SIGUSR1)
            wait(poller, inf)
        assert bell.hear()
        signal.raise_signal(signal.SIGUSR1)
        assert not bell.hear()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_what_is_looked_at_says_when_it_wants_to_be_called_again():
    assert look_again(None) == inf
    assert look_again(lambda: 12.5) == 12.5
    now = time.monotonic()
    assert look_again(lambda: None) >= now + LOOK_SECONDS


def test_a_plain_forwarder_tells_its_counts_to_any_thread_while_it_runs():
    with Proxy(frontend="tcp://127.0.0.1:*", backend="tcp://127.0.0.1:*") as proxy:
        running = threading.Thread(target=proxy.run, daemon=True)
        running.start()
        assert proxy.stats.messages == 0
        proxy.stop()
        running.join(DEADLINE)
        assert not running.is_alive()
