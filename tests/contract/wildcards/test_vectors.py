"""Vectors of the dialects: answers of real servers and of primary documents."""

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
    found = [row for row in rows(f"{family}.match") if not row.get("reject_ok")]
    for row in found:
        key = text_of(row, "pattern"), _dialect_of(row, family)
        if key not in patterns:
            patterns[key] = compile_pattern(*key)
            index.add(patterns[key], key)
    for row in found:
        key, subject = (text_of(row, "pattern"), _dialect_of(row, family)), text_of(row, "subject")
        if {patterns[key].matches(subject), key in index.match(subject)} != {row["match"]}:
            wrong.append((key, subject, row["match"]))
    assert wrong == []


@promise("A pattern or subject that the servers of a dialect refuse is refused, and no other.")
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
    for row in rows(f"{family}.prefix"):
        pattern = compile_pattern(text_of(row, "pattern"), _dialect_of(row, family))
        for subject in row["samples_match"]:
            assert subject.encode().startswith(pattern.prefixes), pattern
        assert pattern.prefix.startswith(row["prefix_min"].encode()), pattern
        if row.get("multi"):
            assert set(pattern.prefixes) == {item.encode() for item in row["multi"]}, pattern
