"""What a publisher does about a subscriber that does not read: on_full, and closing."""

import logging
import signal
import threading
import time

import pytest
import zmq

import oz
from oz.transport import socket as sockets
from support.waiting import DEADLINE, Thread, frames_of, until


@pytest.fixture
def stalled(context):
    """Make a publisher with room for next to nothing, and a subscriber that does not read."""
    made = []

    def make(high_water_mark=2, **options):
        pub = oz.Publisher("tcp://127.0.0.1:*", high_water_mark=high_water_mark, **options)
        sub = context.socket(zmq.SUB)
        made.append((pub, sub))
        sub.set(zmq.RCVHWM, 2)
        sub.set(zmq.RCVBUF, 4096)
        sub.subscribe(b"")
        sub.connect(pub.endpoint)
        pub.wait_for_subscribers(timeout=DEADLINE)
        return pub, sub

    yield make
    for pub, sub in made:
        pub.close(0)
        sub.close(0)


LARGE = bytes(1_000_000)


# high-water marks


def test_on_full_drop_goes_on_past_a_stalled_subscriber(stalled):
    pub, _ = stalled()
    for _ in range(200):
        pub.publish("a", LARGE)
    assert pub.stats.published == pub.stats.sent == 200


def test_on_full_error_raises_at_once(stalled):
    pub, _ = stalled(on_full="error")
    with pytest.raises(oz.WouldBlock, match="'a'"):
        pub.publish_many(("a", LARGE) for _ in range(200))
    assert pub.stats.dropped == 1
    assert pub.stats.published == pub.stats.sent + pub.stats.dropped


def test_on_full_block_raises_when_its_time_is_over(stalled):
    pub, _ = stalled(on_full="block", full_timeout=0.2)
    for _ in range(200):
        started = time.monotonic()
        try:
            pub.publish("a", LARGE)
        except oz.WouldBlock:
            break
    assert 0.15 < time.monotonic() - started < DEADLINE
    assert pub.stats.dropped == 1


def test_on_full_block_loses_nothing_once_the_subscriber_reads(stalled):
    pub, sub = stalled(on_full="block")
    count = 60

    def publish():
        for number in range(count):
            pub.publish("a", b"%d" % number + LARGE)

    publishing = Thread(publish)
    until(lambda: pub.stats.sent)
    got = []
    sub.set(zmq.RCVTIMEO, int(DEADLINE * 1000))
    while len(got) < count:
        frames = sub.recv_multipart()
        assert frames[0] == b"a"
        got.append(int(frames[1].partition(b"\0")[0]))
    assert got == list(range(count))
    publishing.outcome()


def test_closing_ends_a_publish_that_blocks_in_another_thread(stalled):
    pub, _ = stalled(on_full="block")

    def publish():
        while True:
            pub.publish("a", LARGE)

    publishing = Thread(publish)
    last = -1
    while not last or last != pub.stats.sent:
        last = pub.stats.sent
        publishing.join(0.3)
    Thread(lambda: pub.close(timeout=0.1)).outcome()
    with pytest.raises(oz.ClosedError):
        publishing.outcome()


# closing


def test_a_stalled_subscriber_holds_up_closing_no_longer_than_the_timeout(stalled, caplog):
    pub, _ = stalled(high_water_mark=1_000)
    for _ in range(100):
        pub.publish("a", LARGE)
    caplog.set_level(logging.WARNING, "oz.socket")
    started = time.monotonic()
    pub.close(timeout=0.5)
    assert 0.4 < time.monotonic() - started < DEADLINE
    assert "unsent" in caplog.text


def test_closing_without_subscribers_is_quick_and_may_be_repeated():
    pub = oz.Publisher("tcp://127.0.0.1:*")
    pub.publish("a", b"x")
    started = time.monotonic()
    pub.close(timeout=2 * DEADLINE)
    pub.close()
    pub.close(0)
    assert time.monotonic() - started < DEADLINE
    assert pub.closed


def test_threads_may_close_at_the_same_time():
    for _ in range(20):
        pub = oz.Publisher("tcp://127.0.0.1:*")
        barrier = threading.Barrier(4)

        def close(pub=pub, barrier=barrier):
            barrier.wait(DEADLINE)
            pub.close()

        for thread in [Thread(close) for _ in range(4)]:
            thread.outcome()


def test_use_after_close_is_a_clear_error():
    pub = oz.Publisher("tcp://127.0.0.1:*")
    pub.close()
    for use in (
        lambda: pub.publish("a", b"x"),
        lambda: pub.publish_many([("a", b"x")]),
        lambda: pub.interest("a"),
        lambda: pub.wait_for_subscribers(timeout=0),
    ):
        with pytest.raises(oz.ClosedError):
            use()


@pytest.mark.parametrize("own_context", [True, False])
def test_a_monitor_left_open_does_not_hold_up_closing(context, own_context):
    pub = oz.Publisher("tcp://127.0.0.1:*", context=None if own_context else context)
    monitor = pub.get_monitor_socket()
    Thread(pub.close).outcome()
    monitor.close(0)


def test_with_a_shared_context_closing_leaves_the_context_open(context):
    with (
        oz.Publisher("inproc://x", context=context) as pub,
        oz.Subscriber("inproc://x", context=context) as sub,
    ):
        sub.subscribe("a")
        pub.wait_for_subscribers(timeout=DEADLINE)
        pub.close()
        assert not context.closed
        with oz.Publisher("inproc://y", context=context):
            pass


def test_publish_many_publishes_all_before_the_first_that_raises(pair):
    two = pair("a")
    with pytest.raises(oz.SubjectError):
        two.pub.publish_many([("a", b"1"), ("a", b"2"), ("a..b", b"3"), ("a", b"4")])
    assert two.pub.publish_many(("a", b"%d" % number) for number in range(3)) == 3
    assert [frames[1] for frames in frames_of(two.sub, 5)] == [b"1", b"2", b"0", b"1", b"2"]


def test_close_with_a_linger_of_minus_one_waits_until_all_is_fetched(stalled, monkeypatch):
    monkeypatch.setattr(sockets, "_PATIENCE", 0.05)
    pub, sub = stalled(high_water_mark=0)
    for _ in range(300):
        pub.publish("a", bytes(20_000))
    closing = Thread(lambda: pub.close(linger=-1))
    # By then it would have given up.
    closing.join(0.5)
    assert closing.is_alive()
    assert len([sub.recv_multipart() for _ in range(300)]) == 300
    closing.outcome()


def test_ctrl_c_ends_a_close_that_waits_for_ever(stalled):
    pub, _ = stalled(high_water_mark=0)
    for _ in range(300):
        pub.publish("a", bytes(20_000))
    interrupting = threading.Timer(0.3, signal.raise_signal, (signal.SIGINT,))
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        pub.close(linger=-1)
    pub.close(linger=0)
    assert pub.closed
