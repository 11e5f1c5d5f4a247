"""Messages in line are handed out by the compiled part as its Python twin does it."""

import _thread
import gc
import logging
import signal
import sys
from collections import defaultdict, deque
from types import SimpleNamespace

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

import oz
from oz.compiled import HOT
from oz.protocol.messages import Arrival, Message, RoutedMessage
from oz.protocol.stats import SubscriberStats
from oz.protocol.subscriber.subscriptions import Route
from oz.sync.subscriptions import Subscription
from oz.transport.subscriber import engine as engines
from oz.transport.subscriber.engine import SubscriberEngine
from support.sizes import size

pytestmark = [pytest.mark.skipif(HOT is None, reason="the compiled part does not run"), pytest.mark.sized]

ARRIVAL = Arrival(b"o" * 16, 0, 1, 0, 0)


class World:
    """An engine with messages in line, and handlers that do all kinds of things."""

    def __init__(self):
        self.log = []
        self.engine = engine = SubscriberEngine.__new__(SubscriberEngine)
        engine.waiting, engine.ready, engine.rest = deque(), deque(), deque()
        engine.receiver = SimpleNamespace(stats=SubscriberStats())
        engine.take = self._nothing
        engine.declarer = SimpleNamespace(socket="socket")
        engine.monotonic = lambda: 0.0
        engine.must_check = engine.is_drained = False
        engine._failures, engine._denials = deque(), deque()
        self.subscriptions = [self._subscribe(name) for name in KINDS]

    def _nothing(self, socket, flags, until):
        raise zmq.Again

    def _subscribe(self, name):
        def handler(message):
            self.log.append((name, message.subject))
            if name == "raises":
                raise ValueError(name)
            if name == "ends next":
                self.subscriptions[0].active = False
            if name == "checks":
                self.engine.must_check = True
            if name == "exits":
                raise KeyboardInterrupt
            if name == "adds":
                self.engine.waiting.append(self.message("x", [0]))

        kind = None if name == "listed" else handler
        limit = 2 if name == "counted" else None
        return Subscription([oz.compile("a")], kind, self._cancel, limit)

    def _cancel(self, subscription):
        subscription.active = False
        self.log.append("cancelled")

    def message(self, subject, numbers):
        route = Route(subject, tuple(self.subscriptions[number] for number in numbers), ())
        return RoutedMessage(subject, b"", route, ARRIVAL, 0)

    def take(self):
        """Ask for the next message until there is none."""
        for _ in range(100):
            try:
                self.log.append(self.engine.next(zmq.NOBLOCK).subject)
            except zmq.Again:
                break
            except (oz.OzError, KeyboardInterrupt) as error:
                self.log.append(type(error))
        return self.log, len(self.engine.waiting), self.engine.receiver.stats.failed


KINDS = ["plain", "listed", "counted", "raises", "ends next", "checks", "exits", "adds"]


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def both(fill):
    """Fill two worlds alike, and take all that is in line, compiled and not."""
    results = []
    for hand_out in (HOT.hand_out, None):
        world = World()
        fill(world)
        engines._hand_out = hand_out
        try:
            results.append(world.take())
        finally:
            engines._hand_out = HOT.hand_out
    return results


@given(st.lists(st.lists(st.integers(0, len(KINDS) - 1), max_size=4), max_size=12))
def test_messages_reach_handlers_and_callers_as_by_the_twin(lines):
    def fill(world):
        for place, numbers in enumerate(lines):
            world.engine.waiting.append(world.message(str(place), numbers))

    ours, pure = both(fill)
    assert ours == pure


def test_more_messages_than_one_turn_has_are_all_handled():
    ours, pure = both(lambda world: world.engine.waiting.extend([world.message("a", [0])] * 2_500))
    assert ours == pure
    assert len(ours[0]) == 2_500


def test_routes_and_messages_of_other_classes_are_left_to_the_twin():
    class Other(Message):
        route = SimpleNamespace(
            is_only_listed=True, is_listed=True, is_counted=False, handled=(), subscriptions=()
        )
        subject = "other"

        def __init__(self):
            pass

    def fill(world):
        odd = world.message("b", [0])
        odd.route = SimpleNamespace(is_only_listed=True)
        world.engine.waiting.extend([world.message("a", [0]), odd, Other(), world.message("c", [1])])

    ours, pure = both(fill)
    assert ours == pure
    assert ours[0] == [("plain", "a"), "b", "other", "c"]


def test_what_a_handler_raises_is_logged_with_its_traceback(caplog):
    logging.disable(logging.NOTSET)
    world = World()
    world.engine.waiting.append(world.message("a", [3]))
    world.take()
    [record] = caplog.records
    assert "the handler of" in record.getMessage()
    assert record.exc_info[0] is ValueError
    assert record.exc_info[2].tb_frame.f_code.co_name == "handler"
    assert sys.exc_info() == (None, None, None)


def test_a_signal_comes_between_two_handlers_that_let_none_through():
    def fill(world):
        handled = defaultdict(_thread.interrupt_main)
        world.subscriptions[0].handler = handled.__getitem__
        world.engine.waiting.extend(world.message(str(number), [0]) for number in range(3))

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        ours, pure = both(fill)
    finally:
        signal.signal(signal.SIGINT, before)
    assert ours == pure
    assert ours[0] == [KeyboardInterrupt] * 3


def test_arguments_of_other_types_are_a_type_error_and_nothing_worse():
    for wrong in [(), (None, deque(), print), (World().engine, None, print)]:
        with pytest.raises(TypeError):
            HOT.hand_out(*wrong)
    with pytest.raises(IndexError):
        HOT.hand_out(World().engine, [1], deque().popleft)
    for classes in [(), (Message, Route, Subscription, Route), (1, 2, 3, 4)]:
        with pytest.raises(TypeError):
            HOT.know_dispatch(*classes)


def test_messages_that_were_handed_out_leave_no_reference_behind():
    world = World()
    handled, listed, raising = (world.message("a", [number]) for number in (0, 1, 3))
    waiting = world.engine.waiting
    popleft = waiting.popleft
    watched = [
        handled,
        listed,
        raising,
        handled.route,
        *world.subscriptions,
        waiting,
    ]

    def work():
        waiting.extend((handled, raising, listed))
        assert HOT.hand_out(world.engine, waiting, popleft) is listed
        world.log.clear()

    work()
    gc.collect()
    before = [sys.getrefcount(one) for one in watched]
    for _ in range(size(300, 300_000)):
        work()
    gc.collect()
    assert [sys.getrefcount(one) for one in watched] == before
