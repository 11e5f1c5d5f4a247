"""`oz forwarder --frontend … --backend …`: publishers and subscribers that know its endpoints."""

import signal
from contextlib import suppress

import pytest
import zmq

import oz
from oz.services.proxy import Proxy
from support.routed import Stage, finish, mark, payloads
from support.scripts import started
from support.waiting import DEADLINE, Thread, until

COMMAND = "import sys; from oz.cli import main; main(sys.argv[1:], 'oz')"

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def stage():
    with Stage() as made:
        yield made


@pytest.fixture
def proxy():
    with Proxy(frontend="tcp://127.0.0.1:*", backend="tcp://127.0.0.1:*") as made:
        running = Thread(made.run)
        yield made
        made.stop()
        running.outcome()


def publisher(stage, proxy, **options):
    return stage.enter_context(oz.Publisher(connect=proxy.frontends[0], **options))


def test_only_what_matches_comes_to_the_forwarder(stage, proxy):
    pub, sub = publisher(stage, proxy), stage.sub(proxy.backends[0])
    sub.subscribe("*.wanted.>")
    mark(sub)
    for number in range(200):
        pub.publish(f"a.wanted.{number}", b"%d" % number)
        pub.publish(f"a.unwanted.{number}", b"x" * 10_000)
    pub.flush()
    got = [sub.receive(timeout=DEADLINE) for _ in range(200)]
    assert payloads(got) == [b"%d" % number for number in range(200)]
    assert pub.stats.unwanted == 200
    finish([pub], sub)
    until(lambda: proxy.stats.messages)
    # 200 unwanted payloads would be two megabytes.
    assert proxy.stats.size < 100_000
    assert sub.stats.lost == 0


def test_interests_end_with_their_subscriptions(stage, proxy):
    pub, sub = publisher(stage, proxy), stage.sub(proxy.backends[0])
    wanted = sub.subscribe(">")
    mark(sub)
    until(lambda: pub.interest("a.b"))
    wanted.unsubscribe()

    def has_ended():
        # Whoever receives sees to the subscriptions too.
        with suppress(oz.Timeout):
            sub.receive(timeout=0.01)
        return not pub.interest("a.b")

    until(has_ended)


def test_a_group_behind_it_handles_each_message_once(stage, proxy):
    pub = publisher(stage, proxy)
    members = [stage.member(proxy.backends[0], group="workers") for _ in range(3)]
    for number in range(60):
        pub.publish("a.b", b"%d" % number)
    finish([pub], *(sub for sub, _ in members))
    assert sorted(payloads(members[0][1] + members[1][1] + members[2][1]), key=int) == [
        b"%d" % number for number in range(60)
    ]
    assert all(got for _, got in members)


def test_plain_subscribers_and_publishers_pass_it_too(stage, proxy):
    context = stage.enter_context(zmq.Context())
    pub, sub = context.socket(zmq.XPUB), context.socket(zmq.SUB)
    for one in (pub, sub):
        one.set(zmq.LINGER, 0)
        stage.callback(one.close)
    pub.connect(proxy.frontends[0])
    sub.connect(proxy.backends[0])
    sub.subscribe("time.")
    assert pub.poll(DEADLINE * 1000)
    assert pub.recv() == b"\x01time."
    pub.send_multipart([b"time.east", b"12:00"])
    assert sub.poll(DEADLINE * 1000)
    assert sub.recv_multipart() == [b"time.east", b"12:00"]


def test_every_subscription_passes_however_many_there_are_and_to_late_publishers(stage, proxy):
    """At ZeroMQ's default high-water marks some thousand do, and the rest is dropped in silence."""
    context = stage.enter_context(zmq.Context())
    early, late, sub = context.socket(zmq.XPUB), context.socket(zmq.XPUB), context.socket(zmq.SUB)
    for one in (early, late, sub):
        one.set(zmq.LINGER, 0)
        one.set_hwm(0)
        stage.callback(one.close)
    early.connect(proxy.frontends[0])
    sub.connect(proxy.backends[0])
    for number in range(6_000):
        sub.subscribe(f"p.{number}.")
    for pub in (early, late):
        if pub is late:
            late.connect(proxy.frontends[0])
        for _ in range(6_000):
            assert pub.poll(DEADLINE * 1000)
            pub.recv()


def test_forwarders_in_a_row(stage, proxy):
    with Proxy(connect=proxy.backends[0], backend="tcp://127.0.0.1:*") as second:
        running = Thread(second.run)
        pub, sub = publisher(stage, proxy), stage.sub(second.backends[0])
        sub.subscribe("*.b")
        mark(sub)
        pub.publish("a.b", b"far")
        assert sub.receive(timeout=DEADLINE).payload == b"far"
        second.stop()
        running.outcome()


def test_a_side_without_endpoints_is_refused():
    with pytest.raises(ValueError, match="backend=… for subscribers"):
        Proxy(frontend="tcp://127.0.0.1:*")
    with pytest.raises(ValueError, match="frontend=… or connect=…"):
        Proxy(backend="tcp://127.0.0.1:*")


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_the_command_says_where_it_is_and_ends_in_order(stage, ending):
    places = ("--frontend", "tcp://127.0.0.1:*", "--backend", "tcp://127.0.0.1:*")
    with started("-c", COMMAND, "forwarder", *places) as process:
        ready = process.stderr.readline()
        assert ready.startswith("oz forwarder: ready, publishers at tcp://127.0.0.1:"), ready
        front, back = (one.split(" at ")[1].strip() for one in ready.split(", ")[1:])
        pub, sub = stage.enter_context(oz.Publisher(connect=front)), stage.sub(back)
        sub.subscribe("a.*")
        mark(sub)
        pub.publish("a.b", b"one")
        assert sub.receive(timeout=DEADLINE).payload == b"one"
        process.send_signal(ending)
        out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, err
    assert not out
    assert "messages and batches of" in err


def test_the_command_refuses_half_a_forwarder():
    with started("-c", COMMAND, "forwarder", "--frontend", "tcp://127.0.0.1:*") as process:
        _, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 2
    assert "backend" in err
