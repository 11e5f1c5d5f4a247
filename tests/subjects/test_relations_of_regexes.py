"""Relations between regexes, and between a regex and the patterns of other dialects."""

import re

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

import oz
from oz.subjects import automata as searches
from oz.subjects import relations
from support.cases import each
from support.sizes import size

regex_pieces = st.sampled_from(
    [
        "a", "b", r"\.", ".", "[ab]", "[^a]", "[a.]", "(?i:B)", "(?i:[^b])", r"\w", r"\d", r"[\s.]", "é",
        "[à-ÿ]"
    ]
)  # fmt: skip
regex_texts = st.recursive(
    regex_pieces,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.builds("(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "*?", "{,2}"])),
    ),
    max_leaves=6,
)


@settings(max_examples=size(10, 6000))
@given(
    st.sampled_from(["", "^"]), regex_texts, st.sampled_from(["", "$"]), st.text("abBéÉ. 1\nſ", max_size=4)
)
def test_a_regex_is_read_as_its_engine_reads_it(start, text, end, subject):
    pattern = oz.compile(f"{start}(?:{text}){end}", "regex")
    literal = oz.compile(subject, "raims.sub")
    try:
        expected = pattern.matches(subject)
    except oz.PatternTimeout:
        return
    try:
        automaton = relations.automaton_of(pattern)
    except oz.Undecidable:
        return
    assert (searches.find_common(relations.automaton_of(literal), automaton) is not None) is expected


# The engine joins the two sets of "(?:[^b]|[^s]).*", wrongly.
@each(
    "text",
    [
        r"(?=a)a.*", r"(a)\1.*", "a++.*", "(?>a|ab).*", r"a\b.*", "(?m)^a$.*", "x*^a.*", "a$.*", r"\p{Lu}.*",
        "(?r)a.*b", "(?V1)[a--b].*", "(?e)(?:ab){e<=1}.*", r"a\K.*", r"(?(?=a)a|b).*", r"\X.*", "(?w).*b",
        "((?1)?a).*", "(?a:\\w).*", "(?:[^b]|[^s]).*", "[^b.]?(?i:k).*"
    ],
)  # fmt: skip
def test_a_regex_with_uncertain_constructs_is_undecidable(text):
    pattern = oz.compile(text, "regex")
    with pytest.raises(oz.Undecidable, match="regex"):
        pattern.covers(oz.compile("a.>"))
    with pytest.raises(oz.Undecidable):
        oz.compile("a.>").covers(pattern)


def engine_joins_sets_in_any_case():
    """Return whether this version of regex compiles a set of all characters that ignores case."""
    try:
        regex.compile(r"(?i)[^\w\W]")
    except AttributeError:
        return False
    return True


@each("text", [r"[^\d\D]", r"[^a\s\S]", r"x[^\w\W]*", r"(?i)[^\w\W]"])
def test_a_set_that_the_engine_mistakes_is_compared_as_it_matches(text):
    if text == r"(?i)[^\w\W]" and not engine_joins_sets_in_any_case():
        with pytest.raises(oz.PatternError, match="the regex engine refuses it: 'AnyAll'"):
            oz.compile(text, "regex")
        return
    pattern = oz.compile(text, "regex")
    some = pattern.witness(oz.compile("*"))
    assert some is not None or not any(map(pattern.matches, ["a", "1", "x", "xx"]))
    for subject in ("a", "1", "x", "xx"):
        literal = oz.compile(subject, "raims.sub")
        assert pattern.covers(literal) is pattern.overlaps(literal) is pattern.matches(subject)


def test_a_literal_is_decided_beside_any_regex():
    hard = oz.compile(r"(?=a)a.*", "regex")
    assert hard.covers(oz.compile("ab"))
    assert not hard.covers(oz.compile("b"))
    assert hard.witness(oz.compile("ab", "mqtt")) == "ab"
    assert not oz.compile("b").overlaps(hard)
    assert hard.covers(oz.compile(r"(?=a)a.*", "regex"))


def test_a_pattern_that_runs_out_of_time_is_undecidable():
    with pytest.raises(oz.Undecidable, match="took longer"):
        oz.compile("(a|aa)+$", "regex").covers(oz.compile("a" * 40 + "b"))


def test_flags_given_apart_from_the_text_count():
    loud = oz.compile(re.compile("a[b-d]+", re.IGNORECASE))
    assert loud.witness(oz.compile("ACDC", "raims.sub")) == "ACDC"
    assert loud.witness(oz.compile("AX*", "redis")) is None
    assert loud.covers(oz.compile("A[BC]", "redis"))
