"""The name server over real sockets: whoever announces, asks, vanishes or speaks nonsense."""

import itertools
import logging
import os
import socket
import sys
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
import zmq

from oz.services import nameserver as module
from oz.services.nameserver import NameServer
from oz.wire.discovery import (
    MAX_REQUEST,
    Announce,
    Ask,
    Left,
    Lost,
    Roster,
    Welcome,
    pack,
    unpack_reply,
)
from support.announcing import PRICING, Dealer, all_registered, announcement, turn_until
from support.inside import registry_of
from support.ports import lasting_endpoint
from support.scripts import started
from support.serving import serving
from support.sizes import size
from support.waiting import DEADLINE, Thread, until

MANY = size(60, 200)

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def context():
    with zmq.Context() as made:
        yield made


@pytest.fixture
def server():
    # Time enough that a machine that stands still for a while loses nobody.
    with serving(name="ns1", beacon=0.1, expiry=20) as made:
        yield made


@pytest.fixture
def make(context):
    """Make DEALERs that announce nodes of their own, or those that are given."""
    numbers = itertools.count()
    made = []

    def make(server, count=1, announcing=(), **changes):
        endpoint = server if isinstance(server, str) else server.endpoint
        announcing = announcing or [announcement(next(numbers), **changes) for _ in range(count)]
        dealers = [Dealer(context, endpoint, one) for one in announcing]
        made.extend(dealers)
        return dealers

    yield make
    for dealer in made:
        dealer.socket.close(0)


def announced(dealers):
    return {dealer.discovery_client.announcement for dealer in dealers}


def all_heard(dealers):
    """Wait until each has heard of all others."""
    everybody = announced(dealers)
    turn_until(
        lambda: all(one.heard | {one.discovery_client.announcement} >= everybody for one in dealers), dealers
    )


# nodes -----------------------------------------------------------------------------------------------------


def test_nodes_enrol_and_hear_of_each_other(server, make):
    nodes = make(server, 3)
    all_registered(nodes)
    all_heard(nodes)
    assert set(server.nodes) == announced(nodes)
    assert {node.discovery_client.server_name for node in nodes} == {"ns1"}


def test_nodes_of_other_buses_are_not_heard_of(server, make):
    here, there = make(server, 2), make(server, 2, bus="orders")
    all_registered(here + there)
    all_heard(here)
    all_heard(there)
    for node in here + there:
        assert {one.bus for one in node.heard} == {node.discovery_client.announcement.bus}


def test_a_goodbye_is_heard_by_the_others(server, make):
    stays, leaves = nodes = make(server, 2)
    all_registered(nodes)
    all_heard(nodes)
    leaves.send(leaves.discovery_client.goodbye())
    turn_until(lambda: Left(leaves.discovery_client.announcement.uuid) in stays.events, [stays])
    assert announced([stays]) == set(server.nodes)
    assert (server.stats.left, server.stats.lost) == (1, 0)


def test_a_node_that_ends_without_a_goodbye_is_lost(make):
    with serving(beacon=0.1, expiry=4.0) as server:
        stays, dies = nodes = make(server, 2)
        all_registered(nodes)
        all_heard(nodes)
        dies.socket.close()
        turn_until(lambda: set(server.nodes) == announced([stays]), [stays])
        turn_until(lambda: Lost(dies.discovery_client.announcement.uuid) in stays.events, [stays])
        assert server.stats.left == 0


def test_whoever_asks_is_told_and_is_no_node(server, make, context):
    nodes = make(server, 2)
    all_registered(nodes)
    with context.socket(zmq.DEALER) as asking:
        asking.connect(server.endpoint)
        asking.send(pack(Ask("md")))
        replies = []
        while not (replies and isinstance(replies[-1], Roster)):
            assert asking.poll(DEADLINE * 1000)
            replies.append(unpack_reply(asking.recv()))
    assert isinstance(replies[0], Welcome)
    assert set(replies[1].announcements) == announced(nodes)
    assert len(server.nodes) == 2


def test_a_node_that_connects_again_is_told_what_comes_over_its_new_connection(server, make):
    node, other = nodes = make(server, 2)
    all_registered(nodes)
    node.socket.disconnect(server.endpoint)
    node.socket.connect(server.endpoint)
    late = make(server, 1)
    turn_until(lambda: announced(late) <= node.heard, [*nodes, *late])
    assert len(server.nodes) == 3
    assert server.stats.lost == server.stats.left == 0
    assert not any(isinstance(event, Lost) for event in other.events)


@pytest.mark.sized
def test_many_nodes_hear_of_each_other(server, make):
    nodes = make(server, MANY)
    all_registered(nodes, 3 * DEADLINE)
    all_heard(nodes)
    assert len(server.nodes) == MANY
    assert server.stats.lost == server.stats.malformed == server.stats.refused == 0


def test_a_name_server_at_several_endpoints_is_one(tmp_path, make):
    with serving(["tcp://127.0.0.1:*", f"ipc://{tmp_path}/ns"]) as server:
        near = make(server.endpoints[0]) + make(server.endpoints[1])
        assert server.endpoint == server.endpoints[1] == f"ipc://{tmp_path}/ns"
        all_heard(near)


def test_two_name_servers_need_not_know_of_each_other(make):
    with serving() as one, serving() as two:
        first = make(one, 2)
        second = make(two, announcing=[node.discovery_client.announcement for node in first])
        all_registered(first + second)
        assert set(one.nodes) == set(two.nodes) == announced(first)


# who does not read, and who speaks nonsense ----------------------------------------------------------------


@pytest.mark.heavy
def test_a_node_that_does_not_read_holds_up_nobody_and_is_told_later(make, monkeypatch):
    options = [(option, 5 if option == zmq.SNDHWM else value) for option, value in module._OPTIONS]
    monkeypatch.setattr(module, "_OPTIONS", [*options, (zmq.SNDBUF, 4096)])
    with serving(beacon=0.1, expiry=60) as server:
        (stuck,) = make(server)
        stuck.socket.setsockopt(zmq.RCVHWM, 5)
        stuck.socket.disconnect(server.endpoint)
        stuck.socket.setsockopt(zmq.RCVBUF, 4096)
        stuck.socket.connect(server.endpoint)
        all_registered([stuck])
        long = {"endpoints": tuple(f"tcp://{'a' * 230}{number}:1" for number in range(16))}
        others = make(server, 30, **long)
        all_registered(others)
        busy, pids = others[0], itertools.count(1)

        def is_full():
            busy.discovery_client.announcement = replace(busy.discovery_client.announcement, pid=next(pids))
            busy.send(pack(Announce(busy.discovery_client.announcement, True)))
            return registry_of(server)._nodes[stuck.discovery_client.announcement.uuid].is_behind

        turn_until(is_full, others)
        (late,) = make(server)
        all_registered([late])
        turn_until(lambda: announced([late]) <= stuck.heard, [stuck, late, *others])
        assert stuck.is_registered


def test_random_bytes_from_raw_sockets_harm_nobody(server, make, context):
    seed = os.urandom(8).hex()
    nodes = make(server, 2)
    all_registered(nodes)
    host, port = server.endpoint.removeprefix("tcp://").split(":")
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)
    for number in range(60):
        with socket.create_connection((host, int(port)), timeout=DEADLINE) as raw, suppress(OSError):
            raw.sendall((greeting if number % 2 else b"") + os.urandom(200))
    with context.socket(zmq.DEALER) as peer:
        peer.setsockopt(zmq.LINGER, 0)
        peer.connect(server.endpoint)
        for number in range(100):
            peer.send(os.urandom(number))
            peer.send_multipart([b"", os.urandom(20)])
        peer.send_multipart([pack(Ask())] * 1_000)
        # More when the bytes from a raw socket look like messages: those of ZMTP 1.0 may.
        turn_until(lambda: server.stats.malformed >= 201, nodes)
        peer.send(pack(Ask("md")))
        turn_until(lambda: peer.poll(0), nodes)
    before = [len(node.frames) for node in nodes]
    turn_until(
        lambda: all(len(node.frames) > count for node, count in zip(nodes, before, strict=True)), nodes
    )
    assert all(node.is_registered for node in nodes), seed
    assert server.stats.lost == 0


def test_what_is_too_long_for_any_message_ends_that_connection_only(server, make, context):
    nodes = make(server, 1)
    all_registered(nodes)
    with context.socket(zmq.DEALER) as peer, peer.get_monitor_socket(zmq.EVENT_DISCONNECTED) as monitor:
        peer.setsockopt(zmq.LINGER, 0)
        peer.connect(server.endpoint)
        peer.send(bytes(MAX_REQUEST + 1))
        assert monitor.poll(DEADLINE * 1000)
        peer.disable_monitor()
    all_heard(nodes + make(server, 1))
    assert server.stats.malformed == 0


def test_what_is_passed_over_is_said_less_and_less_often(server, context, caplog):
    with caplog.at_level(logging.WARNING, "oz.nameserver"), context.socket(zmq.DEALER) as peer:
        peer.setsockopt(zmq.LINGER, 0)
        peer.connect(server.endpoint)
        for number in range(1, 101):
            peer.send(b"nonsense")
            until(lambda number=number: server.stats.malformed == number)
    assert 1 <= len(caplog.records) <= 7
    assert "mean nothing" in caplog.text


# a process -------------------------------------------------------------------------------------------------

PROGRAM = """
import sys
from oz.services.nameserver import NameServer
with NameServer(sys.argv[1], name=sys.argv[2], beacon=0.25, expiry=30) as server:
    print(server.endpoint, flush=True)
    server.run()
"""


@contextmanager
def process(endpoint, name):
    with started("-c", PROGRAM, endpoint, name) as running:
        yield running, running.stdout.readline().strip()


def test_nodes_enrol_again_with_a_name_server_that_was_killed_and_started_again(make):
    with process(lasting_endpoint(), "first") as (running, endpoint):
        nodes = make(endpoint, 5)
        all_registered(nodes)
        all_heard(nodes)
        running.kill()
        running.wait(DEADLINE)
    for node in nodes:
        node.events.clear()
    with process(endpoint, "second") as (running, again):
        assert again == endpoint
        turn_until(lambda: {node.discovery_client.server_name for node in nodes} == {"second"}, nodes)
        all_registered(nodes)
        all_heard(nodes)
        assert not any(isinstance(event, Lost) for node in nodes for event in node.events)


# the socket itself -----------------------------------------------------------------------------------------


def test_an_endpoint_that_is_taken_is_an_error_and_leaves_nothing_open(server):
    with pytest.raises(zmq.ZMQError) as caught:
        NameServer(["tcp://127.0.0.1:*", server.endpoint])
    assert caught.value.errno == zmq.EADDRINUSE


@pytest.mark.parametrize(
    ("bind", "options", "error"),
    [
        ("nowhere", {}, ValueError),
        ("inproc://x", {}, ValueError),
        ("nothere://x", {}, zmq.ZMQError),
        ("tcp://127.0.0.1:*", {"name": "n" * 256}, ValueError),
        ("tcp://127.0.0.1:*", {"beacon": 5, "expiry": 1}, ValueError),
    ],
)
def test_what_makes_no_sense_is_refused(bind, options, error):
    with pytest.raises(error):
        NameServer(bind, **options)


def test_it_is_closed_twice_and_ends_with_its_context(make):
    server = NameServer("tcp://127.0.0.1:*")
    server.close()
    server.close()
    context = zmq.Context()
    server = NameServer("inproc://names", context=context)
    running = Thread(server.run)
    node = Dealer(context, "inproc://names", PRICING)
    all_registered([node])
    node.socket.close()
    ending = Thread(context.term)
    running.outcome()
    server.close()
    ending.outcome()


def test_it_says_who_comes_and_goes(server, make, caplog):
    with caplog.at_level(logging.INFO, "oz.nameserver"):
        (node,) = make(server)
        all_registered([node])
        node.send(node.discovery_client.goodbye())
        until(lambda: server.stats.left)
        until(lambda: "left: node 0" in caplog.text)
    assert "joined: node 0 of bus md (host lab1, pid 4711) at tcp://192.0.2.7:5757, ipc:///run/oz/a0" in (
        caplog.text
    )


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_connections_that_end_leave_no_open_files(server, make):
    def open_files():
        return len(os.listdir("/proc/self/fd"))

    all_registered(make(server, 1))
    host, port = server.endpoint.removeprefix("tcp://").split(":")
    before = open_files()
    # Of an older ZMTP libzmq would abort where it comes just as the server closes: docs/limits.md.
    greeting = b"\xff" + bytes(8) + b"\x7f\x03"
    for _ in range(50):
        with socket.create_connection((host, int(port)), timeout=DEADLINE) as raw:
            raw.sendall(greeting + os.urandom(100))
    until(lambda: open_files() <= before + 5)
