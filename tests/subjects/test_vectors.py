"""Rows of the subject vectors beside those of `tests/contract/wildcards`: lenient texts and matrices."""

from __future__ import annotations

import pytest

import oz
from support.vector_rows import rows, text_of


def test_refused_pattern_of_rv_is_literal_if_lenient():
    texts = [text_of(row, "text") for row in rows("rv.valid") if row.get("lenient") == "literal"]
    for text in texts:
        pattern = oz.compile(text, "rv", lenient=True)
        assert (pattern.is_literal, pattern.prefixes) == (True, (text.encode(),))
        assert pattern.matches(text)
        assert [
            one for one in ("abcxyz", "abc.xyz", "Foo", "Foox", "Foo.bar", "a.b") if pattern.matches(one)
        ] == []
    assert texts


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
