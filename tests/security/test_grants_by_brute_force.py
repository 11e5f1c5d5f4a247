"""No granted subscription matches what is denied: brute force over subjects, against what is decided."""

import random
from itertools import product

import pytest

import oz
from oz.security.access import beginning_with
from oz.security.permissions import Permissions, Rule, User
from oz.subjects.relations import matches_subject
from support.sizes import size

BATCH = 2_000
"""Cases of one seed."""


def _joined(separator, words, counts):
    return {separator.join(parts).encode() for count in counts for parts in product(words, repeat=count)}


SUBJECTS = sorted(
    _joined("", "ab./", range(5))
    | _joined(".", ["a", "b", "md", "*", ">"], (1, 2, 3))
    | _joined("/", ["a", "md", "$x", ""], (1, 2, 3))
    # cases, ends of lines, what is not UTF-8, what has two forms, what folds to ASCII, and wildcards
    | {b"a.B", b"A", b"A.b", b"A.B", b"MD", b"aB", b"a\n", b"\n", b"a.b\n", b"a\n.b", b"\xff", b"a.\xff"}
    | {b"a\xff", b"a.\xc3\xa9", b"a.e\xcc\x81", b"\xc5\xbf", b"\xe2\x84\xaa", b"k", b"K", b"s", b"S"}
    | {b"a\x00", b"\x00", b"[ab]", b"a*", b"a.*", b"a.>", b"#", b"+", b"a/+", b"a/#", b"?", b"\\", b"a\\"}
    | {b"^", b"-", b"]"}
)

_DOTTED = ["a", "b", "md", "*", "*", ">", "A", "**", "#", ""]
_PARTS = {
    "nats": _DOTTED,
    "rv": _DOTTED,
    "kubemq": _DOTTED,
    "raims.rv": _DOTTED,
    "raims.sub": _DOTTED,
    "amqp": ["a", "b", "md", "*", "#", "#", ""],
    "mqtt": ["a", "b", "md", "+", "#", "", "$x"],
    "zmq": ["a", "b", ".", "m", "\n"],
    "redis": ["a", "b", ".", "*", "?", "[ab]", "[^a]", "[a-", "]", "\\", "[", "^", "[!a]", "\n"],
    "raims.glob": ["a", "b", ".", "*", "?", "[ab]", "[^a]", "[!a]", "[a-", "]", "\\", "/"],
    "regex": [
        *("a", "b", "[.]", ".", ".*", "a*", "(?:a|b)", "[ab]", "[^a]", "[^.]+", "(?i:a)", "(?i)", "(?s)"),
        *("(?=a)", "(?!a)", "(?<=a)", "(?<!b)", "|", "^", "$", r"\A", r"\Z", r"\b", r"\w", r"\W", r"\s"),
        *("(a)", r"\1", "?", "+", "{2}", r"\n", "(?m)", "(?:a|ab)", r"\p{L}", "(?a)", "(?x)", " ", "s", "k"),
        *("\u00e9", r"\.", "(?>a*)"),
    ],
}
_JOINED = {"amqp": ".", "mqtt": "/", "zmq": "", "redis": "", "raims.glob": "", "regex": ""}


def spelled(draw):
    """Make up a pattern that its dialect allows."""
    while True:
        dialect = draw.choice(oz.DIALECTS)
        parts = draw.choices(_PARTS[dialect], k=draw.randint(1, 4))
        try:
            return oz.compile(_JOINED.get(dialect, ".").join(parts), dialect)
        except oz.PatternError:
            continue


def places(pattern, known):
    """Return the places of the subjects that a pattern matches, as bits."""
    if pattern not in known:
        found = known[pattern] = sum(
            1 << at for at, subject in enumerate(SUBJECTS) if matches_subject(pattern, subject)
        )
        return found
    return known[pattern]


def is_valid(subject, dialect):
    try:
        oz.validate_subject(subject, dialect)
    except oz.SubjectError:
        return False
    return True


def asked_for(draw, pool):
    """Return a pattern that is asked for, and the places of the subjects that come of it."""
    if draw.random() < 0.8:
        pattern = draw.choice(pool)
        return pattern, None
    prefix, dialect = draw.choice(SUBJECTS)[:3], draw.choice(oz.DIALECTS)
    valid = [
        at for at, subject in enumerate(SUBJECTS) if subject.startswith(prefix) and is_valid(subject, dialect)
    ]
    return beginning_with(prefix, dialect), sum(1 << at for at in valid)


def count_granted(seed):
    """Decide the cases of one seed, and compare what is granted with the rules, subject by subject.

    Returns:
        How many were granted.
    """
    draw, known, granted = random.Random(seed), {}, 0
    pool = [spelled(draw) for _ in range(60)]
    for _ in range(BATCH):
        rules = tuple(
            Rule("subscribe", draw.choice(["allow", "deny"]), choice.text, choice, "here")
            for choice in draw.choices(pool, k=draw.randint(1, 4))
        )
        user = User("desk", (), (), rules)
        permissions = Permissions(draw.choice(["allow", "deny"]), {"desk": user})
        asked, comes = asked_for(draw, pool)
        if not permissions.decide(user, "subscribe", asked).granted:
            continue
        granted += 1
        comes = places(asked, known) if comes is None else comes
        allowing = [item.pattern for item in user.rules_of("subscribe", "allow")]
        for item in user.rules_of("subscribe", "deny"):
            assert not comes & places(item.pattern, known), (seed, asked, item.pattern)
        allowed = 0 if allowing else -(permissions.default == "allow")
        for item in allowing:
            allowed |= places(item, known)
        assert not comes & ~allowed, (seed, asked, allowing)
    return granted


@pytest.mark.sized
@pytest.mark.parametrize("first", range(0, size(1, 500), 50))
def test_no_granted_subscription_matches_a_denied_subject(first):
    # 1,000,000 cases in all, each compared on all subjects.
    assert sum(map(count_granted, range(first, first + size(1, 50)))) > size(25, 5_000)
