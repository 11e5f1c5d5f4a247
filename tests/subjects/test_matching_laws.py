"""Patterns of each dialect match as the simple matchers of this module."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oz
from subjects.drawn import (
    GLOBS,
    TOKEN_DIALECTS,
    any_bytes,
    few_bytes,
    few_patterns,
    few_subjects,
    few_texts,
    glob_and_subject,
    glob_texts,
    is_filter,
    is_valid,
    words_and_subject,
)
from support.sizes import size

pytestmark = pytest.mark.sized


def tokens_match(pattern, subject, *, stems):
    """The rules of nats, over lists of tokens; `stems`: as kubemq has them."""
    if not pattern or not subject:
        return pattern == subject
    first, *rest = pattern
    token, *others = subject
    if not token:
        return False
    if first == ">" and not rest:
        return all(subject)
    if first == "*":
        fits = True
    elif stems and first.endswith("*"):
        fits = token.startswith(first[:-1])
    else:
        fits = token == first
    return fits and tokens_match(rest, others, stems=stems)


@pytest.mark.parametrize("dialect", TOKEN_DIALECTS)
def test_tokens_match_by_the_rules(dialect):
    @settings(max_examples=size(40, 10000))
    @given(few_texts, st.text("ab.*", max_size=6))
    def law(text, subject):
        if not is_valid(text, partial=dialect != "rv"):
            with pytest.raises(oz.PatternError):
                oz.compile(text, dialect)
            return
        expected = tokens_match(text.split("."), subject.split("."), stems=dialect == "kubemq")
        assert oz.compile(text, dialect).matches(subject) is expected

    law()


def mqtt_matches(pattern, subject):
    """The rules of MQTT 3.1.1, section 4.7."""
    if not subject or (subject[0] == "$" and pattern[0] in "+#"):
        return False
    return words_match(pattern.split("/"), subject.split("/"), word="+")


def amqp_matches(pattern, subject):
    """The rules of RabbitMQ's topic exchange."""
    return words_match(pattern.split(".") if pattern else [], subject.split(".") if subject else [], word="*")


def words_match(pattern, subject, *, word):
    if not pattern:
        return not subject
    first, *rest = pattern
    if first == "#":
        return any(words_match(rest, subject[count:], word=word) for count in range(len(subject) + 1))
    return bool(subject) and first in (word, subject[0]) and words_match(rest, subject[1:], word=word)


WORD_MATCHERS = {"mqtt": mqtt_matches, "amqp": amqp_matches}


@pytest.mark.parametrize("dialect", WORD_MATCHERS)
def test_words_match_by_the_rules(dialect):
    @settings(max_examples=size(12, 3000))
    @given(few_patterns(dialect), few_subjects(dialect), words_and_subject(dialect))
    def law(text, subject, other):
        for pattern, tried in ((text, subject), (text, other[1]), (other[0], subject), other):
            expected = WORD_MATCHERS[dialect](pattern, tried)
            assert oz.compile(pattern, dialect).matches(tried) is expected, (pattern, tried)

    law()


@given(st.text("a/+#", max_size=6))
def test_mqtt_refuses_what_is_no_filter(text):
    if is_filter(text):
        assert oz.compile(text, "mqtt").text == text
    else:
        with pytest.raises(oz.PatternError):
            oz.compile(text, "mqtt")


def glob_matches(pattern, subject, *, optional):
    """The rules for redis in the vectors' README; `optional`: `?` stands for zero bytes or one."""
    if not subject and pattern and wildcards_only(pattern, optional=optional):
        return False
    return glob_matches_rest(pattern, subject, optional=optional)


def wildcards_only(pattern, *, optional):
    return not pattern.strip(b"*?" if optional else b"*")


def glob_matches_rest(pattern, subject, *, optional):
    if not pattern:
        return not subject
    if pattern[:1] == b"*":
        return any(
            glob_matches_rest(pattern[1:], subject[count:], optional=optional)
            for count in range(len(subject) + 1)
        )
    if pattern[:1] == b"?":
        one = bool(subject) and glob_matches_rest(pattern[1:], subject[1:], optional=optional)
        return one or (optional and glob_matches_rest(pattern[1:], subject, optional=optional))
    if not subject:
        return False
    if pattern[:1] == b"[":
        fits, rest = class_takes(pattern[1:], subject[0])
    elif pattern[:1] == b"\\" and len(pattern) > 1:
        fits, rest = pattern[1] == subject[0], pattern[2:]
    else:
        fits, rest = pattern[0] == subject[0], pattern[1:]
    return fits and glob_matches_rest(rest, subject[1:], optional=optional)


def class_takes(pattern, byte):
    """Return whether a class contains a byte, and the pattern after the class. An open class ends with the pattern."""
    negated = pattern[:1] == b"^"
    if negated:
        pattern = pattern[1:]
    fits = False
    while pattern and pattern[:1] != b"]":
        if pattern[:1] == b"\\" and len(pattern) > 1:
            fits |= pattern[1] == byte
            pattern = pattern[2:]
        elif len(pattern) > 2 and pattern[1:2] == b"-":
            # A range in either order; bytes from 0x80 on are negative numbers, as on x86-64.
            low, here, high = ((each ^ 0x80) - 0x80 for each in (pattern[0], byte, pattern[2]))
            fits |= min(low, high) <= here <= max(low, high)
            pattern = pattern[3:]
        else:
            fits |= pattern[0] == byte
            pattern = pattern[1:]
    return fits != negated, pattern[1:]


@pytest.mark.parametrize("dialect", GLOBS)
def test_globs_match_by_the_rules(dialect):
    @settings(max_examples=size(50, 14000))
    @given(glob_texts, glob_and_subject(dialect), any_bytes | few_bytes)
    def law(text, other, subject):
        for pattern, tried in ((text, subject), (other[0], subject), (text, other[1]), (other[0], other[1])):
            expected = glob_matches(pattern, tried, optional=dialect == "raims.glob")
            assert oz.compile(pattern, dialect).matches(tried) is expected, (pattern, tried)

    law()
