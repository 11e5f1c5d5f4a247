from collections import Counter

from oz.protocol.publisher import groups
from oz.protocol.publisher.groups import Choice, Group
from support.cases import each


class Member:
    def __init__(self, joined, **state):
        self.name, self.joined = b"%016d" % joined, joined
        self.share = self.name
        self.is_full = self.is_gone = self.is_closing = False
        vars(self).update(state)


def group_of(policy, *members):
    group = Group("g")
    for one in members:
        group.join(one, policy)
    return group


def picked(choice, count, key=b"k"):
    return [choice.pick(key).joined for _ in range(count)]


def test_in_turn_goes_round_and_begins_with_nobody_in_particular():
    members = [Member(number) for number in range(3)]
    group = group_of("round_robin", *members)
    assert Counter(picked(Choice(group, members), 300)) == {0: 100, 1: 100, 2: 100}
    # Interests that change after each message make a new choice each time.
    assert Counter(picked(Choice(group, members), 1)[0] for _ in range(300)) == {0: 100, 1: 100, 2: 100}


def test_sets_of_members_that_are_used_alternately_leave_nobody_out():
    one, two, three = members = [Member(number) for number in range(3)]
    group = group_of("round_robin", *members)
    choices = [Choice(group, [one, two]), Choice(group, [two, three])]
    counts = Counter(choices[number % 2].pick(b"").joined for number in range(100))
    assert counts == {0: 25, 1: 50, 2: 25}


@each("is_kept", [True, False])
def test_all_members_of_one_connection_have_one_turn_together(is_kept):
    honest = [Member(0), Member(101)]
    many = [Member(number, share=b"hostile") for number in range(1, 101)]
    members = [honest[0], *many, honest[1]]
    group = group_of("round_robin", *members)
    choice = Choice(group, members)
    counts = Counter()
    for _ in range(300):
        counts.update(picked(choice if is_kept else Choice(group, members), 1))
    assert counts == {0: 100, 101: 100} | {one.joined: 1 for one in many}


def test_all_members_of_one_connection_are_given_the_keys_of_one():
    honest = [Member(0), Member(101)]
    members = [*honest, *(Member(number, share=b"hostile") for number in range(1, 101))]
    choice = Choice(group_of("sticky", *members), members)
    got = Counter(choice.pick(b"%d" % number).share for number in range(900))
    assert all(count > 200 for count in got.values())


def test_a_connection_none_of_whose_members_can_take_more_is_passed_over():
    members = [Member(0), *(Member(number, share=b"x", is_full=True) for number in (1, 2))]
    choice = Choice(group_of("round_robin", *members), members)
    assert picked(choice, 4) == [0, 0, 0, 0]
    members[2].is_full = False
    assert sorted(picked(choice, 4)) == [0, 0, 2, 2]


@each(
    ("policy", "state"),
    [
        ("round_robin", "is_full"),
        *(
            (policy, state)
            for policy in ("round_robin", "sticky", "failover")
            for state in ("is_closing", "is_gone")
        ),
    ],
)
def test_who_cannot_take_more_is_passed_over(policy, state):
    members = [Member(number) for number in range(3)]
    choice = Choice(group_of(policy, *members), members)
    unable = choice.pick(b"k") if policy == "sticky" else members[0]
    setattr(unable, state, True)
    after = Counter(picked(choice, 30))
    assert unable.joined not in after
    if policy == "round_robin":
        assert after == {1: 15, 2: 15}, "the others share alike"
    else:
        assert len(after) == 1
    setattr(unable, state, False)
    assert unable.joined in picked(choice, 3)


@each("policy", ["sticky", "failover"])
def test_a_sticky_or_first_member_that_is_full_keeps_its_share(policy):
    members = [Member(number) for number in range(3)]
    choice = Choice(group_of(policy, *members), members)
    chosen = choice.pick(b"k")
    chosen.is_full = True
    assert {choice.pick(b"k") for _ in range(5)} == {chosen}


def test_when_nobody_can_it_is_one_that_is_there():
    members = [Member(0, is_gone=True), Member(1, is_full=True)]
    for policy in ("round_robin", "sticky", "failover"):
        assert set(picked(Choice(group_of(policy, *members), members), 4)) == {1}
    members[1].is_gone = True
    assert Choice(group_of("failover", *members), members).pick(b"") in members


def test_the_senior_member_decides_on_the_policy_whoever_came_first():
    group = Group("g")
    young, old = Member(7), Member(3)
    group.join(young, "round_robin")
    assert (group.policy, bool(group)) == ("round_robin", True)
    group.join(old, "failover")
    group.join(young, "sticky")
    assert group.policy == "failover"
    group.leave(old)
    assert group.policy == "round_robin"
    group.leave(young)
    group.leave(young)
    assert not group


def test_a_sticky_choice_moves_only_the_share_of_who_leaves():
    members = [Member(number) for number in range(10)]
    group = group_of("sticky", *members)
    keys = [b"key %d" % number for number in range(5_000)]
    before = {key: Choice(group, members).pick(key).joined for key in keys[:50]}
    everybody = Choice(group, members)
    homes = {key: everybody.pick(key).joined for key in keys}
    assert {key: homes[key] for key in before} == before, "another choice of the same members agrees"
    shares = Counter(homes.values())
    assert min(shares.values()) > 350
    assert max(shares.values()) < 650
    for gone in (0, 5, 9):
        rest = Choice(group, members[:gone] + members[gone + 1 :])
        moved = {key: rest.pick(key).joined for key in keys if homes[key] == gone}
        assert all(rest.pick(key).joined == home for key, home in homes.items() if home != gone)
        assert min(Counter(moved.values()).values()) > 15, "the share is spread over all others"
        assert len(set(moved.values())) == 9


def test_the_order_of_joining_does_not_matter_to_a_sticky_choice():
    members = [Member(number) for number in range(5)]
    group = group_of("sticky", *members)
    others = Choice(group, reversed(members))
    assert all(Choice(group, members).pick(b"%d" % n) is others.pick(b"%d" % n) for n in range(200))


def test_what_is_remembered_of_sticky_choices_is_bounded(monkeypatch):
    monkeypatch.setattr(groups, "REMEMBERED", 10)
    members = [Member(number) for number in range(2)]
    choice = Choice(group_of("sticky", *members), members)
    first = [choice.pick(b"%d" % number).joined for number in range(100)]
    assert [choice.pick(b"%d" % number).joined for number in range(100)] == first
    assert len(choice.sticky) <= 10
