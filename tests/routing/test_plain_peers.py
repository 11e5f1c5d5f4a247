"""Plain ZeroMQ subscribers and prefix subscribers beside those with publisher-side filtering."""

import random
from contextlib import ExitStack

import pytest
import zmq

import oz
from support.inside import engine_of
from support.waiting import DEADLINE, until


@pytest.fixture
def plain():
    """Make sockets of plain pyzmq: an endpoint and prefixes for a SUB, nothing for an XPUB."""
    made = []
    with zmq.Context() as ctx:

        def make(endpoint=None, *prefixes):
            sock = ctx.socket(zmq.XPUB if endpoint is None else zmq.SUB)
            made.append(sock)
            sock.setsockopt(zmq.RCVTIMEO, int(DEADLINE * 1000))
            if endpoint is None:
                sock.bind("tcp://127.0.0.1:*")
                return sock
            sock.setsockopt(zmq.RCVHWM, 0)
            sock.connect(endpoint)
            for prefix in prefixes:
                sock.setsockopt(zmq.SUBSCRIBE, prefix)
            return sock

        yield make
        for one in made:
            one.close(0)


def read_until(sock, last):
    """All messages up to the one with that subject."""
    found = []
    while not found or found[-1][0] != last:
        found.append(sock.recv_multipart())
    return found


def is_learned(pub, *prefixes):
    """Whether plain subscriptions have reached the publisher."""
    pub.interest("x")
    return all(engine_of(pub).router.plain.has(prefix) for prefix in prefixes)


def test_plain_subscribers_get_plain_messages_only(plain):
    with (
        oz.Publisher("tcp://127.0.0.1:*") as pub,
        oz.Subscriber(pub.endpoint, filtering="publisher") as routed,
        oz.Subscriber(pub.endpoint, filtering="publisher", shared=True) as shared,
        oz.Subscriber(pub.endpoint) as by_prefix,
        oz.Subscriber(pub.endpoint) as everything,
    ):
        socks = {b"": plain(pub.endpoint, b""), b"n.": plain(pub.endpoint, b"n.", b"end")}
        for sub in (routed, shared):
            sub.subscribe(["n.*", "end"])
            sub.wait_ready(timeout=DEADLINE)
        by_prefix.subscribe(["n.*", "end"])
        everything.subscribe("")
        until(lambda: is_learned(pub, b"", b"n.", b"end"))
        until(lambda: engine_of(pub).router.plain.count(b"n.1") == 4)
        wanted = []
        for number in range(2_000):
            subject = f"n.{number}" if number % 2 else f"other.{number}"
            pub.publish(subject, b"%d" % number)
            wanted.append([subject.encode(), b"%d" % number])
        pub.publish("end")
        wanted.append([b"end", b""])
        some = [frames for frames in wanted if frames[0][:2] in (b"n.", b"en")]
        assert read_until(socks[b""], b"end") == wanted
        assert read_until(socks[b"n."], b"end") == some
        for sub, expected in ((routed, some), (shared, some), (by_prefix, some), (everything, wanted)):
            assert [sub.receive(timeout=DEADLINE).frames for _ in expected] == expected
            assert sub.stats.filtered == 0


@pytest.mark.parametrize("seed", range(3))
def test_prefixes_that_come_and_go_let_through_what_a_plain_publisher_does(plain, seed):
    """Single bytes are what stands for the empty prefix at the publisher."""
    dice = random.Random(seed)
    subjects = [b"a", b"b", b"ab", b"\xff\xff", b"\x00a", b"\x00\xff", b"\x01"]
    with (
        oz.Publisher("tcp://127.0.0.1:*", dialect="zmq") as pub,
        oz.Subscriber(pub.endpoint, filtering="publisher", dialect="zmq") as routed,
    ):
        routed.subscribe(b"")
        routed.wait_ready(timeout=DEADLINE)
        other = plain()
        socks = plain(pub.endpoint), plain(other.getsockopt_string(zmq.LAST_ENDPOINT))
        held = set()
        for turn in range(60):
            prefix = dice.choice([b"", b"a", b"b", b"ab", b"\xff", b"\x00", b"\x00a", b"\x01"])
            change = zmq.UNSUBSCRIBE if prefix in held else zmq.SUBSCRIBE
            held ^= {prefix}
            # What was asked for before it has been taken in when this has.
            mark = b"mark%d." % turn
            for sock in socks:
                sock.setsockopt(change, prefix)
                sock.setsockopt(zmq.SUBSCRIBE, mark)
            until(lambda: is_learned(pub, mark))  # noqa: B023
            while other.recv() != b"\x01" + mark:
                pass
            for subject in [*subjects, mark]:
                pub.publish(subject, b"")
                other.send_multipart([subject, b""])
            seen, expected = (read_until(sock, mark) for sock in socks)
            assert seen == expected


def test_a_plain_subscriber_that_leaves_takes_nothing_from_others(plain):
    with oz.Publisher("tcp://127.0.0.1:*") as pub:
        stays = plain(pub.endpoint, b"")
        until(lambda: is_learned(pub, b""))
        for prefixes in ([b""], [b"", b"a"], [b"a"], [b"a", b"b"]):
            goes = plain(pub.endpoint, *prefixes)
            until(lambda: engine_of(pub).router.plain.count(b"a") > 1)
            goes.close(0)
            until(lambda: pub.interest("a") and engine_of(pub).router.plain.count(b"a") == 1)
            pub.publish("a", b"")
            pub.publish("b", b"")
            pub.publish("end", b"")
            assert [frames[0] for frames in read_until(stays, b"end")] == [b"a", b"b", b"end"]


def test_a_publisher_whose_subscriber_vanishes_serves_the_others(plain, relay):
    with oz.Publisher("tcp://127.0.0.1:*") as pub, ExitStack() as stack:
        between = relay(pub.endpoint)
        subs = []
        for endpoint in (between.endpoint, pub.endpoint, between.endpoint):
            for options in ({}, {"shared": True}):
                sub = stack.enter_context(oz.Subscriber(endpoint, filtering="publisher", **options))
                sub.subscribe("n.*")
                sub.wait_ready(timeout=DEADLINE)
                subs.append(sub)
        sock = plain(pub.endpoint, b"n.")
        until(lambda: is_learned(pub, b"n."))
        pub.publish("n.0", b"0")
        for sub in subs:
            assert sub.receive(timeout=DEADLINE).payload == b"0"
        between.cut()
        until(lambda: len(engine_of(pub).router.lifetimes.vanished) == 4)
        for number in range(1, 1_000):
            pub.publish(f"n.{number}", b"%d" % number)
        numbers = [b"%d" % number for number in range(1_000)]
        assert [sock.recv_multipart()[1] for _ in numbers] == numbers
        for sub in subs[2:4]:
            assert [sub.receive(timeout=DEADLINE).payload for _ in numbers[1:]] == numbers[1:]
            assert sub.stats.lost == 0


def test_a_shared_pattern_is_served_to_who_comes_and_whoever_stays(plain):
    """Late ones begin where they join, leaving ones take nothing along, and nobody sees a gap."""
    with oz.Publisher("tcp://127.0.0.1:*") as pub, ExitStack() as stack:
        subs, gaps, count = [], [], 0
        for turn in range(30):
            sub = oz.Subscriber(pub.endpoint, filtering="publisher", shared=True, on_gap=gaps.append)
            stack.enter_context(sub)
            sub.subscribe(["n.*"] if turn % 3 else ["n.*", "other.*"])
            sub.wait_ready(timeout=DEADLINE)
            subs.append(sub)
            for _ in range(20):
                pub.publish(f"n.{count}", b"%d" % count)
                count += 1
            for one in subs:
                wanted = [b"%d" % number for number in range(count - 20, count)]
                seen = [one.receive(timeout=DEADLINE).payload for _ in wanted]
                assert seen == wanted
            if turn % 2:
                subs.pop(turn % len(subs)).close()
        assert not gaps


def test_what_a_stalled_reader_of_a_shared_pattern_missed_is_exact(ledger):
    with (
        oz.Publisher("tcp://127.0.0.1:*", high_water_mark=2, max_batch=10) as pub,
        oz.Subscriber(
            pub.endpoint, filtering="publisher", shared=True, high_water_mark=2, on_gap=ledger.note
        ) as sub,
    ):
        sub.subscribe("n.*")
        sub.wait_ready(timeout=DEADLINE)
        count = 0
        while pub.stats.missed < 1_000:
            pub.publish("n.1", b"%012d" % count + bytes(1_000))
            count += 1
        pub.flush()
        ledger.settle(sub, count)


def test_a_reader_of_a_shared_pattern_that_was_cut_off_learns_what_it_missed(relay, ledger):
    with oz.Publisher("tcp://127.0.0.1:*") as pub:
        between = relay(pub.endpoint)
        with (
            oz.Subscriber(pub.endpoint, filtering="publisher", shared=True) as other,
            oz.Subscriber(between.endpoint, filtering="publisher", shared=True, on_gap=ledger.note) as sub,
        ):
            for one in (other, sub):
                one.subscribe("n.*")
                one.wait_ready(timeout=DEADLINE)
            streams = len(engine_of(pub).router.streams)
            between.cut()
            until(lambda: len(engine_of(pub).router.lifetimes.vanished) == 1)
            for number in range(100):
                pub.publish("n.1", b"%012d" % number)
            assert [other.receive(timeout=DEADLINE).gap for _ in range(100)] == [0] * 100
            between.restore()
            ledger.settle(sub, 100)
            assert [gap.count for gap in ledger.gaps] == [100]
            pub.publish("n.1", b"%012d" % 100)
            ledger.settle(sub, 101)
            assert len(engine_of(pub).router.streams) == streams
