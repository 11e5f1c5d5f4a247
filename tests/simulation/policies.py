"""Whom a message of a queue group comes to: one member at most, and where all is well by the policy."""

from __future__ import annotations

from collections import Counter, defaultdict
from hashlib import blake2b

from simulation.ledger import check


def check_groups(oracle):
    """A message for a group is given to one member at most, and to one unless that is told."""
    members = defaultdict(list)
    for ledger in oracle.ledgers:
        if ledger.delivery.group:
            members[ledger.delivery.group].append(ledger)
    for (origin, group), numbers in oracle.groups.items():
        given = Counter(
            number for ledger in members[group] for number, _, _ in ledger.by_origin.get(origin, ())
        )
        twice = [number for number, count in given.items() if count > 1]
        check(not twice, "group {}: {} came to several members", group, twice[:5])
        if not members[group]:
            # That of a stranger.
            continue
        _account_for_group(oracle, origin, group, numbers, given, members[group])


def _account_for_group(oracle, origin, group, numbers, given, members):
    lost = sum(count or 0 for ledger in members for one, _, _, count in ledger.gaps if one == origin)
    missing = len(numbers) - len(given) - lost
    is_late = any(oracle.may_be_late(ledger, origin) for ledger in members)
    check(missing >= 0 or is_late, "group {}: {} were told to be lost that were not", group, -missing)
    passed_over = sum(
        number not in given
        and (number in oracle.unheard or any(oracle.may_be_refused(ledger, number) for ledger in members))
        for number in numbers
    )
    if missing > passed_over and oracle.is_alive(origin):
        # Nobody can tell of what a member was sent that is gone, or that was cut off and is a new one.
        is_told = any(
            ledger.is_over
            or not oracle.is_current(ledger)
            or any(one == origin and count is None for one, _, _, count in ledger.gaps)
            for ledger in members
        )
        check(is_told, "group {}: {} are missing and nobody knows", group, missing)


def check_policies(oracle, numbers):
    """Of two messages on one subject, each comes to the member of a group that its policy says."""
    given = {
        number: ledger
        for ledger in oracle.ledgers
        if ledger.delivery.group
        for messages in ledger.by_origin.values()
        for number, _, _ in messages
    }
    by_subject = defaultdict(list)
    for number in numbers:
        if number in given and not oracle.publishers[oracle.origins[number]].connects:
            by_subject[oracle.origins[number], oracle.subjects[number]].append(number)
    for (origin, subject), pair in by_subject.items():
        if len(pair) == 2:
            _check_policy(oracle.publishers[origin], subject, *(given[one] for one in pair))


def _check_policy(publisher, subject, one, other):
    members = [
        stream
        for stream in publisher.router.streams.values()
        if stream.delivery.group and stream.wants(subject.encode())
    ]
    policy = one.delivery.policy
    if policy == "round_robin":
        is_right = one is not other or len(members) == 1
    elif policy == "failover":
        is_right = one is other and one.key == min(members, key=lambda member: member.joined).key
    else:
        is_right = one is other and one.key == max(members, key=lambda member: _weight(subject, member)).key
    check(
        is_right,
        "group: {!r} of {} came to {} and {}, {}",
        subject,
        publisher.name,
        one.name,
        other.name,
        policy,
    )


def _weight(subject, member):
    """Weigh a member for a subject, as rendezvous hashing does."""
    return blake2b(subject.encode(), digest_size=8, key=member.name).digest()
