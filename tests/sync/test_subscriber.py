import math
import random
import re
import time
from contextlib import suppress
from functools import partial

import msgpack
import pytest
import zmq

import oz
from support.waiting import DEADLINE, Thread, until
from sync.received import publish_all, subjects_until

# matching


def test_literals_are_exact(pair):
    two = pair("foo", "end")
    publish_all(two.pub, "foo", "foobar", "foo.bar", "end")
    assert subjects_until(two.sub) == ["foo"]
    assert two.sub.stats.filtered == 2


def test_bytes_are_a_plain_prefix_and_the_empty_string_is_everything(pair):
    two = pair(b"foo", "end")
    publish_all(two.pub, "foobar", "foo.bar", "fo", "end")
    assert subjects_until(two.sub) == ["foobar", "foo.bar"]
    for dialect in ("nats", "rv", "regex", "redis", "zmq"):
        everything = pair("", sub={"dialect": dialect})
        publish_all(everything.pub, "any", "end")
        assert subjects_until(everything.sub) == ["any"]


def test_dialects_and_lists_and_compiled_patterns_mix_on_one_subscriber(pair):
    two = pair("end")
    two.sub.subscribe(["a.*", oz.compile("b[12]", "redis"), re.compile("c+"), b"d"])
    two.sub.subscribe("e[34]", dialect="redis")
    two.pub.wait_for_subscribers(8, timeout=DEADLINE)
    publish_all(two.pub, "a.1", "a.1.2", "b1", "b3", "ccc", "cd", "dx", "e4", "e5", "end")
    assert subjects_until(two.sub) == ["a.1", "b1", "ccc", "dx", "e4"]


def test_a_pattern_that_is_none_says_how_to_give_a_prefix(pair):
    two = pair()
    with pytest.raises(oz.PatternError) as caught:
        two.sub.subscribe("a..b")
    assert "b'a..b'" in caught.value.__notes__[0]
    with pytest.raises(TypeError):
        two.sub.subscribe(7)


def test_a_subject_of_10_000_tokens_passes(pair):
    tokens = [f"t{number}" for number in range(10_000)]
    subject = ".".join(tokens)
    two = pair(".".join(["*", *tokens[1:-1], "*"]), subject, "t0.>")
    two.pub.publish(subject, b"deep")
    message = two.sub.receive(timeout=DEADLINE)
    assert message.subject == subject
    assert len(message.subscriptions) == 3


def test_single_frames_and_empty_payloads_and_many_frames_arrive(pair):
    two = pair("")
    sent = [[b"a"], [b"a", b""], [b"a", *(b"%d" % number for number in range(100))], [b"\x00x", b"x"]]
    for frames in sent:
        two.pub.send_multipart(frames)
    messages = [two.sub.receive(timeout=DEADLINE) for _ in sent]
    assert [message.frames for message in messages] == sent
    assert [message.payload for message in messages] == [b"", b"", b"0", b"x"]


@pytest.mark.parametrize("first", [b"", b"\x00", b"\x00\x31x"])
def test_a_first_frame_that_would_not_reach_a_subscriber_to_everything_is_refused(pair, first):
    two = pair("")
    with pytest.raises(oz.ProtocolError):
        two.pub.send_multipart([first, b"x"])
    with pytest.raises(oz.ProtocolError):
        two.pub.send(first)
    two.pub.send(b"a", zmq.SNDMORE)
    two.pub.send(first)
    assert two.sub.receive(timeout=DEADLINE).payload == first


def test_what_is_not_utf_8_is_malformed_to_text_dialects_and_bytes_to_byte_dialects(pair):
    two = pair("a.*", "end")
    two.pub.send_multipart([b"a.\xff", b"x"])
    two.pub.publish("end")
    assert subjects_until(two.sub) == []
    assert two.sub.stats.malformed == 1
    raw = pair("a*", dialect="redis")
    raw.pub.publish(b"a\xff", b"x")
    message = raw.sub.receive(timeout=DEADLINE)
    assert (message.subject, message.subject_bytes) == ("a\udcff", b"a\xff")
    assert raw.sub.stats.malformed == 0


def test_payloads_that_do_not_decode_are_counted_and_skipped(pair):
    two = pair("", sub={"codec": "msgpack"})
    for payload in (b"\xc1", b"", msgpack.packb([1]) + b"x", msgpack.packb("good")):
        two.pub.publish("a", payload)
    assert two.sub.receive(timeout=DEADLINE).payload == "good"
    assert two.sub.stats.malformed == 3


def test_a_hostile_pattern_costs_one_counted_drop_and_no_stall(pair, caplog):
    two = pair("ok.*", pub={"dialect": "regex"})
    two.sub.subscribe("(a|aa)+$", dialect="regex")
    two.pub.wait_for_subscribers(2, timeout=DEADLINE)
    for number in range(3_000):
        two.pub.publish("a" * 50 + "b" if number == 1_000 else f"ok.{number}", b"x")
    started = time.monotonic()
    got = [two.sub.receive(timeout=DEADLINE).subject for _ in range(2_999)]
    assert got == [f"ok.{number}" for number in range(3_000) if number != 1_000]
    assert time.monotonic() - started < DEADLINE
    assert two.sub.stats.timed_out == 1
    assert "(a|aa)+$" in caplog.text


# closing, threads, signals


def test_use_after_close_is_a_clear_error(pair):
    two = pair("a")
    two.sub.close()
    two.sub.close(0)
    two.subscriptions[0].unsubscribe()
    for use in (
        lambda: two.sub.receive(),
        lambda: two.sub.receive(timeout=0),
        lambda: two.sub.receive(timeout=1),
        lambda: two.sub.subscribe("b"),
    ):
        with pytest.raises(oz.ClosedError):
            use()
    with pytest.raises(zmq.ZMQError):
        two.sub.recv_multipart()
    assert list(two.sub) == []
    assert two.sub.run() == 0


@pytest.mark.parametrize("own_context", [True, False])
def test_a_monitor_left_open_does_not_hold_up_closing(context, own_context):
    sub = oz.Subscriber("tcp://127.0.0.1:1", context=None if own_context else context)
    monitor = sub.get_monitor_socket()
    Thread(sub.close).outcome()
    monitor.close(0)


def test_closing_does_not_wait_for_a_publisher_that_never_came():
    sub = oz.Subscriber("tcp://127.0.0.1:1")
    for number in range(1_000):
        sub.subscribe(f"a.{number}")
    Thread(sub.close).outcome()


@pytest.mark.parametrize(
    "use",
    [
        lambda sub: sub.receive(timeout=1),
        lambda sub: sub.receive(),
        lambda sub: next(iter(sub)),
        lambda sub: sub.recv_multipart(),
        lambda sub: sub.subscribe("b"),
        lambda sub: sub.poll(1),
        lambda sub: sub.close(),
    ],
    ids=["timed", "receive", "iterate", "recv_multipart", "subscribe", "poll", "close"],
)
def test_a_second_thread_on_a_subscriber_is_refused_and_the_first_goes_on(pair, use):
    two = pair("a")
    first = Thread(two.sub.receive)
    first.wait_until_stuck()
    with pytest.raises(oz.OwnershipError, match="another thread"):
        use(two.sub)
    two.pub.publish("a", b"x")
    assert first.outcome().subject == "a"


class Interrupted(Exception):
    pass


# a soak

WORDS = ["a", "b", "aa", "x-y", "ä", "*", ">", "$"]


def random_subject(rng):
    return ".".join(rng.choice(WORDS[:5]) for _ in range(rng.randint(1, 4)))


def random_pattern(rng):
    tokens = [rng.choice([*WORDS[:5], "*", "*"]) for _ in range(rng.randint(1, 4))]
    # One wildcard in front stands all the time: a new one would hide whether the mark has arrived.
    tokens[0] = rng.choice(WORDS[:5])
    if len(tokens) > 1 and rng.random() < 0.3:
        tokens[-1] = ">"
    return ".".join(tokens)


@pytest.mark.parametrize("seed", range(3))
def test_random_subscriptions_get_what_a_naive_filter_gives_them(pair, seed):
    rng = random.Random(seed)
    two = pair("end.*")
    everywhere = oz.compile("*.b.>")
    standing = {two.sub.subscribe(everywhere): (everywhere, [])}
    for turn in range(30):
        for _ in range(rng.randint(0, 4)):
            pattern = oz.compile(random_pattern(rng))
            calls = []
            handler = calls.append if rng.random() < 0.5 else None
            standing[two.sub.subscribe(pattern, handler=handler)] = (pattern, calls)
        for one in [one for one in list(standing)[1:] if rng.random() < 0.2]:
            one.unsubscribe()
            del standing[one]
        two.sub.subscribe(f"mark.{turn:03}")
        two.pub.wait_for_subscribers(2, f"mark.{turn:03}", timeout=DEADLINE)
        subjects = [random_subject(rng) for _ in range(60)]
        publish_all(two.pub, *subjects, f"end.{turn}")
        listed = [pattern for one, (pattern, _) in standing.items() if one.handler is None]
        expected = [one for one in subjects if any(pattern.matches(one) for pattern in listed)]
        assert subjects_until(two.sub, f"end.{turn}") == expected
        for one, (pattern, calls) in standing.items():
            if one.handler is not None:
                got = [message.subject for message in calls]
                assert got == [each for each in [*subjects, f"end.{turn}"] if pattern.matches(each)]
                calls.clear()
    assert two.sub.stats.lost == 0


class AsyncObject:
    async def __call__(self, message):
        raise NotImplementedError


async def async_function(message):
    raise NotImplementedError


@pytest.mark.parametrize("handler", [async_function, partial(async_function), AsyncObject()])
def test_an_async_handler_is_refused_with_the_socket_that_awaits_it(handler):
    with oz.Subscriber() as subscriber, pytest.raises(TypeError, match=r"use oz\.asyncio\.Subscriber$"):
        subscriber.subscribe("a", handler=handler)


def test_run_without_time_to_wait_calls_handlers_for_what_is_there():
    got = []
    with oz.Publisher("tcp://127.0.0.1:*") as pub, oz.Subscriber(pub.endpoint) as sub:
        sub.subscribe("a", handler=lambda message: got.append(message.payload))
        pub.wait_for_subscribers(timeout=DEADLINE)
        pub.publish_many([("a", b"1"), ("a", b"2")])
        until(lambda: sub.run(0) is not None and len(got) == 2)
    assert got == [b"1", b"2"]


def test_a_poller_of_ones_own_waits_until_the_next_deadline():
    with oz.Publisher("tcp://127.0.0.1:*") as publisher, oz.Subscriber(filtering="publisher") as subscriber:
        subscriber.subscribe("a.*")
        subscriber.connect(publisher.endpoint)
        poller, ends = zmq.Poller(), time.monotonic() + DEADLINE
        poller.register(subscriber, zmq.POLLIN)
        while True:
            with suppress(oz.Timeout):
                subscriber.wait_ready(timeout=0)
                break
            with suppress(oz.Timeout):
                subscriber.receive(timeout=0)
            due = subscriber.next_deadline()
            assert due is not None
            assert time.monotonic() < ends
            poller.poll(max(0, math.ceil(1000 * (min(due, ends) - time.monotonic()))))
        publisher.publish("a.b", b"x")
        assert subscriber.receive(timeout=DEADLINE).subject == "a.b"
    with pytest.raises(oz.ClosedError):
        subscriber.next_deadline()


def test_a_subscriber_behind_a_prefix_that_calls_nobody_has_no_deadline():
    with oz.Subscriber(bind="tcp://127.0.0.1:*") as subscriber:
        subscriber.subscribe("a.*")
        assert subscriber.next_deadline() is None


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_unsubscribe_ends_the_newest_subscription_to_a_pattern(filtering):
    with oz.Subscriber("tcp://127.0.0.1:1", filtering=filtering) as subscriber:
        older, newer = subscriber.subscribe("a.*"), subscriber.subscribe("a.*")
        other = subscriber.subscribe(["a.*", "b"])
        subscriber.unsubscribe("a.*")
        assert (older.active, newer.active, other.active) == (True, False, True)
        subscriber.unsubscribe(["a.*", "b"])
        assert (older.active, other.active) == (True, False)
