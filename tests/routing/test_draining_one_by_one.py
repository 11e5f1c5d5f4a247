"""A single subscription that drains: what was on its way comes, and the others of its subscriber go on."""

import asyncio
import gc
from contextlib import suppress

import pytest
import zmq

import oz.asyncio
from support.inside import engine_of, receive_path_of
from support.routed import Stage, finish, here
from support.traffic import Traffic
from support.waiting import DEADLINE, until


@pytest.fixture
def stage():
    with Stage() as made:
        yield made


def numbers(messages):
    return [int(message.payload) for message in messages]


def payload(number):
    return b"%d" % number


def publish(pub, count, subject="a.b"):
    pub.publish_many((subject, payload(number)) for number in range(count))


@pytest.mark.parametrize("others", [0, 1, 50], ids="beside {} others".format)
def test_a_member_that_drains_hands_over_to_the_others_and_nothing_is_lost(stage, others):
    # Who stays does not read meanwhile, and a busy machine may take its time.
    pub = stage.pub(high_water_mark=0)
    leaving, staying = stage.sub(pub), stage.sub(pub)
    subscription = leaving.subscribe("job.*", group="workers")
    for number in range(others):
        # In the same stream: what is left of its declarations is made anew.
        leaving.subscribe(f"other.{number}", group="workers")
    got = []
    staying.subscribe("job.*", group="workers", handler=got.append)
    staying.subscribe("zz.end")
    for one in (leaving, staying):
        one.wait_ready(timeout=DEADLINE)
    traffic = Traffic(pub, "job.a", encode=payload)
    mine = [leaving.receive(timeout=DEADLINE) for _ in range(500)]
    assert subscription.drain(timeout=DEADLINE)
    assert not subscription.active
    mine += here(leaving)
    has = len(got)
    while len(got) <= has + 100:
        # Not `run`, which ends in silence: there is none while somebody publishes without a pause.
        with suppress(oz.Timeout):
            staying.receive(timeout=0.01)
    traffic.stop()
    finish([pub], staying)
    assert here(leaving) == []
    assert sorted(numbers(mine) + numbers(got)) == list(range(traffic.count))
    assert (leaving.stats.lost, staying.stats.lost) == (0, 0)


def test_the_others_of_its_subscriber_go_on_in_order(stage):
    pub = stage.pub()
    sub, handled, every = stage.sub(pub), [], []
    subscription = sub.subscribe("a.*", handler=handled.append)
    sub.subscribe("a.b", handler=every.append)
    sub.subscribe("b.*")
    sub.subscribe("zz.end")
    sub.wait_ready(timeout=DEADLINE)
    for _ in range(3):
        publish(pub, 100)
        publish(pub, 100, "b.c")
    assert subscription.drain(timeout=DEADLINE)
    assert numbers(handled) == [*range(100)] * 3
    publish(pub, 100)
    publish(pub, 100, "b.c")
    pub.flush()
    pub.publish("zz.end")
    received = [sub.receive(timeout=DEADLINE) for _ in range(401)]
    assert received.pop().subject == "zz.end"
    assert numbers(received) == [*range(100)] * 4
    assert numbers(every) == [*range(100)] * 4
    assert len(handled) == 300


def test_what_is_held_back_for_it_is_given_and_what_is_held_back_for_others_is_not(stage):
    pub = stage.pub()
    sub, newest, oldest = stage.sub(pub), [], []
    latest = sub.subscribe("a.*", overflow="conflate", handler=newest.append)
    sub.subscribe("a.*", overflow="drop_newest", max_pending=3, handler=oldest.append)
    sub.wait_ready(timeout=DEADLINE)
    publish(pub, 100)
    assert latest.drain(timeout=DEADLINE)
    assert numbers(newest) == [99]
    assert oldest == []
    until(lambda: sub.run(timeout=0.01) >= 0 and len(oldest) == 3)
    assert numbers(oldest) == [0, 1, 2]


def test_a_subscription_made_while_another_drains_has_its_own(stage):
    pub = stage.pub()
    sub, first, second = stage.sub(pub), [], []
    subscription = sub.subscribe("a.*", handler=first.append)
    sub.wait_ready(timeout=DEADLINE)
    publish(pub, 10)
    assert subscription.drain(timeout=DEADLINE)
    sub.subscribe("a.*", handler=second.append)
    sub.wait_ready(timeout=DEADLINE)
    publish(pub, 10)
    until(lambda: sub.run(timeout=0.01) >= 0 and len(second) == 10)
    assert numbers(first) == numbers(second) == list(range(10))


def test_a_handler_may_drain_its_own_subscription(stage):
    pub = stage.pub()
    sub, got, answers = stage.sub(pub), [], []

    def handle(message):
        got.append(message)
        if len(got) == 5:
            answers.append(subscription.drain(timeout=DEADLINE))

    subscription = sub.subscribe("a.*", handler=handle)
    sub.wait_ready(timeout=DEADLINE)
    publish(pub, 100)
    until(lambda: sub.run(timeout=0.01) >= 0 and answers)
    assert answers == [True]
    assert numbers(got) == list(range(100))
    assert not subscription.active


def test_draining_ends_in_time_and_says_so_when_a_publisher_does_not_answer(stage):
    pub = stage.pub()
    sub = stage.sub(pub)
    subscription = sub.subscribe("a.*")
    sub.wait_ready(timeout=DEADLINE)
    publish(pub, 3)
    first = sub.receive(timeout=DEADLINE)
    until(lambda: receive_path_of(sub).unpack(sub) or sub.stats.received == 3)
    # Nobody takes its subscriptions in any more, nor answers them.
    with engine_of(pub).guard:
        assert not subscription.drain(timeout=0.2)
    assert not subscription.active
    assert numbers([first, *here(sub)]) == [0, 1, 2]


def test_a_second_time_and_after_the_end_it_does_nothing(stage):
    pub = stage.pub()
    sub = stage.sub(pub)
    once, twice = sub.subscribe("a.*"), sub.subscribe("b.*")
    once.unsubscribe()
    assert once.drain()
    assert twice.drain(DEADLINE)
    assert twice.drain(0)
    twice.unsubscribe()
    sub.close()
    with pytest.raises(oz.ClosedError):
        twice.drain()


def test_a_subscription_of_a_subscriber_that_is_gone_says_so(stage):
    pub = stage.pub()
    sub = oz.Subscriber(pub.endpoint, filtering="publisher")
    subscription = sub.subscribe("a.*")
    sub.close()
    del sub
    gc.collect()
    with pytest.raises(oz.ClosedError, match="gone"):
        subscription.drain()


def test_a_plain_publisher_does_not_answer_and_what_is_here_counts(stage):
    pub = stage.pub()
    sub = stage.enter_context(oz.Subscriber(pub.endpoint))
    subscription = sub.subscribe("a.*")
    sub.subscribe("b.*")
    for subject in ("a.b", "b.c"):
        pub.wait_for_subscribers(subject=subject, timeout=DEADLINE)
    publish(pub, 10)
    publish(pub, 1, "b.c")
    first = sub.receive(timeout=DEADLINE)
    until(lambda: sub.poll(0))
    assert subscription.drain()
    assert not subscription.active
    until(lambda: not pub.interest("a.b"))
    assert pub.interest("b.c")
    got = [first, sub.receive(timeout=DEADLINE)]
    while got[-1].subject != "b.c":
        got.append(sub.receive(timeout=DEADLINE))
    mine = numbers(one for one in got if one.subject == "a.b")
    assert mine == list(range(len(mine)))


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_asyncio_drains_alike(stage, filtering):
    async def scenario(pub):
        async with oz.asyncio.Subscriber(pub.endpoint, filtering=filtering) as sub:
            awaited = []

            async def handle(message):
                await asyncio.sleep(0)
                awaited.append(message)

            subscription = sub.subscribe("a.*", handler=handle)
            listed = sub.subscribe("b.*")
            for subject in ("a.b", "b.c"):
                await asyncio.to_thread(pub.wait_for_subscribers, subject=subject, timeout=DEADLINE)
            if filtering == "publisher":
                await sub.wait_ready(timeout=DEADLINE)
            publish(pub, 100)
            publish(pub, 100, "b.c")
            first = await sub.receive(timeout=DEADLINE)
            assert await subscription.drain(DEADLINE if filtering == "publisher" else 0.2)
            assert numbers(awaited) == list(range(100))
            rest = [await sub.receive(timeout=DEADLINE) for _ in range(99)]
            assert numbers([first, *rest]) == list(range(100))
            assert await listed.drain(DEADLINE if filtering == "publisher" else 0.2)
            assert await listed.drain()
            publish(pub, 100)
            with pytest.raises(oz.Timeout):
                await sub.receive(timeout=0.1)
            assert len(awaited) == 100

    asyncio.run(scenario(stage.pub()))


def test_asyncio_drains_of_a_plain_publisher_that_never_pauses(stage):
    async def scenario(pub):
        async with oz.asyncio.Subscriber(pub.endpoint) as sub:
            sub.subscribe("a.*")
            await asyncio.to_thread(pub.wait_for_subscribers, timeout=DEADLINE)
            traffic = Traffic(pub, "a.b", encode=payload)
            await sub.receive(timeout=DEADLINE)
            async with asyncio.timeout(DEADLINE):
                await sub.drain(timeout=0.1)
            traffic.stop()

    asyncio.run(scenario(stage.pub()))


@pytest.mark.parametrize("group", [None, "workers"])
def test_what_has_come_before_anything_was_read_is_handled(stage, group):
    pub = stage.pub()
    sub, got = stage.sub(pub), []
    subscription = sub.subscribe("a.*", group=group, handler=lambda message: got.append(int(message.payload)))
    pub.wait_for_subscribers(1, timeout=DEADLINE)
    publish(pub, 10)
    pub.flush()
    until(lambda: sub.get(zmq.EVENTS) & zmq.POLLIN)
    assert subscription.drain(timeout=DEADLINE)
    assert got == list(range(10))


@pytest.mark.parametrize("group", [None, "workers"])
def test_asyncio_handles_what_has_come_before_anything_was_read(stage, group):
    pub, got = stage.pub(), []

    async def scenario():
        async with oz.asyncio.Subscriber(pub.endpoint, filtering="publisher") as sub:
            subscription = sub.subscribe(
                "a.*", group=group, handler=lambda message: got.append(int(message.payload))
            )
            pub.wait_for_subscribers(1, timeout=DEADLINE)
            publish(pub, 10)
            pub.flush()
            until(lambda: sub.get(zmq.EVENTS) & zmq.POLLIN)
            assert await subscription.drain(timeout=DEADLINE)

    asyncio.run(asyncio.wait_for(scenario(), 2 * DEADLINE))
    assert got == list(range(10))
