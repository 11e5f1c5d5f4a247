"""A bus in a test tube with keys: who may publish and subscribe to what, without CURVE and in no time."""

import asyncio

import pytest
import zmq

import oz
import oz.testing
from support.keyring import Keyring

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="keys are made by libzmq, and this has no CURVE")

RULES = {
    "feed": """
        publish = { allow = ["md.>"] }
        subscribe = { allow = ["svc.>"] }
        reply = { allow_responses = true }""",
    "desk": 'subscribe = { allow = ["md.>"], deny = ["md.secret.>"] }\nrequest = { allow = ["svc.>"] }',
    "rogue": "",
}


@pytest.fixture
def secure(tmp_path):
    ring = Keyring(tmp_path, *RULES)
    ring.permit(**RULES)
    return lambda name: {"security": ring.security(name, permissions=True)}


@pytest.fixture
def bus():
    with oz.testing.Bus() as made:
        yield made


@pytest.mark.parametrize("filtering", ["publisher", "prefix"])
def test_what_a_key_may_not_publish_is_dropped_and_counted(bus, secure, filtering):
    feed, rogue = bus.publisher(**secure("feed")), bus.publisher(**secure("rogue"))
    desk = bus.subscriber(filtering=filtering, **secure("desk"))

    async def main():
        desk.subscribe("md.eu.>")
        await asyncio.sleep(1)
        await rogue.publish("md.eu.dax", b"forged")
        await feed.publish("md.eu.dax", b"honest")
        await asyncio.sleep(1)
        assert (await desk.receive(timeout=1)).payload == b"honest"
        with pytest.raises(oz.Timeout):
            await desk.receive(timeout=1)

    bus.run(main())
    assert desk.stats.denied == 1


def test_a_denied_subscription_names_the_rule_and_a_subject_and_gets_nothing(bus, secure):
    feed, desk = bus.publisher(**secure("feed")), bus.subscriber(filtering="publisher", **secure("desk"))

    async def main():
        desk.subscribe("md.*.dax")
        with pytest.raises(oz.PermissionDenied) as denied:
            await desk.wait_ready(timeout=5)
        assert denied.value.subject == "md.secret.dax"
        assert "deny subscribe 'md.secret.>'" in denied.value.rule
        await feed.publish("md.secret.dax", b"x")
        await asyncio.sleep(1)

    bus.run(main())
    assert (feed.stats.denied, feed.stats.sent, desk.stats.received) == (1, 0, 0)


def test_who_has_no_key_or_one_that_nobody_trusts_is_kept_out(bus, secure, tmp_path):
    feed = secure("feed")
    publisher = bus.publisher(**feed)
    stranger = Keyring(tmp_path / "elsewhere", "stranger")
    for options in ({}, {"security": stranger.security("stranger")}):
        subscriber = bus.subscriber(**options)

        async def main(subscriber=subscriber):
            subscriber.subscribe("md.>")
            await asyncio.sleep(10)
            await publisher.publish("md.eu", b"x")
            with pytest.raises(oz.Timeout):
                await subscriber.receive(timeout=10)

        bus.run(main())
    assert feed["security"].refused == 2


def test_a_key_that_comes_again_after_a_fault_has_the_same_rights(bus, secure):
    feed, desk = bus.publisher(**secure("feed")), bus.subscriber(**secure("desk"))

    async def main():
        desk.subscribe("md.eu.>")
        received = asyncio.create_task(desk.receive(timeout=60))
        await asyncio.sleep(1)
        bus.cut(feed, desk)
        await asyncio.sleep(5)
        bus.heal()
        await asyncio.sleep(10)
        await feed.publish("md.eu.dax", b"again")
        assert (await received).payload == b"again"

    bus.run(main())
    assert desk.stats.denied == 0


@pytest.mark.parametrize("how", ["found", "named"])
def test_nodes_ask_answer_and_are_denied_by_their_keys(bus, secure, how):
    async def main():
        bound = {"bind": "tcp://127.0.0.1:*"} if how == "named" else {}
        async with bus.node("feed", **bound, **secure("feed")) as feed:
            peers = {"peers": feed.endpoint} if how == "named" else {}
            async with (
                bus.node("desk", **peers, **secure("desk")) as desk,
                bus.node("rogue", **peers, **secure("rogue")) as rogue,
            ):
                await desk.wait_for_peers(2, timeout=30)
                feed.subscribe("svc.double", handler=lambda message: message.reply(2 * message.payload))
                await desk.wait_for_subscribers(1, "svc.double", timeout=10)
                assert (await desk.request("svc.double", 21, timeout=5)).payload == 42
                await rogue.wait_for_subscribers(1, "svc.double", timeout=10)
                with pytest.raises(oz.Timeout):
                    await rogue.request("svc.double", 21, timeout=5)
                prices = desk.subscribe("md.eu")
                await rogue.wait_for_subscribers(1, "md.eu", timeout=10)
                await feed.wait_for_subscribers(1, "md.eu", timeout=10)
                await rogue.publish("md.eu", "forged")
                await feed.publish("md.eu", "honest")
                assert (await prices.receive(timeout=5)).payload == "honest"
                with pytest.raises(oz.PermissionDenied, match=r"md\.secret"):
                    await desk.subscribe("md.*.x").receive(timeout=10)
                await asyncio.sleep(1)
                # Each of a node's publishers denies a subscription.
                assert feed.stats.denied >= 2
                assert desk.stats.denied == 1

    bus.run(main())


def test_a_node_with_keys_has_no_name_server(bus, secure):
    async def main():
        async with bus.node("feed", nameserver="tcp://127.0.0.1:1", **secure("feed")):
            pass

    with pytest.raises(ValueError, match="no name server with keys"):
        bus.run(main())
