"""Which links of a node stand, decided on a virtual clock from who is connected and what was heard."""

import math

import pytest

from oz.protocol.node.connections import CHECK_EVERY, MISSES, Connections
from oz.protocol.node.discovery_client import EXPIRY
from oz.protocol.node.links import FEW, LOOK_PAUSE, Links
from oz.protocol.node.membership import MOST_INTRODUCED, Act, Membership
from oz.protocol.node.presence import from_text, local_origin, network_origin, to_text
from oz.protocol.node.steps import (
    Forget,
    HangUp,
    Introduce,
    LoseTrack,
    PeerChanged,
    Refused,
)
from oz.wire.discovery import Joined, Welcome
from protocol.node.linked import DIAL, LOST_AFTER, ORIGIN, OWN, PEER, SERVER, Bus, Connected
from support.announcing import announcement
from support.calls import count_calls
from support.hearing import Sockets, Subscriber

# links ----------------------------------------------------------------------------------------------------


def test_node_alone_has_nothing_to_do(bus):
    assert bus.links.next_deadline(bus.now) is None
    assert bus.links.unready() == []


def test_peer_that_connects_is_dialled_introduced_to_others_and_up(bus):
    bus.network.come(PEER)
    bus.links.wake()
    assert bus.links.next_deadline(bus.now) == bus.now
    assert bus.links.look(bus.now) == [DIAL, Introduce(PEER, to_text(PEER)), PeerChanged(Act.UP, PEER)]
    second = announcement(6, local_endpoint=None, endpoints=("tcp://127.0.0.1:6",))
    _, introduce, _ = bus.up(second)[-3:]
    assert [from_text(word) for word in introduce.text.split()] == [PEER, second]


def test_nobody_looks_again_as_long_as_nothing_has_changed(bus):
    bus.up(PEER)
    bus.network.standing = None
    assert bus.links.look(bus.now) == []


def test_while_many_join_a_look_is_taken_once_for_several(bus):
    crowd = [announcement(number, local_endpoint=None, endpoints=(f"tcp://127.0.0.1:{number}",))
             for number in range(10, 60)]  # fmt: skip
    bus.up(*crowd)
    bus.links.wake()
    assert bus.links.look_at == bus.now + LOOK_PAUSE * (len(crowd) - FEW)
    bus.network.come(PEER)
    assert not [one for one in bus.links.tick(bus.now) if isinstance(one, PeerChanged)]
    bus.now = bus.links.look_at
    assert PeerChanged(Act.UP, PEER) in bus.links.tick(bus.now)
    assert bus.links.look_at == math.inf


def test_peer_of_the_same_host_is_up_when_it_is_connected_to_both_publishers(bus):
    peer = announcement(4, local_endpoint="ipc://four", endpoints=("tcp://127.0.0.1:4",))
    bus.network.come(peer)
    assert PeerChanged(Act.UP, peer) not in bus.look()
    assert bus.links.unready() == ["node 4 is not connected to this node"]
    bus.local.come(peer)
    assert PeerChanged(Act.UP, peer) in bus.look()
    assert bus.links.there() == [(peer, (True, True))]


def test_publisher_is_known_by_its_name_as_that_of_a_peer_or_of_the_node_itself(bus):
    bus.up(PEER)
    assert bus.links.peer_of(network_origin(PEER.uuid)) is PEER
    assert bus.links.peer_of(local_origin(PEER.uuid)) is PEER
    assert bus.links.peer_of(network_origin(OWN.uuid)) is OWN
    assert bus.links.peer_of(bytes(16)) is None


def test_peer_that_takes_its_presence_back_has_left(bus):
    bus.up(PEER)
    bus.network.go(PEER)
    assert bus.look() == [PeerChanged(Act.LEFT, PEER)]
    assert HangUp(PEER.endpoints[0]) not in bus.run(1.0)


def test_peer_whose_link_is_cut_is_lost_only_after_a_while(bus):
    bus.up(PEER)
    bus.network.go(PEER, is_cut=True)
    assert bus.look() == []
    bus.network.cut.clear()
    steps = bus.run(LOST_AFTER - 0.1, PEER)
    assert PeerChanged(Act.LOST, PEER) not in steps
    assert PeerChanged(Act.LOST, PEER) in bus.run(0.2, PEER)


def test_peer_that_comes_back_in_time_was_never_away(bus):
    bus.up(PEER)
    bus.network.go(PEER, is_cut=True)
    bus.look()
    bus.run(LOST_AFTER / 2, PEER)
    assert not any(isinstance(step, PeerChanged) for step in bus.up(PEER))
    assert bus.run(10.0, PEER) == []


def test_peer_that_comes_back_is_told_of_the_others_again(bus):
    """What it was told when the link broke may be lost, and then it would never meet them."""
    bus.up(PEER)
    bus.network.go(PEER, is_cut=True)
    bus.look()
    bus.run(LOST_AFTER / 2, PEER)
    assert bus.up(PEER) == [Introduce(PEER, to_text(PEER))]


def test_peer_that_falls_silent_is_cut_off_though_its_link_stands_and_up_again_once_it_speaks(bus):
    bus.up(PEER)
    assert bus.run(10.0, PEER) == []
    assert bus.links.silent == frozenset()
    steps = bus.run((MISSES + 1) * CHECK_EVERY)
    assert steps == [HangUp(PEER.endpoints[0]), DIAL]
    assert bus.links.silent == {PEER.uuid}
    # Whoever stands still may do so for ever, and holds up nobody.
    assert bus.links.unready() == []
    assert PeerChanged(Act.LOST, PEER) in bus.run(LOST_AFTER)
    assert PeerChanged(Act.UP, PEER) in bus.run(2 * CHECK_EVERY, PEER)
    assert bus.links.silent == frozenset()


def test_peer_that_comes_back_and_speaks_between_two_checks_is_up(bus):
    bus.up(PEER)
    bus.network.go(PEER, is_cut=True)
    bus.look()
    assert PeerChanged(Act.LOST, PEER) in bus.run(LOST_AFTER)
    bus.run(CHECK_EVERY / 10)
    bus.network.come(PEER)
    for _ in range(2):
        bus.look()
    assert bus.links.silent == {PEER.uuid}
    # Nobody has found it silent at a check, and none finds that it is so no more.
    assert PeerChanged(Act.UP, PEER) in bus.run(2 * CHECK_EVERY, PEER)


def test_peer_that_is_gone_is_drained_and_forgotten(bus):
    bus.up(PEER)
    bus.network.go(PEER)
    bus.look()
    assert bus.run(200.0) == [
        LoseTrack(ORIGIN, is_in_place=False),
        HangUp(PEER.endpoints[0]),
        Forget(ORIGIN),
    ]
    assert bus.links.next_deadline(bus.now) is None


def test_peers_that_a_peer_tells_of_are_dialled_and_what_is_no_announcement_is_passed_over(bus):
    told = f"nonsense {to_text(PEER)} {to_text(OWN)} {to_text(announcement(6, bus='another'))}"
    assert bus.links.hear_of(told, bus.now) == [DIAL]


def test_readiness_names_what_is_missing():
    bus = Bus(echo=True)
    assert bus.links.unready() == ["this node has not answered its own subscriptions"]
    bus.sub.answered |= {local_origin(OWN.uuid), network_origin(OWN.uuid)}
    bus.up(PEER)
    assert bus.links.unready() == ["node 4 has not answered this node's subscriptions"]
    bus.sub.answered.add(ORIGIN)
    assert bus.links.unready() == []
    assert bus.links.heard() == {local_origin(OWN.uuid), network_origin(OWN.uuid), ORIGIN}


def test_peer_that_nobody_has_looked_at_since_it_fell_silent_is_not_there(bus):
    bus.up(PEER)
    assert bus.links.there() == [(PEER, (False, True))]
    for _ in range(MISSES + 1):
        bus.connections.check([PEER], bus.now)
    assert bus.links.membership.is_linked(PEER.uuid)
    assert bus.links.there() == []


def test_start_dials_seeds_and_what_is_in_the_directory():
    sub, seed = Subscriber(), "tcp://127.0.0.1:9"
    connections = Connections(OWN, sub, Sockets("ipc://there"), [seed])
    links = Links(Membership(OWN, LOST_AFTER), connections, Connected(), None)
    assert [step.endpoint for step in links.start(0.0)] == [seed, "ipc://there"]


def test_sockets_that_nobody_has_answered_on_hold_up_readiness():
    bus = Bus(sockets=Sockets("ipc://there"))
    assert bus.links.unsettled() == ["ipc://there"]
    assert bus.links.unready() == ["whether anybody listens on ipc://there is not known yet"]


# what it costs ----------------------------------------------------------------------------------------------


def peers_of(count):
    return [
        announcement(number, local_endpoint=f"ipc://{number}", endpoints=(f"tcp://127.0.0.1:{number}",))
        for number in range(4, 4 + 2 * count, 2)
    ]


def speak(bus, peers):
    for peer in peers:
        bus.sub.hear(network_origin(peer.uuid)), bus.sub.hear(local_origin(peer.uuid))


@pytest.mark.parametrize("count", [10, 100])
def test_second_in_which_nothing_changes_costs_few_calls_however_many_peers_there_are(count):
    bus, peers = Bus(), peers_of(count)
    bus.local.come(*peers)
    bus.up(*peers)
    speak(bus, peers)
    bus.run(10 * CHECK_EVERY, *peers)
    for _ in range(3):
        bus.now += CHECK_EVERY
        speak(bus, peers)
        assert count_calls(lambda: bus.links.tick(bus.now)) <= 40


def test_peer_that_stands_at_one_publisher_only_is_found_again_after_it_was_given_up(bus):
    (half,) = peers_of(1)
    bus.local.come(half)
    bus.look()
    while bus.links.membership.known:
        bus.run(CHECK_EVERY)
    # Nobody says that anything has changed since.
    bus.run(2 * CHECK_EVERY)
    assert bus.links.membership.known == [half]


# peers that are missed -------------------------------------------------------------------------------------


def test_peer_whose_link_was_cut_for_long_is_looked_for_again_though_nobody_tells_of_it(bus):
    bus.up(PEER)
    bus.network.go(PEER, is_cut=True)
    bus.look()
    assert PeerChanged(Act.LOST, PEER) in bus.run(LOST_AFTER)
    assert DIAL not in bus.run(LOST_AFTER / 2)
    assert DIAL in bus.run(LOST_AFTER)
    bus.run(10 * LOST_AFTER)
    assert PeerChanged(Act.UP, PEER) in bus.up(PEER) + bus.run(2 * CHECK_EVERY, PEER)


def test_peer_that_is_missed_is_dialled_as_soon_as_somebody_tells_of_it(bus):
    bus.up(PEER)
    bus.network.go(PEER, is_cut=True)
    bus.look()
    bus.run(LOST_AFTER + 0.1)
    introduce(bus, [PEER])
    assert DIAL in bus.run(2 * CHECK_EVERY)


def test_peer_that_is_missed_is_not_waited_for_and_nobody_is_told_of_it(bus):
    other = announcement(6, local_endpoint=None, endpoints=("tcp://127.0.0.1:6",))
    introduce(bus, [PEER])
    assert bus.links.unready()
    bus.run(2.5 * LOST_AFTER)
    assert bus.links.membership.known == [PEER]
    assert bus.links.unready() == []
    assert Introduce(other, to_text(other)) in bus.up(other)


def test_peer_that_said_goodbye_is_not_looked_for(bus):
    bus.up(PEER)
    bus.network.go(PEER)
    bus.look()
    assert DIAL not in bus.run(100 * LOST_AFTER)
    assert bus.links.next_deadline(bus.now) is None


# introductions --------------------------------------------------------------------------------------------


def introduce(bus, peers):
    return bus.links.hear_of(" ".join(map(to_text, peers)), bus.now)


def test_introduced_peers_are_dialled_a_few_at_a_time_and_forgotten_when_they_do_not_answer(bus):
    peers = peers_over_tcp(300)
    steps = introduce(bus, peers)
    assert [one.endpoint for one in steps] == [one.endpoints[0] for one in peers[:5]]
    bus.run(LOST_AFTER + 1.0)
    assert peers[0] not in bus.links.membership.known
    assert peers[-1] in bus.links.membership.known


def test_introduced_peers_are_not_given_up_while_others_of_a_crowd_are_heard_for_the_first_time(bus):
    heard, *peers = peers_over_tcp(60)
    bus.up(heard)
    introduce(bus, peers)
    bus.run(LOST_AFTER + 1.0, heard)
    assert set(peers) <= set(bus.links.membership.known)


def test_too_many_introductions_push_out_those_that_came_first_and_none_that_a_server_vouches_for():
    bus = Bus(servers=[SERVER])
    vouched, *peers = peers_over_tcp(MOST_INTRODUCED + 11)
    bus.hear_server(Welcome(bytes(16), "server", 1.0, EXPIRY), Joined(vouched))
    introduce(bus, peers)
    assert bus.links.membership.known == [vouched, *peers[10:]]


def test_peer_at_an_endpoint_that_nobody_connects_to_is_refused_however_it_is_heard_of():
    bus = Bus(servers=[SERVER])
    odd = announcement(4, local_endpoint=None, endpoints=("tcp://224.0.0.1:1",))
    bus.network.come(odd)
    told = [*introduce(bus, [odd]), *bus.hear_server(Joined(odd)), *bus.look(), *bus.look()]
    assert [type(one) for one in told] == [Refused] * 3
    assert bus.links.membership.known == []


def peers_over_tcp(count):
    return [
        announcement(number, local_endpoint=None, endpoints=(f"tcp://192.0.2.1:{number}",))
        for number in range(4, 4 + 2 * count, 2)
    ]
