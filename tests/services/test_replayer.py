import math
import threading
import time
from tempfile import TemporaryDirectory

import msgpack
import pytest
import zmq

import oz
from oz.cli.service_metrics import service_metrics
from oz.journal import GAP, Journal, Writer
from oz.services.replayer import Replay, ReplayStats, replay
from support import waiting

SECOND = 10**9


@pytest.fixture
def journal(tmp_path):
    """Write records, and open the journal."""

    def write(records, **options):
        with Writer(tmp_path / "recorded", **options) as writer:
            writer.append(records)
        return Journal(tmp_path / "recorded")

    return write


def row(subject, payload=b"", time_ns=0, **columns):
    return {"subject": subject, "payload": payload, "time_ns": time_ns, **columns}


def each_second(count):
    return [row("a", b"%d" % at, at * SECOND) for at in range(count)]


@pytest.fixture
def listener(publisher):
    """A publisher, and a subscriber to everything that it publishes."""
    pub = publisher(dialect="zmq")
    with oz.Subscriber(pub.endpoint, dialect="zmq", filtering="publisher") as sub:
        sub.subscribe("")
        sub.wait_ready(timeout=waiting.DEADLINE)
        yield pub, sub


def received(sub, count):
    return [sub.receive(timeout=waiting.DEADLINE) for _ in range(count)]


def started(made, **options):
    """Run a replay in a thread."""
    return waiting.Thread(lambda: made.run(**options))


def test_messages_come_in_order_with_the_fields_of_their_records(journal, listener, caplog):
    pub, sub = listener
    headers = msgpack.packb({"trace": "7f", "oz-id": [b"s", 3]})
    further = msgpack.packb({"oz-frames": [b"second", b""]})
    hostile = msgpack.packb({"ok": 1, 5: "no text", "list": [1], "deep": {}, "oz-id": [b"", -1]})
    done = replay(
        journal(
            [
                row("a.1", b"1", 5000, origin=b"o" * 16, sequence=41),
                row("a.2", b"2", 6000, headers=headers, reply_to=b"me"),
                row("nats:a.>", kind=GAP, lost=3),
                row(b"\xff\x01", b"\x00", 7000, headers=b"\xc1 no msgpack"),
                row("a b..c", b"", 8000, headers=hostile),
                row("a.5", b"first", 9000, headers=further),
                row("a.6", b"first", 9000, headers=further),
            ]
        ),
        pub,
        speed=None,
    )
    first, second, third, fourth = received(sub, 4)
    assert [message.frames for message in (first, second, third, fourth)] == [
        [b"a.1", b"1"],
        [b"a.2", b"2"],
        [b"\xff\x01", b"\x00"],
        [b"a b..c", b""],
    ]
    assert [item.id for item in (first, second, third, fourth)] == [None, (b"s", 3), None, None]
    assert first.headers == {"oz-offset": 0, "oz-time-ns": 5000, "oz-origin": b"o" * 16, "oz-sequence": 41}
    assert second.headers == {"trace": "7f", "oz-offset": 1, "oz-time-ns": 6000, "oz-reply-to": "me"}
    assert third.headers == {"oz-offset": 3, "oz-time-ns": 7000}
    assert fourth.headers == {"ok": 1, "oz-offset": 4, "oz-time-ns": 8000}
    assert (done.stats, done.offset) == (ReplayStats(published=4, refused=2, gaps=1, lost=3), 7)
    [line] = [record.getMessage() for record in caplog.records if record.name.startswith("oz.replay")]
    assert "offset 5, 'a.5', cannot be published: it has 3 payload frames" in line


def test_metrics_of_a_replay_have_its_counts_and_those_of_its_node(journal, publisher):
    found = journal([row("a"), row("a"), row("nats:a", kind=GAP, lost=3)])
    lines = service_metrics(replay(found, publisher(dialect="zmq"), speed=None)).splitlines()
    assert {"oz_replay_published_total 2", "oz_replay_gaps_total 1", "oz_replay_lost_total 3"} <= {*lines}
    assert not any(line.startswith("oz_peers{") for line in lines)
    with (
        # The path of a socket is short.
        TemporaryDirectory(prefix="oz-", dir="/tmp") as directory,
        oz.Node("me", bus="lan", codec=None, options=oz.NodeOptions(directory=directory)) as node,
    ):
        assert 'oz_peers{bus="lan",node="me",' in service_metrics(replay(found, node, speed=None))


@pytest.mark.parametrize("speed", [1.0, 10_000.0])
def test_the_time_between_messages_is_kept_at_any_speed(journal, listener, speed):
    pub, sub = listener
    step = round(0.1 * speed * SECOND)
    found = journal([row("a", b"%d" % at, 7 * SECOND + at * step) for at in range(5)])
    began = time.monotonic()
    working = waiting.Thread(lambda: replay(found, pub, speed=speed))
    times = [(received(sub, 1), time.monotonic() - began)[1] for _ in range(5)]
    working.outcome()
    assert all(at * 0.1 - 0.02 < passed for at, passed in enumerate(times)), times
    assert times[4] < waiting.DEADLINE


def test_a_message_with_an_earlier_time_is_due_at_once(journal, listener):
    times = (1000 * SECOND, 1000, 500 * SECOND, 1000 * SECOND + 1000)
    began = time.monotonic()
    assert replay(journal([row("a", b"", at) for at in times]), listener[0]).stats.published == 4
    assert time.monotonic() - began < 100


@pytest.mark.parametrize("speed", [100.0, None])
def test_after_a_pause_messages_keep_their_distances(journal, listener, speed):
    made = Replay(journal(each_second(10_000)), listener[0], speed=speed)
    working = started(made)
    made.pause()
    seen = [-1] * 50

    def rests():
        seen[:] = [*seen[1:], made.stats.published]
        time.sleep(0.002)
        return len(set(seen)) == 1 and working.is_alive()

    if speed is not None:
        waiting.until(rests)
        before = made.stats.published
        assert before < 10_000
        made.resume()
        waiting.until(lambda: made.stats.published > before + 3)
        assert made.stats.published < 5000, "the replay does not catch up"
    made.resume()
    made.stop()
    working.outcome()
    assert made.stats.published <= 10_000


class Publisher:
    """Stand-in for a publisher: calls a function for each message."""

    def __init__(self, work):
        self._work = work

    def publish(self, *_, **__):
        self._work()

    def flush(self):
        pass


def test_a_replay_that_was_held_up_does_not_catch_up(journal):
    held = threading.Event()

    def hold_once():
        if not held.is_set():
            held.set()
            time.sleep(3)

    made = Replay(journal(each_second(100)), Publisher(hold_once), speed=20.0)
    polls = []

    def on_poll():
        polls.append(1)
        if len(polls) > 4:
            made.stop()

    started(made, on_poll=on_poll).outcome()
    assert made.offset < 40, "60 were due"


@pytest.mark.parametrize("times", [range(20), range(20, 0, -1)])
def test_on_poll_is_called_although_the_replay_never_waits(journal, times):
    made = Replay(journal([row("a", b"", at * 1000) for at in times]), Publisher(lambda: time.sleep(0.02)))
    polls = []
    made.run(lambda: polls.append(1))
    assert made.stats.published == 20
    assert polls


@pytest.fixture(params=[0.01, None], ids=["block", "raise"])
def held_up(journal, publisher, context, request):
    """A journal of 40 MB, a publisher, and a plain subscriber that reads nothing."""
    found = journal([("a", b"%03d" % at + bytes(200_000)) for at in range(200)])
    if request.param is None:
        pub = publisher(dialect="zmq", on_full="raise", options=oz.Options(high_water_mark=1))
    else:
        options = oz.Options(high_water_mark=1, send_timeout=request.param)
        pub = publisher(dialect="zmq", options=options)
    sub = context.socket(zmq.SUB)
    sub.set_hwm(1)
    sub.setsockopt(zmq.SUBSCRIBE, b"")
    sub.setsockopt(zmq.RCVTIMEO, int(1000 * waiting.DEADLINE))
    sub.connect(pub.endpoint)
    pub.wait_for_subscribers(timeout=waiting.DEADLINE)
    return found, pub, sub


def test_a_replay_that_a_subscriber_holds_up_can_be_stopped(held_up):
    found, pub, sub = held_up
    made, polls = Replay(found, pub, speed=None), []
    working = started(made, on_poll=lambda: polls.append(1))
    waiting.until(lambda: len(polls) > 3)
    made.stop()
    working.outcome()
    assert 0 < made.stats.published < 200
    sub.close(0)


def test_a_replay_that_was_held_up_publishes_each_message_once_and_in_order(held_up):
    found, pub, sub = held_up
    made, polls = Replay(found, pub, speed=None), []
    working = started(made, on_poll=lambda: polls.append(1))
    waiting.until(lambda: len(polls) > 3)
    assert [sub.recv_multipart()[1][:3] for _ in range(200)] == [b"%03d" % at for at in range(200)]
    working.outcome()
    assert made.stats.published == 200


@pytest.mark.parametrize("speed", [0, -1.0, math.nan])
def test_a_speed_that_is_not_greater_than_0_is_refused(journal, listener, speed):
    with pytest.raises(ValueError, match="speed"):
        replay(journal([("a", b"")]), listener[0], speed=speed)


@pytest.mark.parametrize("paused", [False, True])
def test_a_replay_that_waits_for_long_ends_when_it_is_stopped(journal, listener, paused):
    made = Replay(journal([row("a"), row("a", b"", 100_000 * SECOND)]), listener[0])
    working = started(made)
    waiting.until(lambda: made.stats.published == 1)
    if paused:
        made.pause()
    made.stop()
    working.outcome()
    assert made.stats.published == 1


def test_a_directory_in_place_of_a_journal_is_refused(tmp_path, publisher):
    with pytest.raises(TypeError, match=r"an oz.journal.Journal, not str"):
        replay(str(tmp_path), publisher)
