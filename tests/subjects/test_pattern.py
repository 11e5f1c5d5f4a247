"""Patterns from text and from compiled regexes, and special rules of dialects."""

import re

import pytest
import regex

import oz
from support.cases import each


@each(
    ("spec", "dialect", "text"),
    [
        ("rv:Foo.*", "rv", "Foo.*"),
        ("raims.glob:a?", "raims.glob", "a?"),
        ("redis:a:b*", "redis", "a:b*"),
        ("redis:", "redis", ""),
        ("redis:\udcff*", "redis", b"\xff*"),
        ("raims.sub:a.>", "raims.sub", "a.>"),
        ("zmq:rv:a", "zmq", "rv:a"),
        ("sensor:[ab]?:*", "nats", "sensor:[ab]?:*"),
        ("foo:bar", "nats", "foo:bar"),
        (r"regex:^a\.b", "regex", r"^a\.b"),
        ("a:b", "nats", "a:b"),
        ("RV:Foo", "nats", "RV:Foo"),
        (" rv:Foo".strip(), "rv", "Foo"),
        (":x", "nats", ":x"),
        ("rv", "nats", "rv"),
        ("nats:rv:a", "nats", "rv:a"),
    ],
)
def test_text_before_the_first_colon_is_a_dialect_if_it_names_one(spec, dialect, text):
    pattern = oz.compile(spec)
    assert (pattern.dialect, pattern.text) == (dialect, text)


def test_no_name_is_read_with_a_dialect_or_from_bytes():
    for dialect in oz.DIALECTS:
        pattern = oz.compile("rv:Foo.*", dialect)
        assert (pattern.dialect, pattern.text) == (dialect, "rv:Foo.*")
    pattern = oz.compile(b"rv:Foo.*")
    assert (pattern.dialect, pattern.text) == ("nats", "rv:Foo.*")


def test_a_named_dialect_is_lenient_too():
    assert oz.compile("rv:abc*xyz", lenient=True) == oz.compile("abc*xyz", "rv", lenient=True)
    with pytest.raises(oz.PatternError, match="rv pattern 'abc"):
        oz.compile("rv:abc*xyz")


def test_a_pattern_is_returned_as_it_is():
    pattern = oz.compile("a.*", "rv")
    assert oz.compile(pattern) is pattern
    assert oz.compile(pattern, "redis") is pattern


def test_a_pattern_shows_how_to_make_it_again():
    for pattern in (oz.compile("a.*"), oz.compile(b"\xff*", "redis"), oz.compile(r"a\.b?", "regex")):
        assert eval(repr(pattern), {"oz": oz}) == pattern


# --- compiled regexes ---------------------------------------------------------------------------------------


@each("engine", [re, regex])
def test_a_compiled_regex_is_the_regex_dialect(engine):
    pattern = oz.compile(engine.compile(r"md\.(us|eu)\..*"), "nats")
    assert pattern.dialect == "regex"
    assert pattern == oz.compile(r"md\.(us|eu)\..*", "regex")
    assert pattern.matches("md.eu.x")


@each("engine", [re, regex])
def test_a_compiled_regex_keeps_its_flags(engine):
    ignoring_case = oz.compile(engine.compile("md", engine.I))
    assert ignoring_case.matches("Md")
    assert not oz.compile("md", "regex").matches("Md")
    assert ignoring_case != oz.compile("md", "regex")
    assert oz.compile(engine.compile("m d # x", engine.X)).matches("md")
    assert oz.compile(engine.compile("a.b", engine.S)).matches("a\nb")
    assert not oz.compile(engine.compile("a.b")).matches("a\nb")


@each("engine", [re, regex])
def test_a_compiled_regex_for_ascii_stays_one(engine):
    # `re.ASCII` has the number of `regex.VERSION1`, and `re.DEBUG` that of `regex.ASCII`.
    pattern = oz.compile(engine.compile(r"\w+", engine.ASCII))
    assert pattern.matches("abc")
    assert not pattern.matches("é")
    assert not pattern.regex.flags & regex.VERSION1
    assert oz.compile(engine.compile(r"\w+")).matches("é")


@pytest.mark.filterwarnings("ignore:Possible nested set")
def test_a_compiled_regex_of_re_is_not_read_as_version_1():
    assert oz.compile(re.compile("[[a]+", re.ASCII)).matches("[a[")


def test_a_compiled_regex_keeps_its_named_lists():
    pattern = oz.compile(regex.compile(r"\L<cities>\.x", cities=["rome", "oslo"]))
    assert pattern.matches("rome.x")
    assert pattern.matches("oslo.x")
    assert not pattern.matches("paris.x")
    assert pattern != oz.compile(regex.compile(r"\L<cities>\.x", cities=["rome"]))


@each("engine", [re, regex])
def test_a_compiled_regex_of_bytes_is_refused(engine):
    with pytest.raises(oz.PatternError, match="compile it from a str"):
        oz.compile(engine.compile(b"a"))


# --- dialects -----------------------------------------------------------------------------------------------


def test_rv_limits_count_the_bytes_of_a_subject_and_the_characters_of_a_pattern():
    text = "é" * 200
    with pytest.raises(oz.SubjectError, match="400 bytes; at most 255"):
        oz.validate_subject(text, "rv")
    assert oz.compile(text, "rv").matches(text)
    with pytest.raises(oz.SubjectError, match="at most 252"):
        oz.validate_subject("é" * 126 + "x", "rv")
    oz.validate_subject("é" * 126, "rv")


def test_rv_positions_count_characters_where_an_element_is_too_long():
    with pytest.raises(oz.SubjectError) as caught:
        oz.validate_subject("é." + "x" * 252 + "y", "rv")
    assert caught.value.text[caught.value.position] == "y"


def test_zmq_is_a_plain_prefix():
    pattern = oz.compile("a.*", "zmq")
    assert not pattern.is_literal
    assert pattern.prefixes == (b"a.*",)
    for subject in ("a.*", "a.*b", "a.*\n"):
        assert pattern.matches(subject)
    for subject in ("a.", "a.b", "xa.*", ""):
        assert not pattern.matches(subject)
    assert oz.compile("", "zmq").matches("")
    assert oz.compile("", "zmq").matches(b"\xff")


def test_lenient_reads_a_misplaced_wildcard_as_a_literal_in_rv():
    pattern = oz.compile("a.>.*", "rv", lenient=True)
    assert pattern.matches("a.>.*")
    assert not pattern.matches("a.>.b")
    assert not pattern.matches("a.b.c")
    assert oz.compile("a.*", "rv", lenient=True).matches("a.b")


@each("dialect", ["nats", "kubemq", "raims.rv"])
def test_lenient_has_no_effect_in_other_dialects(dialect):
    with pytest.raises(oz.PatternError):
        oz.compile("a.>.b", dialect, lenient=True)
    assert oz.compile("a.*", dialect, lenient=True).matches("a.b")
