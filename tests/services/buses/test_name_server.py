"""Name servers introduce the nodes of a bus to each other, over real sockets."""

import pytest

from oz.errors import ConfigurationError, Timeout
from oz.services.name_server import NameServer
from support.ports import lasting_port
from support.waiting import DEADLINE, until


def names(node):
    return [peer.name for peer in node.peers]


def exchange(node, other):
    """Check that messages pass in both directions."""
    for publisher, subscriber in ((node, other), (other, node)):
        got = subscriber.subscribe("exchange.*")
        subscriber.wait_ready(timeout=DEADLINE)
        publisher.publish("exchange.a", publisher.name)
        assert got.receive(timeout=DEADLINE).payload == publisher.name
        got.unsubscribe()


def test_nodes_of_a_bus_meet(make, serve):
    server = serve(NameServer("tcp://127.0.0.1:*", name="ns"))
    nodes = [make(f"n{number}", connect=server.endpoint) for number in range(4)]
    others = [make(f"o{number}", bus="other", connect=server.endpoint) for number in range(2)]
    for node in nodes:
        # A node that joined later is known when it is ready itself.
        node.wait_ready(count=3, timeout=DEADLINE)
        assert len(names(node)) == 3
    others[0].wait_ready("o1", timeout=DEADLINE)
    exchange(nodes[0], nodes[3])
    assert names(others[1]) == ["o0"]
    assert [(node.bus, node.name) for node in server.nodes] == [
        ("other", "o0"), ("other", "o1"), ("test", "n0"), ("test", "n1"), ("test", "n2"), ("test", "n3"),
    ]  # fmt: skip
    nodes[1].close()
    until(lambda: len(server.nodes) == 5)
    until(lambda: names(nodes[0]) == ["n2", "n3"])
    assert (server.stats.joined, server.stats.left, server.stats.lost) == (6, 1, 0)


def test_ready_means_that_all_earlier_nodes_are_known(make, serve):
    """`wait_ready` without arguments waits for the list of the name server, and for the nodes of the list."""
    server = serve(NameServer("tcp://127.0.0.1:*"))
    for number in range(3):
        make(f"n{number}", connect=server.endpoint).wait_ready(timeout=DEADLINE)
        late = make(f"late{number}", connect=server.endpoint)
        late.wait_ready(timeout=DEADLINE)
        assert len(late.peers) == 2 * number + 1


def test_a_name_server_is_no_peer(make, serve):
    server = serve(NameServer("tcp://127.0.0.1:*"))
    events = []
    node = make("alone", connect=server.endpoint, on_event=events.append)
    node.wait_ready(timeout=DEADLINE)
    assert (node.peers, node.stats.peers, events) == ([], 0, [])
    with pytest.raises(Timeout, match="0 of 1 peers"):
        node.wait_ready(count=1, timeout=0.1)


def test_a_dead_name_server_is_named_and_another_one_is_enough(make, serve):
    endpoints = [f"tcp://127.0.0.1:{lasting_port()}" for _ in range(2)]
    node = make("alone", connect=endpoints)
    with pytest.raises(Timeout) as raised:
        node.wait_ready(timeout=0.1)
    for endpoint in endpoints:
        assert endpoint in str(raised.value)
    assert "'test'" in str(raised.value)
    server = serve(NameServer("tcp://127.0.0.1:*"))
    first, second = (make(name, connect=[endpoints[0], server.endpoint]) for name in ("first", "second"))
    first.wait_ready("second", timeout=DEADLINE)
    second.wait_ready("first", timeout=DEADLINE)


def test_two_name_servers_share_their_nodes(make, serve):
    one = serve(NameServer("tcp://127.0.0.1:*", name="one"))
    two = serve(NameServer("tcp://127.0.0.1:*", name="two", connect=one.endpoint))
    first, second = make("first", connect=one.endpoint), make("second", connect=two.endpoint)
    first.wait_ready("second", timeout=DEADLINE)
    exchange(first, second)
    assert one.stats.conflicts == two.stats.conflicts == 0


def test_a_name_server_of_one_bus_refuses_others(make, serve):
    server = serve(NameServer("tcp://127.0.0.1:*", bus="test"))
    events = []
    make("stranger", bus="other", connect=server.endpoint, on_event=events.append)
    make("member", connect=server.endpoint).wait_ready(timeout=DEADLINE)
    until(lambda: any(event.kind == "denied" for event in events))
    until(lambda: [node.name for node in server.nodes] == ["member"])


def test_it_needs_an_endpoint():
    with pytest.raises(ConfigurationError, match="endpoint"):
        NameServer([])
