"""Vectors of the dialects: answers of real servers and of primary documents."""

import os

from contract.adapter import PatternIndex, compile_pattern, errors, validate_subject
from contract.promises import promise
from support.cases import each
from support.vector_rows import rows, text_of

FAMILIES = ["nats", "rv", "kubemq", "redis", "raims", "regex", "mqtt", "amqp"]
RAIMS = {"sub": "raims.sub", "psub_rv": "raims.rv", "psub_glob": "raims.glob"}


def _dialect_of(row, family):
    return RAIMS[row["op"]] if row.get("op") else row.get("dialect", family)


@promise("A pattern matches the subjects that the servers of its dialect match, alone and in an index.")
@each("family", FAMILIES)
def test_patterns_match_as_on_servers(family):
    patterns, wrong = {}, []
    index = PatternIndex()
    found = [one for one in rows(f"{family}.match") if not one.get("reject_ok")]
    for row in found:
        key = text_of(row, "pattern"), _dialect_of(row, family)
        if key not in patterns:
            patterns[key] = compile_pattern(*key)
            index.add(patterns[key], key)
    for row in found:
        key, subject = (text_of(row, "pattern"), _dialect_of(row, family)), text_of(row, "subject")
        if {patterns[key].matches(subject), key in index.match(subject)} != {row["match"]}:
            wrong.append((key, subject, row["match"]))
        raw = subject if isinstance(subject, bytes) else subject.encode()
        assert not row["match"] or raw.startswith(patterns[key].prefixes), row
    assert wrong == []


@promise("A dialect refuses exactly the patterns and subjects that its servers refuse.")
@each("family", FAMILIES)
def test_texts_are_refused_as_on_servers(family):
    wrong = []
    for row in rows(f"{family}.valid"):
        call = compile_pattern if row["kind"] == "pattern" else validate_subject
        try:
            call(text_of(row, "text"), _dialect_of(row, family))
            is_valid = True
        except (errors.PatternError, errors.SubjectError):
            is_valid = False
        if is_valid != row["valid"]:
            wrong.append((row["kind"], text_of(row, "text"), row["why"]))
    assert wrong == []


@promise(
    "Each subject that a pattern matches begins with one of its prefixes, which are not needlessly short."
)
@each("family", FAMILIES)
def test_prefixes_are_sound_and_long(family):
    found, longest = rows(f"{family}.prefix"), 0
    for row in found:
        pattern = compile_pattern(text_of(row, "pattern"), _dialect_of(row, family))
        assert pattern.prefix == os.path.commonprefix(pattern.prefixes)  # noqa: RUF071 - bytes, not paths
        for subject in row["samples_match"]:
            assert subject.encode().startswith(pattern.prefixes), pattern
        assert pattern.prefix.startswith(row["prefix_min"].encode()), pattern
        if row.get("multi"):
            assert set(pattern.prefixes) == {one.encode() for one in row["multi"]}, pattern
        most = row["prefix_max"].encode()
        if "prefix_max_bytes_hex" in row:
            most = bytes.fromhex(row["prefix_max_bytes_hex"])
        assert most.startswith(pattern.prefix) or row.get("matches_nothing"), pattern
        longest += pattern.prefix == most or bool(row.get("matches_nothing"))
    assert longest >= (1 if family == "regex" else 0.95) * len(found)
