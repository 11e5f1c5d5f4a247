"""`matches` beside `Pattern.matches`: random regexes, deep subjects, nulls and bytes."""

import random
import warnings

import pytest
import regex

import oz

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.sql import functions as F

import oz.spark
from oz.spark.java import java_regex
from oz.spark.parts import Unwritable
from spark.answers import answers, python_answer
from support.sizes import size

ATOMS = [
    *"aaabbk.é😀\n",
    r"\.",
    ".",
    r"\d",
    r"\w",
    r"\W",
    r"\s",
    r"\S",
    "[^.]",
    "[a-cé]",
    r"[^\w.]",
    r"[\s-]",
    "^",
    "$",
]
ATOMS += [
    "(?=a)",
    "(?!b)",
    r"\Z",
    "(?i:k)",
    "(?i:[a-k])",
    "(?s:.)",
    r"(?:\.[^.]*+)*",
    r"(?:[^.]*+\.)*?",
    "(?!)",
]
REPEATS = [
    "",
    "",
    "",
    "",
    "?",
    "*",
    "+",
    "*?",
    "+?",
    "??",
    "*+",
    "++",
    "?+",
    "{2}",
    "{1,2}",
    "{0,3}?",
    "{2,}",
    "{2,}+",
]
LETTERS = "aab.k.éKb\n1 _\u212a😀\u0661"


def random_regex(chance, depth=3):
    parts = []
    for _ in range(chance.randint(1, 3)):
        kind = chance.random()
        if depth and kind < 0.3:
            inner = random_regex(chance, depth - 1)
            if kind < 0.1:
                inner += "|" + random_regex(chance, depth - 1)
            part = chance.choice(["(", "(?:", "(?>", "(?=", "(?!"] if kind < 0.2 else ["(?:"]) + inner + ")"
        else:
            part = chance.choice(ATOMS)
        parts.append(part + chance.choice(REPEATS))
    return "".join(parts)


def random_patterns(chance, count):
    found = {}
    while len(found) < count:
        text = random_regex(chance)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                pattern = oz.compile(text, "regex")
                java_regex(pattern)
            except (oz.PatternError, Unwritable):
                continue
        found[pattern] = None
    return list(found)


def random_subjects(chance, count):
    return ["", *("".join(chance.choices(LETTERS, k=chance.randint(1, 7))) for _ in range(count))]


PATTERNS = size(80, 450)
# Of the characters from U+3000 on; the suite has one of seven.
STEP = size(7, 1)


@pytest.mark.sized
@pytest.mark.parametrize("seed", [1])
def test_random_regexes_that_java_gets_mean_there_what_they_mean_here(spark, seed):
    chance = random.Random(seed)
    patterns = random_patterns(chance, PATTERNS)
    subjects = list(dict.fromkeys(subject.encode() for subject in random_subjects(chance, 250)))
    found = answers(spark, patterns, subjects)
    matched = 0
    for pattern in patterns:
        wanted = {each for each in subjects if python_answer(pattern, each)}
        assert found[pattern] == wanted, (pattern, java_regex(pattern), found[pattern] ^ wanted)
        matched += bool(wanted)
    assert matched > PATTERNS // 5


def one_answer(spark, pattern, subject):
    return answers(spark, [oz.compile(pattern)], [subject.encode()]) != {oz.compile(pattern): set()}


DEEP = [
    "a.>",
    "*.>",
    ">",
    "rv:a.*.a.>",
    "a.*.b",
    "redis:a*a",
    "redis:*a*a*b",
    "raims.glob:a?*a",
    "mqtt:+/#",
    "amqp:#.a",
]
DEEP += [
    "amqp:a.#.b.#",
    "amqp:a.#.a.#.a",
    r"regex:a\.(?:[^.]++\.)*+a",
    r"regex:[\w.]+",
    r"regex:(?:[^.]+\.)*a",
]


@pytest.mark.parametrize("token", ["a", "é😀"])
def test_deep_subjects_do_not_overflow_javas_stack(spark, token):
    subject = ".".join(["a", *[token] * 20_000, "a"]).encode()
    patterns = [oz.compile(spec) for spec in DEEP]
    found = answers(spark, patterns, [subject])
    assert found == {pattern: {subject} if pattern.matches(subject) else set() for pattern in patterns}


def test_patterns_of_many_wildcards_do_not_overflow_it_either(spark):
    for count in (100, 190, 5_000):
        pattern, subject = ".".join("*" * count), ".".join("a" * count)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", oz.spark.PythonWarning)
            assert one_answer(spark, pattern, subject)
            assert not one_answer(spark, pattern, subject + ".a")


@pytest.mark.parametrize(
    ("pattern", "ending", "inside"),
    [
        ("*.*.k2.>", "", ".k2."),
        ("a.*.c", ".c", ""),
        ("a.*.b.c.*.d.*", "", ".b.c."),
        ("a.*.é.*.b", ".b", ".é."),
        ("redis:a*b*c", "c", ""),
        (r"regex:^.*b\.c(?=d).*", "", "b.c"),
        (r"regex:^.*b\.c(?=d)$", "", "b.c"),
        (r"regex:^.*x$", "x", ""),
        (r"regex:^(?i:.*ab)$", "", ""),
        (r"regex:^.*(ab|cd)$", "", ""),
        (r"regex:^.*(ab)?$", "", ""),
        (r"regex:^.*(?!ab).$", "", ""),
        ("a.*", "", ""),
        ("*.*", "", ""),
    ],
)
def test_literals_that_each_match_has_are_known(pattern, ending, inside):
    found = java_regex(oz.compile(pattern))
    assert (found.ending, found.inside) == (ending, inside)


def test_a_byte_that_is_no_ascii_is_never_looked_for_as_text():
    for text in (b"*a\xc3\xa9*b\xe9*", b"*\xe9"):
        found = java_regex(oz.compile(text, "redis"))
        assert (found.ending, found.inside) == ("", "")


def test_null_stays_null(spark):
    rows = spark.createDataFrame([(None,), ("a.b",)], "subject string")
    patterns = [
        "a.b",
        "a.*",
        "redis:a*",
        "redis:*b",
        r"regex:(?s)a.*",
        r"regex:\p{L}.b",
        "zmq:",
        "redis:[\udcff]",
    ]
    patterns[-1] = oz.compile(b"\xff*", "redis")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", oz.spark.PythonWarning)
        columns = [oz.spark.matches("subject", pattern).alias(str(at)) for at, pattern in enumerate(patterns)]
    columns.append(oz.spark.prefix("subject", "zmq:"))
    null, row = rows.select(*columns).collect()
    assert set(null) == {None}
    assert tuple(row) == (True,) * 7 + (False, True)


BYTES = [
    b"\xff",
    b"\xc3\xa9",
    b"\xc3",
    b"a\xff",
    b"a\xffb",
    b"a\xef\xbf\xbdb",
    b"aXb",
    b"",
    b"\xef\xbf\xbd",
    b"\xc3\xa9x",
]


OF_BYTES = [
    oz.compile(text, dialect)
    for dialect in ("redis", "raims.glob", "raims.sub", "zmq")
    for text in [b"a\xff*", b"a?b", b"\xc3*", b"a\xffb", b"[\xc3\xff]*", b"*\xff*", b"??", b"\xff", b"*"]
]
OF_BYTES += [
    oz.compile(spec)
    for spec in ["*", ">", r"regex:(?s).*", r"regex:a\Wb", r"regex:\P{L}+", "mqtt:#", "amqp:#"]
]


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_bytes_that_are_not_utf8(spark, kind):
    def matching(_, pattern):
        return oz.spark.matches(F.col("bytes").cast(kind), pattern)

    found = answers(spark, OF_BYTES, BYTES, matching)
    for pattern in OF_BYTES:
        assert found[pattern] == {each for each in BYTES if python_answer(pattern, each)}, pattern


def test_a_pattern_that_takes_too_long_fails_by_name(spark):
    with pytest.warns(oz.spark.PythonWarning):
        column = oz.spark.matches("subject", r"regex:(a|aa)+b|(a+)+c")
    rows = spark.createDataFrame([("a" * 64,)], "subject string")
    with pytest.raises(Exception, match=r"PatternTimeout.*\(a\|aa\)\+b"):
        rows.filter(column).collect()


@pytest.mark.sized
def test_classes_are_spelled_out_as_this_engine_counts_them(spark):
    # Java knows another version of Unicode, and means ASCII by \d.
    characters = [*range(0x3000), *range(0x3000, 0x30000, STEP)]
    subjects = [f"x{chr(at)}".encode() for at in characters if not 0xD800 <= at < 0xE000]
    patterns = [
        oz.compile(text, "regex") for text in (r"x\w", r"x\d", r"x\s", r"x\W", r"x[^\w\s]", r"(?a)x\w")
    ]
    found = answers(spark, patterns, subjects)
    for pattern in patterns:
        every = regex.compile(pattern.regex.pattern, pattern.regex.flags)
        assert found[pattern] == {each for each in subjects if every.fullmatch(each.decode())}


def test_a_pattern_object_a_column_and_bytes_are_taken(spark):
    rows = spark.createDataFrame([("a.b",)], "subject string")
    given = ["a.*", b"a.*", oz.compile("a.*"), oz.compile(regex.compile(r"a\..", regex.I))]
    for pattern in given:
        assert rows.filter(oz.spark.matches(F.lower("subject"), pattern)).count() == 1


def test_a_pattern_that_is_none_is_refused():
    with pytest.raises(oz.PatternError):
        oz.spark.matches("subject", "a..b")
