"""Services wait for their sockets, for what is due, and for whoever rings: in no slices."""

import os
import signal
from math import inf

import pytest
import zmq

from oz.services.waiting import Bell, wait

DEADLINE = 30.0


@pytest.fixture
def bell():
    made = Bell()
    yield made
    made.close()


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
