"""Nodes that find each other by name servers, which may be dead, die or come later."""

import os
import signal
import time

import pytest

import oz
import oz.asyncio
from oz.services import ask
from support.ports import has_ipv6
from support.scripts import started
from support.waiting import DEADLINE, Thread, until

SERVER = """
import sys
from oz.services.nameserver import NameServer
with NameServer(sys.argv[1]) as server:
    print("ready", flush=True)
    server.run()
"""


@pytest.fixture
def server_process():
    """Start a name server in a process of its own."""
    running = []

    def start(endpoint):
        manager = started("-c", SERVER, endpoint)
        process = manager.__enter__()
        running.append(manager)
        if process.stdout.readline() != "ready\n":
            process.kill()
            raise AssertionError(process.communicate()[1])
        return process

    yield start
    for manager in running:
        manager.__exit__(None, None, None)


def test_nodes_meet_by_a_name_server(make, met, nameserver, collected):
    nodes = [make(f"n{number}", nameserver=nameserver.endpoint) for number in range(4)]
    got = collected()
    nodes[0].subscribe("a", handler=got)
    met(*nodes)
    for number, node in enumerate(nodes):
        node.publish("a", number)
    assert sorted(got.wait(4)) == [0, 1, 2, 3]
    until(lambda: {one.name for one in nameserver.nodes} == {"n0", "n1", "n2", "n3"})
    nodes[1].close()
    until(lambda: len(nameserver.nodes) == 3)


@pytest.mark.skipif(not has_ipv6(), reason="this host has no ::1")
def test_nodes_meet_over_ipv6(make, met, serving, place, collected):
    with serving("tcp://[::1]:*") as server:
        assert server.endpoint.startswith("tcp://[::1]:")
        # Each has a directory of its own, or they would speak through it.
        first = make("first", nameserver=server.endpoint, directory=f"{place}.1")
        second = make("second", nameserver=server.endpoint, directory=f"{place}.2")
        got = collected()
        second.subscribe("a", handler=got)
        second.subscribe("svc", handler=lambda message: message.reply(message.payload))
        met(first, second)
        assert {one.endpoint.rpartition(":")[0] for one in (first, second)} == {"tcp://[::1]"}
        first.publish("a", 1)
        got.wait(1)
        assert first.request("svc", 2, timeout=DEADLINE).payload == 2
        assert {one.name for one in ask(server.endpoint, timeout=DEADLINE)} == {"first", "second"}


@pytest.mark.skipif(not has_ipv6(), reason="this host has no ::1")
def test_a_node_that_is_bound_to_ipv6_is_found_as_a_peer(make, met, place):
    bound = make("bound", bind="tcp://[::1]:*", directory=f"{place}.1")
    assert bound.endpoint.startswith("tcp://[::1]:")
    met(bound, make("other", peers=bound.endpoint, directory=f"{place}.2"))
    everywhere = make("everywhere", bind="tcp://[::]:*", directory=f"{place}.3")
    met(everywhere, make("another", peers=everywhere.endpoint, directory=f"{place}.4"))


def test_one_of_two_name_servers_is_enough(make, met, nameserver, free_port):
    dead = f"tcp://127.0.0.1:{free_port()}"
    nodes = [
        make(f"n{number}", nameserver=servers)
        for number, servers in enumerate([[dead, nameserver.endpoint], [nameserver.endpoint, dead]])
    ]
    met(*nodes)


def test_nodes_that_share_only_one_of_their_name_servers_meet_once(make, met, serving, collected):
    with serving() as one, serving() as two, serving() as three:
        left = make("left", nameserver=[one.endpoint, two.endpoint])
        right = make("right", nameserver=[two.endpoint, three.endpoint])
        got = collected()
        right.subscribe("a", handler=got)
        met(left, right)
        left.publish("a", 1)
        assert got.wait(1) == [1]
        assert len(left.peers) == len(right.peers) == 1


def test_without_any_name_server_what_was_tried_is_named(place, free_port):
    endpoints = [f"tcp://127.0.0.1:{free_port()}" for _ in range(2)]
    began = time.monotonic()
    with pytest.raises(oz.NameserverUnavailable) as caught:
        oz.Node("node", nameserver=endpoints, join_timeout=0.3, directory=place)
    assert time.monotonic() - began < DEADLINE
    for endpoint in endpoints:
        assert endpoint in str(caught.value)
    assert os.listdir(place) == []


async def _join(place, endpoint):
    with pytest.raises(oz.NameserverUnavailable, match=endpoint):
        await oz.asyncio.Node("node", nameserver=endpoint, join_timeout=0.3, directory=place).start()


def test_the_same_with_asyncio(place, free_port):
    import asyncio

    asyncio.run(_join(place, f"tcp://127.0.0.1:{free_port()}"))
    assert os.listdir(place) == []


def test_a_name_server_may_come_later(make, met, serving, free_port):
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    nodes = [make(f"n{number}", nameserver=endpoint, join_timeout=0) for number in range(2)]
    with pytest.raises(oz.Timeout, match="no name server answers"):
        nodes[0].wait_ready(0.1)
    with serving(endpoint):
        met(*nodes)


@pytest.mark.heavy
def test_a_name_server_that_is_killed_and_restarted_under_traffic_loses_nothing(
    make, met, server_process, free_port, collected
):
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    server = server_process(endpoint)
    told = []
    nodes = [
        make(f"n{number}", nameserver=endpoint, on_peer=lambda peer, what: told.append(what))
        for number in range(3)
    ]
    got = collected()
    nodes[0].subscribe("a", handler=got)
    met(*nodes)
    kinds = []
    nodes[0].subscribe("_OZ.ADVISORY.>", handler=lambda message: kinds.append(message.payload.kind))
    going, sent = [True], [0]

    def publish():
        while going:
            nodes[1].publish("a", sent[0])
            sent[0] += 1
            time.sleep(0.001)

    publishing = Thread(publish)
    until(lambda: sent[0] > 100)
    server.kill()
    server.wait(DEADLINE)
    until(lambda: "nameserver_lost" in kinds)
    server = server_process(endpoint)
    until(lambda: kinds.count("nameserver_found") >= 1)
    late = make("late", nameserver=endpoint)
    met(*nodes, late)
    going.clear()
    publishing.outcome()
    nodes[1].flush()
    got.wait(sent[0])
    assert got == list(range(sent[0]))
    assert set(told) == {"up"}
    assert nodes[0].stats.lost == 0


def test_a_node_that_dies_is_lost_although_name_servers_vouched_for_it(make, spawn, nameserver):
    told = []
    node = make(
        "node", nameserver=nameserver.endpoint, on_peer=lambda peer, what: told.append((peer.name, what))
    )
    victim = spawn("dies", nameserver=nameserver.endpoint)
    node.wait_for_peers("dies", timeout=DEADLINE)
    victim.kill()
    until(lambda: told == [("dies", "up"), ("dies", "lost")])
    node.wait_ready(DEADLINE)
    until(lambda: [one.name for one in nameserver.nodes] == ["node"])


@pytest.mark.heavy
def test_a_node_that_stood_still_for_long_is_found_again(make, spawn, nameserver):
    """SIGSTOP is a link that is cut without a word: nothing comes, and nothing says so."""
    told = []
    node = make(
        "node",
        nameserver=nameserver.endpoint,
        lost_after=0.5,
        on_peer=lambda peer, what: told.append((peer.name, what)),
    )
    stops = spawn("stops", "listen a", nameserver=nameserver.endpoint)
    node.wait_for_peers("stops", timeout=DEADLINE)
    began = time.monotonic()
    stops.send_signal(signal.SIGSTOP)
    try:
        until(lambda: ("stops", "lost") in told)
        assert time.monotonic() - began >= 2
        node.wait_ready(DEADLINE)
    finally:
        stops.send_signal(signal.SIGCONT)
    # On a machine that is busy for seconds it may be lost and found once more.
    until(lambda: told[:3] == [("stops", "up"), ("stops", "lost"), ("stops", "up")])
    node.wait_ready(DEADLINE)
    node.publish("a", "again")
    until(lambda: "again" in stops.ask("got"))


@pytest.mark.heavy
def test_the_same_without_a_name_server(make, spawn):
    told, got = [], []
    node = make("node", lost_after=0.5, on_peer=lambda peer, what: told.append(what))
    stops = spawn("stops", "listen a")
    node.subscribe("b", handler=lambda message: got.append(message.payload))
    node.wait_ready(DEADLINE)
    stops.send_signal(signal.SIGSTOP)
    try:
        until(lambda: told[:2] == ["up", "lost"])
        node.wait_ready(DEADLINE)
    finally:
        stops.send_signal(signal.SIGCONT)
    until(lambda: told[:3] == ["up", "lost", "up"])
    node.wait_ready(DEADLINE)
    stops.ask("ready")
    node.publish("a", "again")
    until(lambda: "again" in stops.ask("got"))
    stops.ask("publish b 1")
    until(lambda: got == [0])
    assert node.stats.lost == 0


def test_nodes_meet_by_the_command(make, met, free_port):
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    with started("-m", "oz", "nameserver", "--bind", endpoint):
        nodes = [make(f"n{number}", nameserver=endpoint, join_timeout=DEADLINE) for number in range(2)]
        met(*nodes)
