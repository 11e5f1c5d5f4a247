"""What becomes of routed messages when a subscriber is full: `on_full`, counted to the message."""

import asyncio
import time

import pytest
import zmq

import oz.asyncio
from support.inside import engine_of
from support.routed import Stage, finish, here, mark, taken_until
from support.waiting import DEADLINE, Thread, until


@pytest.fixture
def stage():
    with Stage() as made:
        yield made


@pytest.fixture
def tight(stage):
    """Make a publisher with room for few messages, and subscribers in its context: no kernel buffers."""
    context = stage.enter_context(zmq.Context())

    def make(*patterns, high_water_mark=2, max_batch=1, **options):
        pub = oz.Publisher(
            "inproc://tight", context=context, high_water_mark=high_water_mark, max_batch=max_batch, **options
        )
        stage.callback(pub.close, 0)
        subs = []
        for pattern in patterns:
            sub = stage.sub(pub, context=context, high_water_mark=high_water_mark)
            sub.subscribe(pattern)
            sub.wait_ready(timeout=DEADLINE)
            subs.append(sub)
        return pub, *subs

    return make


def fill(pub, subject="a.b", most=1_000, first=0, **options):
    """Publish until that is refused; give how many were taken."""
    for number in range(first, first + most):
        try:
            pub.publish(subject, b"%d" % number, **options)
        except oz.WouldBlock:
            return number - first
    return most


def numbers(messages):
    return [int(message.payload) for message in messages]


def test_dropped_messages_are_counted_on_both_sides(tight):
    pub, sub = tight("a.*")
    assert fill(pub) == 1_000
    first = here(sub)
    assert numbers(first) == list(range(len(first)))
    assert 2 <= len(first) <= 10
    pub.publish("a.b", b"1000")
    last = sub.receive(timeout=DEADLINE)
    assert (last.payload, last.gap) == (b"1000", 1_000 - len(first))
    assert sub.stats.lost == pub.stats.missed == 1_000 - len(first)
    assert (sub.stats.delivered, sub.stats.received) == (len(first) + 1, len(first) + 1)
    stats = pub.stats
    assert (stats.published, stats.sent, stats.unwanted, stats.dropped) == (1_001, 1_001, 0, 0)


@pytest.mark.parametrize("payload", [b"x", bytes(70_000), [b"x", b"y"]], ids=["small", "large", "frames"])
def test_dropping_for_one_subscriber_leaves_the_others_alone(tight, stage, payload):
    pub, stalled = tight("a.*")
    reads = stage.sub(pub, context=pub.context, high_water_mark=0)
    reads.subscribe("a.*")
    reads.wait_ready(timeout=DEADLINE)
    sent = 100
    for number in range(sent):
        pub.publish("a.b", payload, headers={"n": number})
        assert reads.receive(timeout=DEADLINE).headers["n"] == number
    held = here(stalled)
    assert [message.headers["n"] for message in held] == list(range(len(held)))
    until(lambda: here(stalled, 0.01) == [] and stalled.stats.lost)
    assert stalled.stats.lost == pub.stats.missed == sent - len(held)
    assert reads.stats.lost == 0


def test_dropping_is_counted_over_tcp_with_batches(stage):
    pub = stage.enter_context(oz.Publisher(high_water_mark=2))
    pub.set(zmq.SNDBUF, 4_096)
    pub.bind("tcp://127.0.0.1:*")
    sub = stage.enter_context(oz.Subscriber(filtering="publisher", high_water_mark=2))
    sub.set(zmq.RCVBUF, 4_096)
    sub.connect(pub.endpoint)
    sub.subscribe("a.*")
    sub.wait_ready(timeout=DEADLINE)
    sent = 20_000
    for number in range(sent):
        pub.publish("a.b", b"%0100d" % number)
    got = taken_until(lambda got: len(got) + sub.stats.lost >= sent, sub, pub)
    assert len(got) + sub.stats.lost == sent
    assert pub.stats.missed == sub.stats.lost > 0
    assert numbers(got) == sorted(set(numbers(got)))
    assert sum(message.gap for message in got) <= sub.stats.lost


def test_an_error_means_that_nobody_got_it_and_nothing_comes_twice(tight):
    pub, stalled, other = tight("a.*", ">", on_full="error")
    plain = pub.context.socket(zmq.SUB)
    plain.subscribe(b"a.")
    plain.connect("inproc://tight")
    pub.wait_for_subscribers(3, timeout=DEADLINE)
    sent, refused, got = [], 0, {stalled: [], other: []}

    def have_all():
        # What was taken while there was no room is sent by the thread of the publisher, when there is.
        for sub, messages in got.items():
            messages += here(sub, 0.01)
        return all(numbers(messages) == sent for messages in got.values())

    for number in range(300):
        try:
            pub.publish("a.b", b"%d" % number)
        except oz.WouldBlock:
            refused += 1
        else:
            sent.append(number)
        if number % 50 == 49:
            until(have_all)
            until(lambda: not engine_of(pub).dispatch.is_blocked)
        while plain.poll(0):
            plain.recv_multipart()
    plain.close(0)
    # Nothing comes again: the next is what is published next.
    pub.publish("a.b", b"300")
    assert numbers(sub.receive(timeout=DEADLINE) for sub in got) == [300, 300]
    assert refused > 100
    for sub in got:
        assert (sub.stats.delivered, sub.stats.lost) == (len(sent) + 1, 0)
    stats = pub.stats
    assert (stats.published, stats.sent, stats.dropped, stats.missed) == (301, len(sent) + 1, refused, 0)


def test_a_plain_subscriber_that_is_full_keeps_a_message_from_routed_ones_too(tight):
    pub, routed = tight("a.*", on_full="error")
    with pub.context.socket(zmq.SUB) as plain:
        plain.linger = 0
        plain.set(zmq.RCVHWM, 2)
        plain.subscribe(b"a.")
        plain.connect("inproc://tight")
        pub.wait_for_subscribers(2, timeout=DEADLINE)
        sent = []
        for number in range(50):
            try:
                pub.publish("a.b", b"%d" % number)
            except oz.WouldBlock:
                assert here(routed) == []
            else:
                sent.append(number)
                assert numbers([routed.receive(timeout=DEADLINE)]) == [number]
        taken = 0
        while plain.poll(100):
            taken += len(plain.recv_multipart()) == 2
        assert taken == len(sent) < 50
        assert (pub.stats.sent, pub.stats.dropped) == (len(sent), 50 - len(sent))


def test_a_blocked_publisher_makes_everybody_wait_whom_it_filters_for(tight):
    pub, stalled, other = tight("a.*", "b.*", on_full="error")
    fill(pub)
    with pytest.raises(oz.WouldBlock, match=r"'b\.x' was not sent to anybody"):
        pub.publish("b.x")
    pub.publish("nobody.asked", b"")
    until(lambda: here(stalled) == [] and not engine_of(pub).dispatch.is_blocked)
    # The refused one does not come.
    pub.publish("b.x", b"1")
    assert other.receive(timeout=DEADLINE).payload == b"1"


def test_blocking_ends_after_the_timeout(tight):
    pub, sub = tight("a.*", on_full="block", full_timeout=0.1)
    sent = fill(pub)
    assert sent < 20
    began = time.monotonic()
    with pytest.raises(oz.WouldBlock, match=r"for 0\.1 s; 'a\.b' was not sent to anybody"):
        pub.publish("a.b", b"refused", headers={"n": 1})
    assert time.monotonic() - began >= 0.1
    assert numbers(taken_until(lambda got: len(got) >= sent, sub, pub)) == list(range(sent))
    assert (pub.stats.published, pub.stats.sent, pub.stats.dropped) == (sent + 3, sent + 1, 2)
    assert (pub.stats.missed, sub.stats.lost) == (0, 0)


@pytest.mark.parametrize("max_batch", [1, 16])
def test_blocked_threads_go_on_when_there_is_room_and_lose_nothing(tight, max_batch):
    pub, slow, quick = tight("a.*", "a.*", on_full="block", max_batch=max_batch)
    threads = [Thread(lambda at=at: fill(pub, f"a.{at}")) for at in range(3)]
    quick_one = Thread(lambda: [quick.receive(timeout=DEADLINE) for _ in range(3_000)])
    until(lambda: engine_of(pub).dispatch.is_blocked)
    got = [slow.receive(timeout=DEADLINE) for _ in range(3_000)]
    for thread in threads:
        assert thread.outcome() == 1_000
    for messages in (got, quick_one.outcome()):
        for at in range(3):
            one = [message for message in messages if message.subject == f"a.{at}"]
            assert numbers(one) == list(range(1_000))
    assert (slow.stats.lost, quick.stats.lost, pub.stats.missed, pub.stats.dropped) == (0, 0, 0, 0)


def test_a_stalled_subscriber_that_goes_away_lets_the_publisher_go_on(tight):
    pub, stalled, other = tight("a.*", "b.*", on_full="block")
    filling = Thread(lambda: fill(pub))
    until(lambda: engine_of(pub).dispatch.is_blocked)
    stalled.close()
    assert filling.outcome() == 1_000
    pub.publish("b.x", b"1")
    assert other.receive(timeout=DEADLINE).payload == b"1"


def test_whoever_joins_while_the_publisher_is_blocked_gets_the_message_that_waited(tight, stage):
    pub, stalled = tight("a.*", on_full="block")
    filling = Thread(lambda: fill(pub))
    until(lambda: engine_of(pub).dispatch.is_blocked)
    joins = stage.sub(pub, context=pub.context)
    joins.subscribe("a.*")
    joins.wait_ready(timeout=DEADLINE)
    taken = numbers(stalled.receive(timeout=DEADLINE) for _ in range(1_000))
    assert filling.outcome() == 1_000
    assert taken == list(range(1_000))
    first, *_ = got = numbers(taken_until(lambda got: got and got[-1].payload == b"999", joins, pub))
    assert got == list(range(first, 1_000))
    assert first < 20


def test_a_full_member_of_a_group_blocks_only_when_all_are_full(tight, stage):
    pub, *_ = tight(on_full="error")
    subs = [stage.sub(pub, context=pub.context, high_water_mark=2) for _ in range(2)]
    for sub in subs:
        sub.subscribe("a.*", group="g")
        mark(sub)
    sent = fill(pub)
    assert 6 <= sent <= 20
    got = [[], []]

    def have_all():
        for sub, messages in zip(subs, got, strict=True):
            messages += here(sub, 0.02)
        return len(got[0] + got[1]) >= sent

    until(have_all)
    until(lambda: not engine_of(pub).dispatch.is_blocked)
    finish([pub], *subs)
    assert all(len(one) >= 2 for one in got)
    assert sorted(numbers(got[0] + got[1])) == list(range(sent))


def test_closing_gives_a_stalled_subscriber_time_to_take_everything(tight):
    pub, sub = tight("a.*", on_full="block", full_timeout=0)
    sent = fill(pub)
    closing = Thread(lambda: pub.close(timeout=DEADLINE))
    assert numbers([sub.receive(timeout=DEADLINE) for _ in range(sent)]) == list(range(sent))
    closing.outcome()


def test_closing_ends_when_its_time_is_over(tight):
    pub, _ = tight("a.*", on_full="block", full_timeout=0)
    fill(pub)
    began = time.monotonic()
    pub.close(timeout=0.2)
    assert time.monotonic() - began < DEADLINE / 2


def test_asyncio_counts_and_blocks_alike(tight):
    async def scenario():
        context = zmq.asyncio.Context()
        options = {"context": context, "high_water_mark": 2}
        async with (
            oz.asyncio.Publisher(
                "inproc://x", max_batch=1, on_full="block", full_timeout=0.1, **options
            ) as pub,
            oz.asyncio.Subscriber("inproc://x", filtering="publisher", **options) as sub,
        ):
            sub.subscribe("a.*")
            await sub.wait_ready(timeout=DEADLINE)
            sent = 0
            try:
                while sent < 500:
                    await pub.publish("a.b", b"%d" % sent)
                    sent += 1
            except oz.WouldBlock:
                pass
            assert (pub.stats.published, pub.stats.sent, pub.stats.dropped) == (sent + 1, sent, 1)
            assert [int((await sub.receive(timeout=DEADLINE)).payload) for _ in range(sent)] == list(
                range(sent)
            )
            # From here on to wait is right, however busy the machine is.
            engine_of(pub).full_timeout = DEADLINE
            more = asyncio.ensure_future(pub.publish_many(("a.b", b"%d" % n) for n in range(sent, 500)))
            got = [int((await sub.receive(timeout=DEADLINE)).payload) for _ in range(sent, 500)]
            assert await more == 500 - sent
            assert got == list(range(sent, 500))
            assert (sub.stats.lost, pub.stats.missed) == (0, 0)
        context.term()

    asyncio.run(scenario())
