"""`$` matches only at the end of a subject, wherever it is an anchor."""

import itertools
import random

import pytest
import regex

from oz.subjects.dialects.regular import MAX_WEIGHT, rewrite_for_engine
from oz.subjects.prefixes import literal
from support.cases import each
from support.sizes import size


def for_engine(text, flags=0):
    return rewrite_for_engine(text, flags, None, MAX_WEIGHT)[0]


REWRITTEN = [
    ("foo$", r"foo\Z"),
    ("^$", r"^\Z"),
    ("$$", r"\Z\Z"),
    ("a$|b$", r"a\Z|b\Z"),
    ("(a$)?$", r"(a\Z)?\Z"),
    ("a$*", r"a\Z*"),
    ("a$?+b", r"a\Z?+b"),
    ("a*$", r"a*\Z"),
    ("a{2}$", r"a{2}\Z"),
    ("a{$", r"a{\Z"),
    ("a$\n", "a\\Z\n"),
    ("(?=a$)|(?<!$)", r"(?=a\Z)|(?<!\Z)"),
    ("(a)?(?(1)$|b$)", r"(a)?(?(1)\Z|b\Z)"),
    ("(?(?=$)a|b$)", r"(?(?=\Z)a|b\Z)"),
    ("(?:a$){e<=1}", r"(?:a\Z){e<=1}"),
    ("(?:a$){e<=1:[$]}$", r"(?:a\Z){e<=1:[$]}\Z"),
    (r"\\$", r"\\\Z"),
    (r"\\\$$", r"\\\$\Z"),
    (r"\p$", r"\p\Z"),
    (r"\0$", r"\0\Z"),
    (r"[\$]$", r"[\$]\Z"),
    ("[$]$", r"[$]\Z"),
    ("[]$]$", r"[]$]\Z"),
    ("[[$]$", r"[[$]\Z"),
    ("(?V1)[[$]a--$]$", r"(?V1)[[$]a--$]\Z"),
    ("(?#$)$", r"(?#$)\Z"),
    (r"(?#\$)$", r"(?#\$)\Z"),
    ("(?x)a $ # $ a\n $", "(?x)a \\Z # $ a\n \\Z"),
    (r"(?x)\ $", r"(?x)\ \Z"),
    ("a$(?x) # $", r"a\Z(?x) # $"),
    ("(?m:a$)$", r"(?m:a$)\Z"),
    ("(?-m:a$)$", r"(?-m:a\Z)\Z"),
    ("$(?m)$", r"\Z(?m)$"),
    ("(?w)a$", r"(?w)a\Z"),
    ("(?V1)(?r)a$", r"(?V1)(?r)a\Z"),
    (r"\L<names>$", r"\L<names>\Z"),
    ("é中$é", r"é中\Zé"),
]


@each(("text", "expected"), REWRITTEN)
def test_rewritten(text, expected):
    assert for_engine(text) == expected
    regex.compile(expected, names=["a"], ignore_unused=True)


@each("text", ["", "foo", r"\$", "[$]", "[^$]", "(?m)a$", "(?#$)", "(?x)a # $", r"(?mw)$", "(?V1)[[$]]"])
def test_left_as_it_is(text):
    assert for_engine(text) == text


def test_flags():
    assert for_engine("a$", regex.M) == "a$"
    assert for_engine("(?-m)a$", regex.M) == r"(?-m)a\Z"
    assert for_engine("a # $", regex.X) == "a # $"
    assert for_engine("[[$]]$", regex.V1) == r"[[$]]\Z"
    assert for_engine("a$", regex.W) == r"a\Z"


def test_a_last_newline_is_not_skipped():
    assert regex.fullmatch("a$\n", "a\n")
    assert not regex.fullmatch(for_engine("a$\n"), "a\n")
    assert regex.fullmatch("(?=a$)a\n", "a\n")
    assert not regex.fullmatch(for_engine("(?=a$)a\n"), "a\n")


@each("text", ["($", "$)", "[$", "a**$", r"$\1"])
def test_no_regex(text):
    with pytest.raises(regex.error) as caught:
        for_engine(text)
    assert caught.value.pos is not None


def test_an_unknown_parser_is_an_error(monkeypatch):
    monkeypatch.setattr(literal, "core", None)
    with pytest.raises(ValueError, match="cannot locate"):
        for_engine("a$")
    assert for_engine("a") == "a"


def test_a_parser_that_reads_dollars_elsewhere_is_an_error(monkeypatch):
    original = literal.core.parse_sequence
    monkeypatch.setattr(literal.core, "parse_sequence", lambda *args: original(*args))
    with pytest.raises(ValueError, match="cannot locate"):
        for_engine("a$")


SUBJECTS = ["".join(chars) for length in range(4) for chars in itertools.product("ab$\n", repeat=length)]
PIECES = [
    "$", "$", "a", "b", r"\$", "[$]", "[^$]", "(", ")", "|", "(?:", "(?=", "(?m:", "?", "*", "\n", "(?#$)",
    ".", "[", "\\"
]  # fmt: skip


@pytest.mark.sized
@pytest.mark.timeout(3_600)
def test_brute_force():
    chance = random.Random(20111121)
    tried = 0
    for _ in range(size(1_500, 200_000)):
        text = "".join(chance.choices(PIECES, k=chance.randint(1, 7)))
        try:
            before = regex.compile(text)
        except regex.error:
            continue
        after = regex.compile(for_engine(text))
        tried += 1
        for subject in SUBJECTS:
            # The two may differ only for a subject that ends with a newline.
            if not subject.endswith("\n"):
                assert bool(before.fullmatch(subject)) == bool(after.fullmatch(subject)), (text, subject)
            elif after.fullmatch(subject):
                # A \Z that holds is a $ that holds, unless it is forbidden; no piece here forbids.
                assert before.fullmatch(subject), (text, subject)
    assert tried > size(250, 33_000)
