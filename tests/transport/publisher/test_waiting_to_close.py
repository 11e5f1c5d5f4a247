"""Closing without a limit waits for what ends it, and looks ever less often at what nobody tells of."""

import threading
import types
from math import inf

import pytest
import zmq

import oz.transport.publisher.untaken as untaken
from oz.transport.publisher.untaken import Untaken
from oz.transport.socket import GivingUp, end_context


class Patience:
    """Gives up after so many seconds, of a clock that its waits move."""

    def __init__(self, clock, seconds):
        self.clock, self.seconds, self.waits = clock, seconds, []

    def wait(self, seconds):
        self.waits.append(seconds)
        self.clock.now += seconds
        return self.clock.now >= self.seconds


@pytest.fixture
def clock(monkeypatch):
    clock = types.SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(untaken, "time", clock)
    return clock


@pytest.fixture
def unread(monkeypatch):
    """One connection whose other side never reads."""
    end = types.SimpleNamespace(number=0, is_silent=False, is_late=False, is_written=True, close=lambda: None)
    end.fate = lambda _: untaken.Fate.OPEN
    monkeypatch.setattr(untaken, "find", lambda *_: ([end], True))
    return Untaken(["ipc://somewhere"])


def test_what_is_not_read_is_looked_at_less_and_less_often(clock, unread):
    patience = Patience(clock, 60.0)
    unread.wait(inf, patience)
    assert len(patience.waits) < 260
    assert patience.waits == sorted(patience.waits)


def test_the_last_look_comes_when_the_time_is_over(clock, unread, monkeypatch):
    patience = Patience(clock, inf)
    unread.wait(0.1, patience)
    assert clock.now == pytest.approx(0.1)


class Unended(zmq.Context):
    """A context that ends when it is let."""

    let = over = None

    def __init__(self):
        super().__init__()
        self.let, self.over = threading.Event(), threading.Event()

    def destroy(self, linger=None):
        self.let.wait(60)
        super().destroy(0)
        self.over.set()


@pytest.fixture
def context():
    context = Unended()
    yield context
    context.let.set()
    assert context.over.wait(30)


@pytest.fixture
def ending(context, monkeypatch):
    """Somebody who waits for the end of the context, and never just for a while."""
    monkeypatch.setattr(threading.Thread, "join", None)
    given_up, ended = GivingUp(), threading.Event()

    def end():
        end_context(context, inf, None, given_up)
        ended.set()

    threading.Thread(target=end, daemon=True).start()
    return given_up, ended


def test_end_of_a_context_ends_the_wait_for_it(context, ending):
    _, ended = ending
    context.let.set()
    assert ended.wait(30)


def test_wait_for_the_end_of_a_context_can_be_given_up(ending):
    given_up, ended = ending
    given_up.say()
    assert ended.wait(30)


def test_what_was_given_up_before_is_not_waited_for(context):
    given_up = GivingUp()
    given_up.say()
    end_context(context, inf, None, given_up)
