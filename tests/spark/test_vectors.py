"""Every match and matrix row gives the same answer in Spark as in Python, whatever way Spark takes to it."""

import pytest

import oz
from support.sizes import in_suite, size
from support.vector_rows import rows, text_of

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from spark.answers import answers, python_answer

RAIMS = {"sub": "raims.sub", "psub_rv": "raims.rv", "psub_glob": "raims.glob"}
MATRICES = [
    ("nats", "nats"),
    ("nats", "rv"),
    ("nats", "kubemq"),
    ("nats", "raims.rv"),
    ("redis", "redis"),
    ("mqtt", "mqtt"),
    ("amqp", "amqp"),
]

MOST = size(120, 1_000_000)
"""Patterns of a matrix; one with more has every second, every third."""


def compiled(family, row):
    return oz.compile(text_of(row, "pattern"), RAIMS[row["op"]] if row.get("op") else row["dialect"])


def as_bytes(text):
    return text.encode() if isinstance(text, str) else text


@pytest.mark.parametrize(
    "family", in_suite(["nats", "redis", "mqtt"], ["rv", "kubemq", "raims", "regex", "amqp"])
)
def test_match_rows(spark, family):
    confirmed = []
    for row in rows(f"{family}.match"):
        try:
            pattern = compiled(family, row)
        except oz.PatternError:
            assert row.get("reject_ok") or not row["match"]
            continue
        confirmed.append((pattern, as_bytes(text_of(row, "subject")), row))
    patterns = list(dict.fromkeys(pattern for pattern, _, _ in confirmed))
    subjects = list(dict.fromkeys(subject for _, subject, _ in confirmed))
    found = answers(spark, patterns, subjects)
    for pattern, subject, row in confirmed:
        if not row.get("reject_ok"):
            assert (subject in found[pattern]) == row["match"], (pattern, subject)
    for pattern in patterns:  # each with each subject, not only with those of its rows
        assert found[pattern] == {each for each in subjects if python_answer(pattern, each)}, pattern


@pytest.mark.sized
@pytest.mark.parametrize(("family", "dialect"), MATRICES)
def test_matrix_rows(spark, family, dialect):
    first, *matrix = rows(f"{family}.matrix")
    matrix = matrix[:: max(1, len(matrix) // MOST)]
    encoding = "latin1" if "latin1" in first.get("encoding", "") else "utf-8"
    universe = [subject.encode(encoding) for subject in first["universe"]]
    wanted = {
        oz.compile(row["pattern"].encode(encoding), dialect): {
            each.encode(encoding) for each in row["matched"]
        }
        for row in matrix
    }
    assert answers(spark, wanted, universe) == wanted
