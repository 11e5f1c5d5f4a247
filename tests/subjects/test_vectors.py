"""Rows of the subject vectors. `tests/contract/wildcards` has the rows of matches and of valid texts."""

from __future__ import annotations

import os

import pytest

import oz
from support.cases import each
from support.vector_rows import rows, text_of

RAIMS = {"sub": "raims.sub", "psub_rv": "raims.rv", "psub_glob": "raims.glob"}
FAMILIES = ["nats", "rv", "kubemq", "redis", "raims", "regex", "mqtt", "amqp"]


def dialect_of(row):
    return RAIMS[row["op"]] if row.get("op") else row["dialect"]


@each("family", FAMILIES)
def test_refused_pattern_is_literal_if_lenient(family):
    for row in rows(f"{family}.valid"):
        if row.get("lenient") == "literal":
            text = text_of(row, "text")
            pattern = oz.compile(text, family, lenient=True)
            assert pattern.is_literal
            assert pattern.matches(text)


@each("family", FAMILIES)
def test_prefix_rows_are_sound_and_long(family):
    exact = total = 0
    for row in rows(f"{family}.prefix"):
        text = text_of(row, "pattern")
        pattern = oz.compile(text, dialect_of({"dialect": family, **row}))
        assert pattern.prefix == os.path.commonprefix(pattern.prefixes)  # noqa: RUF071 - bytes, not paths
        longest = row["prefix_max"].encode("utf-8")
        if "prefix_max_bytes_hex" in row:
            longest = bytes.fromhex(row["prefix_max_bytes_hex"])
        for sample in row["samples_match"]:
            assert sample.encode().startswith(pattern.prefixes), (text, sample, pattern.prefixes)
        if not row.get("matches_nothing"):
            assert longest.startswith(pattern.prefix), (text, pattern.prefixes)
        assert pattern.prefix.startswith(row["prefix_min"].encode()), (text, pattern.prefixes)
        if row.get("multi"):
            assert set(pattern.prefixes) == {entry.encode() for entry in row["multi"]}, text
        total += 1
        exact += pattern.prefix == longest or bool(row.get("matches_nothing"))
    assert exact >= (0.95 if family != "regex" else 1) * total


@pytest.mark.parametrize(
    ("family", "dialect"),
    [
        ("nats", "nats"),
        ("nats", "rv"),
        ("nats", "kubemq"),
        ("nats", "raims.rv"),
        ("redis", "redis"),
        ("mqtt", "mqtt"),
        ("amqp", "amqp"),
    ],
)
def test_matrix_rows_match_the_listed_subjects_only(family, dialect):
    first, *matrix = rows(f"{family}.matrix")
    encoding = "latin1" if "latin1" in first.get("encoding", "") else "utf-8"
    universe = [subject.encode(encoding) for subject in first["universe"]]
    index = oz.PatternIndex()
    expected = {}
    for row in matrix:
        text = row["pattern"].encode(encoding)
        pattern = oz.compile(text, dialect)
        wanted = {subject.encode(encoding) for subject in row["matched"]}
        found = {subject for subject in universe if pattern.matches(subject)}
        assert found == wanted, text
        for subject in wanted:
            assert subject.startswith(pattern.prefixes), (text, subject)
            expected.setdefault(subject, set()).add(pattern)
        index.add(pattern)
    for subject in universe:
        assert set(index.match(subject)) == expected.get(subject, set()), subject
