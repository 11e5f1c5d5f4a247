"""The line of threads whose answers have come: both ways to wake them, and the order of the compiled one."""

import socket
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple

import pytest

from oz.compiled import HOT
from oz.sync.answer_line import EagerLine, make_line
from support.waiting import DEADLINE, until, wait_until_stuck

HAS_LINE = HOT is not None and hasattr(HOT, "AnswerLine")

needs_line = pytest.mark.skipif(not HAS_LINE, reason="the compiled part is not there, or without a line")


LONG = 10 * DEADLINE
"""Seconds of a wait that others end."""


class Bell(NamedTuple):
    """What ends a `poll`: called with a byte, and the descriptor that can be read then."""

    ring: Callable[[bytes], object]
    descriptor: int


@pytest.fixture(params=["eager", pytest.param("compiled", marks=needs_line)])
def line(request):
    """Give a line of each kind."""
    return EagerLine() if request.param == "eager" else make_line()


@pytest.fixture
def bell(line):
    """Give what ends the line's `poll`."""
    mine, its = socket.socketpair()
    with mine, its:
        line.watch(its.fileno())
        yield Bell(mine.send, its.fileno())


class Asking(threading.Thread):
    """A thread that waits again and again; what it has said so far is counted."""

    def __init__(self, waiter, woken, name):
        super().__init__(daemon=True, name=name)
        self.waiter, self.woken = waiter, woken
        self.goes_on = threading.Event()
        self.is_over = False
        self.start()

    def run(self):
        while not self.is_over:
            self.waiter.wait(LONG)
            self.woken.put(self.name)
            self.goes_on.wait(LONG)
            self.goes_on.clear()

    def end(self):
        self.is_over = True
        self.goes_on.set()
        self.join(DEADLINE)
        assert not self.is_alive()


def asking(line, count, woken):
    """Have so many threads wait."""
    threads = [Asking(line.waiter(), woken, f"{number}") for number in range(count)]
    # Each is in `wait`, or about to be: what it is told before that it finds.
    return threads


def test_what_was_said_before_ends_a_wait(line):
    waiter = line.waiter()
    waiter.tell()
    waiter.wait(None)


def test_a_wait_ends_when_its_time_is_over(line):
    waiter, began = line.waiter(), time.monotonic()
    waiter.wait(0.02)
    waiter.wait(0)
    assert time.monotonic() - began >= 0.02


def test_it_takes_seconds_only(line):
    with pytest.raises(TypeError):
        line.waiter().wait("soon")


def test_another_thread_wakes_at_once(line):
    woken = SimpleQueue()
    threads = asking(line, 3, woken)
    for one in threads:
        one.waiter.tell()
    assert {woken.get(timeout=DEADLINE) for _ in threads} == {"0", "1", "2"}
    for one in threads:
        one.end()


def test_poll_gives_what_can_be_read(line, bell):
    assert line.poll(0) == line.poll(0.001) == []
    bell.ring(b"!")
    assert line.poll(None) == line.poll(LONG) == line.poll(0) == [bell.descriptor]


def test_poll_ends_when_its_time_is_over(line, bell):
    began = time.monotonic()
    assert line.poll(0.02) == []
    assert time.monotonic() - began >= 0.02


def test_poll_is_woken_by_another_thread(line, bell):
    timer = threading.Timer(0.02, bell.ring, [b"!"])
    timer.start()
    assert line.poll(LONG) == [bell.descriptor]
    timer.join()


def test_those_who_do_not_go_to_wait_hold_up_nobody(line, bell):
    woken = SimpleQueue()
    threads = asking(line, 5, woken)
    line.poll(0)
    for one in threads:
        one.waiter.tell()
    # The first may need longer for a processor than one look takes.
    until(lambda: line.poll(0.05) or woken.qsize() == len(threads))
    assert {woken.get(timeout=DEADLINE) for _ in threads} == {one.name for one in threads}
    for one in threads:
        one.end()


def test_nobody_is_left_behind_where_all_go_on_to_wait(line, bell):
    """Threads that wait again at once, told of as they come: each answer is heard."""
    waiters, heard = [line.waiter() for _ in range(8)], [0] * 8
    told, rounds = [threading.Event() for _ in waiters], 300

    def listen(number):
        while heard[number] < rounds:
            waiters[number].wait(LONG)
            if told[number].is_set():
                told[number].clear()
                heard[number] += 1

    threads = [threading.Thread(target=listen, args=(number,), daemon=True) for number in range(8)]
    for one in threads:
        one.start()
    ends = time.monotonic() + 60
    while any(one.is_alive() for one in threads):
        for number, waiter in enumerate(waiters):
            if heard[number] < rounds and not told[number].is_set():
                told[number].set()
                waiter.tell()
        line.poll(0.0001)
        assert time.monotonic() < ends, heard
    assert heard == [rounds] * 8


class Waited(threading.Thread):
    """A thread that waits once, and says when it is about to and when it was woken."""

    def __init__(self, waiter, woken, name):
        super().__init__(daemon=True, name=name)
        self.waiter, self.woken = waiter, woken
        self.start()
        wait_until_stuck(self)

    def run(self):
        self.waiter.wait(LONG)
        self.woken.put(self.name)


PATIENT = 60.0
"""Nobody is woken for lack of others that wait: what does it is seen."""


def told_in_line(line, count, woken):
    """Have so many threads wait, and tell them in the thread that goes by `poll`."""
    threads = [Waited(line.waiter(), woken, f"{number}") for number in range(count)]
    line.poll(0)
    for one in threads:
        one.waiter.tell()
    return threads


@needs_line
def test_each_wakes_the_next_as_it_goes_to_wait():
    line, woken = make_line(PATIENT), SimpleQueue()
    threads = told_in_line(line, 3, woken)
    assert woken.empty()
    line.poll(0)
    assert woken.get(timeout=DEADLINE) == "0"
    threads[0].join()
    line.poll(0)
    assert woken.empty()
    line.waiter().wait(0)
    assert woken.get(timeout=DEADLINE) == "1"
    threads[1].join()
    line.waiter().wait(0)
    assert woken.get(timeout=DEADLINE) == "2"


@needs_line
@pytest.mark.parametrize("way", ["wake_all", "leave"])
def test_all_in_the_line_are_woken_where_that_is_said(way):
    line, woken = make_line(PATIENT), SimpleQueue()
    told_in_line(line, 4, woken)
    getattr(line, way)()
    assert sorted(woken.get(timeout=DEADLINE) for _ in range(4)) == ["0", "1", "2", "3"]


@needs_line
def test_a_look_wakes_one_that_waits_for_long_and_all_where_that_one_does_other_things():
    line, woken = make_line(0.01), SimpleQueue()
    told_in_line(line, 4, woken)
    until(lambda: line.look() or not woken.empty())
    assert woken.get(timeout=DEADLINE) == "0"
    until(lambda: line.look() or woken.qsize() == 3)


@needs_line
def test_after_that_others_are_woken_at_once_for_a_while():
    line, woken = make_line(0.01), SimpleQueue()
    told_in_line(line, 2, woken)
    until(lambda: line.look() or woken.qsize() == 2)
    told_in_line(line, 2, woken)
    until(lambda: woken.qsize() == 4)


@needs_line
def test_whose_answer_has_come_does_not_wait_in_the_line():
    line = make_line(PATIENT)
    first, second, third = (line.waiter() for _ in range(3))
    line.poll(0)
    for one in (first, second, third):
        one.tell()
    began = time.monotonic()
    third.wait(None)
    second.wait(None)
    first.wait(None)
    assert time.monotonic() - began < 5
    # None of them is in the line any more, and what was said is used up.
    for one in (first, second, third):
        one.wait(0)
        one.tell()


@needs_line
def test_those_that_are_forgotten_in_the_line_hold_up_nobody():
    line, woken = make_line(0.01), SimpleQueue()
    last = Waited(line.waiter(), woken, "last")
    line.poll(0)
    for _ in range(3):
        line.waiter().tell()
    last.waiter.tell()
    until(lambda: line.poll(0.001) or not woken.empty())


class RaisedError(Exception):
    pass


@needs_line
def test_a_line_says_what_it_cannot_watch():
    line = make_line()
    for descriptor in range(64):
        line.watch(descriptor)
    with pytest.raises(ValueError, match="64 descriptors at most"):
        line.watch(64)
    with pytest.raises(TypeError):
        line.watch("0")
