"""The tables and rules of docs/subjects.md hold."""

import re
from pathlib import Path

import pytest

import oz
from support.cases import each

PAGE = (Path(__file__).parents[2] / "docs" / "subjects.md").read_text("utf-8")
REFUSED_PATTERNS = {
    "nats": ["a..b", "a.>.b", "a b", "a.\f"],
    "rv": ["abc*xyz", "Foo.>.baz", "A." * 128],
    "kubemq": [".a", "a\vb"],
    "mqtt": ["a+", "a/#/b", "", "a/\uffff", "$share/g/a"],
    "amqp": ["x" * 256],
    "regex": ["(a", "(?<=a+)b"],
    "raims.rv": ["a..b"],
}
REFUSED_SUBJECTS = {
    "nats": ["md.*", "md.>", "", "a b", b"\xff"],
    "kubemq": ["md*", "md.*"],
    "mqtt": ["a/+", "a#"],
    "rv": ["_ADV.x", "A." + "é" * 127, "x" * 253],
    "regex": [b"\xff"],
}
SUBJECTS = {
    "nats": ["md*", "a\vb", ".".join("x" * 10_000)],
    "rv": ["_INBOX.x", "Foo Bar.baz", r"a\.b"],
    "redis": ["", "md.*", b"\xff"],
    "raims.sub": [b"\xff"],
    "raims.rv": ["md.*"],
    "regex": ["md.*"],
    "mqtt": ["md.*"],
    "amqp": ["stock.*", ""],
    "zmq": [""],
}


def rows():
    """Yield dialect, pattern, matching subjects and other subjects of each row."""
    for section in PAGE.split("\n## ")[1:]:
        dialect, is_table = section.partition("\n")[0], False
        for line in section.splitlines():
            is_table = line.startswith("|") and (is_table or "| does not match |" in line)
            cells = [cell.replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if dialect in oz.DIALECTS and is_table and cells[0].startswith(" `"):
                pattern, matched, refused = (re.findall("`([^`]+)`", cell) for cell in cells)
                yield dialect, pattern[0], matched, refused


ROWS = list(rows())


def test_most_dialects_have_a_table():
    assert {row[0] for row in ROWS} >= {"nats", "rv", "kubemq", "redis", "regex", "mqtt", "amqp"}


@each("row", ROWS)
def test_pattern_of_a_table_matches_as_documented(row):
    dialect, text, matched, refused = row
    pattern = oz.compile(text, dialect)
    assert [subject for subject in matched if not pattern.matches(subject)] == []
    assert [subject for subject in refused if pattern.matches(subject)] == []


@each("question", ["fo?.bar foo.bar", "fo?.bar fo.bar", "fo?.bar fooo.bar"])
def test_question_mark_of_raims_glob_matches_zero_or_one_byte(question):
    text, subject = question.split()
    [line] = [line for line in PAGE.splitlines() if line.startswith(f"| `{text}` | `{subject}` |")]
    answers = [cell.strip() == "yes" for cell in line.split("|")[3:5]]
    assert answers == [oz.compile(text, dialect).matches(subject) for dialect in ("redis", "raims.glob")]


def test_each_dialect_refuses_malformed_patterns_and_subjects():
    for dialect, texts in REFUSED_PATTERNS.items():
        for text in texts:
            with pytest.raises(oz.PatternError):
                oz.compile(text, dialect)
    for dialect, subjects in REFUSED_SUBJECTS.items():
        for subject in subjects:
            with pytest.raises(oz.SubjectError):
                oz.validate_subject(subject, dialect)
    for dialect, subjects in SUBJECTS.items():
        for subject in subjects:
            oz.validate_subject(subject, dialect)


def test_publisher_warns_of_a_subject_with_a_wildcard_of_rv():
    with oz.Publisher("tcp://127.0.0.1:*", dialect="rv") as publisher, pytest.warns(oz.SubjectWarning):
        publisher.publish("RUN.*", b"")
