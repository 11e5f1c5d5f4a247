import math
import pickle
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oz
from oz.protocol.node import discovery_client as module
from oz.protocol.node.discovery_client import EXPIRY, LONGEST_RETRY, RETRY, DiscoveryClient, Heard
from oz.protocol.node.registry import Registry
from oz.wire.discovery import (
    Alive,
    Announce,
    Goodbye,
    Joined,
    Left,
    Lost,
    Roster,
    Welcome,
    pack,
    unpack_request,
)
from support.announcing import PRICING, announcement

ENDPOINT = "tcp://ns1:5756"
WELCOME = Welcome(b"s" * 16, "ns1", 1.0, 3.5)
A, B, C = (announcement(number) for number in range(3))


@pytest.fixture
def node():
    return DiscoveryClient(PRICING, ENDPOINT)


def take(node, *replies, now=0.0):
    return [event for reply in replies for event in node.receive(pack(reply), now)]


def announcing_times(node, start, end):
    """When a node announces itself, if it is asked often."""
    times, step = [], 1 / 64
    for turn in range(round((end - start) / step)):
        now = start + turn * step
        if node.tick(now):
            times.append(now)
    return times


def register(node, now=0.0):
    node.tick(now)
    take(node, WELCOME, Roster((PRICING,), 0, 1), Joined(PRICING), now=now)


def test_a_node_announces_itself_at_once_and_again_until_it_hears_itself(node):
    (frame,) = node.tick(100.0)
    assert unpack_request(frame) == Announce(PRICING, False)
    assert node.tick(100.0) == []
    assert announcing_times(node, 100.0, 101.0) == [100.25, 100.5, 100.75]


def test_announcements_that_nobody_answers_become_fewer_until_there_is_one_a_second(node):
    times = announcing_times(node, 0.0, 30.0)
    waits = [after - before for before, after in pairwise(times)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (RETRY, LONGEST_RETRY)
    assert len(times) < 40


def test_it_is_registered_when_it_has_heard_itself(node):
    node.tick(0.0)
    assert not node.is_registered(0.0)
    take(node, WELCOME, now=0.1)
    assert not node.is_registered(0.1)
    take(node, Joined(A), now=0.1)
    assert not node.is_registered(0.1)
    take(node, Joined(PRICING), now=0.2)
    assert node.is_registered(0.2)
    assert (node.server_id, node.server_name, node.heard_at) == (b"s" * 16, "ns1", 0.2)


def test_to_hear_an_earlier_announcement_of_itself_is_not_enough(node):
    take(node, WELCOME, Joined(replace(PRICING, pid=1)))
    assert not node.is_registered(0.0)


def test_it_hears_itself_in_a_roster_too(node):
    take(node, WELCOME, Roster((PRICING,), 0, 1))
    assert node.is_registered(0.0)


def test_once_registered_it_announces_itself_as_often_as_the_name_server_says(node):
    node.tick(0.0)
    take(node, WELCOME._replace(beacon=0.5, expiry=2.0), Joined(PRICING))
    assert announcing_times(node, 0.0, 1.9) == [0.25, 0.75, 1.25, 1.75]
    (frame,) = node.tick(1.95 + 0.5)
    assert unpack_request(frame) == Announce(PRICING, False), "nothing was heard for 2 s"


def test_a_beacon_says_that_it_has_heard_itself(node):
    register(node)
    (frame,) = node.tick(1.0)
    assert unpack_request(frame) == Announce(PRICING, True)


def test_a_name_server_that_falls_silent_is_gone_after_the_expiry_and_back_when_it_is_heard(node):
    register(node)
    take(node, Alive(), now=1.0)
    assert node.is_registered(1.0 + EXPIRY - 0.01)
    assert not node.is_registered(1.0 + EXPIRY)
    (frame,) = node.tick(5.0)
    assert unpack_request(frame) == Announce(PRICING, False)
    take(node, Alive(), now=5.1)
    assert not node.is_registered(5.1), "it has to hear itself anew"
    register(node, 5.5)
    assert node.is_registered(5.5)


def test_it_says_who_is_there_who_joined_left_and_was_lost_and_never_itself(node):
    assert take(node, WELCOME, Roster((A, PRICING, B), 0, 3)) == [Heard(A), Heard(B)]
    assert take(node, Joined(PRICING), Joined(C), Alive()) == [Heard(C)]
    assert take(node, Left(A.uuid), Lost(B.uuid)) == [Left(A.uuid), Lost(B.uuid)]


def test_nodes_of_another_bus_are_passed_over(node):
    other = replace(A, bus="orders")
    assert take(node, WELCOME, Roster((other, B), 0, 2), Joined(other)) == [Heard(B)]


def test_who_is_missing_from_a_later_roster_is_lost(node):
    take(node, WELCOME, Roster((A, B, PRICING), 0, 3), Joined(C))
    events = take(node, WELCOME, Roster((A,), 0, 3), Roster((PRICING, C), 1, 3))
    assert events == [Heard(A), Heard(C), Lost(B.uuid)]
    assert take(node, WELCOME, Roster((A, C), 0, 2)) == [Heard(A), Heard(C)]


def test_a_roster_of_which_a_part_is_missing_loses_nobody(node):
    take(node, WELCOME, Roster((A, B, C), 0, 3))
    assert take(node, WELCOME, Roster((B,), 1, 2)) == [Heard(B)]
    assert take(node, WELCOME, Roster((A,), 0, 3), Roster((C,), 2, 3)) == [Heard(A), Heard(C)]
    assert take(node, WELCOME, Roster((A,), 0, 3), WELCOME, Roster((C,), 2, 3)) == [Heard(A), Heard(C)]


def test_who_joins_between_two_parts_of_a_roster_is_not_lost(node):
    take(node, WELCOME)
    events = take(node, Roster((A,), 0, 2), Joined(C), Roster((B,), 1, 2), WELCOME, Roster((A, B, C), 0, 3))
    assert not any(isinstance(event, Lost) for event in events)


def test_a_name_server_that_begins_again_loses_nobody(node):
    register(node)
    take(node, Joined(A), Joined(B))
    again = WELCOME._replace(server_id=b"t" * 16)
    assert take(node, again, now=2.0) == []
    assert not node.is_registered(2.0)
    assert take(node, Roster((PRICING,), 0, 1), Joined(PRICING), now=2.0) == []
    assert node.is_registered(2.0)
    assert take(node, Joined(A), now=2.1) == [Heard(A)]


def test_a_node_that_was_taken_for_lost_announces_itself_at_once(node):
    register(node)
    assert take(node, Lost(PRICING.uuid), now=0.1) == []
    assert not node.is_registered(0.1)
    (frame,) = node.tick(0.1)
    assert unpack_request(frame) == Announce(PRICING, False)


def test_after_the_goodbye_there_is_nothing_more_to_say(node):
    register(node)
    assert unpack_request(node.goodbye()) == Goodbye(PRICING.uuid)
    assert not node.is_registered(0.1)
    take(node, Lost(PRICING.uuid), Joined(PRICING), now=0.2)
    assert announcing_times(node, 0.0, 5.0) == []
    assert node.next_at == math.inf
    assert not node.is_registered(0.3)


def test_malformed_frames_do_not_update_heard_at(node):
    for frame in (b"", b"\xc1", pack(Announce(A, True)), pack(Goodbye(A.uuid))):
        assert node.receive(frame, 0.0) == []
    assert node.heard_at is None


def test_it_remembers_no_more_nodes_than_a_bus_may_have(node, monkeypatch):
    monkeypatch.setattr(module, "MAX_NODES", 2)
    assert take(node, WELCOME, Joined(A), Joined(B), Joined(C)) == [Heard(A), Heard(B), Heard(C)]
    assert take(node, WELCOME, Roster((), 0, 0)) == [Lost(A.uuid), Lost(B.uuid)]


def test_two_name_servers_are_two_discovery_clients_and_each_tells_of_everybody():
    first, second = (Registry(bytes((number,)) * 16, f"ns{number}") for number in (1, 2))
    heard = {}
    for registry in (first, second):
        nodes = {b"a": DiscoveryClient(A, ENDPOINT), b"b": DiscoveryClient(B, ENDPOINT)}
        for turn in range(8):
            for peer, node in nodes.items():
                for frame in node.tick(turn / 4):
                    for to, reply in registry.receive(peer, frame, turn / 4):
                        heard.setdefault((registry, to), []).extend(nodes[to].receive(reply, turn / 4))
        assert all(node.is_registered(2.0) for node in nodes.values())
    for registry in (first, second):
        assert heard[registry, b"a"] == [Heard(B)]
        assert set(heard[registry, b"b"]) == {Heard(A)}


@given(st.data())
def test_whatever_gets_lost_on_the_way_all_are_registered_and_agree_soon_after_it_stops(data):
    """Some beacons and replies are dropped, as a full pipe would; behind one, the rest of that turn is."""
    registry = Registry(b"s" * 16, "ns1")
    everybody = [announcement(number) for number in range(4)]
    nodes = {b"%d" % number: DiscoveryClient(one, ENDPOINT) for number, one in enumerate(everybody)}
    known = {peer: set() for peer in nodes}
    lossy = data.draw(st.lists(st.booleans(), max_size=60))

    def is_dropped():
        return lossy.pop() if lossy else False

    def deliver(sends, now):
        full = set()
        for peer, frame in sends:
            if peer in full or peer not in nodes:
                continue
            if is_dropped():
                full.add(peer)
                registry.missed(peer)
                continue
            for event in nodes[peer].receive(frame, now):
                uuid = event.announcement.uuid if isinstance(event, Heard) else event.uuid
                (known[peer].add if isinstance(event, Heard) else known[peer].discard)(uuid)

    leaves = data.draw(st.integers(0, 60))
    now = 0.0
    for turn in range(160):
        now += 0.1
        if turn == leaves:
            deliver(registry.receive(b"3", nodes.pop(b"3").goodbye(), now), now)
        for peer, node in list(nodes.items()):
            for frame in node.tick(now):
                if not is_dropped():
                    deliver(registry.receive(peer, frame, now), now)
        deliver(registry.tick(now), now)
    assert not lossy
    for peer, node in nodes.items():
        assert node.is_registered(now)
        assert known[peer] == {one.announcement.uuid for one in nodes.values()} - {node.announcement.uuid}


def test_the_error_says_which_name_servers_were_tried_and_for_how_long():
    error = oz.NameserverUnavailable(["tcp://ns1:5756", "tcp://ns2:5756"], 2.5)
    assert isinstance(error, oz.OzError)
    assert "2.5 s" in str(error)
    assert "tcp://ns1:5756, tcp://ns2:5756" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert "none at all" in str(oz.NameserverUnavailable([], 0))
