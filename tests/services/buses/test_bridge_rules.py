"""Rules of forwarders between buses, without sockets."""

import pytest

import oz
from oz.errors import ProtocolError
from oz.message import Extras, Forwarded
from oz.services.bridge_rules import (
    Interest,
    Side,
    Source,
    by_rank,
    extras_of,
    forwarder_ids,
    has_passed,
    is_taken_over,
    leads,
    narrow,
    wanted,
)
from oz.wire.extras import FORWARDER_ID, MAX_FORWARDERS, decode_extras

OWN, SMALLER, LARGER = b"5" * FORWARDER_ID, b"1" * FORWARDER_ID, b"9" * FORWARDER_ID
ORIGIN = bytes(range(16))


def pattern(text):
    return oz.compile(text)


def side(*interests, allowed=(), forwarders=(), of=None):
    """Return a leg with one session."""
    made = Side([pattern(one) for one in allowed])
    made.forwarders = frozenset(forwarders)
    made.sources["session"] = Source(of, frozenset(interests))
    return made


def plain(*texts):
    return {Interest(pattern(one)) for one in texts}


def group(text, name="g", policy="round_robin"):
    return Interest(pattern(text), name, policy)


def test_a_bus_is_asked_for_what_the_other_buses_want():
    sides = [side(*plain("a")), side(*plain("b", "c")), side(*plain("c"), group("d"))]
    assert wanted(OWN, sides, 0) == {*plain("b", "c"), group("d")}
    assert wanted(OWN, sides, 1) == {*plain("a", "c"), group("d")}
    assert wanted(OWN, sides, 2) == plain("a", "b", "c")


def test_a_parallel_forwarder_is_not_served():
    sides = [side(forwarders={LARGER}), side(*plain("a"), of=LARGER, forwarders={LARGER})]
    assert wanted(OWN, sides, 0) == set()
    # It is alone on the other bus: a chain.
    sides[0].forwarders = frozenset()
    assert wanted(OWN, sides, 0) == plain("a")


@pytest.mark.parametrize(
    ("here", "there", "is_leader"),
    [
        (set(), set(), True),
        ({SMALLER}, {SMALLER}, False),
        ({LARGER}, {LARGER}, True),
        ({SMALLER}, {LARGER}, True),
        ({SMALLER}, set(), True),
    ],
)
def test_the_smallest_id_on_both_buses_serves_groups(here, there, is_leader):
    sides = [side(forwarders=here), side(group("a"), *plain("b"), forwarders=there)]
    assert leads(OWN, *sides) is is_leader
    assert wanted(OWN, sides, 0) == ({group("a")} if is_leader else set()) | plain("b")


def test_a_group_is_kept_until_the_forwarder_with_the_smallest_id_serves_it():
    sides = [side(forwarders={SMALLER}), side(group("a"), group("b"), forwarders={SMALLER})]
    # It takes no other group over meanwhile.
    assert wanted(OWN, sides, 0, {group("a")}) == {group("a")}
    sides[1].sources.clear()
    assert wanted(OWN, sides, 0, {group("a")}) == set()


@pytest.mark.parametrize(
    ("of", "forwarders", "asked", "found"),
    [
        (SMALLER, {SMALLER}, "a", True),
        (SMALLER, {SMALLER}, "b", False),
        (SMALLER, set(), "a", False),
        (LARGER, {LARGER}, "a", False),
        (None, {SMALLER}, "a", False),
    ],
)
def test_a_group_is_taken_over_by_a_subscription_of_a_smaller_id(of, forwarders, asked, found):
    assert is_taken_over(OWN, side(group(asked), of=of, forwarders=forwarders), group("a")) is found


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
    compiled = tuple(pattern(one) for one in allowed)
    assert narrow(pattern(asked), compiled) == tuple(pattern(one) for one in found)


def test_what_may_enter():
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
    asked = decode_extras(extras_of(Extras(None, "reply", to_all=True), source, OWN, is_request=True))
    assert asked == Extras(forwarded=Forwarded(ORIGIN, 7, SMALLER + OWN))


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

    def __init__(self, number):
        self.session = self
        self.member = bytes([number] * 16)


def test_forwarders_pick_the_same_member_and_all_members_in_the_end():
    members = [Member(number) for number in range(4)]
    first = set()
    for position in range(200):
        source = Forwarded(ORIGIN, position, b"")
        found = by_rank(members, source)
        assert found == by_rank(reversed(members), source._replace(via=LARGER))
        # Without the first one, the order of the others stays.
        assert by_rank(members[1:], source) == [one for one in found if one is not members[0]]
        first.add(found[0].member)
    assert len(first) == 4
