"""Refused patterns and subjects with position and reason; text and bytes."""

import pytest

import oz
from support.cases import each

TEXT_DIALECTS = ["nats", "rv", "kubemq", "raims.rv", "regex"]
BYTE_DIALECTS = ["redis", "raims.sub", "raims.glob", "zmq"]


def check(error, kind, dialect, text, position, rule):
    """Check the fields of an error, and that its message has them."""
    assert (error.dialect, error.text, error.position) == (dialect, text, position)
    assert rule in error.rule
    for part in (dialect, kind, f"position {position}", error.rule):
        assert part in str(error)


@each(
    ("dialect", "text", "position", "rule"),
    [
        ("nats", "foo..bar", 4, "empty"),
        ("nats", "foo.", 4, "empty"),
        ("nats", "", 0, "empty"),
        ("nats", "a.>.b", 2, "'>' is only allowed as the last token"),
        ("nats", "foo.b r", 5, "white space"),
        ("kubemq", "é. b", 2, "white space"),
        ("rv", "Foo.b*r", 5, "'*' must be a whole element"),
        ("rv", "Foo>", 3, "'>' must be a whole element"),
        ("rv", "a." + "x" * 253, 2, "253 characters; at most 252"),
        ("rv", "x." * 127 + "xx", 255, "256 characters; at most 255"),
        ("raims.rv", ".a", 0, "empty"),
        ("regex", "ab(", 3, "missing )"),
        ("regex", "a**", 2, "multiple repeat"),
        ("regex", "(?<=a+)b", 0, "fixed-width"),
        ("mqtt", "", 0, "one character"),
        ("mqtt", "a/#/b", 2, "last level"),
        ("mqtt", "é/#/#", 2, "last level"),
        ("mqtt", "a/b+", 3, "whole level"),
        ("mqtt", "é/+b", 2, "whole level"),
        ("mqtt", "##", 0, "whole level"),
        ("mqtt", "a#/b", 1, "whole level"),
        ("mqtt", "a/\0", 2, "U+0000"),
        ("mqtt", "é" * 40_000, 32_767, "at most 65535"),
        ("amqp", "x" * 256, 255, "at most 255"),
        ("amqp", "é" * 128, 127, "at most 255"),
    ],
)
def test_a_refused_pattern_names_dialect_position_and_rule(dialect, text, position, rule):
    with pytest.raises(oz.PatternError) as caught:
        oz.compile(text, dialect)
    check(caught.value, "pattern", dialect, text, position, rule)


@each(
    ("dialect", "text", "position", "rule"),
    [
        ("nats", "a..b", 2, "empty"),
        ("nats", "a.*", 2, "'*' is a wildcard"),
        ("nats", "a.>", 2, "'>' is a wildcard"),
        ("nats", "a.b c", 3, "white space"),
        ("kubemq", "a.b*", 3, "'*' is for receivers only"),
        ("kubemq", "a\tb", 1, "white space"),
        ("rv", "_RV.x", 0, "begin with '_'"),
        ("rv", "x" * 253, 0, "253 bytes; at most 252"),
        ("mqtt", "", 0, "one character"),
        ("mqtt", "a/+", 2, "wildcard"),
        ("mqtt", "é#", 1, "wildcard"),
        ("mqtt", "a\0", 1, "U+0000"),
        ("mqtt", "x" * 65_536, 65_535, "at most 65535"),
        ("amqp", "x" * 256, 255, "at most 255"),
        ("amqp", "é" * 128, 127, "at most 255"),
    ],
)
def test_a_refused_subject_names_dialect_position_and_rule(dialect, text, position, rule):
    with pytest.raises(oz.SubjectError) as caught:
        oz.validate_subject(text, dialect)
    check(caught.value, "subject", dialect, text, position, rule)


def test_the_message_of_a_long_text_is_short():
    with pytest.raises(oz.PatternError) as caught:
        oz.compile("a" * 100_000 + " ")
    assert len(str(caught.value)) < 300
    assert "100001 long" in str(caught.value)


def test_refusals_are_value_errors_and_oz_errors():
    for error in (oz.PatternError, oz.SubjectError):
        assert issubclass(error, ValueError)
        assert issubclass(error, oz.OzError)


@each("dialect", ["", "NATS", "nats ", "amqp 1.0", 1, []])
def test_an_unknown_dialect_is_a_configuration_error_that_lists_the_dialects(dialect):
    for call in (oz.compile, oz.validate_subject):
        with pytest.raises(oz.ConfigurationError, match=r"no dialect has this name.*nats, rv"):
            call("a", dialect)


@each("dialect", oz.DIALECTS)
@each("wrong", [None, 3, 1.5, ["a"], ("a",), object])
def test_another_type_than_str_and_bytes_is_a_type_error(wrong, dialect):
    with pytest.raises(TypeError, match="str or bytes"):
        oz.compile(wrong, dialect)
    with pytest.raises(TypeError, match="str or bytes"):
        oz.validate_subject(wrong, dialect)
    with pytest.raises(TypeError, match="str or bytes"):
        oz.compile("a", dialect).matches(wrong)


# --- text and bytes -----------------------------------------------------------------------------------------


@each("dialect", oz.DIALECTS)
def test_a_lone_surrogate_cannot_be_sent(dialect):
    with pytest.raises(oz.PatternError, match="surrogate") as caught:
        oz.compile("ab\ud800", dialect)
    assert caught.value.position == 2
    with pytest.raises(oz.SubjectError, match="surrogate"):
        oz.validate_subject("ab\ud800", dialect)
    with pytest.raises(oz.SubjectError, match="surrogate"):
        oz.compile("a", dialect).matches("ab\ud800")


@each("dialect", TEXT_DIALECTS)
def test_a_text_dialect_refuses_bytes_that_are_not_utf8(dialect):
    with pytest.raises(oz.PatternError, match="UTF-8") as caught:
        oz.compile(b"ab\xff", dialect)
    assert caught.value.position == 2
    with pytest.raises(oz.SubjectError, match="UTF-8"):
        oz.validate_subject(b"ab\xff", dialect)
    with pytest.raises(oz.SubjectError, match="UTF-8"):
        oz.compile("a", dialect).matches(b"ab\xff")


@each("dialect", BYTE_DIALECTS)
def test_a_byte_dialect_decodes_escaped_text(dialect):
    pattern = oz.compile("ab\udcff", dialect)
    oz.validate_subject("ab\udcff", dialect)
    assert pattern == oz.compile(b"ab\xff", dialect)
    assert pattern.matches("ab\udcff")
    assert pattern.matches(b"ab\xff")


@each("dialect", TEXT_DIALECTS)
def test_a_text_dialect_reads_escaped_text_as_its_bytes(dialect):
    assert oz.compile("a\udcc3\udca9", dialect) == oz.compile("aé", dialect)
    assert oz.compile("aé", dialect).matches("a\udcc3\udca9")
    with pytest.raises(oz.SubjectError, match="UTF-8"):
        oz.compile("a", dialect).matches("ab\udcff")


@each("dialect", BYTE_DIALECTS)
def test_the_text_is_bytes_only_where_it_must_be(dialect):
    assert oz.compile(b"ab\xff", dialect).text == b"ab\xff"
    assert oz.compile(b"ab", dialect).text == "ab"
    assert oz.compile("é", dialect).text == "é"
    assert oz.compile("é".encode(), dialect).text == "é"


@each("dialect", oz.DIALECTS)
def test_bytearray_and_memoryview_are_bytes(dialect):
    for view in (bytearray(b"ab"), memoryview(b"ab")):
        assert oz.compile(view, dialect) == oz.compile("ab", dialect)
        assert oz.compile("ab", dialect).matches(view)
