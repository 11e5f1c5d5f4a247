"""KubeMQ, "Terminology": the rules and tables of its section on channels."""

import pytest

import oz
from support.cases import each

ANY_MESSAGE = ["foo", "foo.bar", "a.b.c.d", "USA.NewYork", "日本.語", "é"]

# Channel pattern, messages accepted, messages ignored.
CHANNEL_PATTERNS = [
    ("foo", ["foo"], ["bar", "zoo"]),
    ("foo.*", ["foo.bar", "foo.ZOO"], ["foo", "foo.bar.zoo"]),
    ("foo.>", ["foo.bar.zoo"], ["foo"]),
    ("foo.*.*.bar", ["foo.a.b.bar"], ["foo.bar.zoo"]),
    ("foo*.>", ["foo.bar", "foo1.bar"], ["foo"]),
    (">", ANY_MESSAGE, []),
]

# Receiver, channel. Their groups decide who of them gets a message, not whether a pattern matches.
RECEIVERS = {
    "R1": "foo.>",
    "R2": "foo.>",
    "R3": "foo.>",
    "R4": "foo.*",
    "R5": "foo.*",
    "R6": ">",
    "R7": "*",
    "R8": "foo.bar",
}

# Channel, receivers. "R2 or R3" is written as both: their patterns match.
DELIVERIES = [
    ("foo", {"R6", "R7"}),
    ("foo.bar", {"R1", "R2", "R3", "R4", "R5", "R6", "R8"}),
    # An erratum: the document has R8 here too. R8 is subscribed to `foo.bar`, which by the document's own
    # rules, its own row `foo`, and every server that was asked, `foo.bar.zoo` does not match.
    ("foo.bar.zoo", {"R1", "R2", "R3", "R6"}),
]


def matches(pattern, channel):
    return oz.compile(pattern, "kubemq").matches(channel)


@each(
    ("pattern", "channel"),
    [(pattern, channel) for pattern, accepted, _ in CHANNEL_PATTERNS for channel in accepted],
)
def test_the_pattern_accepts_the_message(pattern, channel):
    assert matches(pattern, channel)


@each(
    ("pattern", "channel"),
    [(pattern, channel) for pattern, _, ignored in CHANNEL_PATTERNS for channel in ignored],
)
def test_the_pattern_ignores_the_message(pattern, channel):
    assert not matches(pattern, channel)


@each(("channel", "receivers"), DELIVERIES)
def test_the_patterns_of_these_receivers_match_the_channel(channel, receivers):
    assert {name for name, pattern in RECEIVERS.items() if matches(pattern, channel)} == receivers


@each(("channel", "receivers"), DELIVERIES)
def test_an_index_finds_the_same_receivers(channel, receivers):
    index = oz.PatternIndex()
    for name, pattern in RECEIVERS.items():
        index.add(oz.compile(pattern, "kubemq"), name)
    assert sorted(index.match(channel)) == sorted(receivers)


def test_the_row_that_gives_r8_a_longer_channel_is_an_erratum():
    assert not matches(RECEIVERS["R8"], "foo.bar.zoo")


def test_names_are_case_sensitive():
    assert matches("FOO", "FOO")
    assert not matches("FOO", "foo")
    assert not matches("foo.*", "FOO.bar")


@each("space", [" ", "\t", "\n", "\r", "\v", "\f", "\u00a0", "\u2003", "\u3000"])
@each("shape", ["foo{}bar", "{}foo", "foo{}", "foo.{}", "{}"])
def test_white_space_is_not_allowed(shape, space):
    text = shape.format(space)
    with pytest.raises(oz.PatternError, match="white space"):
        oz.compile(text, "kubemq")
    with pytest.raises(oz.SubjectError, match="white space"):
        oz.validate_subject(text, "kubemq")


@each("text", ["", ".", ".foo", ".*", ".>"])
def test_a_channel_is_neither_blank_nor_begins_with_a_dot(text):
    with pytest.raises(oz.PatternError):
        oz.compile(text, "kubemq")
    with pytest.raises(oz.SubjectError):
        oz.validate_subject(text, "kubemq")


@each("text", [">", "*", "*.foo", "*.>", "foo.*", "foo.>", "foo*.>"])
def test_wildcards_are_for_receivers_only(text):
    oz.compile(text, "kubemq")
    with pytest.raises(oz.SubjectError):
        oz.validate_subject(text, "kubemq")


@each("text", ["foo", "USA", "org", "foo.bar", "USA.NewYork", "org.department"])
def test_levels_are_separated_by_dots(text):
    oz.validate_subject(text, "kubemq")
    pattern = oz.compile(text, "kubemq")
    assert pattern.is_literal
    assert pattern.tokens == tuple(part.encode() for part in text.split("."))


def test_the_n_level_example_has_six_levels():
    pattern = oz.compile("foo.bar.A.B.C.>", "kubemq")
    assert len(pattern.tokens) == 6
    assert pattern.matches("foo.bar.A.B.C.D")
    assert not pattern.matches("foo.bar.A.B.C")


def test_there_is_no_limit_to_levels():
    channel = ".".join(["level"] * 1000)
    oz.validate_subject(channel, "kubemq")
    assert matches("level.>", channel)
    assert matches(".".join(["*"] * 1000), channel)
    assert not matches(".".join(["*"] * 999), channel)


def test_any_utf8_characters_form_a_channel():
    for channel in ("日本.語", "קובה.foo", "😀", "a-b_c.d/e:f"):
        oz.validate_subject(channel, "kubemq")
        assert matches(channel, channel)
        assert matches(channel.encode(), channel.encode())


def test_greater_stands_at_the_tail_only():
    with pytest.raises(oz.PatternError, match="last"):
        oz.compile("foo.>.bar", "kubemq")
