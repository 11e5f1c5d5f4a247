"""Long literals and large repeats do not stall the compiler or the first match.

The engine has no time limit there and keeps the interpreter lock, so that the cases run in a process of their own.
"""

import subprocess
import sys

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

import oz
from oz.subjects.dialects import regular
from oz.subjects.dialects.literals import BREAK
from oz.subjects.dialects.regular import MAX_WEIGHT, rewrite_for_engine
from support.scripts import ENVIRONMENT

LIMIT = 100
"""Seconds of processor time of a process. All cases take a few. A stall takes far more."""

pytestmark = pytest.mark.timeout(600)

OTHERS = [
    ("rv", '"t." * 120 + ">"', '"t." * 120 + "x"'),
    ("raims.sub", 'b"t." * 10000', 'b"t." * 10000'),
    ("redis", 'b"*" + b"t." * 1000', 'b"x" + b"t." * 1000'),
    ("regex", '"a" * 4000 + ".*"', '"a" * 4001'),
    ("regex", '".*?" + "a" * 4000', '"a" * 4001'),
    ("regex", '"(?r).*" + "a" * 4000', '"a" * 4000'),
    ("regex", '".*" + r"\\x61" * 4000', '"a" * 4000'),
    ("regex", '"(?:.*" + "a" * 4000 + "|b)"', '"a" * 4000'),
    ("regex", '".*(?<=" + "a" * 4000 + ")"', '"a" * 4000'),
    ("regex", '".*a{4000}b"', '"a" * 4000 + "b"'),
    ("regex", r'r".*(?:t\.){3000}x"', '"t." * 3000 + "x"'),
]


def for_engine(text, flags=0):
    return rewrite_for_engine(text, flags, None, MAX_WEIGHT)[0]


def run(work, cases):
    """Run a program with each case as `case`. If the program fails, its last line of output is the failing case."""
    script = f"""
import resource, oz, oz.subjects.pattern
resource.setrlimit(resource.RLIMIT_CPU, ({LIMIT}, {LIMIT}))
for case in {cases!r}:
    print(case, flush=True)
{work}"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=500, env=ENVIRONMENT
    )
    assert done.returncode == 0, (done.stdout.splitlines()[-1:], done.stderr)


def test_it_is_compiled_and_matched_without_a_stall():
    # Some take the engine 20 ms: on a slow machine not far from its limit, which is not what this is about.
    work = f"""
    oz.subjects.pattern.TIME_LIMIT = {LIMIT}
    dialect, text, subject = case
    pattern, subject = oz.compile(eval(text), dialect), eval(subject)
    assert pattern.regex.fullmatch(subject)
    pattern.regex.fullmatch(subject[1:])
    pattern.regex.fullmatch(subject[:-1])
    assert pattern.matches(subject)
"""
    run(work, OTHERS)


BOMBS = [
    '"(?:[ab]{1000}|[a-e]{1000}){1000}"',
    '"(?:[ab]{1000}|[a-e]{1000}){1000}" * 1000',
    '"(?:a|bc){300000}"',  # it crashes the interpreter
    '"a{1000000}"',
    '"(?:(?:(?:a?){1000}){1000}){1000}"',
    '"(?:" * 50 + "a" + "){1000}" * 50',
    '"(a{100000})(?<=(?1))"',
    '"a" * 1000000',
]


def test_regex_that_grows_too_large_is_refused():
    work = """
    try:
        oz.compile(eval(case), "regex")
    except oz.PatternError as error:
        assert "at most" in error.rule, error.rule
    else:
        raise AssertionError("not refused")
"""
    run(work, BOMBS)


def test_a_word_of_a_named_list_is_a_literal():
    words = regex.compile(r".*\L<words>", words=["a" * 200])
    assert oz.compile(words).matches("b" + "a" * 200)
    with pytest.raises(oz.PatternError, match="characters; at most"):
        oz.compile(regex.compile(r".*\L<words>", words=["a" * 300]))


def test_short_texts_are_left_alone():
    assert for_engine("a" * 60) == "a" * 60
    assert for_engine("a{2}b") == "a{2}b"
    assert for_engine("[a-z]" * 60) == "[a-z]" * 60
    assert for_engine("a.*" * 60) == "a.*" * 60


def test_a_long_literal_is_broken_into_runs():
    assert for_engine("a" * 70) == "a" * 32 + BREAK + "a" * 32 + BREAK + "a" * 6
    assert for_engine("a" * 70 + "$") == "a" * 32 + BREAK + "a" * 32 + BREAK + "a" * 6 + r"\Z"
    assert BREAK not in for_engine("(?:" + "a" * 70 + "){e<=1}")  # fuzzy
    assert BREAK not in for_engine("(?if)" + "s" * 70)  # two of them are an ß


def test_where_it_cannot_be_broken_it_is_refused():
    with pytest.raises(ValueError, match="characters; at most"):
        for_engine("(?if)" + "s" * 300)
    with pytest.raises(ValueError, match="characters; at most"):
        for_engine("a" * 300 + "(?:b){e<=1}")
    assert for_engine("a" * 200 + "(?:b){e<=1}") == "a" * 200 + "(?:b){e<=1}"


def test_a_break_that_changes_the_meaning_is_not_made(monkeypatch):
    monkeypatch.setattr(regular, "BREAK", "(?!x)")
    assert for_engine("a" * 200) == "a" * 200
    with pytest.raises(ValueError, match="characters; at most"):
        for_engine("a" * 300)


def test_an_unknown_parser_leaves_short_texts(monkeypatch):
    monkeypatch.setattr("oz.subjects.prefixes.literal.core", None)
    assert for_engine("a" * 200) == "a" * 200
    with pytest.raises(ValueError, match="cannot locate"):
        for_engine("a" * 300)


PIECES = st.sampled_from(
    ["a", "b", ".", "a?", "b*", "a+?", "[ab]", "[a]", "a{2}", "{", "}", ",", "1", r"\.", r"\x61", r"\0", "7",
     "(", ")", "|", "(?:", "(?=", "(?<=", "(?!", "(?>", "(?i)", "(?x)", "(?m)", "# ", "\n", "^", "$", r"\b",
     r"\1", r"\g<1>", r"\g", "<", "1>", "ss", "ß", "(?if)", "(?r)", "{e<=1}", "(?#c)", "*", "+", "(?V1)", "é"]
)  # fmt: skip
SUBJECTS = st.text(st.sampled_from("aab.17{}sß\n"), max_size=12)


@given(st.lists(PIECES, max_size=14), st.lists(SUBJECTS, max_size=8), st.integers(1, 3))
def test_the_rewritten_regex_matches_the_same(pieces, subjects, run):
    """Broken every few items, so that the law is tried on short texts."""
    text = "".join(pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regular, "RUN", run)
        patch.setattr(regular, "SHORT_LITERAL", 1)
        patch.setattr(regular, "MAX_WEIGHT", 10_000)
        try:
            before = regex.compile(text.replace("$", r"\Z"))
            after = regex.compile(for_engine(text.replace("$", r"\Z")))
        except (regex.error, ValueError):
            return
    for subject in subjects:
        assert bool(before.fullmatch(subject, timeout=5)) == bool(after.fullmatch(subject, timeout=5)), text
