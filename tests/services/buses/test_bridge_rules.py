"""Rules of forwarders between buses, without sockets."""

import pytest

import oz
from oz.errors import ProtocolError
from oz.message import Extras, Forwarded
from oz.services.bridge_rules import (
    REQUEST_POSITION,
    Interest,
    Side,
    Source,
    by_rank,
    extras_of,
    forwarder_ids,
    has_passed,
    is_needed,
    narrow,
    source_of,
    stands_by,
    wanted,
)
from oz.wire.extras import FORWARDER_ID, MAX_FORWARDERS, decode_extras

OWN, SMALLER, LARGER = b"5" * FORWARDER_ID, b"1" * FORWARDER_ID, b"9" * FORWARDER_ID
ORIGIN = bytes(range(16))


def pattern(text):
    return oz.compile(text)


def side(*interests, allowed=(), forwarders=(), active=(), standby=(), of=None):
    """Return a leg with one session."""
    made = Side([pattern(item) for item in allowed])
    made.forwarders = frozenset(forwarders)
    made.active, made.standby = frozenset(active), frozenset(standby)
    made.sources["session"] = Source(of, frozenset(interests))
    return made


def plain(*texts):
    return {Interest(pattern(text)) for text in texts}


def group(text, name="g", policy="round_robin"):
    return Interest(pattern(text), name, policy)


def test_a_leg_subscribes_to_the_patterns_of_the_other_buses():
    sides = [side(*plain("a")), side(*plain("b", "c")), side(*plain("c"), group("d"))]
    assert wanted(sides, 0) == {*plain("b", "c"), group("d")}
    assert wanted(sides, 1) == {*plain("a", "c"), group("d")}
    assert wanted(sides, 2) == plain("a", "b", "c")


def test_a_parallel_forwarder_is_not_served():
    sides = [side(forwarders={LARGER}), side(*plain("a"), of=LARGER, forwarders={LARGER})]
    assert wanted(sides, 0) == set()
    # It is alone on the other bus: a chain.
    sides[0].forwarders = frozenset()
    assert wanted(sides, 0) == plain("a")


@pytest.mark.parametrize(
    ("here", "there", "is_standby"),
    [
        (set(), set(), False),
        ({SMALLER}, {SMALLER}, True),
        ({LARGER}, {LARGER}, False),
        ({SMALLER}, {LARGER}, False),
        ({SMALLER}, set(), False),
        ({SMALLER, LARGER}, {SMALLER}, True),
    ],
)
def test_a_forwarder_stands_by_for_a_smaller_id_on_both_buses(here, there, is_standby):
    sides = [side(active=here), side(group("a"), *plain("b"), active=there)]
    assert [stands_by(OWN, sides, at) for at in (0, 1)] == [is_standby, is_standby]
    # It subscribes all the same.
    assert wanted(sides, 0) == {group("a"), *plain("b")}


@pytest.mark.parametrize(
    ("here", "there", "found"),
    [
        (((), ()), ((), ()), False),
        (((LARGER,), ()), ((LARGER,), ()), False),
        (((), (LARGER,)), ((), (LARGER,)), True),
        (((), (LARGER,)), ((LARGER,), ()), True),
        (((LARGER,), (SMALLER,)), ((LARGER,), (SMALLER,)), False),
        (((), (LARGER,)), ((), ()), False),
    ],
)
def test_a_forwarder_that_ends_is_needed_while_each_parallel_one_stands_by(here, there, found):
    sides = [side(active=active, standby=standby) for active, standby in (here, there)]
    assert is_needed(sides) is found


@pytest.mark.parametrize(
    ("asked", "allowed", "found"),
    [
        ("md.eur", ("md.>",), ("md.eur",)),
        (">", ("md.>", "news.*"), ("md.>", "news.*")),
        ("*.eur", ("md.*",), ("*.eur",)),
        ("secret.a", ("md.>",), ()),
        ("_LOCAL.>", (), ()),
        ("_OZ.x", (), ()),
        ("_INBOX.x", (), ()),
        ("_x.>", (), ("_x.>",)),
    ],
)
def test_no_more_is_asked_for_than_may_enter(asked, allowed, found):
    compiled = tuple(pattern(item) for item in allowed)
    assert narrow(pattern(asked), compiled) == tuple(pattern(item) for item in found)


def test_allow_decides_which_subjects_enter_a_bus():
    assert Side().may_enter(b"a")
    assert not Side([pattern("md.>")]).may_enter(b"a")
    assert Side([pattern("md.>")]).may_enter(b"md.a")
    for subject in (b"_LOCAL.a", b"_OZ.a", b"_INBOX.a"):
        assert not Side().may_enter(subject)


def test_a_message_passes_each_forwarder_once():
    assert not has_passed(b"", OWN)
    assert has_passed(SMALLER + OWN, OWN)
    assert not has_passed(SMALLER + LARGER, OWN)
    # Not across the border of two ids.
    assert not has_passed(b"xxxx" + OWN + b"xxxx", OWN)
    assert has_passed(LARGER * MAX_FORWARDERS, OWN)
    assert forwarder_ids(SMALLER + LARGER) == {SMALLER, LARGER}


@pytest.mark.parametrize("extras", [None, Extras({"a": 1}, "reply", b"id")])
def test_the_extras_keep_their_content(extras):
    source = Forwarded(ORIGIN, 7, SMALLER)
    found = decode_extras(extras_of(extras, source, OWN, is_request=False))
    assert found == (extras or Extras())._replace(forwarded=Forwarded(ORIGIN, 7, SMALLER + OWN))
    marked = decode_extras(extras_of(extras, source, OWN, is_redelivered=True))
    assert marked == found._replace(redelivered=True)
    asked = decode_extras(extras_of(Extras(None, "reply", to_all=True), source, OWN, is_request=True))
    assert asked == Extras(forwarded=Forwarded(ORIGIN, 7, SMALLER + OWN))


def test_all_copies_of_a_request_have_one_source():
    inbox = f"_INBOX.{ORIGIN.hex()}.17"
    copies = {source_of(None, ORIGIN, position, inbox) for position in (3, 4)}
    assert copies == {Forwarded(ORIGIN, REQUEST_POSITION + 17, b"")}
    # The next forwarder keeps it.
    passed = Forwarded(ORIGIN, REQUEST_POSITION + 17, SMALLER)
    assert source_of(passed, LARGER, 9, "_INBOX.other.1") == passed


@pytest.mark.parametrize("reply_to", [None, "a.b.1", f"_INBOX.{bytes(16).hex()}.1", f"_INBOX.{ORIGIN.hex()}.x",
                                      f"_INBOX.{ORIGIN.hex()}.{'9' * 19}"])  # fmt: skip
def test_another_message_keeps_its_position(reply_to):
    assert source_of(None, ORIGIN, 3, reply_to) == Forwarded(ORIGIN, 3, b"")


@pytest.mark.parametrize(
    "found",
    [1, [], [ORIGIN, 1], [ORIGIN[:15], 1, b""], [ORIGIN, -1, b""], [ORIGIN, True, b""], [ORIGIN, 1, b"x"],
     [ORIGIN, 1, b"x" * FORWARDER_ID * (MAX_FORWARDERS + 1)], [ORIGIN, 1, "x" * FORWARDER_ID]],
)  # fmt: skip
def test_a_wrong_source_does_not_decode(found):
    with pytest.raises(ProtocolError):
        decode_extras({"forwarded": found})


class Member:
    """Stream of a session with a member id."""

    def __init__(self, number, policy="round_robin"):
        self.session = self.options = self
        self.member = bytes([number] * 16)
        self.policy = policy


def test_forwarders_pick_the_same_member_and_all_members_in_the_end():
    members = [Member(number) for number in range(4)]
    first = set()
    for position in range(200):
        source = Forwarded(ORIGIN, position, b"")
        found = by_rank(members, b"a", source)
        assert found == by_rank(members[::-1], b"b", source._replace(via=LARGER))
        # Without the first one, the order of the others stays.
        assert by_rank(members[1:], b"a", source) == [item for item in found if item is not members[0]]
        first.add(found[0].member)
    assert len(first) == 4


def test_a_sticky_subject_has_one_member():
    members = [Member(number, "sticky") for number in range(4)]
    owners = {}
    for position in range(400):
        subject = b"a%d" % (position % 20)
        [owner] = by_rank(members, subject, Forwarded(ORIGIN, position, b""))
        assert owners.setdefault(subject, owner) is owner
    assert len({subscriber.member for subscriber in owners.values()}) == 4


def test_with_failover_the_first_member_is_picked():
    members = [Member(number, "failover") for number in range(4)]
    assert by_rank(members, b"a", Forwarded(ORIGIN, 3, b"")) == members
    assert by_rank([], b"a", Forwarded(ORIGIN, 3, b"")) == []
