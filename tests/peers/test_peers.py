"""Table tests of the roster: each event in each state of a connection and of a peer."""

import pytest

from oz.node.peers import (
    DIAL_AFTER,
    FORGET_AFTER,
    KNOWN,
    NAME_INTERVAL,
    SILENT,
    SILENT_AFTER,
    UP,
    Dial,
    End,
    Greet,
    HangUp,
    Introduce,
    NameConflict,
    PeerGone,
    Peers,
    PeerSilent,
    PeerUp,
    Refused,
    SendCard,
    Suspend,
)
from oz.wire.links import Card

SMALL, OWN, LARGE = bytes([1] * 16), bytes([5] * 16), bytes([9] * 16)
LOST_AFTER = 5.0


def card(node, attempt=0, *, name=None, bus="bus", host="h", endpoints=None):
    """Return the card of a node that listens at `n` and its first byte."""
    listens = (f"n{node[0]}",) if endpoints is None else endpoints
    return Card(node, attempt, bus, name or f"node{node[0]}", host, 1, listens)


class Roster:
    """Roster of the node OWN, with handles h1, h2 … and its effects."""

    def __init__(self, **options):
        self.serial = 0
        self.peers = Peers(card(OWN), self.handle, lost_after=LOST_AFTER, **options)
        self.out = []

    def handle(self):
        self.serial += 1
        return b"h%d" % self.serial

    def __call__(self, event, *arguments, now=0.0, **options):
        self.out = getattr(self.peers, event)(*arguments, now, **options)
        return self.out

    def of(self, kind):
        return [effect for effect in self.out if isinstance(effect, kind)]

    def state(self, node):
        return self.peers.by_id[node].state

    def dialled(self, node, now=0.0, handle=b"h1", **fields):
        """Open the connection of a handle."""
        attempt = self("on_probe", handle, now=now)[0].card.attempt
        return self("on_card", handle, card(node, attempt, **fields), now=now)

    def live(self, route, now=0.0):
        self("on_hello", route, now=now)
        return self("on_welcome", route, now=now)

    def up(self, node, route, now=0.0, **fields):
        """Accept a connection of a peer until it is up."""
        self("on_card", route, card(node, 1, **fields), now=now)
        return self.live(route, now)


@pytest.fixture
def roster():
    return Roster()


def test_endpoint_of_connect_is_dialled_at_once_and_again_after_silence(roster):
    assert roster("connect", "a") == [Dial(b"h1", "a")]
    assert roster("connect", "a") == []
    assert roster.peers.next_deadline() == SILENT_AFTER
    assert roster("tick", now=SILENT_AFTER) == [HangUp(b"h1", "a"), Dial(b"h2", "a")]


def test_probe_sends_a_card_with_the_next_attempt(roster):
    roster("connect", "a")
    assert roster("on_probe", b"h1") == [SendCard(b"h1", card(OWN, 1))]
    assert roster("on_probe", b"h1") == [SendCard(b"h1", card(OWN, 2))]
    assert roster("on_probe", b"other") == []


def test_card_of_the_same_attempt_opens_a_dialled_connection(roster):
    roster("connect", "a")
    roster("on_probe", b"h1")
    roster("on_probe", b"h1")
    assert roster("on_card", b"h1", card(LARGE, 1)) == []
    assert roster.peers.peer_at(b"h1") is None
    assert roster("on_card", b"h1", card(LARGE, 2)) == [Greet(LARGE, b"h1")]
    assert roster.peers.peer_at(b"h1").node == LARGE
    assert roster("on_card", b"h1", card(LARGE, 2)) == []


def test_peer_is_up_once_both_directions_are_live(roster):
    roster("connect", "a")
    roster.dialled(LARGE)
    assert roster.peers.is_greeting
    assert roster("on_hello", b"h1") == []
    assert roster("on_welcome", b"h1") == [PeerUp(card(LARGE, 1), False)]
    assert not roster.peers.is_greeting
    assert roster("on_answer", b"h1", now=1.0) == []
    assert roster("on_answer", b"nothing", now=1.0) == []


def test_listener_answers_a_card_and_greets(roster):
    assert roster("on_card", b"r", card(SMALL, 7)) == [SendCard(b"r", card(OWN, 7)), Greet(SMALL, b"r")]
    assert roster("on_card", b"r", card(SMALL, 7)) == [SendCard(b"r", card(OWN, 7))]
    assert roster("on_card", b"other", card(SMALL, 7)) == []
    assert roster("on_card", b"other", card(SMALL, 6)) == []
    assert Greet(SMALL, b"new") in roster("on_card", b"new", card(SMALL, 8))
    assert roster.peers.peer_at(b"r") is None


@pytest.mark.parametrize("wrong", [card(OWN, 1), card(LARGE, 1, bus="elsewhere")])
def test_own_id_and_another_bus_are_refused(roster, wrong):
    roster("connect", "a")
    roster("on_probe", b"h1")
    out = roster("on_card", b"h1", wrong)
    assert out[0] == HangUp(b"h1", "a")
    assert roster.of(Refused)[0].endpoint == "a"
    again = FORGET_AFTER * LOST_AFTER
    assert roster.peers.next_deadline() == again
    assert roster("tick", now=again) == [Dial(b"h2", "a")]
    assert roster("on_card", b"r", wrong)[0] == SendCard(b"r", card(OWN, 1))
    assert roster.of(Refused)[0].endpoint is None
    assert roster.peers.peer_at(b"r") is None


def test_introduced_peer_is_dialled_by_the_smaller_id(roster):
    assert roster("introduce", LARGE, ["n9"]) == [Dial(b"h1", "n9")]
    assert roster("introduce", SMALL, ["n1"]) == []
    assert roster("introduce", OWN, ["n5"]) == []
    assert roster.peers.next_deadline() == DIAL_AFTER
    assert roster("tick", now=DIAL_AFTER) == [Dial(b"h2", "n1")]


def test_endpoints_of_a_peer_are_dialled_in_turn(roster):
    roster("introduce", LARGE, ["a", "b"])
    first = roster.of(Dial)[0].endpoint
    roster("tick", now=SILENT_AFTER)
    assert {first, roster.of(Dial)[0].endpoint} == {"a", "b"}


def test_smaller_id_wins_if_both_have_dialled(roster):
    roster("introduce", LARGE, ["n9"])
    roster("on_card", b"r", card(LARGE, 1))
    assert roster.of(Greet) == [Greet(LARGE, b"r")]
    assert roster.dialled(LARGE)[-1] == Greet(LARGE, b"h1")
    assert roster.live(b"h1")[-1] == PeerUp(card(LARGE, 1), False)
    assert roster.peers.peer_at(b"r") is None


def test_larger_id_closes_its_own_once_the_winner_is_live(roster):
    roster("connect", "n1")
    roster.dialled(SMALL)
    assert roster.of(Greet) == [Greet(SMALL, b"h1")]
    roster("on_card", b"r", card(SMALL, 1))
    assert roster.of(Greet) == [Greet(SMALL, b"r")]
    assert roster("on_hello", b"r") == []
    assert roster("on_welcome", b"r") == [HangUp(b"h1", "n1"), PeerUp(card(SMALL, 1), False)]
    assert roster("tick", now=1.0) == []


def test_dial_without_card_ends_when_the_peer_is_up_on_its_own_connection(roster):
    roster("introduce", LARGE, ["n9"])
    roster("on_card", b"r", card(LARGE, 1))
    assert HangUp(b"h1", "n9") in roster.live(b"r")


def test_newer_connection_of_two_endpoints_stays(roster):
    roster("connect", "a")
    roster("connect", "b")
    roster.dialled(LARGE, handle=b"h1")
    assert HangUp(b"h1", "a") in roster.dialled(LARGE, handle=b"h2")
    assert roster.peers.peer_at(b"h2").node == LARGE
    assert roster("tick", now=0.1) == []


def test_answer_to_an_older_connection_is_refused(roster):
    roster("connect", "a")
    roster("connect", "b")
    roster("on_probe", b"h1")
    roster.dialled(LARGE, handle=b"h2")
    assert roster("on_card", b"h1", card(LARGE, 1)) == [HangUp(b"h1", "a")]


def test_probe_suspends_the_session_and_the_peer_stays_up(roster):
    roster("connect", "a")
    roster.dialled(LARGE)
    roster.live(b"h1")
    assert Suspend(LARGE, b"h1") in roster("on_probe", b"h1", now=1.0)
    assert roster.state(LARGE) == UP
    assert roster("on_answer", b"h1", now=1.0) == []
    assert roster("on_card", b"h1", card(LARGE, 2), now=1.0) == [Greet(LARGE, b"h1")]


def test_silent_peer_is_dialled_again_by_its_dialler(roster):
    roster("connect", "a")
    roster.dialled(LARGE, endpoints=("a",))
    roster.live(b"h1")
    assert roster("tick", now=SILENT_AFTER) == [
        PeerSilent(card(LARGE, 1, endpoints=("a",))),
        HangUp(b"h1", "a"),
        Suspend(LARGE, b"h1"),
        Dial(b"h2", "a"),
    ]
    roster.dialled(LARGE, now=4.0, handle=b"h2", endpoints=("a",))
    assert roster.live(b"h2", now=4.1) == [PeerUp(card(LARGE, 2, endpoints=("a",)), True)]


def test_accepted_connection_of_a_silent_peer_stays_until_the_peer_is_lost(roster):
    roster.up(SMALL, b"r")
    assert roster("tick", now=SILENT_AFTER) == [PeerSilent(card(SMALL, 1))]
    assert roster.state(SMALL) == SILENT
    assert roster("on_answer", b"r", now=4.0) == [PeerUp(card(SMALL, 1), True)]
    assert roster("tick", now=4.0 + SILENT_AFTER)
    assert roster.peers.next_deadline() == 4.0 + LOST_AFTER
    assert roster("tick", now=4.0 + LOST_AFTER) == [End(SMALL), PeerGone(card(SMALL, 1), "lost")]
    assert roster.state(SMALL) == KNOWN
    assert roster("on_answer", b"r", now=9.1) == []


def test_lost_peer_is_dialled_until_it_is_forgotten(roster):
    roster.up(LARGE, b"r")
    roster("tick", now=LOST_AFTER)
    assert roster.of(Dial) == [Dial(b"h1", "n9")]
    end = LOST_AFTER + FORGET_AFTER * LOST_AFTER
    assert HangUp(b"h1", "n9") in roster("tick", now=end)
    assert roster.of(Dial) == []
    assert roster.peers.by_id == {}
    assert roster.peers.next_deadline() is None


def test_accepted_connection_that_ends_is_replaced(roster):
    roster.up(SMALL, b"r")
    assert roster("on_unreachable", b"r", now=1.0) == [Suspend(SMALL, b"r")]
    assert roster("on_unreachable", b"r", now=1.0) == []
    assert roster("tick", now=1.0 + DIAL_AFTER) == [Dial(b"h1", "n1")]
    roster.up(LARGE, b"s", now=3.0)
    assert roster("on_unreachable", b"s", now=3.0) == [Suspend(LARGE, b"s"), Dial(b"h2", "n9")]


def test_loss_of_the_winner_falls_back_to_the_other_connection(roster):
    roster("connect", "n1")
    roster.dialled(SMALL)
    roster("on_card", b"r", card(SMALL, 1))
    assert roster("on_unreachable", b"r") == [Suspend(SMALL, b"r"), Greet(SMALL, b"h1")]


def test_accepted_connection_that_never_gets_live_is_removed(roster):
    roster("on_card", b"r", card(SMALL, 1))
    assert roster.peers.next_deadline() == SILENT_AFTER
    assert roster("tick", now=SILENT_AFTER) == [End(SMALL)]
    assert roster("tick", now=SILENT_AFTER + DIAL_AFTER) == [Dial(b"h1", "n1")]


def test_closed_peer_is_forgotten(roster):
    roster.up(LARGE, b"r")
    assert roster("on_bye", b"r") == [End(LARGE), PeerGone(card(LARGE, 1), "closed")]
    assert roster("on_bye", b"r") == []
    assert roster.peers.by_id == {}


def test_endpoint_of_connect_is_dialled_again_when_its_peer_has_closed(roster):
    roster("connect", "a")
    roster.dialled(LARGE)
    roster.live(b"h1")
    assert roster("on_bye", b"h1")[2:] == [HangUp(b"h1", "a"), Dial(b"h2", "a")]


def test_new_process_at_the_same_endpoint_replaces_the_old_one(roster):
    roster.up(SMALL, b"r", endpoints=("tcp://a:1",))
    roster("on_card", b"s", card(LARGE, 1, endpoints=("tcp://a:1",)))
    assert roster.of(PeerGone) == [PeerGone(card(SMALL, 1, endpoints=("tcp://a:1",)), "restarted")]
    # The same address on another host is another endpoint.
    third = bytes([3] * 16)
    roster("on_card", b"t", card(third, 1, host="elsewhere", endpoints=("tcp://a:1",)))
    assert roster.of(PeerGone) == []


def test_endpoint_that_leads_to_another_node_leaves_the_first(roster):
    roster("introduce", SMALL, ["a"])
    roster("tick", now=DIAL_AFTER)
    roster.dialled(LARGE, now=DIAL_AFTER)
    assert roster.peers.peer_at(b"h1").node == LARGE
    assert roster.peers.by_id[SMALL].endpoints == ()
    assert roster.peers.by_id[SMALL].dialled is None


def test_names_in_conflict_are_reported(roster):
    roster.up(SMALL, b"r", name="node5")
    assert roster.of(NameConflict) == [NameConflict(card(SMALL, 1, name="node5"), OWN)]
    roster.up(LARGE, b"s", name="node5")
    assert [one.other for one in roster.of(NameConflict)] == [OWN, SMALL]


def test_peers_are_introduced_to_each_other(roster):
    roster.up(SMALL, b"r")
    roster.up(LARGE, b"s")
    assert roster.of(Introduce) == [
        Introduce(LARGE, [(SMALL, ("n1",))]),
        Introduce(SMALL, [(LARGE, ("n9",))]),
    ]


def test_peers_without_endpoints_are_not_introduced(roster):
    roster.up(SMALL, b"r", endpoints=())
    roster.up(LARGE, b"s", endpoints=())
    assert roster.of(Introduce) == []


def test_named_peer_is_not_introduced(roster):
    roster.up(SMALL, b"r")
    roster("introduce", LARGE, ["n9"])
    roster.up(LARGE, b"s")
    assert roster.of(Introduce) == []


def test_roster_is_bounded():
    roster = Roster(limit=1)
    roster.up(SMALL, b"r")
    roster("on_card", b"s", card(LARGE, 1))
    assert "1 peers" in roster.of(Refused)[0].reason
    roster("introduce", LARGE, ["n9"])
    assert list(roster.peers.by_id) == [SMALL]
    roster("connect", "a")
    assert HangUp(b"h1", "a") in roster.dialled(LARGE)


def test_disconnected_endpoint_is_not_dialled_again(roster):
    roster("connect", "a")
    assert roster("disconnect", "a") == [HangUp(b"h1", "a")]
    assert roster("disconnect", "a") == []
    roster("connect", "b")
    roster.dialled(LARGE, handle=b"h2")
    assert roster("disconnect", "b") == []
    assert roster.peers.peer_at(b"h2").node == LARGE


def test_routing_id_that_names_another_node_belongs_to_the_later_card(roster):
    roster.up(SMALL, b"r")
    assert Suspend(SMALL, b"r") in roster("on_card", b"r", card(LARGE, 1))
    assert roster.peers.peer_at(b"r").node == LARGE


def test_winner_without_answers_gives_way_to_the_other_connection(roster):
    roster("connect", "n1")
    roster.dialled(SMALL)
    roster.live(b"h1")
    roster("on_card", b"r", card(SMALL, 1), now=1.0)
    roster("on_answer", b"h1", now=4.0)
    assert roster("tick", now=1.0 + SILENT_AFTER) == [Suspend(SMALL, b"r"), Greet(SMALL, b"h1")]


def test_all_peers_are_introduced_to_one_peer_in_turn(roster):
    roster.up(SMALL, b"r")
    roster("tick", now=NAME_INTERVAL)
    assert roster.of(Introduce) == []
    roster.up(LARGE, b"s", now=NAME_INTERVAL)
    found = []
    for turn in range(1, 4):
        now = turn * NAME_INTERVAL
        for route in (b"r", b"s"):
            roster("on_answer", route, now=now)
        roster("tick", now=now)
        found += [(one.node, one.peers) for one in roster.of(Introduce)]
        assert roster.peers.next_deadline() == now + NAME_INTERVAL
    of_small, of_large = [(SMALL, ("n1",))], [(LARGE, ("n9",))]
    assert found == [(SMALL, of_large), (LARGE, of_small), (SMALL, of_large)]


def test_peers_without_endpoints_are_not_introduced_in_turn(roster):
    roster.up(SMALL, b"r", endpoints=())
    roster.up(LARGE, b"s", endpoints=())
    roster("tick", now=NAME_INTERVAL)
    assert roster.of(Introduce) == []
