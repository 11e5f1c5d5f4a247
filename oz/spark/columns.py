"""Spark columns about subjects: matching patterns, tokens, and missing sequence numbers.

`prefix` and `matches` return native expressions of Spark. A test with `startswith` checks whether a subject begins with
one of the prefixes of the pattern. Parquet uses this test to skip row groups. `matches` adds an RLIKE, which runs the
pattern as a Java regex. Some patterns have no Java regex with the same meaning. For these patterns, and for a list of
patterns, an Arrow function in Spark's Python workers matches each distinct subject of a batch.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterable
from functools import lru_cache, reduce
from operator import and_, or_
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import ArrayType, BooleanType, DataType, StringType
from pyspark.sql.window import Window

from oz.errors import SubjectError
from oz.spark.java import escape, java_regex
from oz.subjects.index.patterns import PatternIndex
from oz.subjects.pattern import Pattern, compile

_SUBJECT = "__oz_subject"
_UNNUMBERED_PARTITIONS = 1024


def matches(column: Column | str, pattern: Pattern | str | bytes) -> Column:
    """Return whether each subject matches a pattern.

    For a literal pattern, the column is a test for equality. For other patterns, it is a test of the prefixes with
    `startswith` and an RLIKE. If no Java regex has the meaning of the pattern, an Arrow function in Python replaces the
    RLIKE.

    Args:
        column: column of subjects, of type string or binary. A subject that is not UTF-8 matches no pattern of a text
            dialect.
        pattern: a pattern, or a text as for `oz.compile`, such as `rv:Foo.*`.

    Returns:
        A boolean column. It is null for a null subject.

    Raises:
        PatternError: the dialect does not allow the pattern.
        PatternTimeout: Python exceeded the time limit of the pattern for one subject. The query raises this error, and
            not this call.
    """
    compiled, subject = compile(pattern), _subject(column)
    if compiled.is_literal:
        return _equals(subject, compiled.prefixes[0])
    regex = java_regex(compiled)
    if regex is None:
        decided = _decided_by_python(subject, compiled)
        return decided if b"" in compiled.prefixes else _has_prefix(subject, compiled) & decided
    conditions = [] if b"" in compiled.prefixes and regex else [_has_prefix(subject, compiled)]
    if regex and compiled._dialect.is_bytes:
        # ISO-8859-1 decodes each byte as one character, so that `?` matches one byte in Java too.
        conditions.append(F.decode(subject.cast("binary"), "ISO-8859-1").rlike(regex))
    elif regex:
        conditions.append(subject.rlike(regex))
    if not compiled._dialect.is_bytes:
        conditions.append(F.is_valid_utf8(subject))  # RLIKE would read invalid bytes as U+FFFD
    return reduce(and_, conditions)


def prefix(column: Column | str, pattern: Pattern | str | bytes) -> Column:
    """Return whether the prefix filter of ZeroMQ would deliver each subject for a pattern.

    The filter delivers every subject that matches the pattern, and some subjects that do not match.

    Args:
        column: column of subjects, of type string or binary.
        pattern: a pattern, or a text as for `oz.compile`.

    Returns:
        A boolean column. It is null for a null subject.

    Raises:
        PatternError: the dialect does not allow the pattern.
    """
    return _has_prefix(_subject(column), compile(pattern))


def token(column: Column | str, n: int, *, separator: str = ".") -> Column:
    """Return one token of each subject; null if the subject has fewer tokens.

    Args:
        column: column of subjects, of type string or binary.
        n: position of the token, as in `split_part` of Spark: 1 is the first token, and -1 is the last token.
        separator: text between two tokens, such as `/` for mqtt.

    Raises:
        ValueError: `n` is 0, or the separator is empty.
    """
    if n == 0:
        raise ValueError("token(…, 0): positions count from 1, or from -1 at the end")
    return F.try_element_at(_split(column, separator), F.lit(n))


def depth(column: Column | str, *, separator: str = ".") -> Column:
    """Return the number of tokens of each subject.

    Args:
        column: column of subjects, of type string or binary.
        separator: text between two tokens, such as `/` for mqtt.

    Raises:
        ValueError: the separator is empty.
    """
    return F.array_size(_split(column, separator))


def match_all(column: Column | str, patterns: Iterable[Pattern | str] | Pattern | str) -> Column:
    """Return the patterns that each subject matches, as an array of strings.

    Each Python worker builds an index of all patterns, and matches each distinct subject of a batch once.

    Args:
        column: column of subjects, of type string or binary.
        patterns: a list of patterns of any dialects, or a single pattern. A pattern is a `Pattern`, or a text as for
            `oz.compile`.

    Returns:
        A column of arrays. An array holds the texts of the matching patterns in the order of `patterns`, without
        repeats. It is null for a null subject.

    Raises:
        PatternError: a dialect does not allow a pattern.
        ValueError: the text of a pattern is not UTF-8, and therefore no string of Spark.
    """
    named = {_text(pattern): compile(pattern) for pattern in _pattern_list(patterns)}
    names = list(named)
    packed = zlib.compress(pickle.dumps(list(named.values())))

    def matching(subject: bytes) -> list[str]:
        return [names[number] for number in sorted(_index(packed).match(subject))]

    strings = ArrayType(StringType(), containsNull=False)
    return _for_each_distinct(_subject(column), "match_all", matching, strings, pa.list_(pa.string()))


def join_patterns(
    dataframe: DataFrame,
    column: Column | str,
    patterns: Iterable[Pattern | str] | Pattern | str,
    *,
    name: str = "pattern",
) -> DataFrame:
    """Return each row once for each pattern that its subject matches, with the pattern in a new column.

    Spark matches each distinct subject once, and joins the result with the rows. Rows without a matching pattern are
    left out.

    Args:
        dataframe: the rows.
        column: the column of `dataframe` with the subjects.
        patterns: patterns or their texts, as for `match_all`.
        name: name of the new column.
    """
    rows = dataframe.withColumn(_SUBJECT, _subject(column))
    subjects = rows.select(_SUBJECT).distinct()
    matched = subjects.select(_SUBJECT, F.explode(match_all(_SUBJECT, patterns)).alias(name))
    return rows.join(matched, on=_SUBJECT).drop(_SUBJECT)


def gaps(sequence: Column | str, origin: Column | str, *, order: Column | str | None = None) -> Column:
    """Return for each row how many messages are missing between the previous message of its publisher and this message.

    The column is a window expression for `select` or `withColumn`, with one window for each origin. Compute it before
    you filter by subject, because the numbers of removed rows would count as missing.

    Args:
        sequence: column of the sequence numbers.
        origin: column of the publisher ids. A restarted publisher has another id.
        order: column by which the rows of a publisher are sorted. None sorts by sequence number, so that a late or
            repeated message does not count as missing. Use `"offset"` if the numbers may start again, as after the
            restart of a recorder: a row whose number is not greater than the previous number then starts a new series.

    Returns:
        A bigint column. It is null for the first row of a publisher or of a new series, and for a row without a number
        or an origin.
    """
    number, publisher = _column(sequence).cast("long"), _column(origin)
    position = number if order is None else _column(order)
    is_numbered = number.isNotNull() & publisher.isNotNull()
    # Without this key of the window, a single task would sort all rows that have no number.
    spread = F.when(~is_numbered, F.pmod(F.hash(position), F.lit(_UNNUMBERED_PARTITIONS)))
    before = F.lag(number).over(Window.partitionBy(publisher, is_numbered, spread).orderBy(position))
    step = number - before - 1
    missing = F.greatest(step, F.lit(0)) if order is None else F.when(step >= 0, step)
    return F.when(is_numbered & before.isNotNull(), missing)


def _column(column: Column | str) -> Column:
    return F.col(column) if isinstance(column, str) else column


def _subject(column: Column | str) -> Column:
    # Spark removes a cast from string to string, so that the Parquet reader can still filter by the column.
    return _column(column).cast("string")


def _split(column: Column | str, separator: str) -> Column:
    if not separator:
        raise ValueError("separator='': give the text between tokens, such as '.'")
    return F.split(_subject(column), escape(separator))


def _has_prefix(subject: Column, pattern: Pattern) -> Column:
    begins = reduce(or_, (_starts_with(subject, prefix) for prefix in pattern.prefixes))
    if len(pattern.prefixes) == 1 or not (common := _utf8_prefix(pattern.prefix)):
        return begins
    # `common` is the prefix of all prefixes. Spark passes a `startswith` to a Python data source, but passes no OR.
    return subject.startswith(common) & begins


def _starts_with(subject: Column, prefix: bytes) -> Column:
    text = _utf8_prefix(prefix)
    if text.encode() == prefix:
        return subject.startswith(text)
    # The prefix ends inside of a UTF-8 character. Spark would pass it to Parquet as U+FFFD, and lose rows.
    exact = F.startswith(subject.cast("binary"), F.lit(prefix))
    return subject.startswith(text) & exact if text else exact


def _equals(subject: Column, literal: bytes) -> Column:
    text = _utf8_prefix(literal)
    if text.encode() == literal:
        return subject == F.lit(text)
    return _starts_with(subject, literal) & (subject.cast("binary") == F.lit(literal))


def _utf8_prefix(prefix: bytes) -> str:
    """Return a prefix as text, up to its last complete UTF-8 character."""
    try:
        return prefix.decode()
    except UnicodeDecodeError as error:
        return prefix[: error.start].decode()


def _decided_by_python(subject: Column, pattern: Pattern) -> Column:
    def matching(each: bytes) -> bool:
        try:
            return pattern.matches(each)
        except SubjectError:
            return False  # the subject is not UTF-8

    return _for_each_distinct(subject, "matches", matching, BooleanType(), pa.bool_())


def _for_each_distinct(
    subject: Column,
    name: str,
    function: Callable[[bytes], Any],
    spark_type: DataType,
    arrow_type: pa.DataType,
) -> Column:
    def batch(subjects: pa.Array) -> pa.Array:
        encoded = subjects.dictionary_encode()
        values = [function(each) for each in encoded.dictionary.to_pylist()]
        return pa.array(values, arrow_type).take(encoded.indices)

    batch.__name__ = name  # Spark shows this name in plans
    vectorise: Any = (
        arrow_udf  # its overloads ask for a function type, which Spark infers from the annotations
    )
    applied: Column = vectorise(batch, spark_type)(subject.cast("binary"))
    return applied


def _pattern_list(patterns: Iterable[Pattern | str] | Pattern | str) -> Iterable[Pattern | str]:
    return [patterns] if isinstance(patterns, (str, Pattern)) else patterns


def _text(pattern: Pattern | str) -> str:
    text = pattern.text if isinstance(pattern, Pattern) else pattern
    if isinstance(text, str):
        return text
    raise ValueError(
        f"pattern {text!r}: the text is not UTF-8, and Spark's strings are; give the pattern as text"
    )


@lru_cache(maxsize=4)
def _index(packed: bytes) -> PatternIndex:
    # Cached, because a worker process runs many tasks with the same patterns.
    index = PatternIndex()
    for number, pattern in enumerate(pickle.loads(zlib.decompress(packed))):
        index.add(pattern, number)
    return index
