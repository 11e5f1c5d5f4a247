"""A publisher whose thread or loop has more to look at than it has time for: those who publish come first."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace

import pytest
import zmq

import oz
import oz.asyncio
from oz.sync.ticker import Ticker
from oz.sync.waiting import Bell
from oz.transport.publisher.attending import LONGEST_ROOM
from support.inside import engine_of
from support.waiting import DEADLINE, until

IN_A_HURRY = oz.Limits(interest_time=1e-9)
MANY = 1_000


@pytest.fixture
def behind():
    """The engine of a publisher that has read a part of what has come; its thread does not get in between."""
    with (
        zmq.Context() as context,
        oz.Publisher("tcp://127.0.0.1:*", context=context, limits=IN_A_HURRY) as pub,
        context.socket(zmq.SUB) as plain,
    ):
        plain.sndhwm = 0
        for number in range(MANY):
            plain.subscribe(b"a%d" % number)
        engine = engine_of(pub)
        with engine.guard:
            plain.connect(pub.endpoint)
            until(lambda: engine.listen() or engine.sender.is_behind)
            engine.guard.is_wanted = False
            yield engine


def test_room_is_made_once_for_who_publishes_while_more_waits(behind):
    assert not behind.has_to_make_room()

    behind.publish("b", b"")

    assert behind.has_to_make_room()
    assert not behind.has_to_make_room()


def test_no_room_is_made_where_nothing_waits(behind):
    until(lambda: behind.listen() is False and behind.router.plain.count(None) == MANY)
    assert not behind.sender.is_behind

    behind.publish("b", b"")

    assert not behind.has_to_make_room()


@pytest.mark.parametrize(
    "publish",
    [
        lambda engine: engine.publish("a1", b""),
        lambda engine: engine.publish("a1", b"", None),
        lambda engine: engine.raw.send_multipart([b"a1", b""]),
        lambda engine: engine.quick_sends()[0](b"a1"),
        lambda engine: engine.quick_sends()[1]([b"a1", b""]),
        lambda engine: engine.flush_now(),
    ],
    ids=["publish", "with fields", "raw", "quick send", "quick send_multipart", "flush"],
)
def test_whoever_publishes_says_so_before_it_waits_for_the_guard(behind, publish):
    publish(behind)

    assert behind.guard.is_wanted


def test_what_is_published_does_not_wait_for_more_to_be_looked_at(behind):
    before = behind.router.plain.count(None)
    behind.sender.listened_at = 0.0

    behind.publish("a1", b"")

    assert behind.router.plain.count(None) == before
    assert behind.sender.stats.sent == 1


class Looking:
    """Stands for a publisher that always has more to look at; it notes when its thread waits."""

    def __init__(self, is_wanted):
        self.noted, self.is_wanted = [], is_wanted
        self.socket, self.closed, self.thread = self, False, None
        self.sender = SimpleNamespace(accumulator=(), is_behind=True)
        self.news = SimpleNamespace(tell=lambda: None)

    def fileno(self):
        return self.bell.fileno()

    def rest_for(self, most):
        return 0.0

    def look_after(self):
        self.noted.append("looks")
        return False

    def has_to_make_room(self):
        return self.is_wanted


@pytest.mark.parametrize("is_wanted", [True, False])
def test_the_thread_rests_between_two_looks_for_those_who_publish(is_wanted):
    looking = Looking(is_wanted)
    looking.bell = Bell()
    ticker = Ticker(looking, 0.001)
    try:
        until(lambda: looking.noted)
        stop = ticker._stop

        class Resting:
            tell = stop.tell

            def wait(self, seconds):
                looking.noted.append("rests")
                assert seconds <= LONGEST_ROOM
                stop.wait(seconds)

        ticker._stop = Resting()
        looking.noted.clear()
        until(lambda: looking.noted.count("looks") > 5)
        noted = looking.noted[1:]
    finally:
        ticker.stop()
        looking.bell.close()
    between = {tuple(pair) for pair in itertools.pairwise(noted)}
    assert (("looks", "looks") in between) is not is_wanted
    assert ("rests" in noted) is is_wanted


@pytest.mark.parametrize(("took", "rest"), [(0.003, 0.0015), (1.0, LONGEST_ROOM)])
def test_a_loop_comes_back_after_half_as_long_as_it_has_looked(monkeypatch, took, rest):
    async def scenario():
        async with oz.asyncio.Publisher("tcp://127.0.0.1:*") as pub:
            engine, came, now = engine_of(pub), [], [0.0]

            def attend():
                now[0] += took
                return False

            await asyncio.wait_for(pub.publish("a", b""), DEADLINE)
            with monkeypatch.context() as patched:
                patched.setattr(engine, "monotonic", lambda: now[0])
                patched.setattr(engine, "attend", attend)
                patched.setattr(engine, "rest", lambda: 0.0)
                patched.setattr(engine, "_used_at", -1.0)
                patched.setattr(engine, "_come_back", came.append)
                engine.guard.is_wanted, engine.sender.is_behind = True, True
                engine.look_after()
                engine.look_after()
                engine.sender.is_behind = False
            assert came == [pytest.approx(rest), 0.0]

    asyncio.run(scenario())
