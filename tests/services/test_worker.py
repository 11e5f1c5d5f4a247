import os
import signal
import time

import pytest
import zmq

import oz.services
from oz.services.worker import Worker
from oz.transport.backoff import FIRST, LONGEST, STEADY, Backoff
from support.waiting import DEADLINE


def test_a_process_that_keeps_ending_is_started_less_often_until_it_has_worked_for_a_while():
    backoff, now, pauses = Backoff(), 100.0, []
    for _ in range(12):
        assert backoff.may_start(now)
        backoff.started(now)
        pause = backoff.ended(now + 1)
        assert not backoff.may_start(now + 1 + pause / 2)
        now += 1 + pause
        pauses.append(pause)
    assert pauses[0] == FIRST
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST
    assert backoff.starts == 12
    backoff.started(now)
    assert backoff.ended(now + STEADY) == FIRST


def test_process_that_cannot_start_raises_an_error_with_its_output(tmp_path):
    options = {"endpoints": ["tcp://127.0.0.1:1"], "multicast": {}, "joined_at": 0}
    worker = Worker("receiver", lambda: options, tmp_path)

    def run_until_it_ends():
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            list(worker.watch(time.monotonic()))
            poller = zmq.Poller()
            worker.register(poller, wants_room=False)
            poller.poll(1000 * max(0.0, worker.next_deadline() - time.monotonic()))

    try:
        with pytest.raises(
            oz.services.WorkerError, match=r"the receiver cannot start: .*tcp://127\.0\.0\.1:1"
        ):
            run_until_it_ends()
        assert worker.pid is None
    finally:
        worker.close()


def test_close_kills_a_process_that_does_not_end_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr("oz.services.worker.CLOSE_TIMEOUT", 1e6)
    worker = Worker("receiver", lambda: {"endpoints": [], "multicast": {}, "joined_at": 0}, tmp_path)
    list(worker.watch(time.monotonic()))
    os.kill(worker.pid, signal.SIGSTOP)
    worker.close(0.0)
    assert worker.pid is None
