"""Rai MS, "Subject Schema": what it says of subscriptions, patterns and the three kinds of rules."""

import pytest

import oz
from support.cases import each

SPECIAL = [
    b"foo.*",
    b"foo.>",
    b"*",
    b">",
    b"foo?",
    b"[ab]",
    b"\\*",
    b"",
    b".",
    b"a..b",
    b"\x00\xff",
    b"a b\n",
]


@each("text", SPECIAL)
def test_a_subscription_with_wildcard_characters_is_a_literal(text):
    pattern = oz.compile(text, "raims.sub")
    assert pattern.is_literal
    assert pattern.prefixes == (text,)
    assert pattern.matches(text)
    assert not pattern.matches(text + b"x")
    assert not pattern.matches(b"foo.bar")


@each("text", SPECIAL)
@each("dialect", ["raims.sub", "raims.glob"])
def test_any_string_of_bytes_can_be_published(text, dialect):
    oz.validate_subject(text, dialect)


def test_the_pattern_type_decides_what_a_pattern_means():
    assert oz.compile("foo.*", "raims.rv").matches("foo.bar")
    assert not oz.compile("foo.*", "raims.rv").matches("foo.bar.baz")
    assert oz.compile("foo.*", "raims.glob").matches("foo.bar.baz")
    assert oz.compile("foo.*", "raims.glob").matches("foo.")
    assert oz.compile("foo.>", "raims.rv").matches("foo.bar")
    assert not oz.compile("foo.>", "raims.glob").matches("foo.bar")
    assert oz.compile("foo.[b]ar", "raims.glob").matches("foo.bar")
    assert not oz.compile("foo.[b]ar", "raims.rv").matches("foo.bar")


# The NATS rules 1 and 2 are "same subject segmentation as RV" and "same wildcarding as RV".
RV_AND_NATS = each("dialect", ["raims.rv", "rv", "nats"])


@RV_AND_NATS
@pytest.mark.parametrize("text", [".foo", "foo.", "foo..bar", ".", "..", ".>", "*.", "*..*", ""])
def test_a_segment_is_not_empty(text, dialect):
    with pytest.raises(oz.PatternError, match="empty"):
        oz.compile(text, dialect)


@RV_AND_NATS
@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("foo.*", "foo.bar", True),
        ("foo.*", "foo.bar.baz", False),
        ("*.bar", "foo.bar", True),
        ("*.*", "foo", False),
        ("foo.>", "foo.bar", True),
        ("foo.>", "foo.bar.baz", True),
        ("foo.>", "foo", False),
        (">", "foo", True),
    ],
)
def test_wildcards_substitute_segments(pattern, subject, expected, dialect):
    assert oz.compile(pattern, dialect).matches(subject) is expected


@RV_AND_NATS
def test_a_greater_that_is_not_trailing_is_refused(dialect):
    with pytest.raises(oz.PatternError, match="last"):
        oz.compile("foo.>.bar", dialect)


@each("text", [".foo", "foo.", "foo..bar", ".", ""])
def test_a_subject_that_is_published_has_segments_too(text):
    with pytest.raises(oz.SubjectError, match="empty"):
        oz.validate_subject(text, "raims.rv")


@each("text", ["*", "[", "(", "\\", " ", "\n", "\x00", "_RV.x", "x" * 10_000, "é"])
def test_a_segment_may_have_any_characters(text):
    oz.validate_subject(text, "raims.rv")


@each(
    ("pattern", "subject", "expected"),
    [
        ("foo.bar", "foo.*", False),  # as a wildcard, the publish would reach this subscription
        ("foo.>", "foo.*", True),
        ("foo.*", "foo.>", True),
        ("*", "*", True),
        ("*", ">", True),
        ("foo.*.baz", "foo.>", False),
    ],
)
def test_a_publish_to_a_wildcard_is_routed_as_a_normal_subject(pattern, subject, expected):
    oz.validate_subject(subject, "raims.rv")
    assert oz.compile(pattern, "raims.rv").matches(subject) is expected


def test_nats_does_not_publish_to_a_wildcard():
    for subject in ("foo.*", "foo.>", "*", ">"):
        with pytest.raises(oz.SubjectError, match="wildcard"):
            oz.validate_subject(subject, "nats")


@each("dialect", ["raims.sub", "raims.rv", "raims.glob", "nats"])
def test_an_inbox_is_matched_as_any_other_subject(dialect):
    oz.validate_subject("_INBOX.7", dialect)
    assert oz.compile("_INBOX.7", dialect).matches("_INBOX.7")
    assert not oz.compile("_INBOX.7", dialect).matches("_INBOX.8")


@each(
    ("pattern", "subject", "expected"),
    [
        ("foo*", "foo", True),
        ("foo*", "foobar", True),
        ("foo*", "fo", False),
        ("f*o", "fo", True),
        ("f*o", "f.x.o", True),
        ("foo?", "foo", True),  # zero: where Redis wants exactly one
        ("foo?", "foox", True),
        ("foo?", "fooxy", False),
        ("f?o", "fo", True),
        ("f?o", "fxo", True),
        ("f?o", "fxxo", False),
        ("f[ab]o", "fao", True),
        ("f[ab]o", "fbo", True),
        ("f[ab]o", "fco", False),
        ("f[ab]o", "fo", False),
        (r"f\*o", "f*o", True),
        (r"f\*o", "fxo", False),
        (r"f\?o", "f?o", True),
        (r"f\?o", "fo", False),
        (r"f\[a]o", "f[a]o", True),
        (r"f\[a]o", "fao", False),
    ],
)
def test_a_pattern_of_the_redis_type_is_a_glob(pattern, subject, expected):
    assert oz.compile(pattern, "raims.glob").matches(subject) is expected


def test_the_characters_of_a_redis_subject_have_no_limitations():
    every_byte = bytes(range(256))
    oz.validate_subject(every_byte, "raims.glob")
    assert oz.compile(b"\x00*\xff", "raims.glob").matches(every_byte)


def test_a_redis_publish_to_a_wildcard_is_the_same_as_publishing_to_a_subject():
    oz.validate_subject("foo*", "raims.glob")
    assert not oz.compile("foobar", "raims.glob").matches("foo*")
    assert oz.compile(r"foo\*", "raims.glob").matches("foo*")
