"""Subscriptions and subscribers that end by themselves: `max_messages` and `drain`."""

import asyncio

import pytest
import zmq

import oz.asyncio
from support.inside import engine_of
from support.routed import Stage, finish, payloads
from support.virtual import VirtualStage
from support.waiting import DEADLINE, Thread, until


@pytest.fixture
def stage():
    with VirtualStage() as made:
        yield made


@pytest.fixture
def sockets():
    """The same with sockets."""
    with Stage() as made:
        yield made


def met(stage, filtering, **options):
    """Make a publisher and a subscriber; `ready` waits until the one knows of the other's subscriptions."""
    pub = stage.pub(**options)
    sub = stage.sub(pub, filtering=filtering)

    def ready(subject="a.b"):
        if filtering == "publisher":
            sub.wait_ready(timeout=DEADLINE)
        pub.wait_for_subscribers(subject=subject, timeout=DEADLINE)

    return pub, sub, ready


@pytest.fixture(params=["prefix", "publisher"])
def meet(request, stage):
    return lambda **options: met(stage, request.param, **options)


def publish(pub, count, subject="a.b", first=0):
    pub.publish_many((subject, b"%d" % number) for number in range(first, first + count))


def numbers(messages):
    return [int(message.payload) for message in messages]


def nothing_more(sub):
    with pytest.raises(oz.Timeout):
        sub.receive(timeout=0.1)
    return True


# max_messages ----------------------------------------------------------------------------------------------


def test_a_subscription_without_a_handler_ends_after_its_last_message(meet):
    pub, sub, ready = meet()
    subscription = sub.subscribe("a.*", max_messages=3)
    ready()
    publish(pub, 10)
    assert numbers(sub.receive(timeout=DEADLINE) for _ in range(3)) == [0, 1, 2]
    assert not subscription.active
    nothing_more(sub)
    until(lambda: not pub.interest("a.b"))


def test_a_handler_is_called_so_often_and_not_again(meet):
    pub, sub, ready = meet()
    got, every = [], []
    subscription = sub.subscribe("a.*", handler=got.append, max_messages=3)
    sub.subscribe("a.>", handler=every.append)
    ready()
    publish(pub, 10)
    until(lambda: sub.run(timeout=0.05) >= 0 and len(every) == 10)
    assert numbers(got) == [0, 1, 2]
    assert numbers(every) == list(range(10))
    assert not subscription.active


def test_those_that_overlap_count_each_for_themselves(meet):
    pub, sub, ready = meet()
    first, second = [], []
    sub.subscribe("a.*", handler=first.append, max_messages=2)
    sub.subscribe("a.b", handler=second.append, max_messages=4)
    sub.subscribe("a.>", max_messages=6)
    ready()
    publish(pub, 10)
    assert numbers(sub.receive(timeout=DEADLINE) for _ in range(6)) == list(range(6))
    nothing_more(sub)
    assert (numbers(first), numbers(second)) == ([0, 1], [0, 1, 2, 3])


def test_a_message_that_only_ended_subscriptions_would_receive_is_not_given(meet):
    pub, sub, ready = meet()
    every = []
    sub.subscribe("a.*", max_messages=1)
    sub.subscribe("a.*", handler=every.append)
    ready()
    publish(pub, 5)
    assert numbers([sub.receive(timeout=DEADLINE)]) == [0]
    until(lambda: nothing_more(sub) and len(every) >= 5)
    assert numbers(every) == list(range(5))


def test_iteration_gives_exactly_so_many(meet):
    pub, sub, ready = meet()
    sub.subscribe("a.*", max_messages=3)
    sub.subscribe("end", max_messages=1)
    ready()
    ready("end")
    publish(pub, 10)
    pub.flush()
    pub.publish("end", b"-1")
    got = []
    for message in sub:
        got.append(int(message.payload))
        if got[-1] < 0:
            break
    assert got == [0, 1, 2, -1]


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_recv_multipart_stops_there_too(sockets, filtering):
    pub, sub, ready = met(sockets, filtering)
    sub.subscribe("a.*", max_messages=2)
    sub.subscribe("a.*", max_messages=3)
    ready()
    publish(pub, 10)
    assert [sub.recv_multipart() for _ in range(3)] == [[b"a.b", b"%d" % n] for n in range(3)]
    sub.set(zmq.RCVTIMEO, 50)
    with pytest.raises(zmq.Again):
        sub.recv_multipart()


def test_one_subscribed_anew_counts_anew(meet):
    pub, sub, ready = meet()
    for round_ in range(5):
        sub.subscribe("a.*", max_messages=2)
        ready()
        publish(pub, 4, first=10 * round_)
        assert numbers(sub.receive(timeout=DEADLINE) for _ in range(2)) == [10 * round_, 10 * round_ + 1]
        nothing_more(sub)
        until(lambda: not pub.interest("a.b"))


def test_a_handler_that_raises_has_had_its_message(meet):
    pub, sub, ready = meet()
    calls = []

    def fail(message):
        calls.append(message)
        raise KeyError

    sub.subscribe("a.*", handler=fail, max_messages=2)
    ready()
    publish(pub, 5)
    until(lambda: sub.run(timeout=0.05) >= 0 and len(calls) == 2)
    nothing_more(sub)
    assert (len(calls), sub.stats.failed) == (2, 2)


def test_a_member_of_a_group_hands_over_when_its_count_is_full(sockets):
    pub = sockets.pub()
    limited, some = sockets.member(pub, group="g", max_messages=5)
    other, rest = sockets.member(pub, group="g")
    publish(pub, 20)
    finish([pub], limited, other)
    until(lambda: sum(bool(one.delivery.group) for one in engine_of(pub).router.streams.values()) == 1)
    publish(pub, 20, first=20)
    finish([pub], limited, other)
    assert len(some) == 5
    assert numbers(rest)[-20:] == list(range(20, 40))


@pytest.mark.parametrize("wrong", [0, -1])
def test_fewer_than_one_is_refused(meet, wrong):
    with pytest.raises(ValueError, match="max_messages is from 1"):
        meet()[1].subscribe("a.*", max_messages=wrong)


# drain -----------------------------------------------------------------------------------------------------


def test_draining_loses_nothing_that_was_published_before(stage):
    for _ in range(20):
        with Stage() as one:
            pub = one.pub()
            sub, handled = one.member(pub)
            sub.subscribe("b.*")
            sub.wait_ready(timeout=DEADLINE)
            for number in range(500):
                pub.publish("a.b", b"%d" % number)
                pub.publish("b.c", b"%d" % number)
            sub.drain(timeout=DEADLINE)
            publish(pub, 10, "b.c", first=500)
            assert numbers(handled) == list(range(500))
            assert numbers(sub) == list(range(500))
            with pytest.raises(oz.ClosedError, match="drained"):
                sub.receive(timeout=DEADLINE)
            with pytest.raises(oz.ClosedError, match="drained"):
                sub.receive()
            assert sub.stats.lost == 0
            assert not pub.interest("b.c")


def test_draining_under_traffic_gives_a_beginning_without_holes(sockets):
    # They publish faster than anybody reads.
    pubs = [sockets.pub(high_water_mark=0) for _ in range(2)]
    sub = sockets.sub(*pubs)
    sub.subscribe("a.*")
    sub.wait_ready(timeout=DEADLINE)
    is_over = []

    def keep_publishing(pub):
        number = 0
        while not is_over:
            pub.publish("a.b", b"%d" % number)
            number += 1

    threads = [Thread(lambda pub=pub: keep_publishing(pub)) for pub in pubs]
    first = [sub.receive(timeout=DEADLINE) for _ in range(100)]
    sub.drain(timeout=DEADLINE)
    is_over.append(True)
    got = first + list(sub)
    for thread in threads:
        thread.outcome()
    for origin in {message.origin for message in got}:
        one = [message for message in got if message.origin == origin]
        assert numbers(one) == list(range(len(one)))
    assert sub.stats.lost == 0


def test_draining_a_shared_subscriber_loses_nothing(stage):
    pub = stage.pub()
    sub, other = (stage.sub(pub, shared=True) for _ in range(2))
    for one in (sub, other):
        one.subscribe("a.*")
        one.wait_ready(timeout=DEADLINE)
    publish(pub, 1_000)
    sub.drain(timeout=DEADLINE)
    assert numbers(sub) == list(range(1_000))
    publish(pub, 10, first=1_000)
    assert numbers(other.receive(timeout=DEADLINE) for _ in range(1_010)) == list(range(1_010))


def test_draining_ends_in_time_though_nobody_answers(stage):
    sub = stage.sub("tcp://127.0.0.1:9")
    sub.subscribe("a.*")
    sub.drain(timeout=0.1)
    assert list(sub) == []


def test_draining_in_prefix_mode_gives_what_is_here(sockets):
    pub = sockets.pub()
    sub = sockets.enter_context(oz.Subscriber(pub.endpoint))
    sub.subscribe("a.*")
    pub.wait_for_subscribers(timeout=DEADLINE)
    publish(pub, 10)
    first = sub.receive(timeout=DEADLINE)
    until(lambda: sub.poll(0))
    sub.drain()
    got = numbers([first, *sub])
    assert got == list(range(len(got)))
    until(lambda: not pub.interest("a.b"))
    with pytest.raises(oz.ClosedError, match="drained"):
        sub.receive(timeout=0)


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_asyncio_ends_alike(filtering):
    async def scenario():
        async with (
            oz.asyncio.Publisher("tcp://127.0.0.1:*") as pub,
            oz.asyncio.Subscriber(pub.endpoint, filtering=filtering) as sub,
        ):
            handled, awaited = [], []

            async def handle(message):
                await asyncio.sleep(0)
                awaited.append(message)

            sub.subscribe("a.*", max_messages=2)
            sub.subscribe("a.*", handler=handled.append, max_messages=3)
            sub.subscribe("a.*", handler=handle, max_messages=4)
            sub.subscribe("b.*")
            for subject in ("a.b", "b.c"):
                await pub.wait_for_subscribers(subject=subject, timeout=DEADLINE)
            if filtering == "publisher":
                await sub.wait_ready(timeout=DEADLINE)
            await pub.publish_many(("a.b", b"%d" % number) for number in range(10))
            await pub.publish_many(("b.c", b"%d" % number) for number in range(10))
            await pub.flush()
            got = [await sub.receive(timeout=DEADLINE) for _ in range(2 + 10)]
            assert [message.subject for message in got] == ["a.b"] * 2 + ["b.c"] * 10
            assert numbers(got) == [0, 1, *range(10)]
            assert (numbers(handled), numbers(awaited)) == ([0, 1, 2], [0, 1, 2, 3])
            await pub.publish_many(("b.c", b"%d" % number) for number in range(10, 20))
            if filtering == "prefix":
                got = [await sub.receive(timeout=DEADLINE)]
                await sub.drain()
                got += [message async for message in sub]
                assert numbers(got) == list(range(10, 10 + len(got)))
            else:
                await sub.drain(timeout=DEADLINE)
                assert numbers([message async for message in sub]) == list(range(10, 20))
            with pytest.raises(oz.ClosedError):
                await sub.receive(timeout=DEADLINE)

    asyncio.run(scenario())


def test_what_is_taken_before_and_after_draining_is_the_same(sockets):
    pub = sockets.pub()
    sub = sockets.sub(pub)
    sub.subscribe("a.*")
    sub.wait_ready(timeout=DEADLINE)
    publish(pub, 10)
    sub.drain(timeout=DEADLINE)
    assert sub.poll(0)
    assert sub.recv_multipart() == [b"a.b", b"0"]
    assert payloads([sub.receive(timeout=0)]) == [b"1"]
    assert len(list(sub)) == 8
    with pytest.raises(zmq.ZMQError):
        sub.recv_multipart()


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_what_was_counted_and_waits_in_line_is_given_after_the_end(sockets, filtering):
    pub = sockets.pub()
    sub = sockets.enter_context(oz.Subscriber(pub.endpoint, filtering=filtering))
    sub.subscribe("a.*", max_messages=5)
    sub.subscribe("b.*")
    pub.wait_for_subscribers(subject="a.b", timeout=DEADLINE)
    pub.wait_for_subscribers(subject="b.c", timeout=DEADLINE)
    publish(pub, 10)
    publish(pub, 1, "b.c", first=99)
    until(lambda: sub.run(timeout=0.05) >= 0 and sub.stats.received >= 6)
    sub.drain()
    assert numbers(sub) == [0, 1, 2, 3, 4, 99]


def test_asyncio_does_not_give_what_only_ended_subscriptions_would_receive(sockets):
    async def scenario(pub):
        async with oz.asyncio.Subscriber(pub.endpoint, filtering="publisher") as sub:
            every = []
            sub.subscribe("a.*", max_messages=1)
            sub.subscribe("a.*", handler=every.append)
            await sub.wait_ready(timeout=DEADLINE)
            publish(pub, 5)
            assert numbers([await sub.receive(timeout=DEADLINE)]) == [0]
            while len(every) < 5:
                with pytest.raises(oz.Timeout):
                    await sub.receive(timeout=0.1)
            assert numbers(every) == list(range(5))

    asyncio.run(scenario(sockets.pub()))
