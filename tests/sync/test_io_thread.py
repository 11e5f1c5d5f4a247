"""The thread of a node, and what has it come back from waiting."""

import select
import threading

import pytest

from oz.sync.io_thread import IOThread
from support.waiting import DEADLINE


class Interrupted:
    """A socket whose first `send` is cut short by what a signal handler raises."""

    def __init__(self, socket):
        self._socket = socket
        self._is_interrupted = False

    def send(self, data):
        if not self._is_interrupted:
            self._is_interrupted = True
            raise KeyboardInterrupt
        return self._socket.send(data)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()


def test_a_thread_hears_the_bell_again_after_ctrl_c_interrupted_a_ring():
    def wait():
        select.select([running.bell], [], [], DEADLINE)
        running.hear()

    running = IOThread("waiting", wait)
    running._ringer = Interrupted(running._ringer)
    running.start()
    with pytest.raises(KeyboardInterrupt):
        running.ring()
    done = threading.Event()
    asking = threading.Thread(target=lambda: running.call(done.set), daemon=True)
    asking.start()
    came = done.wait(DEADLINE / 2)
    assert running.stop(2 * DEADLINE)
    assert came


def test_a_thread_whose_work_goes_on_failing_rests_for_longer_each_time(monkeypatch, caplog):
    pauses, enough = [], threading.Event()

    def rest(readable, _writable, _failed, seconds):
        pauses.append(seconds)
        if len(pauses) == 8:
            enough.set()
            select_as_it_is(readable, [], [], DEADLINE)

    select_as_it_is = select.select
    monkeypatch.setattr("oz.sync.io_thread.select.select", rest)

    def fail():
        raise OSError("too many open files")

    running = IOThread("failing", fail)
    running.start()
    assert enough.wait(DEADLINE)
    assert running.stop(DEADLINE)
    assert pauses[:8] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_a_thread_rests_only_shortly_again_after_a_turn_that_did_not_fail(monkeypatch):
    pauses, enough = [], threading.Event()

    def rest(readable, _writable, _failed, seconds):
        pauses.append(seconds)
        if len(pauses) == 4:
            enough.set()
            select_as_it_is(readable, [], [], DEADLINE)

    select_as_it_is = select.select
    monkeypatch.setattr("oz.sync.io_thread.select.select", rest)

    def fail_but_once():
        if len(pauses) == 2:
            running.failures = 0
        raise OSError("too many open files")

    running = IOThread("failing", fail_but_once)
    running.start()
    assert enough.wait(DEADLINE)
    assert running.stop(DEADLINE)
    assert pauses[:4] == [0.1, 0.2, 0.1, 0.2]
