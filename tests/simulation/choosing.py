"""Laws of a queue group: who gets each message, by docs/decisions/013-queue-groups-by-name.md."""

from __future__ import annotations

from oz.protocol.publisher import groups
from oz.protocol.publisher.groups import Choice, Group
from simulation.changing import changed
from simulation.ledger import check

POLICIES = "round_robin", "sticky", "failover"
PICKS, SUBJECTS, FEW = 24, 4, 3


class _Member:
    """A member as its group sees it."""

    def __init__(self, random, number, share):
        self.name, self.joined, self.share = b"m%d" % number, number, share
        self.asks = True
        self.is_full = self.is_closing = self.is_gone = False
        self.change(random)

    def change(self, random):
        self.is_full, self.is_closing, self.is_gone = (random.random() < 0.3 for _ in range(3))

    def wants(self, subject):
        return self.asks


def check_choices(random):
    """Make a group of some members of a few connections, and let them change while messages are sent."""
    group, policy = Group("g"), random.choice(POLICIES)
    members = [
        _Member(random, number, b"%d" % random.randrange(4)) for number in range(random.randrange(1, 6))
    ]
    check(not group, "a group that nobody has joined has members")
    for one in random.sample(members, len(members)):
        group.join(one, policy if one is members[0] else random.choice(POLICIES))
    check(group.policy == policy, "the policy is {}, and that of the first is {}", group.policy, policy)
    choice = Choice(group, random.sample(members, len(members)))
    check(list(choice.members) == members, "members are not in the order in which they have joined")
    _check_picks(random, choice, policy)
    _check_turns(random)
    if policy == "sticky":
        _check_sticky(group, members)
    _check_now(random, choice, members)
    for one in members:
        check(group, "a group with members has none")
        group.leave(one)
    check(not group, "a group that all have left has members")


def _class_of(members, policy):
    """Return those of whom one is to be picked."""
    there = [one for one in members if not one.is_gone]
    stay = [one for one in there if not one.is_closing]
    able = [one for one in stay if not one.is_full] if policy == "round_robin" else []
    return able or stay or there or members


def _check_picks(random, choice, policy):
    """Whoever stays is picked before who leaves, and that before who is gone; some policies pick the same."""
    members, before = choice.members, {}
    for _ in range(PICKS):
        random.choice(members).change(random)
        key = b"%d" % random.randrange(SUBJECTS)
        some = _class_of(members, policy)
        picked = choice.pick(key)
        check(picked in some, "{} was picked by {}, and is not to be", picked.name, policy)
        if policy == "failover":
            check(picked is some[0], "{} was picked, and is not the first", picked.name)
        if policy == "sticky":
            for one in some:
                if one is not picked:
                    check((key, one, picked) not in before, "{} was picked, and not before", picked.name)
                    before[key, picked, one] = True


def _check_turns(random):
    """Where all have room each connection has one turn in each round, whatever interests come and go."""
    group = Group("g")
    members = [
        _Member(random, number, b"%d" % random.randrange(3)) for number in range(random.randrange(2, 7))
    ]
    for one in members:
        one.is_full = one.is_closing = one.is_gone = False
        group.join(one, "round_robin")
    shares = {one.share for one in members}
    choice, is_anew = Choice(group, members), random.random() < 0.5
    picked = []
    for _ in range(3 * len(shares) * len(members)):
        if is_anew and random.random() < 0.3:
            choice = Choice(group, members)
        picked.append(choice.pick(b""))
    turns = [one.share for one in picked]
    for at in range(0, len(turns), len(shares)):
        check(set(turns[at : at + len(shares)]) == shares, "connections have the turns {}", turns)
    for share in shares:
        order, mine = (
            [one for one in picked if one.share == share],
            [one for one in members if one.share == share],
        )
        for at in range(0, len(order) - len(mine) + 1, len(mine)):
            given = {one.name for one in order[at : at + len(mine)]}
            check(len(given) == len(mine), "of {} members {} had their turns", len(mine), given)


def _check_sticky(group, members):
    """When a connection leaves, only what was its own moves."""
    for one in members:
        one.is_closing = one.is_gone = False
    whole = Choice(group, members)
    leaver = members[-1].share
    rest = [one for one in members if one.share != leaver]
    if not rest:
        return
    left = Choice(group, rest)
    with changed((groups, "REMEMBERED", FEW)):
        for number in range(2 * SUBJECTS):
            key = b"%d" % number
            before, after = whole.pick(key), left.pick(key)
            check(before is after or before.share == leaver, "{!r} moved to {}", key, after.name)
            check(len(left.sticky) <= FEW, "{} subjects are remembered", len(left.sticky))


def _check_now(random, choice, members):
    """Once interests have changed one of those is picked that still want it, if there is any."""
    for one in members:
        one.asks = random.random() < 0.6
    check(choice.now(b"a") is choice, "nothing has changed, and others are asked")
    choice.is_outdated = True
    expected = [one for one in members if one.asks] or members
    found = list(choice.now(b"a").members)
    check(found == expected, "{} are asked, and {} want it", len(found), len(expected))
