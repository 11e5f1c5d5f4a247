"""What a node knows when it is ready: also what others, and itself, have subscribed to a moment before."""

import asyncio
import socket
from contextlib import suppress

import pytest

import oz
import oz.asyncio
import oz.testing
from support.inside import engine_of, shell_of
from support.ports import lasting_endpoint
from support.sizes import size
from support.waiting import DEADLINE, Thread, until

MANY = size(60, 200)


@pytest.fixture
def made_bus():
    with oz.testing.Bus(7) as made:
        yield made


def endpoint_of_nobody():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"tcp://127.0.0.1:{listener.getsockname()[1]}"


class Held:
    """Keeps what a node asks for from leaving, as a slow network does, until it is dropped."""

    def __init__(self, node):
        self._node = node
        self._ask = engine_of(node).sockets.sub.engine.declarer.ask
        self._wishes = []
        engine_of(node).sockets.sub.engine.declarer.ask = self._wishes.append

    def dropped(self):
        def send():
            del engine_of(self._node).sockets.sub.engine.declarer.ask
            for changes in self._wishes:
                self._ask(changes)

        shell_of(self._node).call(send)


def give_up_soon(node):
    with pytest.raises(oz.Timeout, match="what asks has subscribed to has not arrived at this node"):
        node.wait_ready(0.3)


def knows(node, *subjects):
    return [
        subject for subject in subjects if engine_of(node).sockets.main.engine.sender.routes.count(subject)
    ] == list(subjects)


@pytest.mark.parametrize("options", [{}, {"bind": "tcp://127.0.0.1:*"}], ids=["host", "both"])
def test_a_node_is_ready_once_it_knows_what_peers_had_subscribed_to(make, met, options):
    node, asks = make("node", **options), make("asks")
    met(node, asks)
    held = Held(asks)
    asks.subscribe("a.*", handler=lambda message: message.reply(1))
    asks.subscribe("b", group="workers")
    give_up_soon(node)
    waiting = Thread(lambda: node.wait_ready(DEADLINE))
    held.dropped()
    waiting.outcome()
    assert knows(node, "a.1", "b")
    assert node.request("a.1", timeout=DEADLINE).payload == 1


def test_a_node_of_asyncio_is_ready_once_it_knows_what_peers_had_subscribed_to(make, place):
    asks = make("asks")

    async def main():
        async with oz.asyncio.Node("node", directory=place) as node:
            await node.wait_for_peers("asks", DEADLINE)
            await node.wait_ready(DEADLINE)
            held = Held(asks)
            await asyncio.to_thread(asks.subscribe, "a.*")
            with pytest.raises(oz.Timeout, match="what asks has subscribed to has not arrived"):
                await node.wait_ready(0.3)
            waiting = asyncio.create_task(node.wait_ready(DEADLINE))
            held.dropped()
            await waiting
            assert knows(node, "a.1")

    asyncio.run(asyncio.wait_for(main(), 2 * DEADLINE))


def test_a_node_of_asyncio_tells_what_it_had_subscribed_to(make, place):
    node = make("node")

    async def main():
        async with oz.asyncio.Node("asks", directory=place) as asks:
            await asks.wait_for_peers("node", DEADLINE)
            await asks.wait_ready(DEADLINE)
            held = Held(asks)
            asks.subscribe("a.*")
            await asyncio.to_thread(give_up_soon, node)
            waiting = asyncio.create_task(asyncio.to_thread(node.wait_ready, DEADLINE))
            held.dropped()
            await waiting
            assert knows(node, "a.1")

    asyncio.run(asyncio.wait_for(main(), 2 * DEADLINE))


def test_many_subscriptions_of_a_moment_before_are_known_to_a_node_that_is_ready(make, met):
    """The first few are told at once and the others together."""
    node, asks = make("node"), make("asks")
    met(node, asks)
    subjects = [f"a.{number}" for number in range(MANY)]

    def subscribe():
        # In one turn of the other node, which so has no time to tell the rest.
        for subject in subjects:
            asks.subscribe(subject)
        assert engine_of(asks).sockets.sub.streams.is_collecting

    shell_of(asks).call(subscribe)
    node.wait_ready(DEADLINE)
    assert knows(node, *subjects)


def test_a_question_and_an_answer_that_find_no_room_are_said_again(make, met, monkeypatch):
    node, asks = make("node"), make("asks")
    met(node, asks)
    refused = []
    for one in (node, asks):
        publish = engine_of(one).inquiries.publish

        def is_full(subject, value, publish=publish):
            if len([kind for kind in refused if kind is type(value)]) < 2:
                refused.append(type(value))
                return False
            return publish(subject, value)

        monkeypatch.setattr(engine_of(one).inquiries, "publish", is_full, raising=True)
    asks.subscribe("a")
    node.wait_ready(DEADLINE)
    assert knows(node, "a")
    assert len(refused) == 4


def test_subscriptions_that_end_meanwhile_are_not_waited_for(make, met):
    """Each group is a stream of its own, which is forgotten as soon as it ends."""
    node, asks = make("node"), make("asks")
    met(node, asks)
    is_over = False

    def come_and_go():
        while not is_over:
            with suppress(oz.ClosedError):
                asks.subscribe("a", group="workers").unsubscribe()

    churn = Thread(come_and_go)
    try:
        for _ in range(5):
            node.wait_ready(DEADLINE)
    finally:
        is_over = True
        churn.outcome()


def test_waiting_to_be_ready_counts_as_no_message(make, met):
    node, other = make("node"), make("other")
    met(node, other)
    assert (node.stats.published, other.stats.published) == (0, 0)
    other.subscribe("a")
    node.wait_ready(DEADLINE)
    node.publish("a")
    assert (node.stats.published, other.stats.published) == (1, 0)


@pytest.mark.parametrize("options", [{}, {"bind": "tcp://127.0.0.1:*"}], ids=["host", "both"])
def test_a_node_hears_at_once_what_it_has_subscribed_to(make, options):
    node = make("node", **options)
    for number in range(MANY):
        got, local = node.subscribe(f"a.{number}"), node.subscribe(f"_LOCAL.{number}")
        node.publish(f"a.{number}", number)
        node.publish(f"_LOCAL.{number}", number)
        assert got.receive(DEADLINE).payload == local.receive(DEADLINE).payload == number
        got.unsubscribe()
        local.unsubscribe()


def test_a_node_hears_at_once_all_of_many_that_it_has_subscribed_to(make):
    node = make("node")
    made = []
    # In one turn of its I/O side, which gathers what comes behind the first few.
    shell_of(node).call(lambda: made.extend(node.subscribe(f"a.{number}") for number in range(MANY)))
    for number, got in enumerate(made):
        node.publish(f"a.{number}", number)
        assert got.receive(DEADLINE).payload == number


def test_a_node_can_ask_itself_at_once(make):
    node = make("node")
    for number in range(MANY):
        served = node.subscribe(f"svc.{number}", handler=lambda message: message.reply("yes"))
        assert node.request(f"svc.{number}", timeout=DEADLINE).payload == "yes"
        served.unsubscribe()


def test_a_node_of_asyncio_hears_at_once_what_it_has_subscribed_to(place):
    async def main():
        async with oz.asyncio.Node("node", directory=place) as node:
            made = [node.subscribe(f"b.{number}") for number in range(MANY)]
            for number, got in enumerate(made):
                await node.publish(f"b.{number}", number)
                assert (await got.receive(DEADLINE)).payload == number
            for number in range(MANY):
                got = node.subscribe(f"a.{number}")
                await node.publish(f"a.{number}", number)
                assert (await got.receive(DEADLINE)).payload == number
                got.unsubscribe()
            node.subscribe("svc", handler=lambda message: message.reply("yes"))
            assert (await node.request("svc", timeout=DEADLINE)).payload == "yes"

    asyncio.run(asyncio.wait_for(main(), 2 * DEADLINE))


def test_a_node_without_echo_does_not_hear_itself(make):
    node = make("node", echo=False)
    got = node.subscribe("a")
    node.publish("a")
    until(lambda: node.stats.unwanted)
    with pytest.raises(oz.Timeout):
        got.receive(0)


def test_a_node_tells_who_has_subscribed_and_waits_for_so_many(make, met):
    node, other = make("node"), make("other")
    met(node, other)
    assert not node.interest("a.b")
    waiting = Thread(lambda: node.wait_for_subscribers(2, "a.b", timeout=DEADLINE))
    waiting.wait_until_stuck()
    other.subscribe("a.*")
    other.subscribe("a.>")
    node.wait_for_subscribers(1, "a.b", timeout=DEADLINE)
    with pytest.raises(oz.Timeout, match=r"1 of 2 subscriptions for 'a\.b'"):
        node.wait_for_subscribers(2, "a.b", timeout=0)
    node.subscribe("a.b")
    waiting.outcome()
    assert node.interest("a.b")
    assert not node.interest("b")
    with pytest.raises(oz.SubjectError):
        node.interest("a..b")


def test_a_node_for_asyncio_tells_who_has_subscribed(place):
    async def main():
        async with (
            oz.asyncio.Node("node", directory=place, echo=False) as node,
            oz.asyncio.Node("other", directory=place) as other,
        ):
            waiting = asyncio.ensure_future(node.wait_for_subscribers(1, "a.b", timeout=DEADLINE))
            other.subscribe("a.*")
            await waiting
            assert node.interest("a.b")
            assert not node.interest("b")

    asyncio.run(asyncio.wait_for(main(), 2 * DEADLINE))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_request_behind_wait_ready_finds_the_peer_that_peers_names(make, place, host):
    there = make("there", bind="tcp://127.0.0.1:*")
    there.subscribe("svc", handler=lambda message: message.reply(1))
    endpoint = there.endpoint.replace("127.0.0.1", host)
    for number in range(size(5, 30)):
        node = make("node", peers=endpoint, directory=f"{place}.{number}")
        node.wait_ready(DEADLINE)
        assert node.request("svc", timeout=DEADLINE).payload == 1
        node.close()


def test_the_same_on_asyncio(make, place):
    async def ask(endpoint):
        async with oz.asyncio.Node("node", peers=endpoint, directory=f"{place}.other") as node:
            await node.wait_ready(DEADLINE)
            return (await node.request("svc", timeout=DEADLINE)).payload

    there = make("there", bind="tcp://127.0.0.1:*")
    there.subscribe("svc", handler=lambda message: message.reply(1))
    assert asyncio.run(ask(there.endpoint)) == 1


def test_wait_ready_names_a_peer_that_does_not_answer_and_ends_without_it(make):
    down = endpoint_of_nobody()
    node = make("node", peers=down)
    with pytest.raises(oz.Timeout, match=f"{down} has not answered yet"):
        node.wait_ready(0)
    node.wait_ready(DEADLINE)


def test_a_node_that_is_among_its_own_peers_does_not_wait_for_itself(make, place):
    endpoint = lasting_endpoint()
    node = make("node", bind=endpoint, peers=[endpoint, endpoint.replace("127.0.0.1", "localhost")])
    node.wait_ready(0.4)


def test_in_a_test_tube_a_peer_that_peers_names_is_waited_for(made_bus):
    async def main():
        there = await made_bus.node("there").start()
        there.subscribe("svc", handler=lambda message: message.reply(1))
        node = await made_bus.node("node", peers=there.endpoint).start()
        await node.wait_ready(5)
        return (await node.request("svc", timeout=5)).payload

    assert made_bus.run(main()) == 1


def test_in_a_test_tube_a_peer_that_is_down_is_passed_over_too(made_bus):
    async def main():
        node = await made_bus.node("node", peers="tcp://10.1.1.1:5").start()
        with pytest.raises(oz.Timeout, match=r"tcp://10\.1\.1\.1:5 has not answered yet"):
            await node.wait_ready(0.1)
        await node.wait_ready(5)

    made_bus.run(main())
