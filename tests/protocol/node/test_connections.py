"""Whom a node dials and when it hangs up, decided on a virtual clock from what was heard and who is there."""

import math
from dataclasses import replace

import pytest

from oz.protocol.node.connections import (
    CHECK_EVERY,
    MISSES,
    Connections,
)
from oz.protocol.node.dialling import LONGEST_CROWD, LONGEST_REDIAL, REDIAL_AFTER
from oz.protocol.node.presence import local_origin, network_origin
from oz.protocol.node.probes import (
    DRAIN_EVERY,
)
from oz.protocol.node.steps import Dial, HangUp, LoseTrack, Unreachable
from oz.security.limits import Limits
from protocol.node.connected import ENDPOINT, ORIGIN, OWN, PEER, check, drain
from support.announcing import announcement


def successor(peer, **changes):
    """The next life of a peer at the same endpoint."""
    return replace(announcement(6, **{"local_endpoint": None, **changes}), started_ns=peer.started_ns + 1)


@pytest.mark.parametrize("is_heard_of_first", [False, True])
def test_peer_that_was_started_again_on_its_port_keeps_its_link_when_its_last_life_is_given_up(
    connections, sub, is_heard_of_first
):
    again = successor(PEER, endpoints=PEER.endpoints)
    pair = (again, PEER) if is_heard_of_first else (PEER, again)
    dialled = [step for one in pair for step in connections.connect(one, 1.0)]
    assert [type(step) for step in dialled] == [Dial]
    hear = lambda: sub.hear(network_origin(again.uuid))  # noqa: E731
    steps, now = check(connections, *pair, looks=round(2 * LONGEST_REDIAL / CHECK_EVERY), now=1.0, hear=hear)
    assert steps == []
    connections.disconnect(PEER, now)
    assert drain(connections, now)[0] == [LoseTrack(ORIGIN, is_in_place=False)]


def test_node_does_not_dial_itself_where_its_last_life_is_still_announced(sub):
    own = announcement(2, local_endpoint=None, endpoints=(ENDPOINT,))
    connections = Connections(own, sub, None)
    assert connections.connect(PEER, 0.0) == []
    assert check(connections, PEER, looks=round(2 * LONGEST_REDIAL / CHECK_EVERY))[0] == []


def test_peer_of_the_same_host_is_dialled_by_its_socket_and_over_the_network(connections):
    peer = announcement(4, local_endpoint="ipc://four", endpoints=("tcp://10.0.0.4:4", "tcp://10.0.0.5:4"))
    assert connections.connect(peer, 0.0) == [
        Dial("ipc://four", "node 4"),
        Dial("tcp://10.0.0.4:4", "node 4"),
    ]
    assert [way.origin for way in connections.ways(peer)] == [
        local_origin(peer.uuid),
        network_origin(peer.uuid),
    ]


@pytest.mark.parametrize(
    "changes", [{"host_id": b"another", "local_endpoint": "ipc://four"}, {"local_endpoint": None}]
)
def test_peer_of_another_host_is_dialled_over_the_network_only(connections, changes):
    peer = announcement(4, **{"endpoints": ("tcp://10.0.0.4:4",), **changes})
    assert connections.connect(peer, 0.0) == [Dial("tcp://10.0.0.4:4", "node 4")]


def test_peer_that_is_heard_already_is_not_dialled(connections, sub):
    sub.hear(ORIGIN)
    assert connections.connect(PEER, 0.0) == []


def test_seed_is_dialled_for_ever_and_never_again_nor_hung_up(sub):
    connections = Connections(OWN, sub, None, [ENDPOINT])
    assert connections.start() == [Dial(ENDPOINT, "a peer", is_for_ever=True)]
    assert connections.connect(PEER, 0.0) == []
    assert check(connections, PEER, looks=10)[0] == []
    connections.disconnect(PEER, 20.0)
    steps = [step for at in range(20) for step in connections.drain(20.0 + at * DRAIN_EVERY)]
    assert steps == [LoseTrack(ORIGIN, is_in_place=False)]


def test_peer_that_never_answers_is_dialled_anew(connections):
    assert connections.connect(PEER, 0.0) == [Dial(ENDPOINT, PEER.name)]
    assert connections.check([PEER], REDIAL_AFTER - 0.1) == []
    anew = [HangUp(ENDPOINT), Dial(ENDPOINT, PEER.name)]
    assert connections.check([PEER], REDIAL_AFTER) == anew
    # From then on it is given longer, and once it is said that it cannot be reached.
    for times, told in ((1, [Unreachable(ENDPOINT, PEER.name)]), (2, [])):
        begun = REDIAL_AFTER + (times - 1) * LONGEST_REDIAL
        steps, now = check(connections, PEER, looks=round(LONGEST_REDIAL / CHECK_EVERY) - 1, now=begun)
        assert steps == []
        assert connections.check([PEER], now + CHECK_EVERY) == anew + told


def test_peer_that_spoke_is_given_the_first_patience_again(connections, sub):
    connections.connect(PEER, 0.0)
    _, now = check(connections, PEER, looks=5)
    sub.hear(ORIGIN)
    _, now = check(connections, PEER, now=now)
    connections.connect(PEER, now)
    steps, now = check(connections, PEER, looks=MISSES, now=now)
    assert steps == [HangUp(ENDPOINT), Dial(ENDPOINT, PEER.name)]


def crowd(count):
    return [
        announcement(4 + 2 * at, local_endpoint=None, endpoints=(f"tcp://127.0.0.1:{at + 1}",))
        for at in range(count)
    ]


def test_peers_of_a_crowd_are_given_the_time_that_its_host_needs(sub):
    connections = Connections(OWN, sub, None, limits=Limits(dials=math.inf, dial_rate=math.inf))
    peers = crowd(60)
    for one in peers:
        connections.connect(one, 0.0)
    steps, now = check(connections, *peers, looks=7)
    assert steps == []
    steps, _ = check(connections, *peers, now=now)
    assert len([one for one in steps if isinstance(one, Dial)]) == 60


def test_whose_connection_stands_has_the_time_of_a_crowd_to_speak_until_it_ends(connections):
    connections.connect(PEER, 0.0)
    connections.note_admitted(ENDPOINT, 0.0)
    anew = [HangUp(ENDPOINT), Dial(ENDPOINT, PEER.name)]
    steps, now = check(connections, PEER, looks=round((LONGEST_CROWD - CHECK_EVERY) / CHECK_EVERY))
    assert steps == []
    connections.note_ended(ENDPOINT)
    assert connections.check([PEER], now + CHECK_EVERY) == anew


def test_the_time_of_a_crowd_begins_with_the_handshake_and_holds_for_that_connection_only(connections):
    connections.connect(PEER, 0.0)
    connections.note_admitted(ENDPOINT, begun := REDIAL_AFTER / 2)
    steps, _ = check(connections, PEER, looks=round(LONGEST_CROWD / CHECK_EVERY))
    assert steps == []
    anew = [HangUp(ENDPOINT), Dial(ENDPOINT, PEER.name)]
    assert connections.check([PEER], begun + LONGEST_CROWD) == anew
    # Nobody has proved a key over the next one.
    steps, _ = check(connections, PEER, looks=round(LONGEST_REDIAL / CHECK_EVERY), now=begun + LONGEST_CROWD)
    assert steps[:2] == anew


def test_whose_connection_stands_holds_up_no_dial_of_others(sub):
    connections = Connections(OWN, sub, None, limits=Limits(dials=1))
    other = announcement(6, local_endpoint=None, endpoints=("tcp://127.0.0.1:6",))
    assert connections.connect(PEER, 0.0) == [Dial(ENDPOINT, PEER.name)]
    assert connections.connect(other, 0.1) == []
    connections.note_admitted(ENDPOINT, 0.2)
    assert connections.begin_dials(1.0) == [Dial(other.endpoints[0], other.name)]


def test_nobody_is_dialled_anew_while_others_are_heard_for_the_first_time(sub):
    connections = Connections(OWN, sub, None, limits=Limits(dials=math.inf, dial_rate=math.inf))
    first, *others = crowd(10)
    for one in (first, *others):
        connections.connect(one, 0.0)
    waiting = iter(others)
    steps, now = check(
        connections, first, *others, looks=7, hear=lambda: sub.hear(network_origin(next(waiting).uuid))
    )
    assert steps == []
    # Not for ever.
    steps, _ = check(connections, first, now=now)
    assert steps == [HangUp("tcp://127.0.0.1:1"), Dial("tcp://127.0.0.1:1", first.name)]


def test_node_that_is_slow_itself_is_as_patient_with_others(connections):
    connections.connect(PEER, 0.0)
    # Each look comes when four should have been.
    late, now = 3 * CHECK_EVERY, CHECK_EVERY
    steps = list(connections.check([PEER], now))
    while now + CHECK_EVERY + late < REDIAL_AFTER * (1 + late):
        now += CHECK_EVERY + late
        steps += connections.check([PEER], now)
    assert now > 3.0
    assert steps == []
    assert connections.check([PEER], now + CHECK_EVERY + late) == [
        HangUp(ENDPOINT),
        Dial(ENDPOINT, PEER.name),
    ]


def test_process_that_stood_still_does_not_take_itself_for_slow_for_long(connections):
    connections.connect(PEER, 0.0)
    assert connections.check([PEER], 1.0) == []
    assert connections.check([PEER], 3_600.0) != []


def test_peer_that_speaks_is_left_alone_and_one_that_falls_silent_is_dialled_anew(connections, sub):
    connections.connect(PEER, 0.0)
    steps, now = check(connections, PEER, looks=10, hear=lambda: sub.hear(ORIGIN))
    assert steps == []
    assert not connections.has_fallen_silent(PEER)
    steps, now = check(connections, PEER, looks=MISSES - 1, now=now)
    assert steps == []
    assert not connections.has_fallen_silent(PEER)
    steps, now = check(connections, PEER, now=now)
    assert steps == [HangUp(ENDPOINT), Dial(ENDPOINT, PEER.name)]
    assert connections.has_fallen_silent(PEER)
    # It speaks again, whoever looks or not.
    sub.hear(ORIGIN)
    assert not connections.has_fallen_silent(PEER)


def test_looks_that_come_late_lose_nobody(connections, sub):
    """A process that stood still itself has to read first what came meanwhile."""
    connections.connect(PEER, 0.0)
    sub.hear(ORIGIN)
    check(connections, PEER)
    assert connections.check([PEER], 1_000.0) == []
    assert not connections.has_fallen_silent(PEER)


def test_peer_that_was_never_heard_has_not_fallen_silent(connections):
    connections.connect(PEER, 0.0)
    check(connections, PEER, looks=10)
    assert not connections.has_fallen_silent(PEER)


def test_peer_has_fallen_silent_only_when_both_its_publishers_have(connections, sub):
    peer = announcement(4, local_endpoint="ipc://four", endpoints=("tcp://10.0.0.4:4",))
    network, local = network_origin(peer.uuid), local_origin(peer.uuid)
    connections.connect(peer, 0.0)
    sub.hear(local)
    steps, now = check(connections, peer, looks=10, hear=lambda: sub.hear(network))
    assert HangUp("ipc://four") in steps
    assert HangUp("tcp://10.0.0.4:4") not in steps
    assert not connections.has_fallen_silent(peer)
    check(connections, peer, looks=MISSES, now=now)
    assert connections.has_fallen_silent(peer)


def test_peer_has_answered_when_each_of_its_publishers_has_and_still_speaks(connections, sub):
    peer = announcement(4, local_endpoint="ipc://four", endpoints=("tcp://10.0.0.4:4",))
    network, local = network_origin(peer.uuid), local_origin(peer.uuid)
    for origin in (network, local):
        sub.hear(origin)
    sub.answered.add(network)
    assert not connections.has_answered(peer)
    sub.answered.add(local)
    assert connections.has_answered(peer)
    del sub.heard[local]
    assert not connections.has_answered(peer)
