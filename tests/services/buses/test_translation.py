"""Nodes behind a router that translates addresses, as for containers. A proxy at another address is the router."""

import pytest

from oz.services.bridge import Forwarder
from support.fault_proxy import FaultProxy
from support.ports import lasting_port
from support.waiting import DEADLINE

INSIDE, ROUTER = "127.0.0.2", "127.0.0.3"


@pytest.fixture
def router():
    """Proxy that passes connections to one port of the router on to the same port of the host behind it."""
    port = lasting_port()
    with FaultProxy(f"tcp://{INSIDE}:{port}", (ROUTER, port)) as made:
        made.inside = f"tcp://{INSIDE}:{port}"
        yield made


def exchange(node, other):
    """Check that messages and requests pass in both directions."""
    for server, client in ((node, other), (other, node)):
        server.subscribe(f"svc.{server.name}", lambda message, server=server: server.name)
        client.wait_ready(subscriber=f"svc.{server.name}", timeout=DEADLINE)
        assert client.request(f"svc.{server.name}", timeout=DEADLINE).payload == server.name
        got = server.subscribe("quote.*")
        client.wait_ready(subscriber="quote.sap", timeout=DEADLINE)
        client.publish("quote.sap", client.name)
        assert got.receive(timeout=DEADLINE).payload == client.name
        got.unsubscribe()


def test_a_node_behind_a_router_advertises_the_address_of_the_router(make, router):
    hidden = make("hidden", bind=router.inside, advertise=ROUTER)
    assert hidden.endpoint == router.endpoint
    other = make("other", connect=router.endpoint, bind="tcp://127.0.0.1:*")
    other.wait_ready("hidden", timeout=DEADLINE)
    hidden.wait_ready("other", timeout=DEADLINE)
    exchange(hidden, other)
    assert router.accepted >= 1


def test_a_forwarder_on_one_published_port_joins_all_behind_the_router(make, serve, router, directory):
    site = {"bus": "site", "directory": f"{directory}/shared"}
    wide = {"bus": "wide", "bind": router.inside, "advertise": ROUTER, "directory": f"{directory}/wide"}
    serve(Forwarder([site, wide]))
    hidden = make("hidden", bus="site", near="shared")
    other = make("other", bus="wide", connect=router.endpoint, bind="tcp://127.0.0.1:*")
    exchange(hidden, other)
