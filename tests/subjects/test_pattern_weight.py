"""Bounds of the patterns that a publisher compiles: of each pattern, and of all patterns of a connection."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import regex

import oz
from oz.errors import OzError, PatternError
from oz.subjects.dialects import BY_NAME
from oz.subjects.dialects.regular import MAX_WEIGHT, rewrite_for_engine
from oz.subjects.pattern import estimate_memory
from oz.subjects.spelling import FLAGGED, MAX_ELEMENTS, MAX_REGEX, restore, spell
from support.cases import each

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "text",
    [
        "a{190000}",
        f"a{{{MAX_ELEMENTS}}}",
        "((a{99}){99}){99}",
        "(?:(?:(?:[a-z]{50}){50}){50}b)",
        "a" * (MAX_REGEX + 1),
        "(a)" * MAX_REGEX,
        "|".join(f"SYM{number}" for number in range(1_000)),
        "[^a]*" * 1_000,
        "(?:a+)+" * 4 + "(" * 8 + "a" + "{30})" * 8,
    ],
)
def test_a_heavy_regex_is_refused_before_it_is_compiled(text, monkeypatch):
    compiled = []
    monkeypatch.setattr(regex, "compile", lambda *args, **others: compiled.append(args))
    with pytest.raises(PatternError, match=r"too long|allowed"):
        restore("regex", text)
    with pytest.raises(PatternError, match=r"too long|allowed"):
        restore(FLAGGED, bytes(4) + text.encode())
    assert compiled == []


@each("dialect", ["redis", "raims.glob"])
def test_a_long_glob_is_refused_and_a_long_literal_is_not(dialect):
    with pytest.raises(PatternError, match="split it"):
        restore(dialect, b"[^a]*" * 1_000)
    assert restore(dialect, b"a" * 8_192).is_literal


@pytest.mark.parametrize("dialect", ["zmq", "raims.sub", "nats", "mqtt", "rv"])
def test_literals_words_and_prefixes_compile_nothing(dialect, monkeypatch):
    monkeypatch.setattr(regex, "compile", None)
    text = "aaaaaaaa" if dialect == "rv" else "a" * 8_000
    pattern = restore(dialect, text)
    assert pattern.matches(text)
    assert not pattern.matches("b" + text)


def patterns_of_the_vectors():
    for path in sorted((ROOT / "tests" / "vectors").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            text = row.get("pattern")
            dialects = [row["dialect"]] if "dialect" in row else row.get("dialects", [])
            for dialect in dialects:
                if isinstance(text, str) and dialect in BY_NAME:
                    yield dialect, text


def test_every_pattern_of_the_vectors_that_compiles_and_fits_a_key_is_taken():
    count = 0
    for dialect, text in set(patterns_of_the_vectors()):
        try:
            declared = spell(oz.compile(text, dialect))
        except OzError:
            continue
        assert restore(*declared) == oz.compile(text, dialect)
        count += 1
    assert count > 500


def test_the_weight_of_a_short_pattern_of_words_is_nothing():
    assert estimate_memory(oz.compile("orders.*.eu.>")) == 0
    assert estimate_memory(oz.compile("orders.%s.eu" % ("x" * 8_000))) > 50_000


def test_an_element_that_must_occur_weighs_as_often():
    assert estimate_memory(oz.compile("a{1000}", "regex")) > 50 * estimate_memory(
        oz.compile("a{10}", "regex")
    )
    text, elements = rewrite_for_engine("[a-z]+" * 50, 0, None, MAX_WEIGHT)
    assert (text, elements > 50) == ("[a-z]+" * 50, True)


def test_long_patterns_of_words_are_compared_without_a_regex(monkeypatch):
    monkeypatch.setattr(regex, "compile", None)
    assert oz.compile("*." * 3_000 + ">").matches("a." * 3_000 + "b.c")
    assert not oz.compile("*." * 3_000 + ">").matches("a.b")
    assert oz.compile("+/" * 3_000 + "#", "mqtt").matches("a/" * 3_000)
    assert not oz.compile("+/" * 3_000 + "#", "mqtt").matches("$a/" * 3_000)
