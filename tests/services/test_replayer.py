import math
import threading
import time

import pytest
import zmq

import oz
from oz.journal import Journal, Record, Writer
from oz.services.columns import columns_of_loss
from oz.services.replayer import Control, ReplayStats, replay
from support import waiting

SECOND = 10**9

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def journal(tmp_path):
    """Write records, and open the journal."""

    def write(records, **options):
        with Writer(tmp_path / "recorded", **options) as writer:
            writer.append(records)
        return Journal(tmp_path / "recorded")

    return write


@pytest.fixture
def listener(publisher):
    """A publisher, and a subscriber to everything that it publishes."""
    pub = publisher(dialect="zmq")
    with oz.Subscriber(pub.endpoint, dialect="zmq", filtering="publisher") as sub:
        sub.subscribe("")
        sub.wait_ready(waiting.DEADLINE)
        yield pub, sub


def received(sub, count):
    return [sub.receive(timeout=waiting.DEADLINE) for _ in range(count)]


def test_messages_come_again_in_order_with_what_was_recorded_of_them(journal, listener):
    import msgpack

    pub, sub = listener
    headers = msgpack.packb({"trace": "7f", "oz-more": [b"second", b""], "oz-id": [b"s", 3]})
    hostile = msgpack.packb({"ok": 1, 5: "no text", "list": [1], "deep": {}, "oz-id": [b"", -1]})
    stats = replay(
        journal(
            [
                Record("a.1", b"1", 5, b"o" * 16, 41),
                Record("a.2", b"first", 6, headers=headers, reply_to="me"),
                Record.of_gap("nats:a.>", 3),
                Record(b"\xff\x01", b"\x00", 7, headers=b"\xc1 no msgpack"),
                Record("a b..c", b"", 8, headers=hostile),
            ]
        ),
        pub,
        speed=None,
    )
    first, second, third, fourth = received(sub, 4)
    assert [one.frames for one in (first, second, third, fourth)] == [
        [b"a.1", b"1"],
        [b"a.2", b"first", b"second", b""],
        [b"\xff\x01", b"\x00"],
        [b"a b..c", b""],
    ]
    assert [one.message_id for one in (first, second, third, fourth)] == [None, (b"s", 3), None, None]
    assert first.headers == {"oz-offset": 0, "oz-time-ns": 5, "oz-origin": b"o" * 16, "oz-sequence": 41}
    assert second.headers == {"trace": "7f", "oz-offset": 1, "oz-time-ns": 6, "oz-reply-to": "me"}
    assert third.headers == {"oz-offset": 3, "oz-time-ns": 7}
    assert fourth.headers == {"ok": 1, "oz-offset": 4, "oz-time-ns": 8}
    assert stats == ReplayStats(published=4, passed=5, lost=3, gaps=1)


def test_pattern_and_bounds_say_what_is_published(journal, listener):
    pub, sub = listener
    found = journal([(f"{'ab'[at % 2]}.{at}", b"%d" % at) for at in range(20)])
    stats = replay(found, pub, "a.*", start=5, end=15, speed=None, headers=False)
    assert [one.payload for one in received(sub, stats.published)] == [b"6", b"8", b"10", b"12", b"14"]


@pytest.mark.parametrize("speed", [1.0, 10_000.0])
def test_the_time_between_messages_is_kept_at_any_speed(journal, listener, speed):
    pub, sub = listener
    step = round(0.1 * speed * SECOND)
    found = journal([Record("a", b"%d" % at, 7 * SECOND + at * step) for at in range(5)])
    began = time.monotonic()
    working = waiting.Thread(lambda: replay(found, pub, speed=speed))
    times = [(received(sub, 1), time.monotonic() - began)[1] for _ in range(5)]
    working.outcome()
    assert all(at * 0.1 - 0.02 < passed for at, passed in enumerate(times)), times
    assert times[4] < waiting.DEADLINE


def test_times_that_go_back_are_not_waited_for(journal, listener):
    pub, _ = listener
    found = journal(
        [Record("a", b"", time_ns) for time_ns in (1000 * SECOND, 1, 500 * SECOND, 1000 * SECOND + 1)]
    )
    began = time.monotonic()
    assert replay(found, pub).published == 4
    assert time.monotonic() - began < 100


@pytest.mark.parametrize("speed", [100.0, None])
def test_a_pause_stops_it_and_what_follows_keeps_its_distance(journal, listener, speed):
    pub, _ = listener
    found = journal([Record("a", b"%d" % at, at * SECOND) for at in range(10_000)])
    control, stats = Control(), ReplayStats()
    working = waiting.Thread(lambda: replay(found, pub, speed=speed, control=control, stats=stats))
    control.pause()
    seen = [-1] * 50

    def rests():
        seen[:] = [*seen[1:], stats.published]
        time.sleep(0.002)
        return len(set(seen)) == 1 and working.is_alive()

    if speed is not None:
        waiting.until(rests)
        before = stats.published
        assert before < 10_000
        control.toggle()
        waiting.until(lambda: stats.published > before + 3)
        assert stats.published < 5000, "what was missed during the pause is not hurried after"
    control.resume()
    control.stop()
    assert working.outcome().published <= 10_000


def test_after_it_was_held_up_the_rest_is_put_off_and_not_hurried(journal, listener, monkeypatch):
    pub, _ = listener
    found = journal([Record("a", b"%d" % at, at * SECOND) for at in range(100)])
    held = threading.Event()
    monkeypatch.setattr(
        "oz.services.replayer._publish", lambda *_, **__: held.is_set() or (held.set(), time.sleep(3))
    )
    control, looks = Control(), []

    def look():
        looks.append(1)
        if len(looks) > 3:
            control.stop()

    working = waiting.Thread(lambda: replay(found, pub, speed=20.0, control=control, on_look=look))
    assert working.outcome().passed < 40, "60 were due when it went on"


def test_it_can_be_stopped_and_says_how_far_it_was(journal, listener):
    pub, _ = listener
    found = journal([Record("a", b"", at * SECOND) for at in range(10_000)])
    control, stats = Control(), ReplayStats()
    working = waiting.Thread(lambda: replay(found, pub, speed=50.0, control=control, stats=stats))
    waiting.until(lambda: stats.published > 2)
    control.stop()
    assert 2 < working.outcome().passed < 10_000


class Doing:
    """In place of a publisher: does something for each message."""

    def __init__(self, work):
        self._work = work

    def publish(self, *_, **__):
        self._work()

    def flush(self):
        pass


def test_a_pause_holds_back_what_was_received_earlier_too(journal):
    found = journal([Record("a", b"", 100 * SECOND), *(Record("a", b"", at) for at in range(100))])
    control, stats, looks = Control(), ReplayStats(), []
    pausing = Doing(control.pause)
    working = waiting.Thread(
        lambda: replay(found, pausing, control=control, stats=stats, on_look=lambda: looks.append(1))
    )
    waiting.until(lambda: len(looks) > 3 or not working.is_alive())
    control.stop()
    assert working.outcome().published == 1


@pytest.mark.parametrize("times", [range(20), range(20, 0, -1)])
def test_it_looks_now_and_then_though_it_waits_for_nothing(journal, times):
    found = journal([Record("a", b"", at) for at in times])
    looks = []
    slow = Doing(lambda: time.sleep(0.02))
    assert replay(found, slow, on_look=lambda: looks.append(1)).published == 20
    assert looks


@pytest.fixture(params=[{"full_timeout": 0.01}, {"on_full": "error"}], ids=["block", "error"])
def held_up(journal, publisher, context, request):
    """A journal of 40 MB, a publisher that waits or not, and a plain subscriber that reads nothing."""
    found = journal([("a", b"%03d" % at + bytes(200_000)) for at in range(200)])
    pub = publisher(dialect="zmq", high_water_mark=1, **request.param)
    sub = context.socket(zmq.SUB)
    sub.set_hwm(1)
    sub.setsockopt(zmq.SUBSCRIBE, b"")
    sub.setsockopt(zmq.RCVTIMEO, int(1000 * waiting.DEADLINE))
    sub.connect(pub.endpoint)
    pub.wait_for_subscribers(timeout=waiting.DEADLINE)
    return found, pub, sub


def test_while_a_subscriber_holds_it_up_it_looks_and_can_be_stopped(held_up):
    found, pub, sub = held_up
    control, looks = Control(), []
    working = waiting.Thread(
        lambda: replay(
            found, pub, wait_for_room=True, speed=None, control=control, on_look=lambda: looks.append(1)
        )
    )
    waiting.until(lambda: len(looks) > 3)
    control.stop()
    assert 0 < working.outcome().published < 200
    sub.close(0)


@pytest.mark.parametrize("held_up", [{"on_full": "error"}], indirect=True)
def test_while_it_is_held_up_it_waits_for_room_and_for_whoever_stops_it(held_up):
    found, pub, sub = held_up
    control = Control()
    working = waiting.Thread(lambda: replay(found, pub, wait_for_room=True, speed=None, control=control))
    working.wait_until_stuck()
    control.stop()
    assert 0 < working.outcome().published < 200
    sub.close(0)


def test_what_was_held_up_is_published_once_and_in_order(held_up):
    found, pub, sub = held_up
    looks = []
    working = waiting.Thread(
        lambda: replay(found, pub, wait_for_room=True, speed=None, on_look=lambda: looks.append(1))
    )
    waiting.until(lambda: len(looks) > 3)
    assert [sub.recv_multipart()[1][:3] for _ in range(200)] == [b"%03d" % at for at in range(200)]
    assert working.outcome().published == 200


def test_a_publisher_that_is_full_is_an_error_unless_it_is_to_wait(held_up):
    found, pub, _ = held_up
    with pytest.raises(oz.WouldBlock):
        replay(found, pub, speed=None)


@pytest.mark.parametrize("speed", [0, -1.0, math.nan])
def test_a_speed_that_makes_no_sense_is_refused(journal, listener, speed):
    with pytest.raises(ValueError, match="speed"):
        replay(journal([("a", b"")]), listener[0], speed=speed)


def test_what_was_recorded_replayed_and_recorded_again_is_the_same(
    journal, listener, recording, publisher, met
):
    first = publisher()
    one = recording("a.>", connect=first.endpoint, filtering="publisher")
    met(first)
    for at in range(500):
        first.publish(f"a.{at % 9}", [b"%d" % at, b"more"] if at % 3 else b"x", headers={"n": at})
    first.flush()
    one.recorded(500)
    records = one.end()
    second = publisher(dialect="zmq")
    other = recording(
        "a.>", directory=one.directory.with_name("again"), connect=second.endpoint, filtering="publisher"
    )
    met(second)
    assert replay(Journal(one.directory), second, speed=None, headers=False).published == 500
    other.recorded(500)
    fields = ("subject", "payload", "headers", "offset")
    again = other.end()
    assert [[getattr(r, name) for name in fields] for r in again] == [
        [getattr(r, name) for name in fields] for r in records
    ]


def test_a_loss_of_unknown_size_is_recorded_as_such():
    from oz.services.columns import Loss

    assert columns_of_loss("nats:a", Loss(None, 5))["lost"] is None
    assert columns_of_loss("nats:a", Loss(1 << 80, 5, b"o", 1 << 70))["lost"] == (1 << 63) - 1


@pytest.mark.parametrize("paused", [False, True])
def test_a_replay_that_waits_for_long_ends_when_it_is_stopped(journal, listener, paused):
    pub, _ = listener
    found = journal([Record("a", b"", 0), Record("a", b"", 100_000 * SECOND)])
    control, stats = Control(), ReplayStats()
    working = waiting.Thread(lambda: replay(found, pub, control=control, stats=stats))
    waiting.until(lambda: stats.published == 1)
    if paused:
        control.pause()
    control.stop()
    assert working.outcome().published == 1


def test_a_directory_in_place_of_a_journal_is_refused_with_what_to_write(tmp_path, publisher):
    with pytest.raises(TypeError, match=r"an oz.journal.Journal, not str: write Journal\(directory\)"):
        replay(str(tmp_path), publisher)
