"""The thread of a node, and what has it come back from waiting."""

import select
import threading
from contextlib import ExitStack

import pytest

from oz.sync.io_thread import IOThread
from oz.system import raise_descriptors
from support.waiting import DEADLINE

FIRST_BEYOND_SELECT = 1_024
"""The first file descriptor that `select` does not take."""


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


class Rests:
    """Polls in place of a thread's that take down how long it would rest, and let it rest no longer."""

    def __init__(self, most):
        self.pauses, self.enough = [], threading.Event()
        self._most = most

    def __call__(self):
        self._poll = select.poll()
        return self

    def register(self, descriptor, events):
        self._poll.register(descriptor, events)

    def poll(self, milliseconds):
        self.pauses.append(milliseconds / 1000)
        if len(self.pauses) == self._most:
            self.enough.set()
            self._poll.poll(DEADLINE * 1000)


def test_a_thread_whose_work_goes_on_failing_rests_for_longer_each_time(monkeypatch, caplog):
    rests = Rests(8)
    monkeypatch.setattr("oz.sync.io_thread.make_poll", rests)

    def fail():
        raise OSError("too many open files")

    running = IOThread("failing", fail)
    running.start()
    assert rests.enough.wait(DEADLINE)
    assert running.stop(DEADLINE)
    assert rests.pauses[:8] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_a_thread_rests_only_shortly_again_after_a_turn_that_did_not_fail(monkeypatch):
    rests = Rests(4)
    monkeypatch.setattr("oz.sync.io_thread.make_poll", rests)

    def fail_but_once():
        if len(rests.pauses) == 2:
            running.failures = 0
        raise OSError("too many open files")

    running = IOThread("failing", fail_but_once)
    running.start()
    assert rests.enough.wait(DEADLINE)
    assert running.stop(DEADLINE)
    assert rests.pauses[:4] == [0.1, 0.2, 0.1, 0.2]


def test_a_thread_goes_on_after_a_failure_in_a_process_with_a_thousand_descriptors(tmp_path, caplog):
    raise_descriptors(2_048)
    (tmp_path / "any").touch()
    failed, done = threading.Event(), threading.Event()

    def fail_once():
        if not failed.is_set():
            failed.set()
            raise OSError("too many open files")
        done.set()
        wait_for_bell(running.bell)

    def wait_for_bell(bell):
        poll = select.poll()
        poll.register(bell, select.POLLIN)
        poll.poll(DEADLINE * 1000)

    with ExitStack() as stack:
        while stack.enter_context((tmp_path / "any").open()).fileno() < FIRST_BEYOND_SELECT:
            pass
        running = IOThread("many", fail_once)
        assert running.bell > FIRST_BEYOND_SELECT
        running.start()
        assert done.wait(DEADLINE)
        assert running.stop(DEADLINE)
