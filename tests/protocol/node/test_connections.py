"""Whom a node dials and when it hangs up, decided on a virtual clock from what was heard and who is there."""

import math
from dataclasses import replace

import pytest

from oz.protocol.node.connections import (
    CHECK_EVERY,
    FORGET_AFTER,
    MISSES,
    Connections,
)
from oz.protocol.node.dialling import LONGEST_CROWD, LONGEST_REDIAL, REDIAL_AFTER
from oz.protocol.node.presence import local_origin, network_origin
from oz.protocol.node.probes import (
    DRAIN_EVERY,
    DRAINED_AFTER,
    LONGEST_DRAIN,
    MUTE_AFTER,
    PROBE_AGAIN,
    SCAN_EVERY,
    DrainingPeer,
)
from oz.protocol.node.steps import Dial, Forget, HangUp, LoseTrack, Unreachable
from oz.security.limits import Limits
from support.announcing import announcement
from support.hearing import Sockets, Subscriber

OWN = announcement(2, local_endpoint="ipc://own")
PEER = announcement(4, local_endpoint=None, endpoints=("tcp://127.0.0.1:4",))
ORIGIN = network_origin(PEER.uuid)
ENDPOINT = PEER.endpoints[0]


@pytest.fixture
def sub():
    return Subscriber()


@pytest.fixture
def connections(sub):
    return Connections(OWN, sub, None)


def check(connections, *peers, looks=1, now=0.0, hear=lambda: None):
    """Look so many times who is silent; the steps of all looks, and the time of the last."""
    steps = []
    for _ in range(looks):
        now += CHECK_EVERY
        hear()
        steps += connections.check(peers, now)
    return steps, now


# peers ----------------------------------------------------------------------------------------------------


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


# peers that are gone --------------------------------------------------------------------------------------


@pytest.fixture
def draining_peer():
    return DrainingPeer(PEER, ENDPOINT, 1, 0.0)


def test_draining_is_over_when_nothing_has_come_for_some_looks(draining_peer):
    seen = [draining_peer.is_over(1, (look + 1) * DRAIN_EVERY) for look in range(DRAINED_AFTER)]
    assert seen == [False] * (DRAINED_AFTER - 1) + [True]


def test_what_is_new_begins_the_looks_anew(draining_peer):
    assert not any(draining_peer.is_over(1, look * DRAIN_EVERY) for look in range(1, DRAINED_AFTER))
    assert not draining_peer.is_over(2, DRAINED_AFTER * DRAIN_EVERY)
    looks = range(DRAINED_AFTER + 1, 2 * DRAINED_AFTER + 1)
    assert [draining_peer.is_over(2, look * DRAIN_EVERY) for look in looks][-2:] == [False, True]


def test_process_that_stood_still_itself_reads_first_what_had_come(draining_peer):
    assert not draining_peer.is_over(1, DRAINED_AFTER * DRAIN_EVERY * 2)
    assert not draining_peer.is_over(1, DRAINED_AFTER * DRAIN_EVERY * 2)


def test_draining_has_an_end_also_when_something_comes_again_and_again(draining_peer):
    assert not draining_peer.is_over(2, LONGEST_DRAIN - DRAIN_EVERY)
    assert draining_peer.is_over(3, LONGEST_DRAIN)


def drain(connections, now):
    """Look for as long as there is something to drain; the steps, and the time of the last."""
    steps = []
    while not steps:
        deadline = connections.next_deadline(has_peers=False)
        assert deadline > now
        now = deadline
        steps = connections.drain(now)
    return steps, now


def test_peer_that_is_gone_is_listened_to_then_hung_up_on_and_forgotten_at_last(connections, sub):
    connections.connect(PEER, 0.0)
    sub.hear(ORIGIN)
    connections.disconnect(PEER, 10.0)
    assert connections.gone_peer(ORIGIN) is PEER
    steps, now = drain(connections, 10.0)
    assert steps == [LoseTrack(ORIGIN, is_in_place=False), HangUp(ENDPOINT)]
    assert now == pytest.approx(10.0 + DRAINED_AFTER * DRAIN_EVERY)
    # A gap that is reported now has still a name.
    assert connections.gone_peer(ORIGIN) is PEER
    steps, forgotten_at = drain(connections, now)
    assert steps == [Forget(ORIGIN)]
    assert forgotten_at == pytest.approx(now + FORGET_AFTER)
    assert connections.gone_peer(ORIGIN) is None
    assert connections.next_deadline(has_peers=False) is None


def test_peer_that_comes_back_while_it_is_drained_is_not_hung_up_on(connections, sub):
    connections.connect(PEER, 0.0)
    sub.hear(ORIGIN)
    connections.disconnect(PEER, 10.0)
    assert connections.connect(PEER, 10.5) == []
    assert connections.gone_peer(ORIGIN) is None
    assert [step for at in range(20) for step in connections.drain(11.0 + at)] == []


def test_endpoint_that_another_peer_has_taken_is_dialled_for_that_one(connections, sub):
    connections.connect(PEER, 0.0)
    sub.hear(ORIGIN)
    connections.disconnect(PEER, 10.0)
    heir = announcement(6, local_endpoint=None, endpoints=PEER.endpoints)
    assert connections.connect(heir, 10.5) == [
        LoseTrack(ORIGIN, is_in_place=False),
        HangUp(ENDPOINT),
        Dial(ENDPOINT, heir.name),
    ]
    # What is left of the first does not end the connection to the second.
    assert [step for at in range(70) for step in connections.drain(11.0 + at)] == [Forget(ORIGIN)]


def test_connection_that_another_peer_has_meanwhile_outlives_the_first(connections, sub):
    connections.connect(PEER, 0.0)
    sub.hear(ORIGIN)
    heir = announcement(6, local_endpoint=None, endpoints=PEER.endpoints)
    assert connections.connect(heir, 5.0) == []
    connections.disconnect(PEER, 10.0)
    assert drain(connections, 10.0)[0] == [LoseTrack(ORIGIN, is_in_place=False)]


def test_earlier_life_that_is_looked_for_again_leaves_the_connection_to_who_listens_there(connections, sub):
    second = replace(announcement(6, local_endpoint=None, endpoints=PEER.endpoints), started_ns=2)
    third = replace(announcement(8, local_endpoint=None, endpoints=PEER.endpoints), started_ns=3)
    first = replace(PEER, started_ns=1)
    for peer in (second, third):
        connections.connect(peer, 5.0)
    hear = lambda: sub.hear(network_origin(third.uuid))  # noqa: E731
    connections.disconnect(second, 10.0)
    assert connections.connect(first, 11.0) == [LoseTrack(network_origin(second.uuid), is_in_place=False)]
    looks = round(2 * LONGEST_REDIAL / CHECK_EVERY)
    assert check(connections, first, third, looks=looks, now=11.0, hear=hear)[0] == []
    connections.disconnect(first, 20.0)
    assert drain(connections, 20.0)[0] == [LoseTrack(ORIGIN, is_in_place=False)]


def test_of_two_keys_at_one_endpoint_the_one_that_is_heard_there_keeps_it(connections, sub):
    owner = replace(PEER, key="o" * 40)
    assert connections.connect(owner, 0.0) == [Dial(ENDPOINT, owner.name, key=owner.key)]
    sub.hear(ORIGIN)
    thief = announcement(
        6, local_endpoint=None, endpoints=PEER.endpoints, key="t" * 40, started_ns=owner.started_ns + 1
    )
    assert connections.connect(thief, 1.0) == []
    steps, now = check(connections, thief, owner, looks=20, now=1.0, hear=lambda: sub.hear(ORIGIN))
    assert steps == []
    # Once it is silent for long, another may have its place.
    steps, _ = check(connections, thief, owner, looks=20, now=now)
    assert Dial(ENDPOINT, thief.name, key=thief.key) in steps


# sockets in the directory ---------------------------------------------------------------------------------

SOCKET = "ipc://there"
PROBE = Dial(SOCKET, "a node of this host")


@pytest.fixture
def directory():
    return Sockets(SOCKET)


@pytest.fixture
def finding(sub, directory):
    return Connections(OWN, sub, directory)


def test_socket_in_the_directory_is_dialled_once_until_it_is_looked_at_anew(finding):
    assert finding.scan([], 10.0) == [PROBE]
    assert finding.unsettled([]) == [SOCKET]
    assert finding.next_deadline(has_peers=False) == 10.0 + SCAN_EVERY
    assert finding.scan([], 10.0 + SCAN_EVERY - 0.1) == []
    assert finding.scan([], 10.0 + SCAN_EVERY) == []
    assert finding.scan([], 10.0 + PROBE_AGAIN) == [HangUp(SOCKET), PROBE]


def test_sockets_of_a_crowd_are_given_the_time_that_its_host_needs(sub):
    directory = Sockets(*(f"ipc://{number}" for number in range(60)))
    finding = Connections(OWN, sub, directory)
    assert len(finding.scan([], 10.0)) == 60
    assert [step for at in range(11, 18) for step in finding.scan([], float(at))] == []
    assert len(directory.tried) > 60
    assert len(finding.scan([], 18.0)) == 120


def test_dead_socket_is_removed_and_not_dialled_again(finding, directory):
    finding.scan([], 10.0)
    directory.dead.add(SOCKET)
    assert finding.scan([], 10.0 + PROBE_AGAIN) == [HangUp(SOCKET)]
    assert directory.there == set()
    assert finding.unsettled([]) == []
    assert finding.scan([], 20.0) == []


def test_socket_whose_owner_is_linked_is_settled_and_left_alone(finding, directory):
    peer = announcement(4, local_endpoint=SOCKET, endpoints=())
    finding.scan([], 10.0)
    assert finding.connect(peer, 10.5) == []
    assert finding.unsettled([peer]) == []
    assert [step for at in range(11, 20) for step in finding.scan([peer], float(at))] == []
    assert directory.tried == []


def test_mute_socket_is_tried_again_but_holds_up_nobody(finding):
    steps = [step for at in range(10, 20) for step in finding.scan([], float(at)) if at < 10 + MUTE_AFTER]
    assert steps == [PROBE, HangUp(SOCKET), PROBE]
    assert finding.unsettled([]) == []


def test_socket_that_is_gone_is_hung_up_on_unless_it_is_a_peers(finding, directory):
    finding.scan([], 10.0)
    directory.there.clear()
    assert finding.scan([], 11.0) == [HangUp(SOCKET)]
    directory.there.add(SOCKET)
    assert finding.scan([], 12.0) == [PROBE]
    finding.connect(announcement(4, local_endpoint=SOCKET, endpoints=()), 12.5)
    directory.there.clear()
    # What the peer sent last may be on its way.
    assert finding.scan([], 13.0) == []


def test_dead_socket_of_a_peer_is_removed_and_its_connection_stays_for_the_last_messages(finding, directory):
    finding.scan([], 10.0)
    finding.connect(announcement(4, local_endpoint=SOCKET, endpoints=()), 10.5)
    directory.dead.add(SOCKET)
    assert finding.scan([], 10.0 + PROBE_AGAIN) == []
    assert directory.there == set()
