"""A command that prints what comes waits for that, for signals and for the end of its reader."""

import os
import signal
import sys
import threading
from contextlib import contextmanager
from math import inf

import pytest
import zmq

from oz.cli.waiting import await_signal, listening
from support.waiting import Thread, until, wait_until_stuck


@contextmanager
def piped(monkeypatch):
    """Make stdout a pipe; gives its end. No fixture: pytest puts its own stdout back after those."""
    reader, writer = os.pipe()
    with open(writer, "w") as out, monkeypatch.context() as held:
        held.setattr(sys, "stdout", out)
        yield reader


def test_it_waits_until_nobody_reads_any_more(monkeypatch):
    with piped(monkeypatch) as reader, listening() as waiting:
        working = Thread(lambda: waiting.wait(inf))
        working.wait_until_stuck()
        os.close(reader)
        with pytest.raises(BrokenPipeError):
            working.outcome()


def test_it_waits_until_somebody_rings_or_a_socket_has_something():
    with zmq.Context() as context, context.socket(zmq.PULL) as pull, context.socket(zmq.PUSH) as push:
        push.connect(f"tcp://127.0.0.1:{pull.bind_to_random_port('tcp://127.0.0.1')}")
        with listening() as waiting:
            waiting.add(pull)
            working = Thread(lambda: waiting.wait(inf))
            working.wait_until_stuck()
            waiting.bell.ring()
            working.outcome()
            push.send(b"")
            waiting.wait(inf)
            assert pull.recv(zmq.NOBLOCK) == b""


def test_it_returns_when_the_time_is_over_and_a_file_has_no_reader(tmp_path, monkeypatch):
    with open(tmp_path / "out", "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        with listening() as waiting:
            until(lambda: waiting.wait(0.0) is None)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="a signal goes to no thread")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_another_thread_gets_ends_the_wait_for_one(number):
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        with await_signal() as wait:
            main = threading.main_thread()
            sending = Thread(lambda: _signal_itself_when_stuck(main, number))
            wait()
            sending.outcome()
    finally:
        for one, action in before.items():
            signal.signal(one, action)


def _signal_itself_when_stuck(thread, number):
    wait_until_stuck(thread)
    signal.pthread_kill(threading.get_ident(), number)


def test_a_signal_before_the_wait_for_one_ends_it():
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        with await_signal() as wait:
            signal.raise_signal(signal.SIGTERM)
            wait()
    finally:
        for one, action in before.items():
            signal.signal(one, action)
