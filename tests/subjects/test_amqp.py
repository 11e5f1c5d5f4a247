"""AMQP binding keys beyond the vectors: any text, prefixes, hostile numbers of `#`."""

import pytest

import oz
from support.sizes import in_suite


def test_bytes_that_are_not_utf8_are_no_key():
    with pytest.raises(oz.SubjectError, match="amqp"):
        oz.validate_subject(b"a.\xff", "amqp")
    with pytest.raises(oz.PatternError, match="amqp"):
        oz.compile(b"\xff.*", "amqp")


HOSTILE = [
    ".".join(["#"] * 100), "#.a." * 30 + "#", "#.a." * 30 + "b", "#.*." * 30 + "b", "#.*.a." * 20 + "b",
    "a.#." * 30 + "b", "*." * 60 + "#.b", "#." + "*." * 60 + "b"
]  # fmt: skip


@pytest.mark.parametrize("text", in_suite(HOSTILE[1::3], [*HOSTILE[0::3], *HOSTILE[2::3]]))
def test_many_hashes_do_not_backtrack(text):
    pattern = oz.compile(text, "amqp")
    index = oz.PatternIndex()
    index.add(pattern)
    for subject in ("a." * 3_000 + "a", "a." * 3_000 + "b", "a." * 3_000 + "bb", "x." * 3_000 + "b"):
        matches = pattern.regex.fullmatch(subject, timeout=10) is not None
        assert matches is bool(index.match(subject))
        has_room = subject.split(".").count("a") >= text.split(".").count("a")
        assert matches is (has_room and (text[-1] == "#" or subject.endswith(".b")))
