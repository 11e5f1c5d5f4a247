"""Nodes with keys on a bus for tests."""

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
