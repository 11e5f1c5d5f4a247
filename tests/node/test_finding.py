"""Nodes find each other: on one host by themselves, elsewhere by a seed."""

import os
from unittest.mock import patch

import pytest
import zmq

import oz
from oz.transport.node import local_directory
from support.inside import engine_of
from support.waiting import DEADLINE, until


def sockets(place):
    return [one for one in os.listdir(place) if one.endswith(".sock")]


@pytest.mark.parametrize("count", [2, 5])
def test_nodes_of_one_host_find_each_other(make, met, names, count):
    nodes = [make(f"n{number}") for number in range(count)]
    met(*nodes)
    for node in nodes:
        assert names(node) == sorted(one.name for one in nodes if one is not node)


def test_what_is_published_reaches_every_node_once(make, met, collected):
    nodes = [make(f"n{number}") for number in range(3)]
    got = [collected() for _ in nodes]
    for node, one in zip(nodes, got, strict=True):
        node.subscribe("price.*", handler=one)
    met(*nodes)
    for number, node in enumerate(nodes):
        node.publish("price.x", number)
    for one in got:
        assert sorted(one.wait(3)) == [0, 1, 2]


def test_without_echo_a_node_does_not_hear_itself(make, met, collected):
    here, there = make("here", echo=False), make("there")
    own, others = collected(), collected()
    here.subscribe("a", handler=own)
    there.subscribe("a", handler=others)
    met(here, there)
    here.publish("a", 1)
    others.wait(1)
    there.publish("a", 2)
    assert own.wait(1) == [2]


def elsewhere(*arguments, **options):
    """Make a node of another host, as far as nodes can tell."""
    with patch.object(local_directory, "host_id", lambda _: os.urandom(16)):
        return oz.Node(*arguments, **options)


@pytest.mark.parametrize("kind", [oz.Node, elsewhere])
def test_one_seed_is_enough_for_four_nodes(make, met, collected, kind):
    seed = make("seed", kind=kind, bind="tcp://127.0.0.1:*")
    endpoint = seed.announcement.endpoints[0]
    nodes = [seed, *(make(f"n{number}", kind=kind, peers=endpoint) for number in range(3))]
    got = [collected() for _ in nodes]
    for node, one in zip(nodes, got, strict=True):
        node.subscribe("a", handler=one)
    met(*nodes)
    for number, node in enumerate(nodes):
        node.publish("a", number)
    for one in got:
        assert sorted(one.wait(4)) == [0, 1, 2, 3]


def test_a_seed_may_come_later_than_those_who_look_for_it(make, met, free_port):
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    early = make("early", peers=endpoint)
    assert early.peers == []
    seed = make("seed", bind=endpoint)
    met(seed, early)


def test_nodes_with_and_without_a_seed_of_one_host_meet(make, met):
    alone = make("alone")
    bound = make("bound", bind="tcp://127.0.0.1:*")
    far = make("far", peers=bound.announcement.endpoints[0])
    met(bound, far)
    met(alone, bound)


@pytest.mark.parametrize("looks", [True, False])
def test_a_node_bound_to_a_local_socket_is_found_there_and_in_the_directory(
    make, met, collected, place, looks
):
    endpoint = f"ipc://{place}.socket"
    bound = make("bound", bind=endpoint)
    other = make("other", **({} if looks else {"peers": endpoint}))
    got = collected()
    for node in (bound, other):
        node.subscribe("a", handler=got)
    met(bound, other)
    bound.publish("a", 1)
    other.publish("a", 2)
    assert sorted(got.wait(4)) == [1, 1, 2, 2]


def test_nodes_of_different_buses_do_not_meet(make, met, collected, nameserver):
    got = collected()
    pairs = [
        [make(f"{bus} {number}", bus=bus, **options) for number in range(2)]
        for bus, options in (("a", {}), ("b", {}), ("c", {"nameserver": nameserver.endpoint}))
    ]
    pairs.append([make(f"d {number}", bus="d", nameserver=nameserver.endpoint) for number in range(2)])
    for pair in pairs:
        pair[0].subscribe(">", handler=lambda message, own=pair[0].bus: got.append((own, message.payload)))
        met(*pair)
    for _, node in pairs:
        node.publish("x", node.bus)
    assert sorted(got.wait(4)) == [("a", "a"), ("b", "b"), ("c", "c"), ("d", "d")]
    assert [len(node.peers) for pair in pairs for node in pair] == [1] * 8


def test_a_seed_of_another_bus_tells_nothing(make, met, collected, caplog):
    here = [make(f"here {number}", bus="a", bind="tcp://127.0.0.1:*") for number in range(2)]
    got = collected()
    stranger = make("stranger", bus="b", peers=here[0].announcement.endpoints[0])
    stranger.subscribe(">", handler=got)
    met(*here)
    until(lambda: "gets nothing" in caplog.text)
    for number in range(10):
        here[0].publish("x", number)
    here[0].flush()
    friend = make("friend", bus="b", peers=stranger.announcement.endpoints[0])
    met(stranger, friend)
    friend.publish("x", "friend")
    assert got.wait(1) == ["friend"]
    assert len(here[0].peers) == 1


def test_a_late_joiner_is_told_of_all(make, met, names):
    nodes = [make(f"n{number}") for number in range(3)]
    met(*nodes)
    late = make("late")
    late.wait_ready(DEADLINE)
    # Those that were there when it came are known when it is ready.
    assert names(late) == ["n0", "n1", "n2"]
    met(*nodes, late)


def test_a_killed_process_is_lost_and_its_socket_is_removed(make, spawn, names, place):
    told = []
    node = make("stays", on_peer=lambda peer, what: told.append((peer.name, what)))
    victim, other = spawn("dies"), spawn("other")
    node.wait_for_peers(2, timeout=DEADLINE)
    assert len(sockets(place)) == 3
    victim.kill()
    until(lambda: ("dies", "lost") in told)
    assert names(node) == ["other"]
    until(lambda: len(sockets(place)) == 2)
    node.wait_ready(DEADLINE)
    until(lambda: other.ask("peers") == "['stays']")


def test_a_node_that_leaves_takes_its_socket_with_it(make, spawn, place):
    told = []
    node = make("stays", on_peer=lambda peer, what: told.append((peer.name, what)))
    leaver = spawn("leaves")
    node.wait_for_peers("leaves", timeout=DEADLINE)
    leaver.ask("close")
    until(lambda: ("leaves", "left") in told)
    assert len(sockets(place)) == 1


def test_a_dead_socket_of_nobody_is_removed(make, spawn, place):
    spawn("dies").kill()
    assert len(sockets(place)) == 1
    node = make("comes")
    until(lambda: len(sockets(place)) == 1)
    node.wait_ready(DEADLINE)
    assert node.peers == []


def test_a_seed_that_restarts_on_its_port_is_found_again(make, spawn, free_port):
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    first = spawn("seed", "listen a", bind=endpoint)
    node = make("node", peers=endpoint)
    node.wait_for_peers("seed", timeout=DEADLINE)
    before = node.peers[0].uuid
    first.kill()
    second = spawn("seed", "listen a", bind=endpoint)
    until(lambda: [one for one in node.peers if one.uuid != before])
    node.wait_ready(DEADLINE)
    node.publish("a", "again")
    until(lambda: second.ask("got") == "['again']")


def test_a_node_on_a_fixed_port_that_restarts_is_found_again(make, spawn, free_port, nameserver, collected):
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    got = collected()
    node = make("node", nameserver=nameserver.endpoint)
    node.subscribe("b", handler=got)
    first = spawn("fixed", bind=endpoint, nameserver=nameserver.endpoint)
    node.wait_for_peers("fixed", timeout=DEADLINE)
    before = node.peers[0].uuid
    first.kill()
    second = spawn("fixed", "listen a", bind=endpoint, nameserver=nameserver.endpoint)
    until(lambda: [one for one in node.peers if one.uuid != before])
    node.wait_ready(DEADLINE)
    node.publish("a", "again")
    until(lambda: second.ask("got") == "['again']")
    second.ask("publish b 1")
    assert got.wait(1) == [0]


def test_a_node_holds_as_much_for_its_peers_as_a_socket_with_a_context_of_its_own(make):
    """Answers to what one loop asks at once are that many lone frames."""
    node, other = make("node", bind="tcp://127.0.0.1:*"), make("other", high_water_mark=10)
    assert {
        one.engine.socket.get(zmq.SNDHWM)
        for one in (engine_of(node).sockets.local, engine_of(node).sockets.network)
    } == {100_000}
    assert engine_of(other).sockets.local.engine.socket.get(zmq.SNDHWM) == 10


def test_a_peer_whose_socket_went_from_the_directory_is_listened_to_until_its_end(make, met, collected):
    """A node that closes removes it while what it has sent is still on its way."""
    first, second = make("first"), make("second")
    got = collected()
    second.subscribe("a", handler=got)
    met(first, second)
    os.unlink(first.announcement.local_endpoint.removeprefix("ipc://"))
    looked_at = engine_of(second).links.connections.probes.scan_at
    until(lambda: engine_of(second).links.connections.probes.scan_at >= looked_at + 1.5)
    assert first.announcement.local_endpoint in engine_of(second).sockets.sub.connector.endpoints
    first.publish("a", 1)
    got.wait(1)


def test_a_node_that_has_no_room_to_tell_of_others_does_so_later(make, names, place, monkeypatch):
    hub = make("hub", bind=f"ipc://{place}.hub")
    refused = []
    publish = engine_of(hub).sockets.main.engine.sender.publish

    class Full:
        """The outlet of a publisher with `on_full="raise"`, one of whose peers is full for a while."""

        def __getattr__(self, name):
            return getattr(sender, name)

        def publish(self, socket, subject, payload, *rest):
            if subject.startswith("_OZ.NAMING.") and len(refused) < 4:
                refused.append(subject)
                return (object(), payload, None)
            return publish(socket, subject, payload, *rest)

    sender = engine_of(hub).sockets.main.engine.sender
    monkeypatch.setattr(engine_of(hub).sockets.main.engine, "sender", Full())
    nodes = [make(name, peers=[hub.endpoint]) for name in "ab"]
    until(lambda: [names(node) for node in nodes] == [["b", "hub"], ["a", "hub"]])
    assert len(refused) == 4


def test_the_address_that_it_advertises_stands_in_place_of_one_that_it_binds(make):
    """Behind a NAT: it binds its own address, and others reach it at that of the router."""
    (there,) = make("inner", bind="tcp://127.0.0.1:*", advertise="192.0.2.9").announcement.endpoints
    assert there.startswith("tcp://192.0.2.9:")
    (here,) = make("outer", bind="tcp://127.0.0.1:*").announcement.endpoints
    assert here.startswith("tcp://127.0.0.1:")
