"""Mistakes of users: each error names the wrong value and the remedy, and costs nothing else."""

import asyncio
import tempfile

import pytest

import oz
import oz.asyncio
import oz.testing
from oz.options import NodeOptions


@pytest.fixture
def options():
    # The path of a Unix socket is short.
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        yield NodeOptions(directory=f"{directory}/oz")


@pytest.fixture
def node(options):
    with oz.Node("mistaken", options=options) as node:
        node.subscribe("echo", handler=lambda message: message.payload)
        yield node


@pytest.mark.parametrize(
    ("mistake", "kind", "text"),
    [
        (lambda _: oz.Node("x", nameserver="tcp://h:1"), TypeError, "no argument 'nameserver'; use connect="),
        (lambda _: oz.Node("x", peers=["tcp://h:1"]), TypeError, "no argument 'peers'; use connect="),
        (
            lambda _: oz.Node("x", "trading"),
            TypeError,
            "takes only name by position: write ARGUMENT='trading'",
        ),
        (lambda _: oz.asyncio.Node("x", "trading"), TypeError, r"oz\.asyncio\.Node takes only name"),
        (lambda _: oz.Delivery(overflow="conflate"), TypeError, r"use subscribe\(pattern, overflow=…\)"),
        (
            lambda _: NodeOptions(advertise="tcp://1.2.3.4:5"),
            oz.ConfigurationError,
            "without tcp:// and port",
        ),
        (lambda _: NodeOptions(advertise="1.2.3.4:5"), oz.ConfigurationError, "without tcp:// and port"),
        (lambda node: node.receive(), AttributeError, "use receive of a subscription"),
        (lambda node: node.unsubscribe("a"), AttributeError, "use unsubscribe of a subscription"),
        (lambda node: node.connect("tcp://h:1"), AttributeError, "use connect= of the constructor"),
        (lambda node: node.subscribe("a", handler=asyncio.sleep), TypeError, r"use oz\.asyncio\.Node, which"),
        (lambda node: node.subscribe("a", concurrency=2), oz.ConfigurationError, "2: it needs handler="),
        (
            lambda node: node.subscribe("a", last_value="yes"),
            oz.ConfigurationError,
            "'yes': it is True or False",
        ),
        (
            lambda _: oz.Publisher("tcp://127.0.0.1:*", last_value="yes"),
            oz.ConfigurationError,
            "'yes': it is True or False",
        ),
        (lambda node: node.subscribe("_INBOX.>"), oz.PatternError, r"request\(\) receives the replies"),
        (lambda node: node.wait_ready(subscriber="x", timeout=0), oz.Timeout, "peers that are up: none"),
    ],
)
def test_an_error_names_the_remedy(node, mistake, kind, text):
    with pytest.raises(kind, match=text):
        mistake(node)
    assert node.request("echo", 1, timeout=30).payload == 1


def test_a_request_without_a_reply_names_the_causes(node):
    node.subscribe("none", handler=lambda message: None)
    with pytest.raises(oz.Timeout, match=r"'mistaken' has it.*returned None without message\.reply"):
        node.request("none", timeout=0.1)


@pytest.mark.parametrize("host", ["203.0.113.7", "feed.example.org", "[2001:db8::7]"])
def test_addresses_without_port_are_advertised(host):
    assert NodeOptions(advertise=host).advertise == host


def test_an_asyncio_node_belongs_to_one_loop(options):
    async def make():
        node = oz.asyncio.Node("looped", options=options)
        await node.wait_ready()
        return node

    node = asyncio.run(make())

    async def use():
        for call in (
            lambda: node.wait_ready(),
            lambda: node.request("echo"),
            lambda: node.wait_for_subscribers("echo"),
        ):
            with pytest.raises(oz.OwnershipError, match="this node belongs to another event loop"):
                await call()
        with pytest.raises(oz.OwnershipError, match="this node belongs to another event loop"):
            node.subscribe("echo")
        assert await node.close() == 0

    asyncio.run(use())
    assert node.closed


def test_wrong_members_of_a_test_bus_are_named():
    with oz.testing.Bus() as bus:
        bus.node("first")
        for call in (bus.kill, lambda item: bus.cut("first", item), lambda item: bus.stall(item, "first")):
            with pytest.raises(TypeError, match=r"5 is not a member of this bus .*first"):
                call(5)
    with pytest.raises(TypeError, match="a subject is str or bytes, not int: 5"):
        oz.testing.message(5)
