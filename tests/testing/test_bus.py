"""A bus in a test tube."""

import asyncio
import os
import subprocess
import sys
import time

import pytest

import oz
import oz.asyncio
import oz.testing


@pytest.mark.parametrize("name", ["Publisher", "Subscriber", "Node"])
def test_members_have_the_methods_of_asyncio(name):
    assert issubclass(getattr(oz.testing, name), getattr(oz.asyncio, name))


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_messages_go_from_publishers_to_subscribers(bus, filtering):
    async def main():
        first, subscriber = bus.publisher(), bus.subscriber(filtering=filtering)
        later = bus.publisher(codec="json")
        subscriber.subscribe("time.*")
        for publisher in (first, later):
            await publisher.wait_for_subscribers(timeout=5)
            await publisher.publish_many(
                ("time.a", str(number)) if publisher is later else ("time.a", b"%d" % number)
                for number in range(100)
            )
        return [(await subscriber.receive(timeout=5)).subject for _ in range(200)]

    assert bus.run(main()) == 200 * ["time.a"]


def test_endpoints_join_publishers_and_subscribers_that_name_them(bus):
    async def main():
        publisher = bus.publisher(bind="tcp://127.0.0.1:5555")
        subscriber, stranger = bus.subscriber(connect="tcp://127.0.0.1:5555"), bus.subscriber()
        for item in (subscriber, stranger):
            item.subscribe("a")
        await publisher.wait_for_subscribers(timeout=5)
        await publisher.publish("a", b"b")
        assert (await subscriber.receive(timeout=5)).payload == b"b"
        with pytest.raises(oz.Timeout):
            await stranger.receive(timeout=3600)
        return publisher.endpoint

    assert bus.run(main()) == "tcp://127.0.0.1:5555"


def test_outage_longer_than_the_limit_of_resuming_is_a_gap_of_unknown_size(bus):
    async def main():
        gaps = []
        publisher, subscriber = bus.publisher(), bus.subscriber(filtering="publisher", on_gap=gaps.append)
        subscriber.subscribe("a")
        await subscriber.wait_ready(timeout=5)
        await publisher.publish("a", b"before")
        assert (await subscriber.receive(timeout=5)).payload == b"before"
        bus.cut(publisher, subscriber)
        await publisher.publish("a", b"lost")
        with pytest.raises(oz.Timeout):
            await subscriber.receive(timeout=60)
        bus.heal()
        await subscriber.wait_ready(timeout=60)
        await publisher.publish("a", b"after")
        assert (await subscriber.receive(timeout=60)).payload == b"after"
        return [gap.count for gap in gaps]

    began = time.perf_counter()
    assert bus.run(main()) == [None]
    assert bus.now() > 60
    # A real outage of a minute takes a minute. It takes 20 ms here on an idle machine.
    assert time.perf_counter() - began < 10


@pytest.mark.parametrize("kind", ["publisher", "subscriber", "node"])
def test_killed_member_refuses_all_calls(bus, kind):
    async def main():
        member = getattr(bus, kind)()
        subscribed = None if kind == "publisher" else member.subscribe("a")
        receiver = {"subscriber": member, "node": subscribed}.get(kind)
        waiting = None if receiver is None else asyncio.ensure_future(receiver.receive())
        await asyncio.sleep(0)
        bus.kill(member)
        assert member.closed
        if waiting is not None:
            with pytest.raises(oz.ClosedError):
                await waiting
        if kind != "subscriber":
            with pytest.raises(oz.ClosedError):
                await member.publish("a", b"")
        await member.close()

    bus.run(main())


def busy_day(seed):
    """Return the events, messages and statistics of a run with faults."""
    seen = []

    async def main(bus):
        publisher, subscriber = (
            bus.publisher(),
            bus.subscriber(
                filtering="publisher", on_gap=lambda gap: seen.append((bus.now(), gap.origin, gap.count))
            ),
        )
        subscriber.subscribe(
            "tick.*", handler=lambda message: seen.append((bus.now(), message.subject, message.time_ns))
        )
        one, other = bus.node("one"), bus.node()
        async with one, other:
            other.subscribe(
                "tick.>", handler=lambda message: seen.append((bus.now(), message.subject, message.origin))
            )
            running = asyncio.ensure_future(subscriber.run())
            for number in range(40):
                await asyncio.sleep(0.25)
                if number % 8 == 3:
                    bus.cut(publisher, subscriber)
                    bus.stall(one, other)
                elif number % 8 == 6:
                    bus.heal()
                await publisher.publish(f"tick.{number}", b"")
                await one.publish(f"tick.{number}")
            bus.heal()
            await asyncio.sleep(5)
            running.cancel()
        seen.append((bus.now(), publisher.stats, subscriber.stats, one.stats, other.stats))

    with oz.testing.Bus(seed) as bus:
        bus.run(main(bus))
    return seen


def test_same_seed_gives_the_same_run_in_another_process():
    here = os.path.dirname(__file__)
    paths = [here, os.path.dirname(here)]
    program = f"import sys; sys.path[:0] = {paths}; import test_bus; print(test_bus.busy_day(5))"
    hashes_otherwise = os.environ | {"PYTHONHASHSEED": "4711"}
    found = subprocess.run(
        [sys.executable, "-c", program],
        env=hashes_otherwise,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert found.stdout.strip() == str(busy_day(5)) != str(busy_day(6))


def test_time_passes_for_a_program_that_publishes_without_a_pause(bus):
    async def main():
        publisher, subscriber = bus.publisher(), bus.subscriber(filtering="publisher")
        subscriber.subscribe("a")
        await subscriber.wait_ready(timeout=5)
        receiving = asyncio.create_task(subscriber.receive(timeout=5))
        began = bus.now()
        while not receiving.done():
            await publisher.publish("a", b"")
        return bus.now() - began

    assert bus.run(main()) < 1


def test_blocking_calls_let_time_pass(bus):
    publisher, subscriber = bus.blocking(bus.publisher()), bus.blocking(bus.subscriber(filtering="publisher"))
    subscriber.subscribe("time.*")
    subscriber.wait_ready(timeout=5)
    publisher.publish_many(("time.a", str(number).encode()) for number in range(4))
    assert subscriber.receive(timeout=5).payload == b"0"
    assert [message.payload for _, message in zip(range(3), subscriber, strict=False)] == [b"1", b"2", b"3"]
    with pytest.raises(oz.Timeout):
        subscriber.receive(timeout=60)
    assert bus.now() > 60
    assert publisher.stats.sent == 4
    publisher.close()
    with pytest.raises(oz.ClosedError):
        publisher.publish("time.a")
