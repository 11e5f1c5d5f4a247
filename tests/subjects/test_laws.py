"""Laws that hold for every pattern and subject: prefixes are sound, the index agrees, copies are equal."""

import copy
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oz
from subjects.drawn import (
    COMPILED_REGEXES,
    DIALECTS,
    REGEXES,
    SUBJECTS,
    TOKEN_DIALECTS,
    WORD_DIALECTS,
    encoded,
    few_patterns,
    few_subjects,
    made,
    matches,
    specs,
    subjects,
    words,
)
from support.cases import each
from support.sizes import size

pytestmark = pytest.mark.sized

# --- prefixes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_matching_subject_begins_with_a_prefix(dialect):
    @settings(max_examples=size(25, 6000))
    @given(few_patterns(dialect), few_subjects(dialect))
    def law(text, subject):
        pattern = oz.compile(text, dialect)
        if pattern.matches(subject):
            assert encoded(subject).startswith(pattern.prefixes)

    law()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_prefixes_are_few_and_none_is_a_prefix_of_another(dialect):
    @given(few_patterns(dialect))
    def law(text):
        prefixes = oz.compile(text, dialect).prefixes
        assert 1 <= len(prefixes) <= 16
        for prefix in prefixes:
            assert not any(other.startswith(prefix) for other in prefixes if other is not prefix)

    law()


# --- values -------------------------------------------------------------------------------------------------

REGEX_SPECS = [(text, "regex") for text in REGEXES + COMPILED_REGEXES]


@each("spec", REGEX_SPECS)
def test_a_copy_of_a_regex_is_equal_and_matches_the_same(spec):
    check_copies(made(spec), SUBJECTS)


@given(specs, st.lists(subjects, max_size=5))
def test_a_copy_is_equal_and_matches_the_same(spec, tried):
    check_copies(made(spec), tried)


def check_copies(pattern, tried):
    for copied in (pickle.loads(pickle.dumps(pattern)), copy.deepcopy(pattern), copy.copy(pattern)):
        assert copied == pattern
        assert hash(copied) == hash(pattern)
        assert copied.text == pattern.text
        assert copied.prefixes == pattern.prefixes
        assert copied.is_literal == pattern.is_literal
        assert [matches(copied, subject) for subject in tried] == [
            matches(pattern, subject) for subject in tried
        ]


few_specs = st.tuples(
    st.sampled_from(["a", "a*", "a.b", "*"]), st.sampled_from(["nats", "kubemq", "redis", "zmq"])
)


@given(specs | few_specs, specs | few_specs)
def test_equal_patterns_have_equal_hashes_dialects_texts_and_regexes(first, second):
    one, other = made(first), made(second)
    if first == second:
        assert one == other
    if one == other:
        assert hash(one) == hash(other)
        assert (one.dialect, one.text, one.prefixes) == (other.dialect, other.text, other.prefixes)
        # Two compiled regexes are one object only while the engine's cache holds the first.
        assert (one.regex.pattern, one.regex.flags) == (other.regex.pattern, other.regex.flags)
    if (one.dialect, one.text) != (other.dialect, other.text):
        assert one != other


@each("dialect", [*DIALECTS, "regex"])
def test_text_and_its_utf8_bytes_are_the_same(dialect):
    texts = {"regex": st.sampled_from(REGEXES)} | {
        name: few_patterns(name) for name in (*TOKEN_DIALECTS, *WORD_DIALECTS)
    }

    @given(texts.get(dialect, words), st.text("abAé.", max_size=4))
    def law(text, subject):
        pattern = oz.compile(text, dialect)
        assert oz.compile(text.encode(), dialect) == pattern
        assert oz.compile(text.encode(), dialect).text == pattern.text
        assert pattern.matches(subject) == pattern.matches(subject.encode())
        assert pattern.matches(text) == pattern.matches(text.encode())

    law()


@settings(max_examples=size(15, 4000))
@given(specs, st.lists(subjects, max_size=5))
def test_a_literal_matches_itself_and_nothing_else(spec, tried):
    pattern = made(spec)
    if not pattern.is_literal:
        return
    (literal,) = pattern.prefixes
    assert pattern.matches(literal)
    assert regex_matches(pattern, literal)
    for subject in (*tried, literal + b"x", b"x" + literal, literal[:-1], literal + b".x", literal.upper()):
        if encoded(subject) != literal:
            assert not matches(pattern, subject)
            assert not regex_matches(pattern, subject)


def regex_matches(pattern, subject):
    """Return whether the public regex matches the subject."""
    try:
        own = encoded(subject) if isinstance(pattern.regex.pattern, bytes) else encoded(subject).decode()
    except UnicodeDecodeError:
        return False
    return pattern.regex.fullmatch(own) is not None


@settings(max_examples=size(15, 4000))
@given(specs, subjects)
def test_the_public_regex_decides_as_matches_does(spec, subject):
    pattern = made(spec)
    assert regex_matches(pattern, subject) == matches(pattern, subject)
