"""Nodes on a bus for tests."""

import asyncio

import pytest

import oz
import oz.testing
from oz.options import Delivery, NodeOptions
from support.sizes import size


@pytest.fixture
def node(bus):
    return bus.node


@pytest.fixture(params=range(size(2, 20)))
def seeded_bus(request):
    with oz.testing.Bus(request.param) as made:
        yield made


def test_nodes_find_each_other_and_reply(bus, node):
    async def price(message):
        await asyncio.sleep(5)
        return {"price": 42}

    async def main():
        async with node("asks") as asks, node("answers") as answers:
            answers.subscribe("svc.price", handler=price)
            await asks.wait_ready("answers")
            assert [peer.name for peer in asks.peers] == ["answers"]
            reply = await asks.request("svc.price", "tea", timeout=10)
            with pytest.raises(oz.NoResponders):
                await asks.request("svc.none", timeout=10)
            with pytest.raises(oz.Timeout):
                await asks.request("svc.price", timeout=3)
            return reply.payload

    assert bus.run(main()) == {"price": 42}
    assert bus.now() < 20


def test_environment_has_no_effect(bus, node, monkeypatch):
    monkeypatch.setenv("OZ_BUS", "of the environment")
    monkeypatch.setenv("OZ_NAME", "of the environment")
    made = node()
    assert (made.name, made.bus) == ("node-1", "default")


def test_messages_that_have_moved_are_not_pending_at_the_lost_member(bus, node):
    async def handle(message):
        await asyncio.sleep(60)

    async def main():
        async with node("feed") as feed:
            for name in ("lost", "other"):
                worker = node(name)
                worker.subscribe(
                    "job", handle, group="workers", ack="handled", delivery=Delivery(redeliver=True)
                )
            await feed.wait_ready("lost", "other")
            await feed.wait_for_subscribers("job", count=2)
            bus.stall("feed", "lost")
            for number in range(20):
                await feed.publish("job", number)
            await feed.flush()
            await asyncio.sleep(0.1)
            before = {link.peer: link.pending for link in feed.snapshot().links}
            bus.cut("feed", "lost")
            await asyncio.sleep(6)
            after = {link.peer: (link.state, link.pending) for link in feed.snapshot().links}
            return before["lost"], after["lost"], feed.stats.redelivered

    assert bus.run(main()) == (10, ("down", 0), 10)


def test_node_that_was_replaced_while_its_link_was_half_open_is_a_loss(bus, node):
    """Its successor says HELLO before the link to its endpoint is tried again."""
    losses = []

    def note(event):
        if event.kind == "loss":
            losses.append((event.about, event.count))

    async def main():
        here, there = NodeOptions(directory="/here"), NodeOptions(directory="/there")
        other = node("other", bind="tcp://10.0.0.2:7000", on_event=note, options=there)
        one = node("one", bind="tcp://10.0.0.1:7000", connect=other.endpoint, options=here)
        subscription = other.subscribe("a")
        await one.wait_ready("other")
        await one.publish("a", 1)
        assert (await subscription.receive(timeout=1)).payload == 1
        bus.network.half_open(one.place.host, other.place.host)
        await one.publish("a", 2)
        await asyncio.sleep(3.2)
        await one.close(timeout=0.05)
        await asyncio.sleep(0.5)
        one = node("one", bind="tcp://10.0.0.1:7000", connect=other.endpoint, options=here)
        await one.wait_ready("other")
        await one.publish("a", 3)
        assert (await subscription.receive(timeout=10)).payload == 3

    bus.run(main())
    assert losses == [("one", None)]


def test_subscription_of_a_peer_that_is_not_up_is_not_ready(bus, node):
    async def main():
        async with node("asks") as asks, node("answers") as answers:
            # A peer is up with a connection in each direction.
            asks._node._dial = lambda endpoint, now: None
            answers.subscribe("svc")
            await asks.wait_for_subscribers("svc")
            with pytest.raises(oz.Timeout, match="no node subscribes"):
                await asks.wait_ready(subscriber="svc", timeout=10)

    bus.run(main())


def test_killed_node_ends_its_calls(bus, node):
    async def main():
        async with node("other") as other:
            other.subscribe("slow", handler=lambda _: asyncio.sleep(1000))
            made = node("made")
            subscription = made.subscribe("a")
            await made.wait_ready("other")
            waits = [
                asyncio.ensure_future(item)
                for item in (
                    subscription.receive(),
                    made.request("slow", timeout=None),
                    made.wait_ready("nobody", timeout=None),
                )
            ]
            await asyncio.sleep(1)
            bus.kill("made")
            assert made.closed
            for wait in waits:
                with pytest.raises(oz.ClosedError):
                    await wait
            with pytest.raises(oz.ClosedError):
                await made.publish("a")
            await made.close()
            again = node("made")
            await other.wait_ready("made")
            await again.close()

    bus.run(main())


def test_killed_node_logs_nothing(bus, node, caplog):
    async def main():
        async with node("there") as there:
            here = node("here")
            here.subscribe("work", handler=lambda _: asyncio.sleep(1000))
            await there.wait_ready("here")
            for _ in range(5):
                await there.publish("work")
            await asyncio.sleep(1)
            bus.kill(here)
            await asyncio.sleep(20)

    bus.run(main())
    assert not caplog.records


def test_nodes_without_a_loop_block(bus, node):
    with bus.blocking(node("asks")) as asks, bus.blocking(node("answers")) as answers:
        for number in range(2):
            answers.subscribe("svc.*", handler=lambda message, number=number: number)
        received = answers.subscribe("event.>")
        asks.wait_ready("answers")
        assert asks.request("svc.a", timeout=5).payload in (0, 1)
        assert sorted(reply.payload for reply in asks.request_many("svc.a", timeout=5)) == [0, 1]
        asks.publish("event.a", "b")
        assert received.receive(timeout=5).payload == "b"
        assert received.drain()


@pytest.mark.parametrize("end", ["close", "kill"])
def test_bus_closes_nodes_that_are_left_open(end):
    with oz.testing.Bus() as bus:
        made = bus.node("one", options=NodeOptions(lost_after=1))
        other = bus.node("other")
        if end == "kill":
            bus.kill("other")
    assert made.closed
    assert other.closed


JOBS = 20


async def leave(bus, end, *, acks_first=False):
    """Remove one of two members of a redelivering group with jobs in its queue; return the handled jobs.

    Args:
        bus: of the nodes.
        end: called with the node and the subscription of the member that leaves.
        acks_first: whether the handler acknowledges a job before it works.
    """
    handled = []

    async def do(message):
        handled.append(message.payload)
        if acks_first:
            message.ack()
        await asyncio.sleep(0.25)

    options = {"handler": do, "group": "workers", "ack": "handled", "delivery": oz.Delivery(redeliver=True)}
    async with bus.node("boss") as boss, bus.node("ann") as ann, bus.node("bob") as bob:
        leaving = ann.subscribe("job", **options)
        bob.subscribe("job", **options)
        await boss.wait_ready("ann", "bob")
        for number in range(JOBS):
            await boss.publish("job", number)
        await asyncio.sleep(0.6)
        await end(ann, leaving)
        await asyncio.sleep(JOBS * 0.25)
    return handled


@pytest.mark.parametrize("acks_first", [True, False])
def test_jobs_that_wait_at_a_member_that_unsubscribes_go_to_another_member(seeded_bus, acks_first):
    async def unsubscribe(ann, leaving):
        await leaving.unsubscribe()

    assert {*seeded_bus.run(leave(seeded_bus, unsubscribe, acks_first=acks_first))} == {*range(JOBS)}


def test_jobs_that_a_member_does_not_handle_before_the_end_of_a_drain_go_to_another_member(seeded_bus):
    async def drain(ann, leaving):
        assert not await leaving.drain(timeout=0.3)
        await ann.close(timeout=0)

    assert {*seeded_bus.run(leave(seeded_bus, drain))} == {*range(JOBS)}


@pytest.mark.parametrize("fault", ["stop", "kill"])
@pytest.mark.parametrize("is_redelivering", [True, False])
def test_close_waits_for_the_jobs_of_a_member_that_is_lost_meanwhile(bus, fault, is_redelivering):
    handled = []

    async def main():
        boss, *members = [bus.node(name) for name in ("boss", "ann", "bob")]
        for member in members:

            async def do(message, name=member.name):
                await asyncio.sleep(0.25)
                handled.append(name)

            delivery = oz.Delivery(redeliver=is_redelivering)
            member.subscribe("job", handler=do, group="workers", ack="handled", delivery=delivery)
        await boss.wait_ready("ann", "bob")
        for number in range(JOBS):
            await boss.publish("job", number)
        await boss.flush()
        if fault == "kill":
            bus.kill("ann")
        else:
            # A stopped process keeps its connections.
            bus.network.half_open("ann", "boss")
            bus.stall("ann", "boss")
        left = await boss.close(timeout=60)
        assert left == boss.stats.given_up == (0 if is_redelivering else JOBS // 2)
        assert handled.count("bob") == JOBS - left
        # Long before the end of the timeout.
        assert bus.now() < 30

    bus.run(main())
