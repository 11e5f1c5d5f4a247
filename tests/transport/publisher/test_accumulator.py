"""When messages go out alone, and when they wait for each other; on a clock that the test moves."""

import pytest

from oz.protocol.stats import PublisherStats
from oz.transport.guard import Guard
from oz.transport.publisher.accumulator import QUIET, SHARED, Accumulator


class Clock:
    """A clock that stands still, but for what sends take."""

    now = 1_000.0

    def __call__(self):
        return self.now


class SlowDispatch:
    """Sends batches, each of which takes a while, as one to many subscribers does."""

    size = position = 0

    def __init__(self, clock, seconds):
        self._clock = clock
        self.seconds = seconds
        self.sent = []

    def lose_count(self):
        pass

    def send_alone(self, recipients, raw, item):
        self._clock.now += self.seconds
        self.sent.append([raw])

    def send(self, taken, first, *, is_rich):
        self._clock.now += self.seconds
        self.sent.append(taken[1::3])


@pytest.fixture
def clock():
    return Clock()


def make(clock, seconds, looking=0.0):
    dispatch = SlowDispatch(clock, seconds)

    def look(_):
        clock.now += looking

    waits = Accumulator(Guard(), dispatch, PublisherStats(), look, lambda: None, clock)
    return waits, dispatch


@pytest.mark.parametrize("seconds", [0.1 * QUIET, 3 * QUIET, 1_000 * QUIET])
def test_a_burst_makes_batches_however_long_a_send_takes(clock, seconds):
    waits, dispatch = make(clock, seconds)
    for number in range(5):
        waits.begin(None, None, b"%d" % number, b"")
    waits.flush(None)
    assert dispatch.sent == [[b"0"], [b"1", b"2", b"3", b"4"]]


def test_a_burst_to_many_makes_batches_though_looking_for_subscriptions_takes_long(clock):
    waits, dispatch = make(clock, 50 * QUIET, 5 * QUIET)
    for number in range(5):
        waits.begin(None, None, b"%d" % number, b"")
    waits.flush(None)
    assert dispatch.sent == [[b"0"], [b"1", b"2", b"3", b"4"]]


def test_a_message_after_silence_goes_out_at_once(clock):
    waits, dispatch = make(clock, 3 * QUIET)
    waits.begin(None, None, b"0", b"")
    clock.now += 1.1 * QUIET
    waits.begin(None, None, b"1", b"")
    assert dispatch.sent == [[b"0"], [b"1"]]
    assert not waits


def test_a_send_that_was_interrupted_makes_no_later_message_wait(clock):
    waits, dispatch = make(clock, 0.1 * QUIET)
    for number in range(10):
        waits.begin(None, None, b"%d" % number, b"")
        dispatch.seconds = 1_000 * QUIET if number == 7 else 0.1 * QUIET
        clock.now += 1.1 * QUIET
    assert dispatch.sent == [[b"%d" % number] for number in range(10)]


def test_in_a_turn_of_a_loop_one_message_goes_alone_and_the_others_share_a_frame_at_its_end(clock):
    dispatch, asked = SlowDispatch(clock, 3 * QUIET), []
    waits = Accumulator(
        Guard(),
        dispatch,
        PublisherStats(),
        lambda _: None,
        lambda: asked.append(1),
        clock,
        in_turns=True,
    )
    for begin in (waits.begin, waits.begin_rare):
        dispatch.sent.clear()
        for number in range(3):
            begin(None, None, b"%d" % number, b"")
            # Tasks do other things between what they publish.
            clock.now += 10 * QUIET
        assert dispatch.sent == [[b"0"]]
        assert asked
        waits.end_turn(None)
        assert dispatch.sent == [[b"0"], [b"1", b"2"]]
        clock.now += 10 * QUIET


def in_turns(clock, seconds):
    dispatch = SlowDispatch(clock, seconds)
    stats = PublisherStats()
    return Accumulator(Guard(), dispatch, stats, lambda _: None, lambda: None, clock, in_turns=True), dispatch


@pytest.mark.parametrize("way", ["begin", "begin_rare"])
def test_where_others_are_expected_in_a_turn_none_goes_alone(clock, way):
    waits, dispatch = in_turns(clock, 3 * QUIET)
    waits.expect_others(None, 100)
    for number in range(2):
        getattr(waits, way)(None, None, b"%d" % number, b"")
    waits.go(None)
    assert dispatch.sent == []
    waits.end_turn(None)
    assert dispatch.sent == [[b"0", b"1"]]
    # The next turn is one of its own.
    clock.now += 1
    getattr(waits, way)(None, None, b"2", b"")
    assert dispatch.sent[1:] == [[b"2"]]


@pytest.mark.parametrize("way", ["begin", "begin_rare"])
def test_where_many_wait_for_others_they_go_before_those(clock, way):
    waits, dispatch = in_turns(clock, 3 * QUIET)
    for number in range(5):
        waits.expect_others(None, 2)
        getattr(waits, way)(None, None, b"%d" % number, b"")
    assert dispatch.sent == [[b"0", b"1"], [b"2", b"3"]]
    waits.end_turn(None)
    assert dispatch.sent[2:] == [[b"4"]]


def test_in_threads_those_that_come_while_others_are_expected_go_together(clock):
    waits, dispatch = make(clock, 0)
    waits.begin(None, None, b"0", b"")
    clock.now += 2 * QUIET
    for number in range(1, 4):
        waits.expect_others(None, 100)
        waits.begin_rare(None, None, b"%d" % number, b"")
        clock.now += 2 * QUIET
    assert dispatch.sent == [[b"0"]]
    waits.go(None)
    assert dispatch.sent == [[b"0"], [b"1", b"2", b"3"]]
    # Nothing waits by that, and what others have published meanwhile is no concern of it.
    waits.begin(None, None, b"4", b"")
    waits.go(None)
    assert dispatch.sent[2:] == []


def test_in_threads_the_first_after_a_while_goes_at_once_though_others_are_expected(clock):
    waits, dispatch = make(clock, 0)
    for number in range(2):
        waits.expect_others(None, 100)
        waits.begin(None, None, b"%d" % number, b"")
        clock.now += 1.1 * SHARED
    assert dispatch.sent == [[b"0"], [b"1"]]


def test_others_are_expected_until_they_are_late_or_what_waits_has_gone(clock):
    waits, _ = make(clock, 0)
    waits.begin(None, None, b"0", b"")
    assert not waits.expects_others()
    waits.expect_others(None, 100)
    waits.begin_rare(None, None, b"1", b"")
    assert waits.expects_others()
    clock.now += 1.1 * SHARED
    assert not waits.expects_others()
    # The next ones have as long.
    waits.flush(None)
    waits.expect_others(None, 100)
    waits.begin_rare(None, None, b"2", b"")
    assert waits.expects_others()
    waits.go(None)
    assert not waits.expects_others()


class InterruptedDispatch(SlowDispatch):
    """Calls a signal handler when a sender asks for the position, which is before it takes what waits."""

    handler = staticmethod(lambda: None)
    at = 0

    @property
    def position(self):
        self.handler()
        return self.at

    @position.setter
    def position(self, position):
        self.at = position


def test_a_signal_handler_may_close_between_the_count_of_what_waits_and_its_sending(clock):
    dispatch = InterruptedDispatch(clock, QUIET)
    guard = Guard()
    waits = Accumulator(guard, dispatch, PublisherStats(), lambda _: None, lambda: None, clock)
    for number in range(3):
        waits.begin(None, None, b"%d" % number, b"")

    def close():
        dispatch.handler = lambda: None
        guard.end_interrupted()
        waits.flush(None)
        waits.end()

    dispatch.handler = close
    waits.flush(None)
    assert dispatch.sent == [[b"0"], [b"1", b"2"]]
