import oz
from oz.subjects import dialects
from oz.subjects.advice import MAX_TOKENS, advice
from support.cases import each

DEEP = ".".join("a" * (MAX_TOKENS + 1))


@each("spec", ["time.*.east", "md.>", "redis:a*", "regex:^(us|eu)\\.east", "zmq:md"])
def test_a_pattern_with_a_literal_start_needs_none(spec):
    assert advice(oz.compile(spec)) == []


@each("spec", [">", "*.a", "redis:*", "regex:.*", "regex:[^a]b", "zmq:"])
def test_an_empty_prefix(spec):
    [warning] = advice(oz.compile(spec))
    assert warning.startswith("the prefix is empty")


@each("spec", [DEEP, "rv:" + DEEP, f"redis:{DEEP}*", f"zmq:{DEEP}"])
def test_too_many_tokens(spec):
    [warning] = advice(oz.compile(spec))
    assert warning.startswith("17 tokens")


@each("text", ["é.a", b"a\xff*"])
def test_not_ascii(text):
    [warning] = advice(oz.compile(text, "redis"))
    assert warning.startswith("not ASCII")


@each(("text", "owner"), [("a/+", "mqtt"), ("a.#", "amqp"), ("a*", "redis")])
def test_a_wildcard_of_another_dialect(text, owner):
    [warning] = advice(oz.compile(text))
    assert f" a wildcard in {owner}" in warning


@each(
    "subject, is_unusual", [("RUN.*", True), ("RUN.>", True), ("RUN", False), ("a*b", False), ("a>", False)]
)
def test_wildcard_in_a_subject_of_rv(subject, is_unusual):
    found = dialects.find("rv").subject_advice(subject)
    assert found is None or "contains a wildcard" in found
    assert (found is not None) == is_unusual
