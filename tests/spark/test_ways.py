"""Which way Spark takes to an answer: prefixes, Java's regexes, or Python with a warning."""

import pytest

import oz

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import oz.spark
from oz.spark.java import java_regex

NATIVE = [
    ("a.b", r"=(subject, 'a.b')"),
    ("redis:a.*", r"startswith(subject, 'a.')"),
    ("redis:[ab]*", r"or(startswith(subject, 'a'), startswith(subject, 'b'))"),
    ("zmq:a", r"startswith(subject, 'a')"),
    ("raims.sub:a*", r"=(subject, 'a*')"),
    (
        "a.*",
        r"and(startswith(subject, 'a.'), "
        r"and(rlike(subject, '\Aa\.[^\.]+\z'), is_valid_utf8(subject)))",
    ),
    ("*.a", r"and(and(endswith(subject, '.a'), rlike(subject, '\A[^\.]+\.a\z')), is_valid_utf8(subject))"),
    (
        "regex:(?s)^a[bc].*",
        r"and(and(startswith(subject, 'a'), or(startswith(subject, 'ab'), startswith(subject, 'ac'))), "
        r"is_valid_utf8(subject))",
    ),
    (
        "redis:s.[ab]*",
        r"and(startswith(subject, 's.'), or(startswith(subject, 's.a'), startswith(subject, 's.b')))",
    ),
    # What they have in common ends within a character, and counts up to there.
    (
        "regex:(?s)^xé[èé].*",
        r"and(and(startswith(subject, 'xé'), or(startswith(subject, 'xéè'), startswith(subject, 'xéé'))), "
        r"is_valid_utf8(subject))",
    ),
    (
        "redis:a*b",
        r"and(startswith(subject, 'a'), and(endswith(subject, 'b'), "
        r"rlike(decode(CAST(subject AS BINARY), 'ISO-8859-1'), '\Aa[\s\S]*b\z')))",
    ),
]


@pytest.mark.parametrize(("pattern", "written"), NATIVE)
def test_java_is_asked_only_where_the_prefixes_do_not_decide(spark, pattern, written):
    shown = str(oz.spark.matches("subject", pattern)).replace("CAST(subject AS STRING)", "subject")
    assert shown.replace("\\\\", "\\") == f"Column<'{written}'>"


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        ("a.>", r"\Aa\.[^\.]+(?:\.[^\.]+)*+\z"),
        ("mqtt:+/x", r"\A(?!(?:\z|\$))[^\/]*\/x\z"),
        # What may follow is taken by the loop too, or not known: coming back for it would change the answer.
        (r"regex:\w++[a-z]", None),
        (r"regex:x(?:a++)?b", r"\Ax(?:a++)?b\z"),
        (r"regex:(?>a++)b", r"\A(?>a++)b\z"),
    ],
)
def test_java_may_come_back_for_characters_only_where_that_changes_nothing(pattern, written):
    found = java_regex(oz.compile(pattern)).text
    assert found.endswith(r"]++[a-z]\z") if written is None else found == written


PYTHON_ONLY = [
    (r"\p{L}+", "property"),
    (r"a\b.*", r"\\b"),
    (r"(a|b)\1", "back reference"),
    (r"(?<=a)b|a.*", "look-behind"),
    (r"(a+)+", "more than 16"),
    (r"(?m)^a.*", r"\^ under"),
    (r"(?:a|b){30}", "more than 16"),
    (r"(?:a?b?){2}", "may be empty"),
    (r"(?:aab){e<=1}", "inexact"),
    (r"\X", r"\\X"),
    (r"(?i)[^a]b", r"\(\?i\)"),
    (r"(?i)[\w-]+", r"under \(\?i\)"),
    (r"(?V1)[a--b]", "flag"),
    (r"(?:a*b*){1,3}c|(?:.*.*.*){1}.*.*x", "may be empty"),
    (r".*a.*b.*c.*d.*e", "busy for ever"),
]


@pytest.mark.parametrize(("text", "reason"), PYTHON_ONLY)
def test_what_java_may_read_differently_goes_to_python_with_a_warning(spark, text, reason):
    pattern = oz.compile(text, "regex")
    subjects = [
        "a",
        "é",
        "aa",
        "ab",
        "bb",
        "abc",
        "aab",
        "a\nb",
        "e\u0301",
        "aabb",
        "xa",
        "",
        "aaXb",
        "a b c d e",
    ]
    with pytest.warns(oz.spark.PythonWarning, match=reason) as caught:
        column = oz.spark.matches("subject", pattern)
    assert caught[0].filename == __file__
    rows = spark.createDataFrame([(each,) for each in subjects], "subject string")
    found = {row.subject for row in rows.filter(column).collect()}
    assert found == {each for each in subjects if pattern.matches(each)}
