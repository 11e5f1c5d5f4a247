"""Signals whose handlers raise: what is raised must not get lost on the way."""

import functools
import os
import signal
import threading
import time
from contextlib import suppress

import pytest
import zmq

from oz.cli.signals import ended_by_sigterm, interruptible
from waiting import DEADLINE, until

ROUNDS = 40


class Dropping:
    """Evaluates what Cython's limited API does for a traceback, and drops what is raised meanwhile too."""

    def __del__(self):
        _getframe()  # noqa: F821


@pytest.mark.parametrize(
    ("context", "number", "raised"),
    [(interruptible, signal.SIGINT, KeyboardInterrupt), (ended_by_sigterm, signal.SIGTERM, SystemExit)],
)
def test_a_signal_that_comes_while_a_traceback_is_made_is_raised_after_it(
    monkeypatch, context, number, raised
):
    monkeypatch.setitem(globals(), "_getframe", functools.partial(signal.raise_signal, number))
    with pytest.raises(raised), context():
        drop_and_wait()


def drop_and_wait():
    Dropping()
    until(lambda: False)


def test_ctrl_c_reaches_a_thread_that_does_nothing_but_find_no_message():
    """Most of its time goes into tracebacks."""
    with zmq.Context() as context, context.socket(zmq.PULL) as socket:
        for _ in range(ROUNDS):
            with pytest.raises(KeyboardInterrupt), interruptible():
                find_nothing(socket)


def find_nothing(socket):
    threading.Timer(0.002, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
    ends = time.monotonic() + DEADLINE
    while time.monotonic() < ends:
        with suppress(zmq.Again):
            socket.recv(zmq.NOBLOCK)


def test_who_has_a_handler_of_their_own_keeps_it():
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    try:
        with interruptible():
            os.kill(os.getpid(), signal.SIGINT)
            until(lambda: seen)
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_handler_of_python_comes_back():
    with interruptible():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
