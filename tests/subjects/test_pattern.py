"""Compiling, parsing and checking, one behaviour at a time."""

import re

import pytest
import regex

import oz
from support.cases import each
from support.sizes import one_of_each
from support.vector_rows import rows, text_of

TEXT_DIALECTS = ["nats", "rv", "kubemq", "raims.rv", "regex"]
BYTE_DIALECTS = ["redis", "raims.sub", "raims.glob", "zmq"]

# --- what is refused says where and why ---------------------------------------------------------------------


@each(
    ("dialect", "text", "position", "rule"),
    [
        ("nats", "foo..bar", 4, "empty"),
        ("nats", "foo.", 4, "empty"),
        ("nats", "", 0, "empty"),
        ("nats", "a.>.b", 2, "'>' may only be the last token"),
        ("nats", "foo.b r", 5, "white space"),
        ("kubemq", "é. b", 2, "white space"),
        ("rv", "Foo.b*r", 5, "'*' must stand for a whole element"),
        ("rv", "Foo>", 3, "'>' must stand for a whole element"),
        ("rv", "a." + "x" * 253, 2, "253 characters; at most 252"),
        ("rv", "x." * 127 + "xx", 255, "256 characters; at most 255"),
        ("raims.rv", ".a", 0, "empty"),
        ("regex", "ab(", 3, "missing )"),
        ("regex", "a**", 2, "multiple repeat"),
        ("regex", "(?<=a+)b", 0, "fixed-width"),
    ],
)
def test_a_refused_pattern_names_dialect_position_and_rule(dialect, text, position, rule):
    with pytest.raises(oz.PatternError) as caught:
        oz.compile(text, dialect)
    assert (caught.value.dialect, caught.value.text, caught.value.position) == (dialect, text, position)
    assert rule in caught.value.rule
    for part in (dialect, "pattern", f"position {position}", caught.value.rule):
        assert part in str(caught.value)


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
    ],
)
def test_a_refused_subject_names_dialect_position_and_rule(dialect, text, position, rule):
    with pytest.raises(oz.SubjectError) as caught:
        oz.validate_subject(text, dialect)
    assert (caught.value.dialect, caught.value.text, caught.value.position) == (dialect, text, position)
    assert rule in caught.value.rule
    for part in (dialect, "subject", f"position {position}", caught.value.rule):
        assert part in str(caught.value)


def test_the_message_of_a_long_text_is_short():
    with pytest.raises(oz.PatternError) as caught:
        oz.compile("a" * 100_000 + " ")
    assert len(str(caught.value)) < 300
    assert "100001 long" in str(caught.value)


def test_refusals_are_value_errors_and_oz_errors():
    for error in (oz.PatternError, oz.SubjectError):
        assert issubclass(error, ValueError)
        assert issubclass(error, oz.OzError)


@each("dialect", ["", "NATS", "nats ", "amqp 1.0", None, 1, []])
def test_an_unknown_dialect_is_a_value_error_that_lists_those_there_are(dialect):
    for call in (oz.compile, oz.parse, oz.validate_subject):
        with pytest.raises(ValueError, match=r"no dialect is called.*nats, rv"):
            call("a", dialect)


@each("dialect", oz.DIALECTS)
@each("wrong", [None, 3, 1.5, ["a"], ("a",), object])
def test_what_is_neither_str_nor_bytes_is_a_type_error(wrong, dialect):
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
def test_a_byte_dialect_accepts_any_bytes(dialect):
    pattern = oz.compile(b"ab\xff", dialect)
    oz.validate_subject(b"ab\xff", dialect)
    assert pattern.matches(b"ab\xff")
    assert pattern.prefixes == (b"ab\xff",)


@each("dialect", BYTE_DIALECTS)
def test_a_byte_dialect_takes_escaped_text_for_its_bytes(dialect):
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


def test_a_byte_dialect_counts_bytes():
    assert not oz.compile("?", "redis").matches("é")
    assert oz.compile("??", "redis").matches("é")
    assert oz.compile(b"[\xc3]*", "redis").matches("é")


def test_characters_that_look_alike_are_different():
    assert not oz.compile("e\u0301").matches("\u00e9")
    assert not oz.compile("ß").matches("ss")


# --- making patterns ----------------------------------------------------------------------------------------


def test_nats_is_the_default():
    assert oz.compile("a.*").dialect == "nats"
    assert oz.DIALECTS[0] == "nats"


@each(
    ("spec", "dialect", "text"),
    [
        ("rv:Foo.*", "rv", "Foo.*"),
        (b"rv:Foo.*", "rv", "Foo.*"),
        ("raims.glob:a?", "raims.glob", "a?"),
        ("redis:a:b*", "redis", "a:b*"),
        ("redis:", "redis", ""),
        (b"redis:\xff*", "redis", b"\xff*"),
        (r"regex:^a\.b", "regex", r"^a\.b"),
        ("a:b", "nats", "a:b"),
        ("RV:Foo", "nats", "RV:Foo"),
        (" rv:Foo".strip(), "rv", "Foo"),
        (":x", "nats", ":x"),
        ("rv", "nats", "rv"),
        ("nats:rv:a", "nats", "rv:a"),
    ],
)
def test_a_spec_names_a_dialect_or_is_all_pattern(spec, dialect, text):
    pattern = oz.parse(spec)
    assert (pattern.dialect, pattern.text) == (dialect, text)


def test_a_spec_without_a_dialect_is_of_the_default_that_is_given():
    assert oz.parse("a:b", default="redis") == oz.compile("a:b", "redis")
    assert oz.parse("rv:a", default="redis") == oz.compile("a", "rv")
    assert oz.parse(b"\xff:x", "redis").text == b"\xff:x"


def test_compile_takes_its_text_as_it_is():
    assert oz.compile("rv:Foo.*").text == "rv:Foo.*"
    assert oz.compile("rv:Foo.*").dialect == "nats"


def test_a_pattern_is_returned_as_it_is():
    pattern = oz.compile("a.*", "rv")
    assert oz.compile(pattern) is pattern
    assert oz.compile(pattern, "redis") is pattern


def test_a_pattern_shows_how_to_make_it_again():
    for pattern in (oz.compile("a.*"), oz.compile(b"\xff*", "redis"), oz.compile(r"a\.b?", "regex")):
        assert eval(repr(pattern), {"oz": oz}) == pattern


def test_patterns_of_different_dialects_differ():
    made = [oz.compile("a", dialect) for dialect in oz.DIALECTS]
    assert len(set(made)) == len(oz.DIALECTS)
    assert oz.compile("a") != "a"


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


def test_a_dollar_is_the_very_end():
    assert oz.compile("foo$", "regex").matches("foo")
    assert not oz.compile("foo$", "regex").matches("foo\n")
    assert not oz.compile(re.compile("foo$")).matches("foo\n")
    assert oz.compile("foo$", "regex").is_literal


def test_a_dot_does_not_match_a_newline():
    assert not oz.compile("a.b", "regex").matches("a\nb")
    assert not oz.compile("a.*", "regex").matches("a\n")
    assert oz.compile("a.*").matches("a.\n")
    assert oz.compile("a*", "redis").matches("a\n")


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


@each(
    ("subject", "allowed"),
    [
        ("_INBOX.x", True),
        ("_LOCAL.x", True),
        ("_INBOX", True),
        ("a._RV", True),
        ("_RV.x", False),
        ("_X", False),
        ("_INBOXES.x", False),
    ],
)
def test_rv_sends_to_few_names_that_begin_with_an_underscore(subject, allowed):
    if allowed:
        oz.validate_subject(subject, "rv")
    else:
        with pytest.raises(oz.SubjectError):
            oz.validate_subject(subject, "rv")
    assert oz.compile(subject, "rv").matches(subject)


@each("subject", ["a.*", "a.>", "*", ">", "*.a"])
def test_who_publishes_to_a_wildcard(subject):
    for dialect in ("nats", "kubemq"):
        with pytest.raises(oz.SubjectError):
            oz.validate_subject(subject, dialect)
    for dialect in set(oz.DIALECTS) & {"rv", "redis", "raims.sub", "raims.rv", "raims.glob", "regex", "zmq"}:
        oz.validate_subject(subject, dialect)


def test_nats_publishes_to_a_token_that_only_holds_a_wildcard_and_kubemq_does_not():
    for subject in ("a*", "a>b", "a.*b", "**"):
        oz.validate_subject(subject, "nats")
        with pytest.raises(oz.SubjectError):
            oz.validate_subject(subject, "kubemq")


@each("dialect", ["redis", "raims.sub", "raims.glob", "regex", "zmq"])
@each("subject", ["", ".", "a..b", "*", "[", "(", "\\", " ", "\n", "\x00", "_RV.x", "x" * 10_000])
def test_these_dialects_see_nothing_special_in_a_subject(subject, dialect):
    oz.validate_subject(subject, dialect)


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


def test_lenient_takes_a_misplaced_wildcard_literally_in_rv():
    pattern = oz.compile("a.>.*", "rv", lenient=True)
    assert pattern.matches("a.>.*")
    assert not pattern.matches("a.>.b")
    assert not pattern.matches("a.b.c")
    assert oz.compile("a.*", "rv", lenient=True).matches("a.b")


def test_lenient_does_not_excuse_an_empty_or_a_long_element():
    for text in ("a..b*", "x" * 253, ""):
        with pytest.raises(oz.PatternError):
            oz.compile(text, "rv", lenient=True)


@each("dialect", ["nats", "kubemq", "raims.rv"])
def test_lenient_has_no_effect_in_other_dialects(dialect):
    with pytest.raises(oz.PatternError):
        oz.compile("a.>.b", dialect, lenient=True)
    assert oz.compile("a.*", dialect, lenient=True).matches("a.b")


# --- long and hostile patterns ------------------------------------------------------------------------------

TOKENS = 10_000
stalls_no_longer = pytest.mark.timeout(30)
"""What these tests are about takes minutes, or for ever, when it goes wrong, and milliseconds otherwise."""


@stalls_no_longer
@pytest.mark.parametrize(
    ("dialect", "cycle"),
    one_of_each(
        ["nats", "kubemq", "raims.rv", "raims.sub", "redis", "raims.glob"],
        [("*",), ("t", "*"), ("t",)],
    ),
)
def test_ten_thousand_tokens_are_compiled_and_matched(cycle, dialect):
    text = ".".join((cycle * TOKENS)[:TOKENS])
    subject = ".".join(["t"] * TOKENS)
    expected = dialect != "raims.sub" or cycle == ("t",)
    pattern = oz.compile(text, dialect)
    assert pattern.matches(subject) is expected
    assert not pattern.matches(subject[: -len(".t")])
    index = oz.PatternIndex()
    index.add(pattern)
    assert len(index.match(subject)) == expected
    index.discard(pattern)
    assert len(index) == 0


@stalls_no_longer
@pytest.mark.parametrize(
    ("text", "dialect"),
    one_of_each(
        [b"%b*", b"*%b", b"*%b*", b"%b", b"[xy]%b*", b"?%b*b*", b"*x?%b*b"],
        ["redis", "raims.glob", "zmq"],
    ),
)
def test_the_engine_makes_no_tables_for_a_long_literal(text, dialect):
    # They take cubic time: at 3,000 more than seven seconds each.
    long = b"a" * 5_000
    for subject in (b"xaa" + long + b"b", long, b"a" + long, b"xa" + long, long + b"b"):
        oz.compile(text % long, dialect).matches(subject)


FAMILIES_WITH_STARS = ["redis.match", "raims.match", "nats.match", "kubemq.match", "regex.match"]
STARS = {
    row["pattern"]
    for family in FAMILIES_WITH_STARS
    for row in rows(family)
    if row.get("pattern", "").count("*") >= 20
}


@stalls_no_longer
def test_patterns_of_many_stars_do_not_hang():
    assert STARS
    subjects = ["a" * 200, "ab" * 100, ".".join(["t"] * 200), "a." * 100, "b" + "a" * 64]
    for text in sorted(STARS):
        for dialect in oz.DIALECTS:
            try:
                pattern = oz.compile(text, dialect)
            except oz.PatternError:
                continue
            for subject in subjects:
                decided(pattern, subject)


def decided(pattern, subject):
    try:
        return pattern.matches(subject)
    except oz.PatternTimeout:
        assert pattern.dialect in ("regex", "raims.glob")
        return None


@stalls_no_longer
@pytest.mark.parametrize(
    "text", ["*a" * 64, "*a" * 64 + "*b", "a*" * 64 + "?b", "*?" * 64 + "b", "*[ab]" * 64 + "c"]
)
def test_sixty_four_stars_of_redis_need_no_time(text):
    pattern = oz.compile(text, "redis")
    for subject in ("a" * 2_000, "ab" * 1_000, "a" * 63, "a" * 2_000 + "c"):
        pattern.matches(subject)
    assert oz.compile("*a" * 64, "redis").matches("xa" * 64)
    assert not oz.compile("*a" * 64, "redis").matches("xa" * 63)


@stalls_no_longer
def test_a_hostile_regex_runs_out_of_time_and_says_so():
    pattern = oz.compile("(a|aa)+$", "regex")
    subject = "a" * 40 + "b"
    with pytest.raises(oz.PatternTimeout) as caught:
        pattern.matches(subject)
    assert caught.value.pattern == "(a|aa)+$"
    assert caught.value.subject == subject
    assert caught.value.limit > 0
    assert isinstance(caught.value, TimeoutError)
    for part in ("(a|aa)+$", subject, "repeat inside a repeat"):
        assert part in str(caught.value)


def test_what_is_said_of_a_long_subject_is_a_line():
    said = str(oz.PatternTimeout("(a|aa)+$", "a" * 60_000, 0.05))
    assert "(60000 long)" in said
    assert len(said) < 300


@stalls_no_longer
@pytest.mark.parametrize("text", ["(a+)+$", "(a*)*b?$", "(a|a)*$", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_a_hostile_regex_that_the_engine_may_see_through_is_decided_or_given_up(text):
    pattern = oz.compile(text, "regex")
    assert decided(pattern, "a" * 40 + "!") in (False, None)


def test_an_index_reports_a_pattern_that_ran_out_of_time_and_finds_the_others():
    index = oz.PatternIndex()
    hostile = oz.compile("(a|aa)+$", "regex")
    index.add(hostile, "hostile")
    index.add(oz.compile(">"), "all")
    index.add(oz.compile("a*", "redis"), "glob")
    subject = "a" * 40 + "b"
    found = index.find(subject)
    assert sorted(found.values) == ["all", "glob"]
    assert found.timed_out == (hostile,)
    with pytest.raises(oz.PatternTimeout):
        index.match(subject)
    assert sorted(index.match("aab!")) == ["all", "glob"]
    assert sorted(index.match("aa")) == ["all", "glob", "hostile"]


def test_every_byte_dialect_takes_the_bytes_of_the_vectors():
    for row in rows("redis.match"):
        subject = text_of(row, "subject")
        raw = subject if isinstance(subject, bytes) else subject.encode()
        for dialect in BYTE_DIALECTS:
            oz.validate_subject(raw, dialect)
            assert oz.compile(raw, "raims.sub").matches(raw)


# --- the index ----------------------------------------------------------------------------------------------


def test_an_index_gives_a_match_once_when_a_pattern_has_several_prefixes():
    # The subject is shorter than the longest prefix in the index, and a prefix itself.
    index = oz.PatternIndex()
    index.add(oz.compile("[ab]*", "redis"), "class")
    index.add(oz.compile("(a|b).*", "regex"), "regex")
    index.add(oz.compile("aaa*", "redis"), "long")
    assert sorted(index.match("a")) == ["class", "regex"]
    assert sorted(index.match("aaa")) == ["class", "long", "regex"]


def test_bytes_that_are_not_utf8_match_no_pattern_of_a_text_dialect_in_an_index():
    index = oz.PatternIndex()
    index.add(oz.compile(">"), "nats")
    index.add(oz.compile("(?s).*", "regex"), "regex")
    index.add(oz.compile("*", "redis"), "redis")
    index.add(oz.compile("", "zmq"), "zmq")
    assert sorted(index.match(b"a.\xff")) == ["redis", "zmq"]
    assert sorted(index.match("a.b")) == ["nats", "redis", "regex", "zmq"]
    assert sorted(index.match("a.\udcff")) == ["redis", "zmq"]
    assert sorted(index.match("a.\udcc3\udca9")) == ["nats", "redis", "regex", "zmq"]
    with pytest.raises(oz.SubjectError, match="surrogate"):
        index.match("a.\ud800")


def test_an_index_forgets_what_it_said_of_escaped_text_when_a_literal_comes_or_goes():
    index = oz.PatternIndex()
    texts = ["a\udcff", "\udcc3\udca9"]
    patterns = [oz.compile(text, "redis") for text in texts]
    for text, pattern in zip(texts, patterns, strict=True):
        assert not index.match(text)
        index.add(pattern)
        assert list(index.match(text)) == [pattern]
        index.discard(pattern)
        assert not index.match(text)
