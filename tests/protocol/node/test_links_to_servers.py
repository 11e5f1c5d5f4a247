"""Links to forwarders and to nodes that name servers know."""

import pytest

from oz.protocol.node.discovery_client import EXPIRY
from oz.protocol.node.membership import Act
from oz.protocol.node.presence import local_origin, network_origin
from oz.protocol.node.steps import (
    LoseTrack,
    PeerChanged,
    ServerChanged,
)
from oz.wire.discovery import Joined, Left, Lost, Welcome
from protocol.node.linked import DIAL, LOST_AFTER, ORIGIN, OWN, PEER, SERVER, Bus
from support.announcing import announcement


@pytest.fixture
def registered():
    bus = Bus(servers=[SERVER])
    assert bus.hear_server(Welcome(bytes(16), "names", 1.0, EXPIRY), Joined(OWN)) == [
        ServerChanged(SERVER, is_there=True)
    ]
    return bus


# forwarders -----------------------------------------------------------------------------------------------


def forwarder(number):
    return announcement(number, local_endpoint=None, endpoints=(f"tcp://127.0.0.1:{number}",))


def test_forwarder_that_is_cut_off_may_have_passed_something_on(bus):
    bus.network.passing_on.add(PEER.uuid)
    assert LoseTrack(ORIGIN, is_in_place=False) not in bus.up(PEER)
    bus.network.go(PEER, is_cut=True)
    assert bus.look() == [LoseTrack(ORIGIN, is_in_place=False)]


def test_forwarder_that_takes_its_leave_has_passed_everything_on(bus):
    bus.network.passing_on.add(PEER.uuid)
    bus.up(PEER)
    bus.network.go(PEER)
    assert LoseTrack(ORIGIN, is_in_place=False) not in bus.look()


def test_first_forwarder_leaves_no_doubt_and_one_that_comes_when_another_has_gone_does(bus):
    first, second = forwarder(4), forwarder(6)
    bus.network.passing_on.add(first.uuid)
    bus.up(first)
    bus.network.go(first)
    bus.network.passing_on.clear()
    assert LoseTrack(network_origin(first.uuid), is_in_place=False) not in bus.look()
    bus.network.passing_on.add(second.uuid)
    assert LoseTrack(network_origin(second.uuid), is_in_place=True) in bus.up(second)
    # Once is enough.
    assert bus.look() == []


def test_forwarder_that_comes_beside_another_leaves_no_doubt(bus):
    first, second = forwarder(4), forwarder(6)
    for one in (first, second):
        bus.network.passing_on.add(one.uuid)
        assert [step for step in bus.up(one) if isinstance(step, LoseTrack)] == []


def test_forwarder_without_a_network_publisher_is_known_by_its_local_one():
    local = announcement(4, local_endpoint="ipc://four", endpoints=())
    bus = Bus()
    bus.local.passing_on.add(local.uuid)
    bus.local.come(local)
    bus.network.come(local)
    bus.sub.hear(local_origin(local.uuid))
    bus.look()
    bus.local.go(local, is_cut=True)
    assert bus.look() == [LoseTrack(local_origin(local.uuid), is_in_place=False)]


# name servers ---------------------------------------------------------------------------------------------


def test_peer_that_a_name_server_tells_of_is_dialled_and_not_introduced_to_others(registered):
    assert registered.hear_server(Joined(PEER)) == [DIAL]
    assert registered.up(PEER) == [PeerChanged(Act.UP, PEER)]


def test_peer_that_a_name_server_misses_stays_as_long_as_its_link_stands(registered):
    registered.hear_server(Joined(PEER))
    registered.up(PEER)
    assert registered.hear_server(Lost(PEER.uuid)) == []
    assert registered.hear_server(Left(PEER.uuid)) == []
    assert registered.links.membership.up == [PEER]


@pytest.mark.parametrize("word", [Left, Lost])
def test_peer_that_was_linked_when_the_name_server_said_it_goes_ends_though_its_link_breaks(registered, word):
    registered.hear_server(Joined(PEER))
    registered.up(PEER)
    registered.hear_server(word(PEER.uuid))
    registered.network.go(PEER, is_cut=True)
    registered.look()
    for _ in range(round(LOST_AFTER) + 1):
        registered.run(1.0)
        # It is live, and says nothing of that peer any more.
        registered.hear_server(Joined(OWN))
    assert registered.links.membership.known == []
    assert registered.links.unready() == []


@pytest.mark.parametrize("word", [Left, Lost])
def test_peer_without_a_link_goes_as_the_name_server_says(registered, word):
    registered.hear_server(Joined(PEER), word(PEER.uuid))
    assert registered.links.membership.known == []


def test_name_server_that_falls_silent_is_reported_once_and_vouches_for_nobody(registered):
    registered.hear_server(Joined(PEER))
    steps = registered.run(EXPIRY + 2 * LOST_AFTER)
    assert steps.count(ServerChanged(SERVER, is_there=False)) == 1
    assert not registered.links.is_registered
    assert registered.links.unready()[0] == f"no name server answers at {SERVER}"
    # It was never up, so nobody is told.
    assert registered.links.membership.known == []
    assert [step for step in steps if isinstance(step, PeerChanged)] == []


def test_silence_of_a_name_server_is_noticed_without_peers_and_in_time(registered):
    assert registered.run(EXPIRY - 0.1) == []
    assert registered.run(0.1) == [ServerChanged(SERVER, is_there=False)]


def test_peers_outlive_their_name_server(registered):
    registered.hear_server(Joined(PEER))
    registered.up(PEER)
    steps = registered.run(10 * EXPIRY, PEER)
    assert steps == [ServerChanged(SERVER, is_there=False)]
    assert registered.links.membership.up == [PEER]
