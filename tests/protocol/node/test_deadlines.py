"""The machines of a node say when they have something to do: before that nothing is due, and then it is."""

from math import inf, nextafter

from oz.protocol.node.advisories import EVERY, Throttle, advise
from oz.protocol.node.discovery_client import BEACON, EXPIRY, DiscoveryClient
from oz.protocol.node.inquiry import FIRST_PATIENCE, Inquiry
from oz.protocol.node.membership import TRIES, Act, Membership
from oz.wire.discovery import Joined, Welcome, pack
from support.announcing import announcement

LOST_AFTER = 3.0
SERVER = "tcp://127.0.0.1:1"


def before(moment):
    """The last time before a moment, for floats that were added up."""
    return nextafter(moment, -inf) - 1e-6


def test_membership_with_every_link_up_has_nothing_due():
    membership, peer = Membership(announcement(2), LOST_AFTER), announcement(4)
    assert membership.next_deadline() is None
    membership.link([peer], {peer.uuid}, set(), 10.0)
    assert membership.next_deadline() is None


def test_membership_loses_a_peer_at_its_deadline_and_not_before():
    membership, peer = Membership(announcement(2), LOST_AFTER), announcement(4)
    membership.link([peer], {peer.uuid}, set(), 10.0)
    membership.link([], set(), {peer.uuid}, 20.0)
    deadline = membership.next_deadline()
    assert deadline == 20.0 + LOST_AFTER
    assert membership.tick(before(deadline)) == []
    assert [act for act, _ in membership.tick(deadline)] == [Act.LOST, Act.DISCONNECT]
    # It is looked for again at once, and given up after as long.
    for act in (Act.CONNECT, Act.DISCONNECT):
        deadline += LOST_AFTER
        assert membership.next_deadline() == deadline
        assert membership.tick(before(deadline)) == []
        assert [one for one, _ in membership.tick(deadline)] == [act]


def test_membership_forgets_in_the_end_whom_it_looks_for_in_vain():
    membership, peer = Membership(announcement(2), LOST_AFTER), announcement(4)
    membership.hear(peer, 10.0)
    tries = 0
    while (at := membership.next_deadline()) is not None:
        tries += [act for act, _ in membership.tick(at)] == [Act.CONNECT]
    assert tries == TRIES
    assert membership.known == []


def test_membership_remembers_for_a_while_who_said_goodbye():
    membership, peer = Membership(announcement(2), LOST_AFTER), announcement(4)
    membership.link([peer], {peer.uuid}, set(), 10.0)
    membership.link([], set(), set(), 20.0)
    forgotten_at = membership.next_deadline()
    assert forgotten_at == 20.0 + 4 * LOST_AFTER
    assert membership.hear(peer, before(forgotten_at)) == []
    assert membership.tick(forgotten_at) == []
    assert membership.next_deadline() is None


def test_peer_that_a_name_server_vouches_for_is_lost_once_and_waited_for_without_a_deadline():
    membership, peer = Membership(announcement(2), LOST_AFTER), announcement(4)
    membership.hear(peer, 10.0, by=SERVER)
    membership.link([peer], {peer.uuid}, set(), 10.0)
    membership.link([], set(), {peer.uuid}, 20.0)
    assert [act for act, _ in membership.tick(membership.next_deadline())] == [Act.LOST]
    assert membership.next_deadline() is None


def test_discovery_client_announces_at_its_deadlines_and_not_between():
    client, now = DiscoveryClient(announcement(2), SERVER), 10.0
    for _ in range(10):
        now = max(now, client.next_deadline(now))
        assert len(client.tick(now)) == 1
        deadline = client.next_deadline(now)
        assert deadline > now
        assert client.tick(before(deadline)) == []


def test_discovery_client_has_a_deadline_when_its_name_server_falls_silent():
    client = DiscoveryClient(announcement(2), SERVER)
    client.tick(10.0)
    client.receive(pack(Welcome(bytes(16), "names", BEACON, EXPIRY)), 10.0)
    client.receive(pack(Joined(client.announcement)), 10.0)
    assert client.is_registered(10.0)
    now, moments = 10.0, []
    while client.is_registered(now):
        now = max(now, client.next_deadline(now))
        moments.append(now)
        client.tick(now)
    assert now == 10.0 + EXPIRY
    assert len(moments) <= 6
    client.goodbye()
    assert client.next_deadline(now) is None


def test_throttle_publishes_what_it_has_held_at_its_deadline():
    throttle, advisory = Throttle(), advise("gap", "lost", about="a")
    assert throttle.next_deadline() is None
    assert throttle.offer(advisory, 10.0) is advisory
    assert throttle.next_deadline() is None
    assert throttle.offer(advisory, 10.5) is None
    deadline = throttle.next_deadline()
    assert deadline == 10.0 + EVERY
    assert throttle.due(before(deadline)) == []
    assert throttle.due(deadline) == [advisory]
    assert throttle.next_deadline() is None


def test_inquiry_asks_again_at_its_deadline():
    inquiry = Inquiry()
    assert inquiry.next_deadline() is None
    inquiry.asked(b"a" * 16, 10.0)
    deadline = inquiry.next_deadline()
    assert deadline == 10.0 + FIRST_PATIENCE
    assert not inquiry.is_due(b"a" * 16, before(deadline))
    assert inquiry.is_due(b"a" * 16, deadline)
