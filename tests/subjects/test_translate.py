"""Text of translations, and their relation to the translated pattern."""

import contextlib
import itertools

import pytest

import oz
from oz.subjects.translate import translate
from support.cases import each

SOURCES = [
    "time.*.east", "md.>", ">", "a.b", "a*b.*", "rv:RUN.*", "kubemq:foo*.>", "raims.rv:a.>", "mqtt:a/+/b",
    "mqtt:a/#", "mqtt:+/b", "mqtt:#", "amqp:a.#.b", "amqp:#.b", "amqp:*.#", "amqp:", "redis:time.*.east",
    "redis:a[bc]?*", "redis:[^\\]a]*", "redis:x\\*", "redis:é*", "redis:\\é?", "raims.glob:a?b",
    "raims.sub:a*", "zmq:a.", "zmq:", "regex:a\\.b", "regex:^a\\..*", "regex:a(?=b).*"
]  # fmt: skip


@each(
    ("spec", "dialect", "exchange", "text", "relation"),
    [
        ("time.*.east", "rv", False, "time.*.east", "exact"),
        ("time.*.east", "redis", False, "time.?*.east", "wider"),
        ("time.*.east", "regex", False, r"(?s)time\.[^.]+\.east", "exact"),
        ("time.*.east", "mqtt", True, "time/+/east", "wider"),
        ("time.>", "zmq", False, "time.", "wider"),
        ("time.>", "amqp", False, "time.*.#", "wider"),
        ("amqp:a.#", "nats", False, "a.>", "narrower"),
        ("amqp:a.#", "mqtt", True, "a/#", "exact"),
        ("amqp:a.#.b", "redis", False, "a*.b", "wider"),
        ("amqp:a.#.b", "regex", False, r"(?s)a(?:\..*)?\.b", "exact"),
        ("mqtt:+/b", "nats", True, "*.b", "overlapping"),
        ("mqtt:+/b", "regex", False, r"(?s)(?:[^$/][^/]*)?/b", "exact"),
        ("kubemq:foo*.>", "nats", False, "*.>", "wider"),
        ("redis:md.*", "nats", False, "md.>", "narrower"),
        ("redis:md.*", "zmq", False, "md.", "exact"),
        ("redis:foo*.x", "kubemq", False, "foo*.x", "narrower"),
        ("redis:a*", "raims.glob", False, "a*", "exact"),
        ("zmq:a*", "redis", False, r"a\**", "exact"),
        ("a.*", "nats", False, "a.*", "exact"),
        ("a.b", "mqtt", True, "a/b", "exact"),
        ("raims.sub:a*b?[", "redis", False, r"a\*b\?\[", "exact"),
        ("regex:a\\.b", "amqp", False, "a.b", "exact"),
        ("redis:a\\*b", "rv", False, "a*b", "exact"),
        ("regex:a(?=b).*", "zmq", False, "a", "undecided"),
    ],
)
def test_text_and_relation_of_a_translation(spec, dialect, exchange, text, relation):
    found = translate(oz.compile(spec), dialect, exchange=exchange)
    assert (found.pattern.dialect, found.pattern.text, found.relation) == (dialect, text, relation)
    assert found.exact is (relation == "exact")
    assert (found.counterexample is None) is (relation in ("exact", "undecided"))


def test_the_examples_show_the_difference():
    found = translate(oz.compile("mqtt:+/b"), "nats", exchange=True)
    assert (found.also_matches, found.misses) == ("$.b", ".b")
    assert translate(oz.compile("time.*.east"), "redis").also_matches == "time...east"


@each(
    ("spec", "dialect", "exchange", "rule"),
    [
        ("time.*", "mqtt", False, "--exchange"),
        ("time.*", "rv", True, "leave out exchange"),
        ("mqtt:a/+", "redis", True, "no separator"),
        ("time.*", "raims.sub", False, "wildcards"),
        ("regex:a.*", "nats", False, "wildcards"),
        ("amqp:a.#.b", "nats", False, "only at the end"),
        ("amqp:#.>", "nats", False, "only at the end"),
        ("amqp:>.*", "nats", False, "last token"),
        ("raims.sub:*", "nats", False, "cannot match only"),
        ("kubemq:a.*", "mqtt", False, "splits subjects"),
        ("+.*", "mqtt", True, "would be a wildcard"),
        ("mqtt:#", "amqp", False, "splits subjects"),
    ],
)
def test_pattern_without_a_translation_is_an_error(spec, dialect, exchange, rule):
    with pytest.raises(oz.PatternError, match=rule):
        translate(oz.compile(spec), dialect, exchange=exchange)


def test_literals_that_are_not_utf8_have_no_regex():
    with pytest.raises(oz.PatternError, match="UTF-8"):
        translate(oz.compile(b"\xff", "raims.sub"), "regex")
    with pytest.raises(oz.PatternError, match="UTF-8"):
        translate(oz.compile(b"\xff*", "redis"), "regex")


@each("dialect", oz.DIALECTS)
@each("source", ["zmq", "redis", "raims.sub", "raims.glob"])
@each("text", [b"\xc3", b"\xc3*", b"a\xff.b", b"[\xc3]x", b"\xc3.*", b".\xff.>", b"\xc3?"])
def test_bytes_that_are_not_utf8_are_translated_or_refused(source, dialect, text):
    pattern = oz.compile(text, source)
    for exchange in (False, True):
        with contextlib.suppress(oz.PatternError):
            assert translate(pattern, dialect, exchange=exchange).pattern.dialect == dialect


def test_a_class_without_members_matches_nothing_in_a_regex_too():
    # The engine reads `[^\s\S]` as any character.
    found = translate(oz.compile("redis:[]"), "regex")
    assert found.exact
    assert not found.pattern.matches("a")


def test_there_must_be_such_a_dialect():
    with pytest.raises(ValueError, match="no dialect"):
        translate(oz.compile("a"), "none")


SUBJECTS = [
    b"".join(parts) for size in range(5) for parts in itertools.product([b"a", b"b", b".", b"/"], repeat=size)
]
SUBJECTS += [
    b"time.us.east", b"time..east", b"$/b", b"foo.bar", b"md.", "é".encode(), b"\xff", b"a\xff",
    b"a\xc3\xa9"
]  # fmt: skip


def matches(pattern, subject):
    try:
        return pattern.matches(subject)
    except oz.SubjectError:
        return False


@pytest.mark.parametrize("spec", SOURCES)
def test_relation_of_a_translation_holds(spec):
    for dialect in oz.DIALECTS:
        for exchange in (False, True):
            check(oz.compile(spec), dialect, exchange)


def check(pattern, dialect, exchange):
    try:
        found = translate(pattern, dialect, exchange=exchange)
    except oz.PatternError:
        return
    table = bytes.maketrans(b"./", b"/.") if exchange else None
    misses = [
        each
        for each in SUBJECTS
        if matches(pattern, each.translate(table)) and not matches(found.pattern, each)
    ]
    also = [
        each
        for each in SUBJECTS
        if matches(found.pattern, each) and not matches(pattern, each.translate(table))
    ]
    if found.relation != "undecided":
        assert not misses or found.misses is not None
        assert not also or found.also_matches is not None
    if (
        pattern.dialect in ("nats", "rv", "kubemq", "raims.rv", "mqtt", "amqp")
        and dialect == "regex"
        and not exchange
    ):
        assert found.exact


def test_a_pattern_translates_itself():
    assert oz.compile("md.>").translate("amqp") == translate(oz.compile("md.>"), "amqp")
    assert oz.compile("a/+", "mqtt").translate("nats", exchange=True).pattern == oz.compile("a.*")
    with pytest.raises(oz.ConfigurationError, match="no dialect has this name"):
        oz.compile("md.>").translate("nat")
