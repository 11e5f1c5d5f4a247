"""Forwarders between buses whose nodes have keys."""

from contextlib import ExitStack

import pytest
import zmq

import oz
import oz.asyncio
from oz.services.forwarder import Forwarder
from support.meeting import DESK, FEED
from support.waiting import DEADLINE, Thread, until

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")


BRIDGE = """
publish = { allow = ["md.>", "svc.>", "_INBOX.>"] }
subscribe = { allow = ["md.>", "svc.>", "_INBOX.>", "_OZ.FORWARDER.>"] }
request = { allow = ["svc.>"] }
reply = { allow = ["svc.>"] }
"""


@pytest.fixture
def join_buses(node_ring, directory):
    """Join two buses of this host by a forwarder with a key."""
    node_ring.make("bridge")
    node_ring.trust("bridge")
    with ExitStack() as stack:

        def join(rights, **rules):
            node_ring.permit(feed=FEED, desk=DESK, other="", bridge=rights, **rules)
            legs = [{"bus": bus, "directory": directory / "bus"} for bus in ("a", "b")]
            made = stack.enter_context(
                Forwarder(legs, security=node_ring.security("bridge", permissions=True))
            )
            running = Thread(made.run)

            def end():
                made.stop()
                running.outcome()

            stack.callback(end)
            return made

        yield join


def test_a_forwarder_with_a_key_passes_on_what_its_rights_and_those_of_others_allow(
    make, join_buses, directory
):
    join_buses(BRIDGE)
    feed = make("feed", bus="a", directory=directory / "bus")
    desk = make("desk", bus="b", directory=directory / "bus")
    md, secret = desk.subscribe("md.eu.>"), desk.subscribe("md.secret.>")
    orders = feed.subscribe("notes.>")
    feed.subscribe("svc.>", handler=lambda message: message.reply(2 * message.payload))
    with pytest.raises(oz.PermissionDenied, match=r"md\.secret"):
        secret.receive(DEADLINE)
    feed.wait_for_subscribers(1, "md.eu.dax", timeout=DEADLINE)
    desk.wait_for_subscribers(1, "svc.x", timeout=DEADLINE)
    feed.publish("md.eu.dax", 1)
    assert md.receive(DEADLINE).payload == 1
    assert desk.request("svc.x", 21, timeout=DEADLINE).payload == 42
    desk.publish("notes.1", "not for the forwarder to pass on")
    assert orders.waiting == 0
    assert not feed.interest("md.secret.x")


def test_a_forwarder_without_a_rule_for_inboxes_passes_on_no_requests(make, join_buses, directory):
    join_buses(BRIDGE.replace(', "_INBOX.>"]', "]").replace(', "_INBOX.>"', ""))
    feed = make("feed", bus="a", directory=directory / "bus")
    desk = make("desk", bus="b", directory=directory / "bus")
    feed.subscribe("svc.>", handler=lambda message: message.reply(1))
    desk.wait_for_subscribers(1, "svc.x", timeout=DEADLINE)
    with pytest.raises(oz.Timeout):
        desk.request("svc.x", 21, timeout=0.3)
    until(lambda: feed.stats.denied)
