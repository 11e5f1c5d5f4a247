"""Relations between patterns, against brute force: each subject of a small universe tried on each pattern."""

import contextlib
import itertools
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oz
from oz.subjects import automata, expressions, relations
from oz.subjects import automata as searches
from support.cases import each
from support.sizes import in_suite, size

# --- brute force --------------------------------------------------------------------------------------------

UNIVERSE = [
    b"".join(parts) for size in range(5) for parts in itertools.product([b"a", b".", b"/", b"$"], repeat=size)
]
UNIVERSE += ["é", "é.", "a.é", "/é", "*", "a*", "b", "a.b", "a/b", "ab", "a.a.a.a", "a\n"]
UNIVERSE += [b"\xff", b"a.\xff", b"a\xff", b"\xc3", b"/\xff", b"\xc3\xa9\xff", b"\xed\xa0\x80", b"\xc0\xae"]
UNIVERSE = list(dict.fromkeys(each if isinstance(each, bytes) else each.encode() for each in UNIVERSE))


def words(separator, *tokens, maximum=3):
    return [
        separator.join(item)
        for size in range(1, maximum + 1)
        for item in itertools.product(tokens, repeat=size)
    ]


TEXTS = {
    "nats": words(".", "a", "*", ">", "a*"),
    "rv": words(".", "a", "*", ">", maximum=2),
    "kubemq": words(".", "a", "*", "a*", "aa*", ">", maximum=2),
    "raims.rv": words(".", "a", "é", "*", ">", maximum=2),
    "mqtt": [*words("/", "a", "", "+", "#", "$"), "$/#", "a.a", "#"],
    "amqp": ["", *words(".", "a", "", "*", "#")],
    "redis": ["".join(item) for size in range(4) for item in itertools.product("a.*?", repeat=size)]
    + [
        "[]a]",
        "[^a]",
        "[^a]*",
        "*[.a]",
        "[a-\xff]*",
        b"\xff*",
        b"*\xff",
        b"[\xff\xc3]*",
        "a[]b]*",
        "\\*",
        "é*",
    ],
    "raims.glob": ["".join(item) for size in range(3) for item in itertools.product("a.*?", repeat=size)]
    + ["?a?"],
    "raims.sub": ["", "a", "a.*", "é", b"\xff"],
    "zmq": ["", "a", "a.", "é", b"\xc3", b"\xff", "/", "$"],
    "regex": [
        "a|a.*", "a.*$", "^(a|)\\.?", "[^.]+", "[^.]*\\.[^.]*", "(?s).*", ".*", "(?i)A[.]", "é?", "\\w",
        "\\W*", "a{2,3}", "(a\\.)*a", "(a|b*)*?[.$/]", "(^a|^\\.)a?", "[é-ÿ]*", "(?i)[^A]", ".{0,2}/",
        "a\\n", "a$|\\.$", "(a?){2}"
    ],
}  # fmt: skip


def compiled(dialect):
    made = []
    for text in TEXTS[dialect]:
        with contextlib.suppress(oz.PatternError):
            made.append(oz.compile(text, dialect))
    return list(dict.fromkeys(made))


def matches(pattern, subject):
    try:
        return pattern.matches(subject)
    except oz.SubjectError:
        return False


def encoded(subject):
    return subject if isinstance(subject, bytes) else subject.encode(errors="surrogateescape")


PATTERNS = {dialect: compiled(dialect) for dialect in TEXTS}
ALL = list(dict.fromkeys(pattern for patterns in PATTERNS.values() for pattern in patterns))


@cache
def matched(pattern):
    return frozenset(subject for subject in UNIVERSE if matches(pattern, subject))


def test_every_dialect_takes_part():
    assert set(PATTERNS) == set(oz.DIALECTS)
    assert all(len(patterns) > 4 for patterns in PATTERNS.values())


@cache
def literals():
    return {subject: automata.Automaton(expressions.Text(subject)) for subject in UNIVERSE}


@pytest.mark.sized
@pytest.mark.parametrize("dialect", PATTERNS)
def test_an_automaton_accepts_the_subjects_of_its_pattern(dialect):
    for pattern in PATTERNS[dialect][:: size(4, 1)]:
        automaton = relations.automaton_of(pattern)
        taken = {
            each
            for each, literal in literals().items()
            if searches.find_common(literal, automaton) is not None
        }
        assert taken == matched(pattern), pattern


def is_text(subject):
    return subject.decode(errors="ignore").encode() == subject


def length(subject):
    """Return the key for sorting by length: characters, then bytes. Bytes that are not text count by bytes."""
    return (len(subject), len(encoded(subject)))


def assert_shortest(found, known):
    texts = [subject.decode() for subject in known if is_text(subject)]
    others = texts if isinstance(found, str) else known
    assert length(found) <= min(map(length, others), default=length(found))
    assert not (isinstance(found, bytes) and texts)


def check(first, second):
    both, missing = matched(first) & matched(second), matched(second) - matched(first)
    found = relations.witness(first, second)
    if found is None:
        assert not both
    else:
        assert matches(first, found)
        assert matches(second, found)
        assert_shortest(found, both)
    assert relations.overlaps(first, second) is (found is not None)
    found = relations.counterexample(first, second)
    if found is None:
        assert not missing
    else:
        assert matches(second, found)
        assert not matches(first, found)
        assert_shortest(found, missing)
    assert relations.covers(first, second) is (found is None)


@pytest.mark.sized
@pytest.mark.parametrize("dialect", PATTERNS)
def test_relations_agree_with_brute_force(dialect):
    sample = [pattern for at, pattern in enumerate(ALL) if at % size(39, 13) == len(dialect)]
    for first in PATTERNS[dialect][:: max(1, len(PATTERNS[dialect]) // size(6, 16))]:
        for second in [*PATTERNS[dialect][:: size(16, 4)], *sample]:
            check(first, second)
            check(second, first)


# --- laws ---------------------------------------------------------------------------------------------------

any_pattern = st.sampled_from(list(PATTERNS)).flatmap(lambda dialect: st.sampled_from(PATTERNS[dialect]))


@settings(max_examples=size(10, 3000))
@given(any_pattern, any_pattern)
def test_laws_of_two(first, second):
    check(first, second)
    assert first.covers(first)
    assert first.overlaps(second) is second.overlaps(first)
    if first.covers(second) and second.overlaps(second):
        assert first.overlaps(second)


def tokens(dialect):
    token = st.sampled_from(
        ["a", "b", "ab", "é", "*", "*", ">"] + (["a*", "ab*"] if dialect == "kubemq" else [])
    )
    texts = st.lists(token, min_size=1, max_size=5).map(".".join)
    return texts.filter(lambda text: ">" not in text[:-1]).map(lambda text: oz.compile(text, dialect))


token_patterns = st.sampled_from(["nats", "rv", "kubemq", "raims.rv"]).flatmap(tokens)


@settings(max_examples=size(10, 6000))
@given(token_patterns, token_patterns)
def test_the_short_way_for_tokens_agrees_with_the_automata(first, second):
    one, other = relations.automaton_of(first), relations.automaton_of(second)
    covers, overlaps = (
        automata.find_difference(other, one) is None,
        automata.find_common(one, other) is not None,
    )
    assert (first.covers(second), first.overlaps(second)) == (covers, overlaps)
    assert (relations.counterexample(first, second) is None) is covers
    assert (relations.witness(first, second) is not None) is overlaps


# --- particular cases ---------------------------------------------------------------------------------------


@each(
    ("first", "second", "covers", "overlaps"),
    [
        ("time.>", "time.*.east", True, True),
        ("time.*.east", "time.>", False, True),
        ("*", ">", False, True),
        (">", "*", True, True),
        ("a.>", "a", False, False),
        ("mqtt:a/#", "mqtt:a", True, True),
        ("mqtt:#", "mqtt:$SYS/#", False, False),
        ("mqtt:+/x", "mqtt:$SYS/x", False, False),
        ("amqp:#", "mqtt:#", True, True),
        ("amqp:#", ">", True, True),
        (">", "amqp:#", False, True),
        ("amqp:a.#.b", "a.*.b", True, True),
        ("kubemq:foo*.>", "foo1.bar", True, True),
        ("redis:*", "mqtt:#", True, True),
        ("redis:*", "zmq:", False, True),
        ("zmq:", "redis:*", True, True),
        (">", "redis:a*", False, True),
        ("zmq:a.", "a.>", True, True),
        ("redis:[]a]", "a", False, False),
        ("a", "redis:[]a]", True, False),
        ("raims.glob:a?", "redis:a?", True, True),
        ("redis:a?", "raims.glob:a?", False, True),
        (r"regex:[^.]+(\.[^.]+)*", ">", True, True),
        (">", r"regex:[^.]+(\.[^.]+)*", True, True),
        (r"regex:time\..*\.east", "time.*.east", False, True),  # a dot takes no newline
        (r"regex:(?s)time\..*\.east", "time.*.east", True, True),
        ("regex:(?i)ss", "regex:ß", False, False),
    ],
)
def test_covering_and_overlapping_patterns(first, second, covers, overlaps):
    first, second = oz.compile(first), oz.compile(second)
    assert first.covers(second) is covers
    assert first.overlaps(second) is overlaps


def test_a_witness_is_text_where_it_can_be():
    assert oz.compile("time.*.east").witness(oz.compile("time.us.>")) == "time.us.east"
    assert oz.compile("redis:*\\").witness(oz.compile(b"\xff?", "redis")) == "\udcff\\"


@each(
    ("first", "second", "found"),
    [
        ("redis:a??", ">", "aé"),  # two bytes are one character
        ("redis:????", "kubemq:*", "\U00029a69"),
        ("regex:bbb|éé", "mqtt:#", "éé"),  # more bytes, and fewer characters
        ("regex:bb|é", "mqtt:#", "é"),
        ("raims.glob:a?b?c", "redis:*??", "abc"),
        ("regex:a{3}|é{1,2}", "zmq:", "é"),
    ],
)
def test_a_witness_has_as_few_characters_as_can_be(first, second, found):
    first, second = oz.compile(first), oz.compile(second)
    assert first.witness(second) == second.witness(first) == found


def test_a_counterexample_has_as_few_characters_as_can_be():
    assert relations.counterexample(oz.compile("redis:?"), oz.compile(">")) == "é"
    assert relations.counterexample(oz.compile("raims.glob:???"), oz.compile(">")) == "\U00029a69"


def test_a_witness_that_is_no_text_has_as_few_bytes_as_can_be():
    first, second = oz.compile(b"*\xff", "redis"), oz.compile(b"?[\x80-\x8f]*", "redis")
    assert first.witness(second) == second.witness(first)
    assert len(first.witness(second)) == 3


def test_long_patterns_are_compared():
    long = ".".join(["a", "*"] * 5_000)
    assert oz.compile(">").covers(oz.compile(long))
    with pytest.raises(oz.Undecidable, match="states"):
        oz.compile("*", "redis").covers(oz.compile(long))
    many = oz.compile(".".join(["a", "*"] * 300))
    assert oz.compile("*", "redis").covers(many)


@pytest.mark.parametrize(
    ("first", "second"),
    in_suite(
        [("regex:" + "(" * 200 + "a" + ")*" * 200, ">")],
        [
            ("redis:*a" + "?" * 40, "redis:*b" + "?" * 41),
            ("redis:" + "*a" * 60, "redis:" + "*b" * 60),
            ("amqp:" + ".".join(["#.a"] * 60), "amqp:" + ".".join(["#.*.b"] * 30)),
            ("regex:(a?){3000}", "regex:(a?){3000}b"),
            ("regex:(.*a){100}", "regex:(.*b){100}"),
        ],
    ),
)
def test_hostile_patterns_end_soon(first, second):
    first, second = oz.compile(first), oz.compile(second)
    for question in (first.covers, first.overlaps):
        with contextlib.suppress(oz.Undecidable):
            question(second)  # it would take for ever, which the test's own limit ends


def test_permissions_can_afford_to_ask(monkeypatch):
    # Token by token it takes a microsecond or two, with an automaton hundreds.
    monkeypatch.setattr(relations, "automaton_of", None)
    allowed, asked = oz.compile("time.*.east.>"), oz.compile("time.us.east.atlanta.*")
    assert allowed.covers(asked)
    assert not asked.covers(allowed)
    assert allowed.overlaps(asked)
    assert relations.counterexample(allowed, asked) is None
    assert relations.witness(allowed, oz.compile("time.*.west.>")) is None
