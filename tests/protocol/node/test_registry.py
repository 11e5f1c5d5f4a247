from dataclasses import replace

import pytest

from oz.protocol.node import registry as module
from oz.protocol.node.registry import Registry
from oz.wire.discovery import (
    MAX_ROSTER,
    Alive,
    Announce,
    Ask,
    Goodbye,
    Joined,
    Left,
    Lost,
    Roster,
    Welcome,
    unpack_reply,
)
from protocol.node.registered import WELCOME, A, B, C, join, said, tell
from support.announcing import PRICING, announcement


def whole(*nodes):
    return Roster(nodes, 0, len(nodes))


def beat(registry, nodes, start, end):
    """Let nodes announce each second, as long as it takes; what is sent of it."""
    sends, now = [], start
    while now < end:
        now = min(end, now + 0.5)
        for peer, one in nodes.items():
            sends += join(registry, peer, one, now, has_heard=True)
        sends += said(registry.tick(now))
    return sends


# joining ---------------------------------------------------------------------------------------------------


def test_a_node_is_welcomed_told_who_is_there_and_hears_itself(registry):
    assert join(registry, b"1", A) == [(b"1", WELCOME), (b"1", whole(A)), (b"1", Joined(A))]
    assert registry.nodes == [A]


def test_those_who_are_there_hear_of_one_that_joins(registry):
    join(registry, b"1", A)
    assert join(registry, b"2", B) == [
        (b"2", WELCOME),
        (b"2", whole(A, B)),
        (b"1", Joined(B)),
        (b"2", Joined(B)),
    ]


def test_a_beacon_is_answered_with_a_sign_of_life_to_that_node_only(registry):
    join(registry, b"1", A)
    join(registry, b"2", B)
    assert join(registry, b"1", A, 1.0, has_heard=True) == [(b"1", Alive())]


def test_a_node_that_has_not_heard_itself_hears_itself_again_and_nobody_else_does(registry):
    join(registry, b"1", A)
    join(registry, b"2", B)
    assert join(registry, b"1", A, 0.25) == [(b"1", Joined(A))]


def test_a_name_server_that_begins_again_learns_of_everybody_by_their_beacons_and_loses_nobody():
    registry = Registry(b"t" * 16, "ns1")
    assert join(registry, b"1", A, 0.1, has_heard=True)[-1] == (b"1", Joined(A))
    assert join(registry, b"2", B, 0.2, has_heard=True)[-2:] == [(b"1", Joined(B)), (b"2", Joined(B))]
    assert registry.nodes == [A, B]
    assert registry.stats.lost == registry.stats.left == 0


def test_what_has_changed_about_a_node_is_told_to_all(registry):
    join(registry, b"1", A)
    join(registry, b"2", B)
    changed = replace(A, endpoints=("tcp://192.0.2.9:1",))
    assert join(registry, b"1", changed, 1.0, has_heard=True) == [
        (b"1", Joined(changed)),
        (b"2", Joined(changed)),
    ]
    assert changed in registry.nodes
    assert A not in registry.nodes


def test_a_long_roster_comes_in_parts(registry):
    crowd(registry)
    replies = [reply for peer, reply in join(registry, b"new", PRICING) if peer == b"new"]
    assert [type(one) for one in replies] == [Welcome, Roster]
    assert registry.paging[-1] == b"new"
    replies += pages_of(registry, b"new")
    assert {type(one) for one in replies[1:-1]} == {Roster}
    assert [one.is_last for one in replies[1:-1]] == [False] * (len(replies) - 3) + [True]
    assert sum(len(one.announcements) for one in replies[1:-1]) == MAX_ROSTER + 1
    assert replies[-1] == Joined(PRICING)
    assert registry.page(b"new") is None


def crowd(registry, count=MAX_ROSTER):
    """Have many join, who read at once what they are told."""
    for number in range(count):
        join(registry, b"%d" % number, announcement(number))
        pages_of(registry, b"%d" % number)


def pages_of(registry, peer):
    """What there is room for, of all that a connection waits for."""
    pages = []
    while (frame := registry.page(peer)) is not None:
        pages.append(unpack_reply(frame))
        registry.paged(peer)
    return pages


def test_who_does_not_read_its_roster_gets_no_other_one(registry):
    crowd(registry)
    assert len(tell(registry, b"slow", Ask("md"))) == 2
    assert [tell(registry, b"slow", Ask("md")) for _ in range(1_500)] == [[]] * 1_500
    assert registry.stats.refused == 1_500
    assert pages_of(registry, b"slow")[-1].is_last
    assert len(tell(registry, b"slow", Ask("md"))) == 2


def test_a_node_is_told_everything_anew_when_its_roster_was_outdated_before_it_had_it(registry):
    crowd(registry)
    join(registry, b"slow", PRICING)
    assert join(registry, b"slow", PRICING, 0.5) == []
    assert (b"slow", Left(announcement(0).uuid)) not in tell(registry, b"0", Goodbye(announcement(0).uuid))
    pages_of(registry, b"slow")
    assert [type(one) for _, one in join(registry, b"slow", PRICING, 1.0)] == [Welcome, Roster]
    assert pages_of(registry, b"slow")[-1] == Joined(PRICING)
    assert join(registry, b"slow", PRICING, 2.0, has_heard=True) == [(b"slow", Alive())]


def test_rosters_that_wait_are_so_many_and_end_with_their_connections(registry, monkeypatch):
    monkeypatch.setattr(module, "MOST_PAGED", 2)
    crowd(registry)
    for number in range(3):
        tell(registry, b"slow %d" % number, Ask("md"))
    assert registry.paging == [b"slow 0", b"slow 1"]
    registry.unreachable(b"slow 0", 0.0)
    assert registry.paging == [b"slow 1"]


# buses -----------------------------------------------------------------------------------------------------


def test_buses_do_not_hear_of_each_other(registry):
    other = replace(B, bus="orders")
    join(registry, b"1", A)
    assert join(registry, b"2", other) == [(b"2", WELCOME), (b"2", whole(other)), (b"2", Joined(other))]
    assert tell(registry, b"2", Goodbye(other.uuid)) == []
    join(registry, b"2", other)
    sends = beat(registry, {b"1": A}, 0, 5)
    assert [one for one in sends if one != (b"1", Alive())] == [(b"2", Lost(other.uuid))]


def test_a_node_that_goes_to_another_bus_has_left_the_first(registry):
    join(registry, b"1", A)
    join(registry, b"2", B)
    moved = replace(B, bus="orders")
    assert join(registry, b"2", moved) == [
        (b"1", Left(B.uuid)),
        (b"2", WELCOME),
        (b"2", whole(moved)),
        (b"2", Joined(moved)),
    ]


def test_whoever_asks_is_told_and_joins_nothing(registry):
    other = replace(B, bus="orders")
    join(registry, b"1", A)
    join(registry, b"2", other)
    assert tell(registry, b"3", Ask("md")) == [(b"3", WELCOME), (b"3", whole(A))]
    assert tell(registry, b"3", Ask()) == [(b"3", WELCOME), (b"3", whole(A, other))]
    assert tell(registry, b"3", Ask("nobody's")) == [(b"3", WELCOME), (b"3", whole())]
    assert registry.nodes == [A, other]


# leaving ---------------------------------------------------------------------------------------------------


def test_a_goodbye_is_told_to_all_others(registry):
    for peer, one in ((b"1", A), (b"2", B), (b"3", C)):
        join(registry, peer, one)
    assert tell(registry, b"2", Goodbye(B.uuid)) == [(b"1", Left(B.uuid)), (b"3", Left(B.uuid))]
    assert registry.nodes == [A, C]
    assert tell(registry, b"2", Goodbye(B.uuid)) == []


def test_a_node_whose_beacons_stop_is_lost_after_the_expiry(registry):
    join(registry, b"1", A)
    join(registry, b"2", B)
    sends = beat(registry, {b"1": A}, 0, 3.4)
    assert {reply for _, reply in sends} == {Alive()}
    assert beat(registry, {b"1": A}, 3.4, 3.5)[1:] == [(b"1", Lost(B.uuid)), (b"2", Lost(B.uuid))]
    assert registry.nodes == [A]


def test_a_node_that_was_lost_and_is_heard_again_joins_anew(registry):
    join(registry, b"1", A)
    join(registry, b"2", B)
    beat(registry, {b"1": A}, 0, 4)
    assert join(registry, b"2", B, 4.1, has_heard=True) == [
        (b"2", WELCOME),
        (b"2", whole(A, B)),
        (b"1", Joined(B)),
        (b"2", Joined(B)),
    ]


def test_a_name_server_that_stood_still_loses_nobody_for_it(registry):
    join(registry, b"1", A, 0.0)
    join(registry, b"2", B, 0.0)
    registry.tick(0.1)
    assert registry.tick(60.0) == []
    # From then on it is as ever.
    assert {reply for _, reply in beat(registry, {b"1": A}, 60, 62)} == {Alive()}
    assert (b"1", Lost(B.uuid)) in beat(registry, {b"1": A}, 62, 63.5)


# connections -----------------------------------------------------------------------------------------------


def test_a_node_that_comes_back_over_another_connection_is_told_everything_there(registry):
    join(registry, b"1", A)
    join(registry, b"2", B)
    assert tell(registry, b"new", Announce(B, True), 1.0) == [(b"2", Alive())]
    sends = said(registry.unreachable(b"2", 1.0))
    assert sends == [(b"new", WELCOME), (b"new", whole(A, B)), (b"new", Joined(B))]
    assert join(registry, b"3", C, 1.1)[-3:] == [(b"1", Joined(C)), (b"new", Joined(C)), (b"3", Joined(C))]
    assert registry.stats.joined == 3


def test_a_node_may_say_goodbye_as_the_first_thing_over_a_new_connection(registry):
    join(registry, b"1", A)
    join(registry, b"2", B)
    registry.unreachable(b"2", 0.0)
    assert tell(registry, b"new", Goodbye(B.uuid)) == [(b"1", Left(B.uuid))]


@pytest.mark.parametrize("message", [Announce(replace(B, pid=1), False), Goodbye(B.uuid)])
def test_nobody_speaks_for_a_node_that_is_there(registry, message):
    join(registry, b"1", A)
    join(registry, b"2", B)
    for at in range(10):
        assert tell(registry, b"other", message, at + 0.9) == [(b"2", Alive())]
        assert join(registry, b"2", B, at + 1.0, has_heard=True) == [(b"2", Alive())]
    assert registry.nodes == [A, B]
    assert registry.stats.refused == 10


def test_a_node_gets_back_in_when_its_old_connection_is_silent_though_nobody_says_that_it_has_ended(registry):
    join(registry, b"2", B)
    assert tell(registry, b"new", Announce(B, True), 1.9) == [(b"2", Alive())]
    assert join(registry, b"new", B, 2.0, has_heard=True)[-1] == (b"new", Joined(B))
    assert tell(registry, b"2", Announce(B, True), 2.1) == [(b"new", Alive())]


def test_the_end_of_another_connection_settles_no_contest(registry):
    join(registry, b"1", A)
    join(registry, b"2", B)
    tell(registry, b"new", Announce(B, True), 1.0)
    assert registry.unreachable(b"1", 1.0) == registry.unreachable(b"nobody", 1.0) == []
    assert registry.nodes == [A, B]


def test_a_node_cannot_announce_or_say_goodbye_for_another(registry):
    join(registry, b"1", A)
    join(registry, b"2", B)
    assert join(registry, b"1", B) == join(registry, b"1", C) == []
    assert tell(registry, b"1", Goodbye(B.uuid)) == []
    assert registry.nodes == [A, B]
    assert registry.stats.refused == 3
    assert join(registry, b"2", B, has_heard=True) == [(b"2", Alive())]


def test_a_connection_may_announce_another_node_when_its_own_is_gone(registry):
    join(registry, b"1", A)
    tell(registry, b"1", Goodbye(A.uuid))
    assert join(registry, b"1", B)[-1] == (b"1", Joined(B))
    beat(registry, {}, 0, 5)
    assert join(registry, b"1", C, 5)[-1] == (b"1", Joined(C))


def test_a_node_for_which_something_found_no_room_is_told_everything_at_its_next_beacon(registry):
    join(registry, b"1", A)
    join(registry, b"2", B)
    registry.missed(b"1")
    registry.missed(b"nobody")
    assert join(registry, b"2", replace(B, pid=1), 0.5, has_heard=True) == [(b"2", Joined(replace(B, pid=1)))]
    (peer, welcome), (_, roster), *rest = join(registry, b"1", A, 1.0, has_heard=True)
    assert (peer, welcome, set(roster.announcements)) == (b"1", WELCOME, {A, replace(B, pid=1)})
    assert rest == [(b"1", Joined(A))]
    assert join(registry, b"1", A, 2.0, has_heard=True) == [(b"1", Alive())]
    assert registry.stats.missed == 2
