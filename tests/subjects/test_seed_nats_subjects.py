"""NATS, "Subject-Based Messaging": its examples and rules."""

import string

import pytest

import oz
from support.cases import each

WORLD_CLOCK = ["time.us", "time.us.east", "time.us.east.atlanta", "time.eu.east", "time.eu.warsaw"]

# Pattern, and what of the world clock it receives.
EXAMPLES = [
    ("time.us", ["time.us"]),
    ("time.*.east", ["time.us.east", "time.eu.east"]),
    ("time.us.>", ["time.us.east", "time.us.east.atlanta"]),
    ("time.us.*", ["time.us.east"]),
    (">", WORLD_CLOCK),
    ("*.*.east.>", ["time.us.east.atlanta"]),
]


@each(("pattern", "received"), EXAMPLES)
def test_a_subscription_to_the_world_clock(pattern, received):
    assert [subject for subject in WORLD_CLOCK if oz.compile(pattern).matches(subject)] == received


def test_an_index_of_all_examples_gives_each_its_subjects():
    index = oz.PatternIndex()
    for pattern, _ in EXAMPLES:
        index.add(oz.compile(pattern), pattern)
    for subject in WORLD_CLOCK:
        assert sorted(index.match(subject)) == sorted(
            text for text, received in EXAMPLES if subject in received
        )


def test_the_recommended_characters_are_ordinary():
    for char in string.ascii_letters + string.digits:
        oz.validate_subject(char)
        assert oz.compile(char).is_literal
        assert oz.compile(char).matches(char)


def test_characters_beyond_the_recommended_are_allowed():
    for subject in ("é.日本", "a-b_c", "$SYS.x", "foo\\bar", "a/b:c"):
        oz.validate_subject(subject)
        assert oz.compile(subject).matches(subject)


def test_names_are_case_sensitive():
    assert not oz.compile("time.us").matches("Time.us")
    assert not oz.compile("time.*").matches("TIME.us")


@each("space", " \t\r\n\f")
def test_names_cannot_contain_white_space(space):
    with pytest.raises(oz.PatternError, match="white space"):
        oz.compile(f"time.{space}us")
    with pytest.raises(oz.SubjectError, match="white space"):
        oz.validate_subject(f"time.u{space}s")


@each("text", ["", ".", "time..us", ".time", "time."])
def test_a_token_is_not_empty(text):
    with pytest.raises(oz.PatternError, match="empty"):
        oz.compile(text)
    with pytest.raises(oz.SubjectError, match="empty"):
        oz.validate_subject(text)


@each("text", ["time.*.east", "*", ">", "time.us.>", "*.*.east.>"])
def test_publishers_use_a_full_subject_without_the_wildcard(text):
    with pytest.raises(oz.SubjectError, match="wildcard"):
        oz.validate_subject(text)


@each("text", [">.us", "time.>.east", ">.>", ">.*"])
def test_greater_only_appears_at_the_end(text):
    with pytest.raises(oz.PatternError, match="last"):
        oz.compile(text)


def test_a_star_takes_exactly_one_token_and_greater_at_least_one():
    assert not oz.compile("time.*.east").matches("time.east")
    assert not oz.compile("time.*.east").matches("time.us.ny.east")
    assert not oz.compile("time.us.>").matches("time.us")
    assert not oz.compile("time.us.>").matches("time.usa.x")


def test_a_wire_tap_receives_all():
    for subject in (*WORLD_CLOCK, "a", "$SYS.a", "_INBOX.x", "é"):
        assert oz.compile(">").matches(subject)


@each("count", [16, 17, 100])
def test_more_tokens_than_recommended_are_legal(count):
    subject = ".".join(["t"] * count)
    oz.validate_subject(subject)
    assert oz.compile(subject).matches(subject)
    assert oz.compile(".".join(["*"] * count)).matches(subject)


def test_the_prefix_is_what_precedes_the_first_wildcard():
    assert oz.compile("time.us.>").prefixes == (b"time.us.",)
    assert oz.compile("time.*.east").prefixes == (b"time.",)
    assert oz.compile("*.*.east.>").prefixes == (b"",)
