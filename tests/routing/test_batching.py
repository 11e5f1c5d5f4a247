"""Batches: what comes alone leaves at once, what follows shares a frame, and nothing is left behind."""

import asyncio
import gc
import time
import warnings

import pytest

import oz.asyncio
from support.inside import engine_of, ticker_of
from support.routed import Stage, finish, here
from support.scripts import run, started
from support.waiting import DEADLINE, Thread, until


@pytest.fixture
def stage():
    with Stage() as made:
        yield made


def meet(stage, **options):
    pub = stage.pub(**options)
    sub = stage.sub(pub)
    sub.subscribe("a.*")
    sub.wait_ready(timeout=DEADLINE)
    return pub, sub


def numbers(messages):
    return [int(message.payload) for message in messages]


def batches(messages):
    """How many messages came together, each time."""
    arrivals = {}
    for message in messages:
        arrivals.setdefault(message.time_ns, []).append(message)
    return [len(one) for one in arrivals.values()]


def left_alone(pub):
    """Stop the thread that would send what waits; whatever is received from now on did not wait."""
    ticker_of(pub).stop()


def quiet(pub):
    """Wait until a message counts as one that comes alone."""
    pub.flush()
    until(lambda: time.monotonic() - engine_of(pub).sender.accumulator.sent_at > 0.01)


@pytest.mark.parametrize("options", [{}, {"last_value": True}, {"codec": "msgpack"}], ids=str)
def test_a_message_that_comes_alone_does_not_wait_for_others(stage, options):
    pub, sub = meet(stage, max_delay=1.0, **options)
    left_alone(pub)
    for number in range(20):
        quiet(pub)
        pub.publish(f"a.{number}", b"1")
        assert sub.receive(timeout=DEADLINE).subject == f"a.{number}"


def test_a_message_with_headers_that_comes_alone_does_not_wait_either(stage):
    pub, sub = meet(stage, max_delay=1.0)
    left_alone(pub)
    for number in range(5):
        quiet(pub)
        pub.publish("a.b", b"1", headers={"h": number})
        assert sub.receive(timeout=DEADLINE).headers == {"h": number}


def test_what_follows_waits_for_max_delay_at_most(stage):
    pub, sub = meet(stage, max_delay=0.05)
    for number in range(50):
        pub.publish("a.b", b"%d" % number)
    assert numbers(sub.receive(timeout=DEADLINE) for _ in range(50)) == list(range(50))


def test_no_batch_has_more_than_max_batch(stage):
    pub, sub = meet(stage, max_batch=7)
    with pub.batch():
        for number in range(100):
            pub.publish("a.b", b"%d" % number)
    got = [sub.receive(timeout=DEADLINE) for _ in range(100)]
    assert numbers(got) == list(range(100))
    assert max(batches(got)) <= 7
    assert len(batches(got)) <= 16


def test_a_batch_is_held_until_its_end_or_until_it_is_full(stage):
    pub, sub = meet(stage, max_batch=10)
    # It may answer the subscriber once more, and what was published before goes out before.
    left_alone(pub)
    with pub.batch():
        for number in range(9):
            pub.publish("a.b", b"%d" % number)
        assert here(sub, 0.02) == []
        with pub.batch():
            pub.publish("a.b", b"9", headers={"h": 1})
        got = [sub.receive(timeout=DEADLINE) for _ in range(10)]
        pub.publish("a.b", b"10")
        pub.flush()
        assert sub.receive(timeout=DEADLINE).payload == b"10"
        pub.publish("a.b", b"11")
        assert here(sub, 0.02) == []
    assert numbers(got) == list(range(10))
    assert batches(got) == [10]
    assert sub.receive(timeout=DEADLINE).payload == b"11"


def test_a_batch_that_an_error_ends_goes_out(stage):
    pub, sub = meet(stage)
    with pytest.raises(oz.SubjectError):
        pub.publish_many([("a.b", b"1"), ("a.b", b"2"), ("a. b", b"3"), ("a.b", b"4")])
    pub.publish("a.b", b"5")
    assert numbers(sub.receive(timeout=DEADLINE) for _ in range(3)) == [1, 2, 5]


def test_batches_of_several_threads_may_end_in_any_order(stage):
    pub, sub = meet(stage, max_delay=0.01)
    first, second = pub.batch(), pub.batch()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    for number in range(5):
        pub.publish("a.b", b"%d" % number)
    assert numbers(sub.receive(timeout=DEADLINE) for _ in range(5)) == list(range(5))


def test_large_batches_are_split_by_their_bytes(stage):
    pub, sub = meet(stage)
    payload = bytes(10_000)
    assert pub.publish_many(("a.b", payload) for _ in range(3_000)) == 3_000
    got = [sub.receive(timeout=DEADLINE) for _ in range(3_000)]
    assert sorted(batches(got)[2:])[-1] <= 64


@pytest.mark.parametrize("many", [False, True], ids=["publish", "publish_many"])
def test_order_holds_for_each_thread_whatever_others_publish(stage, many):
    pub, sub = meet(stage)
    other = stage.sub(pub)
    other.subscribe("a.1", overflow="drop_oldest", max_pending=100_000)
    other.wait_ready(timeout=DEADLINE)

    def work(at):
        messages = [(f"a.{at}", b"%d" % number) for number in range(2_000)]
        if many:
            for start in range(0, 2_000, 100):
                pub.publish_many(messages[start : start + 100])
        else:
            for number, (subject, payload) in enumerate(messages):
                if number % 97 == 0:
                    pub.publish(subject, payload, headers={"h": 1})
                elif number % 501 == 0:
                    pub.publish(subject, payload.ljust(70_000))
                else:
                    pub.publish(subject, payload)

    threads = [Thread(lambda at=at: work(at)) for at in range(6)]
    got = [sub.receive(timeout=DEADLINE) for _ in range(12_000)]
    for thread in threads:
        thread.outcome()
    for at in range(6):
        assert numbers(one for one in got if one.subject == f"a.{at}") == list(range(2_000))
    assert numbers(other.receive(timeout=DEADLINE) for _ in range(2_000)) == list(range(2_000))
    assert pub.stats.published == pub.stats.sent == 12_000


def test_closing_sends_the_tail(stage):
    sub = None
    for count in (1, 2, 3, 300, 5_000):
        with Stage() as one:
            pub = one.pub(max_delay=1.0)
            sub = stage.sub(pub)
            sub.subscribe("a.*")
            sub.wait_ready(timeout=DEADLINE)
            for number in range(count):
                pub.publish("a.b", b"%d" % number)
            pub.close(timeout=DEADLINE)
            assert numbers(sub.receive(timeout=DEADLINE) for _ in range(count)) == list(range(count))


def test_a_publisher_that_is_forgotten_sends_its_tail(stage):
    pub = oz.Publisher("tcp://127.0.0.1:*", max_delay=1.0)
    sub = stage.sub(pub)
    sub.subscribe("a.*")
    sub.wait_ready(timeout=DEADLINE)
    for number in range(10):
        pub.publish("a.b", b"%d" % number)
    with warnings.catch_warnings():
        # pyzmq's own, as for a file that is not closed.
        warnings.simplefilter("ignore", ResourceWarning)
        del pub
        gc.collect()
    assert numbers(sub.receive(timeout=DEADLINE) for _ in range(10)) == list(range(10))


LEFT = """
import sys, oz
pub = oz.Publisher(connect=sys.argv[1], max_delay=1.0)
pub.wait_for_subscribers(subject="a.b", timeout=60)
for number in range(1000):
    pub.publish("a.b", b"%d" % number)
"""


def test_a_publisher_that_is_open_when_its_program_ends_sends_its_tail(stage):
    sub = stage.enter_context(oz.Subscriber(bind="tcp://127.0.0.1:*", filtering="publisher"))
    sub.subscribe("a.*")
    with started("-c", LEFT, sub.endpoint):
        assert numbers(sub.receive(timeout=DEADLINE) for _ in range(1_000)) == list(range(1_000))


def test_a_publisher_of_a_program_ends_with_it():
    run("-c", "import oz; pub = oz.Publisher('tcp://127.0.0.1:*'); pub.publish('a.b', b'x')")


async def is_held_in_a_batch(pub, sub):
    """Tell whether a message waits for the end of its batch.

    An answer to a subscriber goes behind what waits, which it sends. One that has declared twice, as an
    answer came late, is answered twice: so more than one batch is tried.
    """
    for _ in range(4):
        with pub.batch():
            await pub.publish("a.b", b"held")
            await asyncio.sleep(0.01)
            early = here(sub, 0.02)
        if not early:
            assert sub.receive(timeout=DEADLINE).payload == b"held"
            return True
    return False


def test_asyncio_sends_at_the_end_of_a_turn_of_the_loop(stage):
    async def scenario():
        async with oz.asyncio.Publisher("tcp://127.0.0.1:*") as pub:
            sub = stage.sub(pub)
            sub.subscribe("a.*")
            waiting = asyncio.get_running_loop().run_in_executor(
                None, lambda: sub.wait_ready(timeout=DEADLINE)
            )
            await waiting
            for number in range(50):
                await pub.publish("a.b", b"%d" % number)
            # What was published in this turn of the loop goes out at its end, without a flush.
            await asyncio.sleep(0)
            got = [sub.receive(timeout=DEADLINE) for _ in range(50)]
            assert numbers(got) == list(range(50))
            assert await is_held_in_a_batch(pub, sub)
            assert await pub.publish_many(("a.b", b"%d" % number) for number in range(1_000)) == 1_000
            assert numbers(sub.receive(timeout=DEADLINE) for _ in range(700)) == list(range(700))
            await pub.publish("a.b", b"1000")
        assert numbers(sub.receive(timeout=DEADLINE) for _ in range(301)) == list(range(700, 1_001))

    asyncio.run(scenario())


def test_messages_for_different_recipients_keep_their_order(stage):
    pub = stage.pub()
    one, got = stage.member(pub, pattern="a.*")
    both, all_of_it = stage.member(pub, pattern=["a.*", "b.*"])
    with pub.batch():
        for number in range(200):
            pub.publish("ab"[number % 2] + ".x", b"%d" % number)
    finish([pub], one, both)
    assert numbers(got) == list(range(0, 200, 2))
    assert numbers(all_of_it) == list(range(200))
