"""What a subscriber asks ZeroMQ for: each prefix once, all of them, and again after a restart."""

import time

import pytest
import zmq

import oz
from support.ports import lasting_endpoint
from support.waiting import DEADLINE, frames_of

# what ZeroMQ is asked for


@pytest.fixture
def asked(context):
    """A raw XPUB peer that tells which subscription frames arrive, in order."""
    peer = context.socket(zmq.XPUB)
    peer.set(zmq.XPUB_VERBOSER, 1)
    port = peer.bind_to_random_port("tcp://127.0.0.1")
    with oz.Subscriber(f"tcp://127.0.0.1:{port}") as sub:

        def frames():
            """All that were asked for so far: up to a mark that is set and taken back."""
            mark = sub.subscribe(b"mark")
            mark.unsubscribe()
            got = []
            while True:
                assert peer.poll(DEADLINE * 1000)
                got.append(peer.recv())
                if got[-1] == b"\0mark":
                    return got[:-2]

        yield sub, frames
    peer.close(0)


def test_overlapping_patterns_subscribe_each_prefix_once(asked):
    sub, frames = asked
    made = [sub.subscribe(text) for text in ("a.*", "a.>", "a.*.c", "a.*")]
    assert frames() == [b"\1a."]
    for one in made[:-1]:
        one.unsubscribe()
        one.unsubscribe()
    assert frames() == []
    made[-1].unsubscribe()
    assert frames() == [b"\0a."]


def test_the_pyzmq_calls_count_prefixes_as_zeromq_does(asked):
    sub, frames = asked
    sub.setsockopt(zmq.SUBSCRIBE, b"a.")
    sub.setsockopt_string(zmq.SUBSCRIBE, "a.")
    sub.setsockopt_string(zmq.SUBSCRIBE, "a.*.b")
    assert frames() == [b"\1a."]
    sub.setsockopt(zmq.UNSUBSCRIBE, b"a.")
    sub.setsockopt(zmq.UNSUBSCRIBE, b"a.")
    sub.setsockopt(zmq.UNSUBSCRIBE, b"a.")
    sub.unsubscribe(b"never")
    assert frames() == []
    sub.setsockopt_string(zmq.UNSUBSCRIBE, "a.*.b")
    assert frames() == [b"\0a."]


def test_a_set_of_prefixes_is_asked_for_and_given_up(asked):
    sub, frames = asked
    both = sub.subscribe("(us|eu)\\.east", dialect="regex")
    one = sub.subscribe("us.*")
    assert sorted(frames()) == [b"\1eu.east", b"\1us.", b"\1us.east"]
    both.unsubscribe()
    assert sorted(frames()) == [b"\0eu.east", b"\0us.east"]
    one.unsubscribe()


@pytest.mark.heavy
def test_5_000_subscriptions_at_once_arrive_and_survive_a_restart_of_the_publisher():
    with oz.Subscriber() as sub:
        sub.set_hwm(1000)
        for number in range(5_000):
            sub.subscribe(f"s.{number}.*")
        endpoint = lasting_endpoint()
        pub = oz.Publisher(endpoint)
        sub.connect(endpoint)
        for _ in range(2):
            with pub:
                # The subscriber's own thread must serve it for a reconnect to send them again.
                ends = time.monotonic() + DEADLINE
                while True:
                    sub.poll(5)
                    try:
                        pub.wait_for_subscribers(5_000, timeout=0)
                        break
                    except oz.Timeout:
                        assert time.monotonic() < ends
                for number in range(5_000):
                    pub.publish(f"s.{number}.x", b"%d" % number)
                assert [int(frames[1]) for frames in frames_of(sub, 5_000)] == list(range(5_000))
            pub.close()
            pub = oz.Publisher()
            rebind(pub, endpoint)
        pub.close()


def rebind(pub, endpoint):
    ends = time.monotonic() + DEADLINE
    while True:
        try:
            pub.bind(endpoint)
            return
        except zmq.ZMQError:
            assert time.monotonic() < ends


@pytest.mark.heavy
def test_5_000_subscriptions_of_a_connected_subscriber_all_arrive(pair):
    two = pair()
    for number in range(5_000):
        two.sub.subscribe(f"s.{number}.*")
    two.pub.wait_for_subscribers(5_000, timeout=DEADLINE)
