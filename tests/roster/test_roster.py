"""Table tests of the roster: each event in each state of an endpoint and of a peer."""

from itertools import pairwise

import pytest

from oz.node import roster as module
from oz.node.roster import (
    DIAL_TURN,
    FORGET_AFTER,
    GIVE_UP_AFTER,
    GREETING_TIME,
    KNOWN,
    MAX_INTRODUCED,
    NAME_INTERVAL,
    SILENT,
    SILENT_AFTER,
    UP,
    Dial,
    EndSession,
    ForwarderGone,
    HangUp,
    Introduce,
    NameConflict,
    PeerGone,
    PeerResumed,
    PeerSilent,
    PeerUp,
    Ping,
    Refused,
    Roster,
)
from oz.wire import links
from oz.wire.links import MAX_ENDPOINTS, Card

A, OWN, B, C = (bytes([item] * 16) for item in (1, 5, 7, 9))
LOST_AFTER = 5.0
PREFIX = "ipc:///run/oz/5e1f-"


def at(node, port=1):
    """Return the endpoint of a node."""
    return f"tcp://10.0.0.{node[0]}:{port}"


def card(node, *, name=None, bus="bus", host="h", endpoints=None, kind="node"):
    listens = (at(node),) if endpoints is None else tuple(endpoints)
    return Card(
        node=node, bus=bus, name=name or f"node{node[0]}", host=host, pid=1, endpoints=listens, kind=kind
    )


class Harness:
    """Roster of the node OWN; a call passes an event and returns the effects."""

    def __init__(self, **options):
        self.roster = Roster(card(OWN), lost_after=LOST_AFTER, local_prefix=PREFIX, **options)
        self.out = []

    def __call__(self, event, *arguments, now=0.0, **options):
        self.out = getattr(self.roster, event)(*arguments, now, **options)
        return self.out

    def of(self, kind):
        return [effect for effect in self.out if isinstance(effect, kind)]

    def kinds(self):
        return [type(effect) for effect in self.out]

    def state(self, node):
        return self.roster.by_id[node].state

    def up(self, node, now=0.0, **fields):
        """Bring up a peer that says HELLO first."""
        one = card(node, **fields)
        hello = self("on_hello", one, now=now)
        self.out = [*hello, *self("on_live", self.of(Dial)[0].endpoint, one, now=now)]
        return self.out


@pytest.fixture
def roster():
    return Harness()


# endpoints


def test_node_that_says_hello_is_dialled_back(roster):
    assert roster("on_hello", card(A)) == [Dial(at(A))]
    assert roster("on_live", at(A), card(A)) == [PeerUp(card(A))]
    assert roster.state(A) == UP
    assert roster("on_hello", card(A)) == []
    assert roster("on_live", at(A), card(A)) == []


def test_node_of_a_seed_is_up_once_its_hello_arrives(roster):
    roster("seed", at(A))
    assert roster("on_live", at(A), card(A)) == []
    assert roster.state(A) == KNOWN
    assert roster("on_hello", card(A)) == [PeerUp(card(A))]


@pytest.mark.parametrize("wrong", [None, card(OWN), card(A, bus="elsewhere")])
def test_endpoint_without_peer_is_refused_for_a_time(roster, wrong):
    roster("seed", at(A))
    roster("on_live", at(A), wrong)
    assert roster.kinds() == [HangUp, Refused]
    assert roster.out[1].endpoint == at(A)
    again = FORGET_AFTER * LOST_AFTER
    assert roster.roster.next_deadline() == again
    assert roster("tick", now=again - 1) == []
    assert roster("tick", now=again) == [Dial(at(A))]


@pytest.mark.parametrize("reason", [links.OTHER_BUS, links.OWN_ID])
def test_bye_of_another_bus_and_of_the_own_id_refuses_the_endpoint(roster, reason):
    roster("seed", at(A))
    roster("on_end", at(A), reason)
    assert roster.kinds() == [HangUp, Refused]
    assert roster("seed", at(A), now=1.0) == []


def test_refused_endpoint_of_a_peer_gives_its_turn_to_the_next(roster):
    roster("introduced", [(A, [at(A), at(A, 2)])])
    assert roster("on_end", at(A), links.OTHER_BUS) == [
        HangUp(at(A)),
        Refused(at(A), "the node is on another bus"),
        Dial(at(A, 2)),
    ]
    # Later the only other endpoint is the refused one.
    assert roster("tick", now=DIAL_TURN) == []
    roster("tick", now=FORGET_AFTER * LOST_AFTER)
    assert roster.roster._endpoints == {}


def test_other_reasons_of_bye_are_reported_once(roster):
    roster("seed", at(A))
    assert roster("on_end", at(A), links.LIMIT) == [Refused(at(A), "the node has too many sessions")]
    assert roster("on_end", at(A), links.LIMIT) == []
    assert roster("on_end", at(A), None) == []
    roster("on_live", at(A), card(A))
    assert roster("on_end", at(A), links.LIMIT) == [Refused(at(A), "the node has too many sessions")]


def test_endpoints_of_a_peer_are_dialled_in_turn(roster):
    assert roster("introduced", [(A, [at(A), at(A, 2), at(A, 3)])]) == [Dial(at(A))]
    assert roster("tick", now=DIAL_TURN / 2) == []
    assert roster("tick", now=DIAL_TURN) == [HangUp(at(A)), Dial(at(A, 2))]
    assert roster("tick", now=2 * DIAL_TURN) == [HangUp(at(A, 2)), Dial(at(A, 3))]
    assert roster("tick", now=3 * DIAL_TURN) == [HangUp(at(A, 3)), Dial(at(A))]


def test_next_endpoint_is_dialled_after_a_link_at_a_seed(roster):
    one = card(A, endpoints=[at(A), at(A, 2), at(A, 3)])
    roster("seed", at(A, 9))
    assert roster("on_hello", one) == [Dial(at(A))]
    for turn, (dialled, following) in enumerate(pairwise([*one.endpoints, at(A)])):
        now = 10.0 * turn
        assert HangUp(dialled) in roster("on_live", at(A, 9), one, now=now)
        roster("on_hello", one, now=now)
        roster("on_silent", at(A, 9), now=now)
        roster("tick", now=now + LOST_AFTER)
        assert roster.of(Dial) == [Dial(following)]


def test_endpoints_of_the_same_host_come_first(roster):
    local = ["tcp://10.0.0.1:1", "tcp://127.0.0.1:1", f"{PREFIX}a.sock"]
    roster("on_hello", card(A, endpoints=local))
    assert roster.roster.by_id[A].endpoints == tuple(reversed(local))
    roster("on_hello", card(B, host="elsewhere", endpoints=local))
    assert roster.roster.by_id[B].endpoints == ("tcp://10.0.0.1:1",)


def test_endpoint_that_is_dialled_already_is_awaited(roster):
    roster("found", f"{PREFIX}a.sock")
    one = card(A, endpoints=[f"{PREFIX}a.sock", at(A)])
    assert roster("on_hello", one) == []
    assert roster("tick", now=DIAL_TURN) == [Dial(at(A))]
    assert roster("on_live", f"{PREFIX}a.sock", one, now=3.0) == [HangUp(at(A)), PeerUp(one)]


def test_second_endpoint_of_a_peer_is_hung_up(roster):
    roster("seed", at(A))
    roster("seed", at(A, 2))
    roster("on_live", at(A), card(A))
    assert roster("on_live", at(A, 2), card(A)) == [HangUp(at(A, 2))]
    assert roster("tick", now=1.0) == []
    # The endpoint of the link resumes. The other seed is dialled once the peer is lost.
    roster("on_hello", card(A))
    roster("on_silent", at(A))
    assert roster.out == []
    roster("tick", now=LOST_AFTER)
    assert Dial(at(A, 2)) in roster.out


def test_endpoint_that_leads_to_another_node_leaves_the_first(roster):
    roster("introduced", [(A, [at(B), at(A)])])
    roster("on_live", at(B), card(B))
    assert roster.out == [Dial(at(A))]
    assert roster.roster.by_id[A].endpoints == (at(A),)
    assert roster("on_hello", card(B)) == [PeerUp(card(B))]


# directory


def test_socket_of_the_directory_is_dialled_until_it_is_dead(roster):
    assert roster("found", f"{PREFIX}a.sock") == [Dial(f"{PREFIX}a.sock")]
    assert roster("found", f"{PREFIX}a.sock", now=1.0) == []
    assert roster("gone", f"{PREFIX}a.sock", now=2.0) == [HangUp(f"{PREFIX}a.sock")]
    assert roster("gone", f"{PREFIX}a.sock", now=2.0) == []
    assert roster.roster.next_deadline() is None


def test_socket_that_the_directory_does_not_name_any_more_is_forgotten(roster):
    roster("found", f"{PREFIX}a.sock")
    end = FORGET_AFTER * LOST_AFTER
    roster("found", f"{PREFIX}a.sock", now=1.0)
    assert roster("tick", now=end) == []
    assert roster("tick", now=end + 1.0) == [HangUp(f"{PREFIX}a.sock")]


def test_socket_with_a_link_stays(roster):
    roster("found", f"{PREFIX}a.sock")
    roster("on_live", f"{PREFIX}a.sock", card(A))
    assert roster("gone", f"{PREFIX}a.sock") == []
    assert roster("tick", now=FORGET_AFTER * LOST_AFTER) == []


def test_dead_socket_of_a_hung_up_endpoint_is_forgotten(roster):
    roster("seed", at(A))
    roster("found", f"{PREFIX}a.sock")
    roster("on_live", at(A), card(A))
    roster("on_live", f"{PREFIX}a.sock", card(A))
    assert roster("gone", f"{PREFIX}a.sock") == []
    assert list(roster.roster._endpoints) == [at(A)]


# presence


def test_peer_without_link_is_silent_after_a_second_and_resumes(roster):
    roster.up(A)
    assert roster("on_silent", at(A), now=10.0) == []
    assert roster.state(A) == UP
    assert roster.roster.next_deadline() == 10.0 + SILENT_AFTER
    assert roster("tick", now=10.0 + SILENT_AFTER) == [PeerSilent(card(A))]
    assert roster.state(A) == SILENT
    assert roster.roster.next_deadline() == 10.0 + LOST_AFTER
    assert roster("on_live", at(A), card(A), now=12.0) == [PeerResumed(card(A))]
    assert roster.state(A) == UP


def test_peer_may_be_lost_before_it_counts_as_silent():
    roster = Roster(card(OWN), lost_after=0.5)
    roster.on_hello(card(A), 0.0)
    roster.on_live(at(A), card(A), 0.0)
    roster.on_silent(at(A), 1.0)
    assert roster.next_deadline() == 1.5
    assert roster.tick(1.5) == [EndSession(A), PeerGone(card(A), "lost")]


@pytest.mark.parametrize("what", ["down", "ended"])
def test_peer_without_session_is_silent_and_lost(roster, what):
    roster.up(A)
    roster("on_session", A, what)
    assert roster("tick", now=SILENT_AFTER) == [PeerSilent(card(A))]
    assert roster("tick", now=LOST_AFTER) == [EndSession(A), PeerGone(card(A), "lost")]
    # Its link is still LIVE: a HELLO is enough.
    assert roster("on_hello", card(A), now=6.0) == [PeerUp(card(A))]


def test_silence_begins_with_the_first_loss(roster):
    roster.up(A)
    roster("on_silent", at(A))
    roster("on_session", A, "down", now=3.0)
    assert roster("on_hello", card(A), now=4.0) == []
    assert roster("tick", now=LOST_AFTER) == [EndSession(A), PeerGone(card(A), "lost")]


def test_one_of_two_sessions_is_enough(roster):
    roster("seed", at(A))
    roster("on_live", at(A), card(A))
    roster("on_hello", card(A), session=b"1")
    roster("on_hello", card(A), session=b"2")
    roster("on_session", A, "ended", session=b"1")
    assert roster("tick", now=60.0) == []
    assert roster.state(A) == UP


def test_peer_is_lost_when_its_link_is_refused_and_its_session_is_down(roster):
    roster.up(A)
    assert roster("on_refused", at(A)) == [Ping(A)]
    assert roster.state(A) == UP
    # libzmq reports each attempt, and the PING before may have come too early.
    assert roster("on_refused", at(A)) == [Ping(A)]
    assert roster("on_session", A, "down")[:2] == [EndSession(A), PeerGone(card(A), "lost")]
    assert roster.state(A) == KNOWN


def test_peer_is_lost_when_its_session_is_down_and_its_link_is_refused(roster):
    roster.up(A)
    roster("on_session", A, "down")
    assert roster("on_refused", at(A))[:2] == [EndSession(A), PeerGone(card(A), "lost")]
    assert roster("on_refused", at(A)) == []


@pytest.mark.parametrize("event", ["on_live", "on_hello"])
def test_peer_with_a_new_connection_is_not_lost(roster, event):
    roster.up(A)
    roster("on_refused", at(A))
    roster(event, *((at(A), card(A)) if event == "on_live" else (card(A),)))
    assert roster("on_session", A, "down") == []


def test_lost_peer_is_dialled_until_it_is_forgotten(roster):
    roster.up(A)
    roster("on_silent", at(A))
    roster("tick", now=LOST_AFTER)
    assert roster.state(A) == KNOWN
    end = LOST_AFTER + FORGET_AFTER * LOST_AFTER
    assert roster("tick", now=end - 1) == []
    assert roster("tick", now=end) == [HangUp(at(A))]
    assert roster.roster.by_id == {}
    assert roster.roster.next_deadline() is None


def test_peer_that_never_was_up_is_forgotten_sooner(roster):
    roster("introduced", [(A, [at(A)])])
    roster("introduced", [(A, [at(A)])], now=10.0)
    end = 10.0 + GIVE_UP_AFTER * LOST_AFTER
    assert roster("tick", now=end - 1) == []
    assert roster("tick", now=end) == [HangUp(at(A))]


def test_closed_peer_is_forgotten(roster):
    roster.up(A)
    assert roster("on_end", at(A), links.CLOSED) == [
        EndSession(A),
        PeerGone(card(A), "closed"),
        HangUp(at(A)),
    ]
    assert roster.roster.by_id == {}
    assert roster("on_session", A, "ended") == []


@pytest.mark.parametrize(("kind", "gone"), [(links.FORWARDER, [ForwarderGone]), (links.NODE, [])])
def test_forwarder_that_closes_before_its_hello_is_reported(roster, kind, gone):
    roster("seed", at(A))
    roster("on_live", at(A), card(A, kind=kind))
    roster("on_end", at(A), links.CLOSED)
    assert roster.kinds() == gone


def test_seed_stays_dialled_when_its_peer_has_closed(roster):
    roster("seed", at(A))
    roster("on_live", at(A), card(A))
    roster("on_hello", card(A))
    assert roster("on_end", at(A), links.CLOSED) == [EndSession(A), PeerGone(card(A), "closed")]
    assert roster("on_end", at(A), links.CLOSED) == []
    assert roster("on_live", at(A), card(B, endpoints=[at(A)]), now=1.0) == []
    assert roster("on_hello", card(B, endpoints=[at(A)]), now=1.0)[0] == PeerUp(card(B, endpoints=[at(A)]))


def test_new_process_at_the_endpoint_of_the_link(roster):
    roster.up(A)
    new = card(B, endpoints=[at(A)])
    assert roster("on_live", at(A), new) == [EndSession(A), PeerGone(card(A), "restarted")]
    assert roster("on_hello", new) == [PeerUp(new)]
    roster("on_silent", at(A))
    assert roster("tick", now=LOST_AFTER)[-1] == PeerGone(new, "lost")


def test_node_of_another_bus_at_the_endpoint_of_the_link(roster):
    roster.up(A)
    roster("on_live", at(A), card(B, bus="elsewhere", endpoints=[at(A)]))
    assert roster.kinds() == [EndSession, PeerGone, HangUp, Refused]


def test_bye_of_another_bus_at_the_endpoint_of_the_link(roster):
    roster.up(A)
    assert roster("on_end", at(A), links.OTHER_BUS)[0] == HangUp(at(A))
    assert roster("tick", now=LOST_AFTER)[-1] == PeerGone(card(A), "lost")


def test_process_that_restarts_with_another_socket_replaces_the_old_one(roster):
    old = card(A, endpoints=[f"{PREFIX}a.sock", at(A)])
    new = card(B, endpoints=[f"{PREFIX}b.sock", at(A)])
    roster.up(A, endpoints=old.endpoints)
    roster("on_silent", f"{PREFIX}a.sock")
    roster("on_hello", new)
    assert roster.of(PeerGone) == [PeerGone(old, "restarted")]
    assert Dial(f"{PREFIX}b.sock") in roster.out


def test_new_process_at_the_same_endpoint_is_dialled_with_its_hello(roster):
    roster.up(A)
    roster("on_silent", at(A), now=1.0)
    roster("on_hello", card(B, endpoints=[at(A)]), now=1.1)
    assert roster.kinds() == [EndSession, PeerGone, HangUp, Dial]


def test_node_of_the_new_process_may_be_on_another_bus_than_the_link(roster):
    """BYE for another bus comes while a new process with the same endpoint is known."""
    old = card(A, endpoints=[at(A), at(A, 2)])
    roster.up(A, endpoints=old.endpoints)
    roster("on_hello", card(B, endpoints=[at(B), at(A, 2)]))
    roster("on_end", at(A), links.OTHER_BUS)
    assert roster.kinds() == [EndSession, PeerGone, HangUp, Refused]
    assert roster.of(PeerGone) == [PeerGone(old, "restarted")]


def test_same_endpoint_on_another_host_is_another_endpoint(roster):
    roster.up(A)
    roster("on_silent", at(A))
    roster("on_hello", card(B, host="elsewhere", endpoints=[at(A)]))
    assert roster.of(PeerGone) == []


def test_names_in_conflict_are_reported(roster):
    roster.up(A, name="node5")
    assert roster.of(NameConflict) == [NameConflict(card(A, name="node5"), OWN)]
    roster.up(B, name="node5")
    assert [item.other for item in roster.of(NameConflict)] == [OWN, A]
    roster("on_silent", at(A))
    roster("on_session", B, "ended")
    roster.up(C, name="node5")
    assert [item.other for item in roster.of(NameConflict)] == [OWN]


# introductions


def test_introduced_endpoints_that_are_no_text_are_ignored(roster):
    assert roster("introduced", [(A, [1, b"x", [at(B)], {}, at(A)]), (B, [None])]) == [Dial(at(A))]
    assert set(roster.roster.by_id) == {A}


def test_peers_are_introduced_to_a_node_with_its_first_hello(roster):
    roster.up(A)
    assert roster.of(Introduce) == []
    assert roster("on_hello", card(B)) == [Introduce(B, [(A, (at(A),))]), Dial(at(B))]
    assert roster("on_live", at(B), card(B)) == [PeerUp(card(B))]
    assert roster("on_hello", card(B), session=b"2") == []
    roster("on_session", B, "down")
    assert roster("on_hello", card(B)) == []


def test_all_peers_are_introduced_to_one_peer_in_turn(roster):
    roster.up(A)
    assert roster.roster.next_deadline() is None
    roster.up(B)
    found = []
    for turn in range(1, 4):
        now = turn * NAME_INTERVAL
        assert roster.roster.next_deadline() == now
        found += roster("tick", now=now)
    to_a, to_b = Introduce(A, [(B, (at(B),))]), Introduce(B, [(A, (at(A),))])
    assert found == [to_a, to_b, to_a]


def test_local_endpoints_are_introduced_to_peers_of_the_same_host_only(roster):
    local = [at(A), "tcp://127.0.0.1:7", f"{PREFIX}a.sock"]
    roster.up(A, endpoints=local)
    roster.up(B)
    assert roster.of(Introduce) == [Introduce(B, [(A, tuple(local))])]
    roster.up(C, host="elsewhere")
    assert roster.of(Introduce) == [Introduce(C, [(A, (at(A),)), (B, (at(B),))])]


def test_long_introduction_is_split(roster, monkeypatch):
    monkeypatch.setattr(module, "MAX_INTRODUCED", 3)
    for number in range(4):
        roster.up(
            number.to_bytes(16, "little"), endpoints=[f"tcp://10.1.{number // 250}.{number % 250 + 1}:1"]
        )
    roster.up(C)
    assert [len(item.peers) for item in roster.of(Introduce)] == [3, 1]


# bounds


def test_endpoints_of_strangers_are_checked(roster):
    wrong = ["inproc://a", "epgm://eth0;239.192.1.1:1", "tcp://224.0.0.1:1", "tcp://*:1", "ipc:///etc/a"]
    assert roster("introduced", [(A, wrong)]) == []
    assert roster.roster.by_id == {}
    assert roster("on_hello", card(A, endpoints=wrong)) == [
        Refused(None, "'node1' has no endpoint that this node may dial")
    ]
    assert roster("tick", now=60.0) == []


def test_roster_is_bounded():
    roster = Harness(limit=1)
    roster.up(A)
    assert roster("on_hello", card(B)) == [Refused(None, "the roster has 1 peers")]
    assert roster("introduced", [(B, [at(B)])]) == []
    assert roster("found", f"{PREFIX}b.sock") == []
    assert list(roster.roster.by_id) == [A]


def test_welcome_of_a_peer_that_does_not_fit_is_refused():
    roster = Harness(limit=1)
    roster("seed", at(B))
    assert roster("on_hello", card(A)) == []
    roster("on_live", at(B), card(B))
    assert roster.out == [HangUp(at(B)), Refused(at(B), "the roster has 1 peers")]


def test_endpoints_of_a_card_are_bounded(roster):
    many = [at(A, port) for port in range(1, 1000)]
    roster("on_hello", card(A, endpoints=many))
    assert len(roster.roster.by_id[A].endpoints) == MAX_ENDPOINTS
    for port in range(0, 1000, 10):
        roster("introduced", [(B, many[port : port + 10])])
    assert len(roster.roster.by_id[B].endpoints) == MAX_ENDPOINTS


def test_peers_without_an_answer_are_bounded(roster):
    def named(first, count):
        return [
            (item.to_bytes(16, "big"), [f"tcp://10.{item >> 8}.{item & 255}.1:1"])
            for item in range(first, first + count)
        ]

    roster("introduced", named(0, MAX_INTRODUCED + 10))
    assert len(roster.roster.by_id) == MAX_INTRODUCED
    roster("introduced", named(5000, 10))
    assert len(roster.roster.by_id) == MAX_INTRODUCED


# greeting


def test_new_endpoints_are_greeting_for_two_seconds(roster):
    assert not roster.roster.is_greeting(0.0)
    roster("seed", at(A), now=1.0)
    assert roster.roster.is_greeting(1.0 + GREETING_TIME / 2)
    assert not roster.roster.is_greeting(1.0 + GREETING_TIME)
    roster("introduced", [(B, [at(B)])], now=10.0)
    assert roster.roster.is_greeting(11.0)
    assert not roster.roster.is_greeting(10.0 + GREETING_TIME)


def test_peer_that_has_just_answered_is_greeting_until_it_is_up(roster):
    roster("seed", at(A))
    roster("on_live", at(A), card(A), now=60.0)
    assert roster.roster.is_greeting(61.0)
    roster("on_hello", card(A), now=61.0)
    assert not roster.roster.is_greeting(61.0)


def test_endpoint_that_is_refused_or_closed_is_not_greeting(roster):
    roster("seed", at(A))
    roster("on_live", at(A), None, now=1.0)
    assert not roster.roster.is_greeting(1.0)
    roster("seed", at(B), now=1.0)
    roster("on_live", at(B), card(B), now=1.0)
    roster("on_end", at(B), links.CLOSED, now=1.0)
    assert not roster.roster.is_greeting(3.5)
