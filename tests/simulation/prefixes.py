"""Laws of plain subscriptions where there are rules: a prefix asks for all messages that begin with it."""

from __future__ import annotations

import oz
from oz.protocol.publisher import access as accesses
from oz.protocol.publisher.access import Access, Rights
from oz.security.permissions import Permissions, Rule, User
from simulation.changing import changed
from simulation.ledger import check

KEY = "k" * 40
SUBJECTS = "a", "a.x", "b.x", "other"


def check_prefixes(random):
    """A prefix is denied if some message that is denied begins with it, and granted otherwise."""
    denied, delimiter = random.choice(SUBJECTS), random.choice((b";", b"; ", b"::", b"::="))
    rule = Rule("subscribe", "deny", denied, oz.compile(denied), "r", None)
    rights = Rights(frozenset((KEY,)), Permissions("allow", {KEY: User("k", (KEY,), rules=(rule,))}))
    access = Access(lambda: rights, "nats", delimiter)
    begins = denied.encode() + delimiter + b"5"
    for size in random.sample(range(len(begins) + 1), 3):
        found = access.denial_of_key(KEY, begins[:size])
        check(found is not None, "{!r} is denied, and {!r} granted", denied, begins[:size])
    other = random.choice(SUBJECTS)
    found = access.denial_of_key(KEY, other.encode() + delimiter)
    check(
        (found is None) == (other != denied),
        "{!r} is denied, {!r} is asked for: {}",
        denied,
        other,
        found,
    )


def check_remembered(random):
    """Of what was decided as much is remembered as may be; what is forgotten is decided the same again."""
    most, denied = random.randrange(1, 6), f"a{random.randrange(8)}"
    rule = Rule("subscribe", "deny", denied, oz.compile(denied), "r", None)
    rights = Rights(frozenset((KEY,)), Permissions("allow", {KEY: User("k", (KEY,), rules=(rule,))}))
    access = Access(lambda: rights, "nats", b" ")
    with changed((accesses, "MOST_REMEMBERED", most)):
        for _ in range(20):
            text = f"a{random.randrange(8)}"
            found = access.denial(KEY, [oz.compile(text)])
            check((found is None) == (text != denied), "{!r} is denied, {!r} asked for", denied, text)
            check(len(access.answers) <= most, "{} are remembered of {}", len(access.answers), most)
