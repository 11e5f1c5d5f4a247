"""Every row of the subject vectors, each confirmed by a real server or a primary document."""

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


@pytest.mark.parametrize("family", FAMILIES)
def test_every_match_row_gives_the_confirmed_answer(family):
    wrong = []
    for row in rows(f"{family}.match"):
        pattern, subject = text_of(row, "pattern"), text_of(row, "subject")
        try:
            answer = oz.compile(pattern, dialect_of(row)).matches(subject)
        except (oz.PatternError, oz.SubjectError) as error:
            if row.get("reject_ok"):
                continue
            answer = repr(error)
        if answer != row["match"]:
            wrong.append((pattern, subject, row["match"], answer))
    assert wrong == []


@pytest.mark.parametrize("family", FAMILIES)
def test_the_index_gives_the_same_answer_as_each_match_row(family):
    wrong = []
    for row in rows(f"{family}.match"):
        pattern, subject = text_of(row, "pattern"), text_of(row, "subject")
        if row.get("reject_ok"):
            continue
        index = oz.PatternIndex()
        index.add(oz.compile(pattern, dialect_of(row)))
        if bool(index.match(subject)) != row["match"]:
            wrong.append((pattern, subject, row["match"]))
    assert wrong == []


@each("family", FAMILIES)
def test_every_valid_row_is_accepted_or_refused_as_confirmed(family):
    wrong = []
    for row in rows(f"{family}.valid"):
        text = text_of(row, "text")
        dialect = dialect_of({"dialect": family, **row})
        try:
            if row["kind"] == "pattern":
                oz.compile(text, dialect)
            else:
                oz.validate_subject(text, dialect)
            accepted = True
        except (oz.PatternError, oz.SubjectError):
            accepted = False
        if accepted != row["valid"]:
            wrong.append((row["kind"], text, row["why"]))
        if row.get("lenient") == "literal":
            pattern = oz.compile(text, dialect, lenient=True)
            assert pattern.is_literal
            assert pattern.matches(text)
    assert wrong == []


@each("family", FAMILIES)
def test_every_prefix_row_is_sound_and_long_enough(family):
    exact = total = 0
    for row in rows(f"{family}.prefix"):
        text = text_of(row, "pattern")
        pattern = oz.compile(text, dialect_of({"dialect": family, **row}))
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
    assert exact >= 0.95 * total


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
def test_every_matrix_row_matches_what_is_listed_and_nothing_else(family, dialect):
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


def test_the_common_prefix_is_that_of_the_prefixes():
    for family in FAMILIES:
        for row in rows(f"{family}.prefix"):
            pattern = oz.compile(text_of(row, "pattern"), dialect_of({"dialect": family, **row}))
            assert pattern.prefix == os.path.commonprefix(pattern.prefixes)  # noqa: RUF071 - bytes, not paths
