"""Peers that are gone are listened to for a while, and hung up on."""

from dataclasses import replace

import pytest

from oz.protocol.node.connections import (
    CHECK_EVERY,
    FORGET_AFTER,
)
from oz.protocol.node.dialling import LONGEST_REDIAL
from oz.protocol.node.presence import network_origin
from oz.protocol.node.probes import (
    DRAIN_EVERY,
    DRAINED_AFTER,
    LONGEST_DRAIN,
    DrainingPeer,
)
from oz.protocol.node.steps import Dial, Forget, HangUp, LoseTrack
from protocol.node.connected import ENDPOINT, ORIGIN, PEER, check, drain
from support.announcing import announcement


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
