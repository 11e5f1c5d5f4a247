"""Whom a message of a queue group comes to, where all is well."""

from __future__ import annotations

from collections import defaultdict
from hashlib import blake2b

from simulation.ledger import check


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
