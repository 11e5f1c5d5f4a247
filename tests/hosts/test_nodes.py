"""Nodes on several hosts find each other, also after a partition, and report lost messages."""

import time

import pytest

from hosts.stage import accounted
from support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]

PACE = 0.01
NOTICED_WITHIN = 20.0
WELL_WITHIN = 20.0
"""Seconds. From one call of a host that is away to the next 7 pass at most; the machine may be busy."""


@pytest.fixture(params=["a name server", "a node"])
def nodes(request, hosts, stage):
    """A node on each host, which find each other in one of two ways."""
    first = hosts[0].address
    if request.param == "a node":
        options = [{"bind": f"tcp://{first}:5757"}, *[{"connect": f"tcp://{first}:5757"}] * 2]
    else:
        stage.command(hosts[0], "nameserver", "--bind", f"tcp://{first}:5756")
        options = [{"connect": f"tcp://{first}:5756"}] * 3
    together = zip(hosts, "abc", options, strict=True)
    return [stage.actor(host, "Node", name=name, **how) for host, name, how in together]


def all_met(nodes, within=WELL_WITHIN):
    """Wait until each node knows the other nodes and their subscriptions; return the seconds."""
    began = time.monotonic()
    until(lambda: all(len(node.peers()) == len(nodes) - 1 for node in nodes), within)
    for node in nodes:
        node.ready()
    return time.monotonic() - began


def play(nodes):
    """One publishes, two listen, and the last answers requests."""
    publisher, *listeners = nodes
    for listener, pattern in zip(listeners, ("*.sap", "quote.>"), strict=True):
        listener.listen(pattern)
    listeners[-1].serve("service")
    all_met(nodes)
    publisher.begin(["quote.sap", "noise.ibm"], PACE)


def has_come(listener, more):
    """Wait until a number of messages more than now were delivered."""
    before = listener.got()["delivered"]
    until(lambda: listener.got()["delivered"] >= before + more)


def asked(node, timeout):
    """Send a request to the last node; return the reply or the error, which must arrive in time."""
    said, took = node.request("service", timeout)
    assert took < timeout + 1
    return said


def test_with_1_percent_loss_all_arrives_and_every_request_is_answered(hosts, nodes):
    for host in hosts:
        host.lose(1, "tcp")
    play(nodes)
    for _ in range(50):
        assert asked(nodes[0], 10.0) == asked(nodes[1], 10.0) == "c"
    for one in nodes[1:]:
        has_come(one, 500)
    sent = nodes[0].end()["quote.sap"]
    assert [accounted(one, sent, "a")["delivered"] for one in nodes[1:]] == [sent, sent]
    assert any(host.packets()["lost"] for host in hosts)


@pytest.fixture
def narrow(network, hosts):
    """Reduce the MTU before nodes connect, because TCP agrees on the size of packets then."""
    network.narrow(hosts[2], 576)


@pytest.mark.usefixtures("narrow")
def test_over_a_small_mtu_nodes_meet_and_large_payloads_arrive(nodes):
    publisher, *listeners = nodes
    for one in listeners:
        one.listen("quote.>")
    all_met(nodes)
    # A fixed number, because a busy machine would publish thousands before the first arrives.
    publisher.begin(["quote.sap"], PACE, 10_000, 300)
    assert [accounted(one, 300, "a")["delivered"] for one in listeners] == [300, 300]
    publisher.end()


def test_nodes_meet_though_large_packets_vanish_while_they_do(network, hosts, nodes):
    """Announcements of nodes are lost with their connection."""
    network.narrow(hosts[2], 576)
    all_met(nodes)


def test_after_a_short_partition_the_number_of_missed_messages_is_known(network, hosts, nodes):
    publisher, stays, parts = nodes
    play(nodes)
    has_come(parts, 100)
    network.cut(hosts[2])
    until(lambda: parts.peers() == [], NOTICED_WITHIN)
    network.mend(hosts[2])
    all_met(nodes)
    has_come(parts, 100)
    sent = publisher.end()["quote.sap"]
    assert accounted(stays, sent, "a")["delivered"] == sent
    part = accounted(parts, sent, "a")
    assert part["lost"] > 0
    assert part["uncounted"] == 0


def test_nodes_meet_again_after_a_partition_and_know_what_they_missed(network, hosts, nodes):
    publisher, stays, parts = nodes
    play(nodes)
    has_come(parts, 100)
    network.cut(hosts[2])
    began = time.monotonic()
    assert asked(stays, 2.0) == "Timeout"
    until(lambda: "c" not in publisher.peers() and "c" not in stays.peers(), NOTICED_WITHIN)
    print(f"noticed after {time.monotonic() - began:.1f} s")
    assert asked(stays, 2.0) == "NoResponders"
    time.sleep(max(0.0, began + 60 - time.monotonic()))
    network.mend(hosts[2])
    print(f"met after {all_met(nodes):.1f} s")
    assert asked(publisher, 5.0) == asked(stays, 5.0) == "c"
    has_come(parts, 200)
    sent = publisher.end()["quote.sap"]
    assert accounted(stays, sent, "a")["delivered"] == sent
    part = accounted(parts, sent, "a")
    assert part["delivered"] < sent
    print(part)
