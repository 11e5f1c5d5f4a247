"""The steps of a subscriber, without anything that waits: who runs them decides how."""

import pytest

import oz
import oz.testing
from oz.transport.subscriber.draining import drain, drain_one, wait_ready
from support.inside import attachments_of, engine_of
from support.waiting import until


@pytest.fixture
def sub():
    with oz.Subscriber("tcp://127.0.0.1:1", filtering="publisher") as sub:
        sub.subscribe("a.*")
        yield sub


@pytest.fixture
def now(sub):
    """The time of the subscriber, in a list; it stands still."""
    times = [1_000.0]
    engine_of(sub).monotonic = lambda: times[0]
    return times


def test_readiness_is_waited_for_until_the_time_is_over(sub, now):
    steps = wait_ready(engine_of(sub), attachments_of(sub), 0.05)
    assert next(steps) == 0.0
    assert 0 < next(steps) <= 0.05
    now[0] += 0.06
    with pytest.raises(oz.Timeout, match=r"no oz publisher answered at tcp://127\.0\.0\.1:1"):
        next(steps)


def test_readiness_of_a_publisher_that_does_not_filter_is_refused():
    with oz.Subscriber("tcp://127.0.0.1:1") as plain, pytest.raises(ValueError, match="only publishers that"):
        next(wait_ready(engine_of(plain), attachments_of(plain), None))


def test_draining_soon_gives_up_where_nobody_is(sub, now):
    steps = drain(engine_of(sub), 1, 50.0)
    assert next(steps) == 0.0  # to take in what is here
    assert 0 < next(steps) <= 0.25
    now[0] += 0.26
    assert list(steps) == []
    assert engine_of(sub).is_drained


def test_draining_does_not_wait_for_a_publisher_that_has_said_goodbye():
    with oz.Publisher("tcp://127.0.0.1:*") as pub:
        sub = oz.Subscriber(pub.endpoint, filtering="publisher")
        sub.subscribe("a.*")
        sub.wait_ready(30)
    with sub:
        until(lambda: [sub.poll(1)] and not engine_of(sub).declarer.streams.publishers.origins())
        assert list(drain(engine_of(sub), 1, 50.0)) == [0.0]


@pytest.mark.parametrize("what", ["subscriber", "subscription"])
def test_draining_delivers_what_is_on_its_way_from_a_publisher_that_was_never_heard(what):
    with oz.testing.Bus() as bus:
        bus.network.latency = 0.1

        async def main():
            pub = bus.publisher()
            sub = bus.subscriber(filtering="publisher")
            subscription = sub.subscribe("a.*")
            await pub.wait_for_subscribers()
            for number in range(3):
                await pub.publish(f"a.{number}")
            await pub.flush()
            if what == "subscription":
                assert await subscription.drain(5)
            await sub.drain(5)
            return [message.subject async for message in sub]

        assert bus.run(main()) == ["a.0", "a.1", "a.2"]


def test_what_is_here_for_a_subscription_is_given_to_whoever_runs_the_steps():
    with (
        oz.Publisher("tcp://127.0.0.1:*") as pub,
        oz.Subscriber(pub.endpoint, filtering="publisher") as sub,
    ):
        got = []
        one = sub.subscribe("a.*", handler=lambda message: got.append(message.subject))
        sub.wait_ready(30)
        pub.publish("a.1")
        pub.publish("a.2")
        pub.flush()
        sub.poll(30_000)
        seen = []
        for step in drain_one(engine_of(sub), one, 1, 30.0):
            if isinstance(step, float):
                sub.poll(round(1000 * step))
            else:
                seen.append(step.subject)
        assert seen == ["a.1", "a.2"]
        assert got == []  # to call handlers is up to whoever runs the steps
        assert not one.active
