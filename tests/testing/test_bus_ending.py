"""How a bus ends: what is left open, waits that never come, loops that do not jump."""

import asyncio
import gc
import threading

import pytest
import zmq

import oz
import oz.testing


def test_bus_closes_what_is_left_open():
    before = set(threading.enumerate())
    with oz.testing.Bus() as bus:

        async def main():
            return bus.publisher(), bus.subscriber(), bus.node()

        members = bus.run(main())
        assert {thread for thread in threading.enumerate() if thread not in before} == set()
    assert all(member.closed for member in members)


def test_nobody_is_told_of_tasks_that_still_waited_when_the_bus_was_closed(caplog):
    with oz.testing.Bus() as bus:
        waiting = []

        async def main():
            subscriber = bus.subscriber()
            waiting.append(asyncio.create_task(subscriber.receive()))
            failing.append(asyncio.create_task(fail()))
            await asyncio.sleep(1)

        async def fail():
            raise RuntimeError("on its own")

        failing = []
        bus.run(main())
    waiting, failing = waiting[0].done(), failing.clear()
    gc.collect()
    assert waiting
    assert [record.exc_info[1].args for record in caplog.records] == [("on its own",)]


def test_bus_runs_on_a_loop_of_its_user():
    async def main():
        async with oz.testing.Bus() as bus:
            publisher, subscriber = bus.publisher(), bus.subscriber(filtering="publisher")
            subscriber.subscribe("a")
            await publisher.wait_for_subscribers(timeout=5)
            await publisher.publish("a", b"b")
            await asyncio.sleep(3600)
            assert bus.now() == asyncio.get_running_loop().time() > 3600
            return (await subscriber.receive(timeout=1)).payload

    with asyncio.Runner(loop_factory=oz.testing.VirtualLoop) as runner:
        assert runner.run(main()) == b"b"


def test_bus_refuses_a_loop_whose_clock_does_not_jump(bus):
    async def main():
        with pytest.raises(oz.OwnershipError, match=r"loop_factory=oz\.testing\.VirtualLoop"):
            bus.publisher()

    asyncio.run(main())


def test_bus_refuses_what_makes_no_sense(bus):
    with pytest.raises(ValueError, match="no member 'nobody'; it has none"):
        bus.kill("nobody")
    with pytest.raises(ValueError, match="no context="):
        bus.publisher(context=zmq.Context.instance())
    for create in (bus.publisher, bus.subscriber, bus.node):
        with pytest.raises(oz.ConfigurationError, match="no keys"):
            create(security="keys.toml")
    for create in (bus.publisher, bus.subscriber):
        with pytest.raises(ValueError, match="no multicast"):
            create(connect="epgm://127.0.0.1;239.192.1.1:5555")


def test_wait_for_ever_beside_timers_is_given_up():
    async def main(bus):
        bus.publisher()
        subscriber = bus.subscriber(filtering="publisher")
        subscriber.subscribe("a")
        await subscriber.receive()

    with (
        oz.testing.Bus(longest=600) as bus,
        pytest.raises(oz.testing.Deadlock, match=r"for 600 s .* in main"),
    ):
        bus.run(main(bus))


@pytest.mark.parametrize("end", ["kill", "close"])
def test_a_subscriber_whose_publisher_is_gone_closes_at_once(end):
    async def main(bus):
        publisher, subscriber = bus.publisher(), bus.subscriber(filtering="publisher")
        subscriber.subscribe("a")
        await subscriber.wait_ready(timeout=10)
        if end == "kill":
            bus.kill(publisher)
        else:
            await publisher.close()
        await asyncio.sleep(0.1)
        began = bus.now()
        await subscriber.close()
        return bus.now() - began

    with oz.testing.Bus(1) as bus:
        assert bus.run(main(bus)) == pytest.approx(0, abs=0.01)
