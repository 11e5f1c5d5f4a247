"""Cost of long and hostile patterns, alone and in an index."""

import pytest

import oz
from support.sizes import one_of_each
from support.vector_rows import rows

TOKENS = 10_000
stalls_no_longer = pytest.mark.timeout(30)
"""These calls take milliseconds. A defect makes them take minutes or for ever."""


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


def test_timeout_message_of_a_long_subject_is_short():
    said = str(oz.PatternTimeout("(a|aa)+$", "a" * 60_000, 0.05))
    assert "(60000 long)" in said
    assert len(said) < 300


# --- the index ----------------------------------------------------------------------------------------------


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


def test_cached_answers_of_escaped_text_follow_literals():
    index = oz.PatternIndex()
    texts = ["a\udcff", "\udcc3\udca9"]
    patterns = [oz.compile(text, "redis") for text in texts]
    for text, pattern in zip(texts, patterns, strict=True):
        assert not index.match(text)
        index.add(pattern)
        assert list(index.match(text)) == [pattern]
        index.discard(pattern)
        assert not index.match(text)
