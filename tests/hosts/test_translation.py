"""A host behind a router that translates addresses, as for containers."""

import pytest

from hosts.stage import accounted
from support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]

PORT = 5757


@pytest.fixture(scope="module")
def inside(network):
    """A host behind the last one; the others reach one port of it, by the address of its router."""
    router = network.hosts[2]
    host = network.add_behind(router)
    router.publish_port(PORT, host)
    return host


@pytest.fixture
def nameserver(hosts, stage):
    endpoint = f"tcp://{hosts[0].address}:5756"
    stage.command(hosts[0], "nameserver", "--bind", endpoint)
    return endpoint


def all_pass(publisher, two, source=""):
    """See that messages pass from one to the other, and requests in both directions."""
    for node in (publisher, two):
        node.serve(f"service.{node.name()}")
    two.listen("quote.*")
    for node, other in ((publisher, two), (two, publisher)):
        until(lambda node=node, other=other: node.interest(f"service.{other.name()}"))
        said, took = node.request(f"service.{other.name()}", 10.0)
        assert (said, took < 10) == (other.name(), True)
    until(lambda: publisher.interest("quote.sap"))
    publisher.begin(["quote.sap", "noise.ibm"], 0.01)
    until(lambda: two.got()["delivered"] >= 100)
    sent = publisher.end()["quote.sap"]
    assert accounted(two, sent, source)["delivered"] == sent


def test_a_subscriber_behind_a_router_needs_nothing(inside, hosts, stage):
    publisher = stage.actor(hosts[0], "Publisher", bind=f"tcp://{hosts[0].address}:5000")
    subscriber = stage.actor(inside, "Subscriber", connect=f"tcp://{hosts[0].address}:5000")
    subscriber.listen("*.sap")
    publisher.begin(["quote.sap", "noise.ibm"], 0.01)
    until(lambda: subscriber.got()["delivered"] >= 100)
    sent = publisher.end()["quote.sap"]
    assert accounted(subscriber, sent)["delivered"] == sent


@pytest.mark.parametrize("way", ["in", "out"])
def test_a_node_behind_a_router_advertises_the_routers_address(inside, hosts, stage, nameserver, way):
    router = hosts[2].address
    hidden = stage.actor(
        inside, "Node", name="hidden", connect=nameserver, bind=f"tcp://*:{PORT}", advertise=router
    )
    other = stage.actor(hosts[1], "Node", name="other", connect=nameserver)
    assert hidden.endpoint() == f"tcp://{router}:{PORT}"
    until(lambda: (hidden.peers(), other.peers()) == (["other"], ["hidden"]))
    all_pass(*((other, hidden) if way == "in" else (hidden, other)))


def test_a_request_to_a_node_that_nobody_can_call_ends_in_an_error_in_its_time(
    inside, hosts, stage, nameserver
):
    hidden = stage.actor(inside, "Node", name="hidden", connect=nameserver)
    other = stage.actor(hosts[1], "Node", name="other", connect=nameserver)
    hidden.serve("service")
    for _ in range(3):
        said, took = other.request("service", 3.0)
        assert said in ("Timeout", "NoResponders")
        assert took < 4
    assert hidden.peers() == []
    assert "advertise=" in until(lambda: [line for line in other.logged() if "hidden" in line])[0]


def test_a_forwarder_on_one_published_port_joins_all_behind_the_router(inside, hosts, stage, nameserver):
    router, site = hosts[2].address, f"tcp://{inside.address}:5756"
    stage.command(inside, "nameserver", "--bind", site)
    wide = f"bus=wide,connect={nameserver},bind=tcp://*:{PORT},advertise={router}"
    stage.command(inside, "forwarder", "--leg", f"bus=site,connect={site}", "--leg", wide)
    hidden = stage.actor(inside, "Node", name="hidden", bus="site", connect=site)
    other = stage.actor(hosts[1], "Node", name="other", bus="wide", connect=nameserver)
    all_pass(other, hidden)
