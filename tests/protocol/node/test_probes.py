"""Probes of the sockets of this host: whether anybody is there, and in which order they are tried."""

from types import SimpleNamespace

import pytest

from oz.protocol.node.connections import (
    Connections,
)
from oz.protocol.node.probes import (
    MUTE_AFTER,
    PROBE_AGAIN,
    SCAN_EVERY,
    Probes,
)
from oz.protocol.node.steps import Dial, HangUp
from protocol.node.connected import OWN
from support.announcing import announcement
from support.hearing import Sockets

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


class Directory:
    def __init__(self, names):
        self.names = names

    def others(self):
        return set(self.names)

    def clear(self, endpoint):
        return False


def test_sockets_are_tried_and_left_in_one_order_whatever_the_hashes():
    names, left = [f"ipc://{number:02}" for number in range(20)], []
    directory = Directory(reversed(names))
    probes = Probes(directory, {}, SimpleNamespace(sockets=0), lambda endpoint: left.append(endpoint) or [])
    assert [one.endpoint for one in probes.scan([], now=0.0)] == names
    directory.names = []
    probes.scan([], now=100.0)
    assert left == names
