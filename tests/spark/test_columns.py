"""`matches` and the other columns give in Spark the answers that oz gives, and Parquet skips row groups."""

import itertools
import random
import warnings

import pytest

import oz

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.sql import functions as F

import oz.spark
from oz.spark.java import java_regex
from support.sizes import size
from support.vector_rows import rows, text_of

CHUNK = 200
"""Patterns of one Spark job."""

FAMILIES = ["nats", "rv", "kubemq", "redis", "raims", "regex", "mqtt", "amqp"]
RAIMS = {"sub": "raims.sub", "psub_rv": "raims.rv", "psub_glob": "raims.glob"}


def answers(spark, patterns, subjects):
    """Return for each pattern the set of subjects, as bytes, that match in Spark."""
    table = spark.createDataFrame([(each,) for each in subjects], "subject binary").coalesce(1)
    table = table.select(F.col("subject").cast("string").alias("subject")).cache()
    found = {}
    waiting = iter(patterns)
    while chunk := list(itertools.islice(waiting, CHUNK)):
        columns = [oz.spark.matches("subject", each).alias(str(at)) for at, each in enumerate(chunk)]
        result = table.select(*columns).toArrow()
        for pattern, column in zip(chunk, result.columns, strict=True):
            values = column.to_pylist()
            assert None not in values
            found[pattern] = {subject for subject, value in zip(subjects, values, strict=True) if value}
    table.unpersist()
    return found


def python_answer(pattern, subject):
    try:
        return pattern.matches(subject)
    except oz.SubjectError:
        return False


def as_bytes(text):
    return text.encode() if isinstance(text, str) else text


@pytest.mark.parametrize("family", FAMILIES)
def test_the_match_vectors_hold_and_every_pair_agrees_with_oz(spark, family):
    confirmed = []
    for row in rows(f"{family}.match"):
        dialect = RAIMS[row["op"]] if row.get("op") else row["dialect"]
        try:
            pattern = oz.compile(text_of(row, "pattern"), dialect)
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
    for pattern in patterns:
        expected = {subject for subject in subjects if python_answer(pattern, subject)}
        assert found[pattern] == expected, (pattern, java_regex(pattern), found[pattern] ^ expected)


ATOMS = [
    "a", "b", "k", ".", r"\.", "é", "😀", "[^.]", "[a-cé]", "[^a.]", "[.k]", "^", "$", "(a|b)", r"(?:a\.)?",
    "|"
]  # fmt: skip
REPEATS = ["", "", "", "*", "+", "?", "*?", "+?", "*+", "{2}", "{1,2}", "{0,3}?"]
ODD = [r"\w", r"\d", "(?i:k)", r"\b", "(?=a)", "(a*)*"]


def random_regexes(chance, count):
    found = {}
    while len(found) < count:
        parts = [chance.choice(ATOMS) for _ in range(chance.randint(1, 6))]
        text = "".join(part + (chance.choice(REPEATS) if part not in "^$|" else "") for part in parts)
        text = (
            chance.choice(["", "", "(?s)", ""]) + text + (chance.choice(ODD) if chance.random() < 0.1 else "")
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found[oz.compile(text, "regex")] = None
            except oz.PatternError:
                continue
    return list(found)


@pytest.mark.sized
def test_random_regexes_agree_whether_java_or_python_evaluates_them(spark):
    chance = random.Random(5)
    patterns = random_regexes(chance, size(300, 3_000))
    texts = {"".join(chance.choices("aab.ké\n\u2028K😀", k=chance.randint(0, 6))) for _ in range(150)}
    subjects = [text.encode() for text in sorted(texts)]
    found = answers(spark, patterns, subjects)
    for pattern in patterns:
        expected = {subject for subject in subjects if python_answer(pattern, subject)}
        assert found[pattern] == expected, (pattern, java_regex(pattern), found[pattern] ^ expected)
    native = sum(java_regex(pattern) is not None for pattern in patterns)
    assert len(patterns) // 3 < native < len(patterns)


BYTES = [
    b"\xff", b"\xc3\xa9", b"\xc3", b"a\xff", b"a\xffb", b"a\xef\xbf\xbdb", b"aXb", b"", b"a\n", b"\xc3\xa9x"
]  # fmt: skip
BYTE_GLOBS = [
    b"a\xff*", b"a?b", b"\xc3*", b"a\xffb", b"[\xc3\xff]*", b"*\xff*", b"??", b"*", b"*?*", b"[^a]*", b"",
    b"a*b*"
]  # fmt: skip


def test_subjects_that_are_not_utf8_match_byte_dialects_only(spark):
    patterns = [oz.compile(text, name) for name in ("redis", "raims.glob", "zmq") for text in BYTE_GLOBS]
    patterns += map(oz.compile, ["*", ">", r"regex:(?s).*", r"regex:a\Wb", "mqtt:#", "amqp:#", "a.>"])
    found = answers(spark, patterns, BYTES)
    for pattern in patterns:
        assert found[pattern] == {each for each in BYTES if python_answer(pattern, each)}, pattern


@pytest.mark.parametrize("token", ["a", "é😀"])
def test_deep_subjects_and_long_patterns_do_not_overflow_javas_stack(spark, token):
    subject = ".".join(["a", *[token] * 20_000, "a"]).encode()
    specs = [
        "a.>",
        "*.>",
        ">",
        "rv:a.*.a.>",
        "redis:a*a",
        "redis:*a*a*b",
        "raims.glob:a?*a",
        "mqtt:+/#",
        "amqp:#.a",
    ]
    specs += [
        "amqp:a.#.b.#",
        "amqp:a.#.a.#.a",
        r"regex:a\.(?:[^.]++\.)*+a",
        r"regex:(?:[^.]+\.)*a",
        "regex:a[^b]*a",
    ]
    specs += [".".join("*" * count) for count in (90, 2_000)]
    patterns = [oz.compile(spec) for spec in specs]
    subjects = [subject, ".".join("a" * 90).encode(), ".".join("a" * 2_000).encode()]
    found = answers(spark, patterns, subjects)
    assert found == {each: {item for item in subjects if each.matches(item)} for each in patterns}


def test_hostile_globs_end_soon(spark):
    subject = b"a" * 5_000
    patterns = [
        oz.compile("*".join(["a"] * 60) + "*b", "redis"),
        oz.compile("#." + "a.#." * 40 + "b", "amqp"),
    ]
    assert answers(spark, patterns, [subject]) == {pattern: set() for pattern in patterns}


def test_null_stays_null_and_pattern_objects_columns_and_bytes_are_taken(spark):
    table = spark.createDataFrame([(None,), ("A.b",)], "subject string")
    given = ["a.b", "a.*", b"a.*", oz.compile("a.*"), r"regex:(?i)A\.b", "redis:a*", "zmq:", "regex:.*"]
    columns = [oz.spark.matches(F.lower("subject"), each).alias(str(at)) for at, each in enumerate(given)]
    null, row = table.select(*columns, oz.spark.prefix("subject", "zmq:")).collect()
    assert set(null) == {None}
    assert set(row) == {True}
    with pytest.raises(oz.PatternError):
        oz.spark.matches("subject", "a..b")


def test_a_pattern_that_exceeds_its_time_fails_the_query_by_name(spark):
    table = spark.createDataFrame([("a" * 64,)], "subject string")
    with pytest.raises(Exception, match=r"PatternTimeout.*\(a\|aa\)\+b"):
        table.filter(oz.spark.matches("subject", r"regex:(a|aa)+b|(a+)+c")).collect()


# Parquet ------------------------------------------------------------------------------------------

ROWS, GROUP = 20_000, 200


def scan(table, condition):
    """Return the number of rows that match, and the number of rows that the Parquet scan put out."""
    execution = table.filter(condition)._jdf.queryExecution()
    count = len(execution.executedPlan().executeCollect())
    waiting = [execution.executedPlan()]
    while waiting:
        node = waiting.pop()
        if "FileSourceScanExec" in node.getClass().getName():
            return count, node.metrics().apply("numOutputRows").value()
        waiting += [node.children().apply(at) for at in range(node.children().size())]
    raise AssertionError("the plan has no scan")


@pytest.fixture(scope="module")
def parquet(spark, tmp_path_factory):
    """Return a table with 100 values in each of the first two tokens, sorted, in small row groups."""
    path = str(tmp_path_factory.mktemp("parquet") / "sorted")
    subject = F.expr("format_string('s%02d.k%02d.n%d', id % 100, id div 100 % 100, id)")
    table = spark.range(ROWS).select(subject.alias("subject")).repartition(1).sortWithinPartitions("subject")
    options = {"parquet.block.size": 16_384, "parquet.block.row.count.limit": GROUP}
    table.write.options(**options).parquet(path)
    return spark.read.parquet(path)


@pytest.mark.parametrize(
    ("pattern", "count", "groups"),
    [
        ("s07.*.*", 200, 2),
        ("s07.k03.>", 2, 1),
        ("s07.k03.n307", 1, 1),
        ("redis:s07.k0[37].*", 4, 2),
        (r"regex:^(s07|s42|s99)\.k5.\.n.*", 60, 6),
        (r"regex:^s07\.\p{L}5.\.n.*", 20, 2),
    ],
)
def test_parquet_skips_the_row_groups_that_the_prefixes_exclude(parquet, pattern, count, groups):
    found, scanned = scan(parquet, oz.spark.matches("subject", pattern))
    assert found == count
    assert count <= scanned <= groups * GROUP + GROUP


def test_a_prefix_that_ends_within_a_character_loses_no_row(spark, tmp_path):
    path = str(tmp_path / "accents")
    subjects = [f"x{chr(0xC0 + at % 64)}.{at:05}" for at in range(4_000)]
    table = spark.createDataFrame([(each,) for each in subjects], "subject string").repartition(1)
    table.sortWithinPartitions("subject").write.option("parquet.block.row.count.limit", 100).parquet(path)
    pattern = oz.compile(b"x\xc3*", "redis")
    for condition in (oz.spark.matches("subject", pattern), oz.spark.prefix("subject", pattern)):
        assert scan(spark.read.parquet(path), condition)[0] == len(subjects)


# token, depth, prefix -----------------------------------------------------------------------------

SUBJECTS = ["flight.JFK.LAX.AA", "a", "", ".", "a..b", "é.😀.x", "a/b|c", None]


def values_of(spark, columns):
    table = spark.createDataFrame([(each,) for each in SUBJECTS], "subject string")
    found = table.select(*(column.alias(str(at)) for at, column in enumerate(columns.values()))).toArrow()
    return dict(zip(columns, (column.to_pylist() for column in found.columns), strict=True))


def token_at(tokens, n):
    index = n - 1 if n > 0 else n
    return tokens[index] if -len(tokens) <= index < len(tokens) else None


def test_token_and_depth_split_at_the_separator(spark):
    cases = list(itertools.product([1, 2, 5, -1, -4], [".", "/", "|", "..", "b|"]))
    tokens = {case: oz.spark.token("subject", case[0], separator=case[1]) for case in cases}
    depths = {("depth", item): oz.spark.depth("subject", separator=item) for item in (".", "/")}
    found = values_of(spark, tokens | depths)
    for n, separator in cases:
        expected = [each and token_at(each.split(separator), n) for each in SUBJECTS]
        expected = [
            token_at([""], n) if each == "" else value for each, value in zip(SUBJECTS, expected, strict=True)
        ]
        assert found[n, separator] == expected, (n, separator)
    for separator in (".", "/"):
        expected = [None if each is None else len(each.split(separator)) for each in SUBJECTS]
        assert found["depth", separator] == expected
    with pytest.raises(ValueError, match="count from 1"):
        oz.spark.token("subject", 0)
    with pytest.raises(ValueError, match="separator=''"):
        oz.spark.depth("subject", separator="")


def test_prefix_passes_the_subjects_that_zeromq_passes(spark):
    specs = ["a", "flight.*.LAX.>", "*", r"regex:^(a|flight|é).*", "redis:[a.]*b"]
    found = values_of(spark, {spec: oz.spark.prefix("subject", spec) for spec in specs})
    for spec in specs:
        prefixes = oz.compile(spec).prefixes
        assert found[spec] == [
            None if each is None else each.encode().startswith(prefixes) for each in SUBJECTS
        ]


# match_all, join_patterns -------------------------------------------------------------------------

PATTERNS = [
    "a.*",
    "a.b",
    "rv:a.>",
    "redis:*b",
    r"regex:^a\.\w$",
    "mqtt:a/+",
    "amqp:#.b",
    oz.compile("*.b"),
    "a.*",
]
MATCHED = ["a.b", "a.c", "a/c", "b", "x", "", "a.b", "é.b", None]


def matching(subject):
    named = {each.text if isinstance(each, oz.Pattern) else each: oz.compile(each) for each in PATTERNS}
    return [name for name, pattern in named.items() if pattern.matches(subject)]


def test_match_all_lists_patterns_in_the_given_order_and_join_patterns_joins_them(spark):
    table = spark.createDataFrame(list(enumerate(MATCHED)), "number int, subject string")
    found = table.select("subject", oz.spark.match_all("subject", PATTERNS).alias("patterns")).collect()
    assert [row.subject for row in found] == MATCHED
    for subject, patterns in found:
        assert patterns == (None if subject is None else matching(subject))
    joined = oz.spark.join_patterns(table, table.subject, PATTERNS, name="interest")
    assert joined.columns == ["number", "subject", "interest"]
    expected = [
        (at, each, item) for at, each in enumerate(MATCHED) if each is not None for item in matching(each)
    ]
    assert sorted(map(tuple, joined.collect())) == sorted(expected)
    single = table.select(oz.spark.match_all("subject", "a.*"), oz.spark.match_all("subject", [])).first()
    assert tuple(single) == (["a.*"], [])
    with pytest.raises(ValueError, match="not UTF-8"):
        oz.spark.match_all("subject", [oz.compile(b"\xff", "redis")])


# gaps ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("numbers", "by_number", "by_offset"),
    [
        ([("a", 5), ("b", 0), ("a", 6), ("b", 3), ("a", 10), ("b", 4)], [None, None, 0, 2, 3, 0], None),
        ([("a", 1), (None, None), ("a", None), (None, 7), ("a", 3)], [None, None, None, None, 1], None),
        ([("first", 7), ("first", 8), ("second", 0), ("second", 1)], [None, 0, None, 0], None),
        # The numbers of one publisher start again, because the recorder was restarted.
        ([("a", 0), ("a", 1), ("a", 5), ("a", 0), ("a", 2)], None, [None, 0, 3, None, 1]),
        # Late and repeated messages are not missing.
        ([("a", 0), ("a", 2), ("a", 1), ("a", 2), ("a", 3)], [None, 0, 0, 0, 0], [None, 1, None, 0, 0]),
    ],
)
def test_gaps_count_missing_numbers_of_each_publisher(spark, numbers, by_number, by_offset):
    data = [(offset, origin, number) for offset, (origin, number) in enumerate(numbers)]
    table = spark.createDataFrame(data, "offset long, origin string, sequence long")
    expected_by_offset = by_offset or by_number
    for order, expected in ((None, by_number), (F.col("offset"), expected_by_offset)):
        if expected is not None:
            column = oz.spark.gaps("sequence", table.origin, order=order).alias("gap")
            found = table.select("offset", column).orderBy("offset").collect()
            assert [row.gap for row in found] == expected
