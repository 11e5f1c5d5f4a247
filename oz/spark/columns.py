"""Columns in Spark: which subjects match, and how many messages are missing.

They are native, with Python only where Java would read a pattern differently. Thousands of patterns at once
are looked up in the index that the sockets use, in Spark's Python workers.
"""

from __future__ import annotations

import pickle
import warnings
import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache, reduce
from operator import or_

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType
from pyspark.sql.window import Window

from oz.spark.classes import character
from oz.spark.java import JavaRegex, java_regex
from oz.spark.parts import Unwritable
from oz.spark.vectorised import decide, for_each_distinct
from oz.subjects.index.patterns import PatternIndex
from oz.subjects.pattern import Pattern, compile

SEPARATOR = "."
"""What stands between tokens, unless told otherwise."""

_SPREAD = 1024
"""Over so many partitions go the rows without a number, which have nothing to be sorted for."""


class PythonWarning(UserWarning):
    """A pattern is evaluated by Python in Spark, since Java would read it differently."""


def matches(column: Column | str, pattern: Pattern | str | bytes) -> Column:
    """Tell which subjects match: true, false, or null where there is no subject.

    It is an equality for a pattern that matches one subject only, else an OR of `startswith` over the
    pattern's prefixes, in front of it a `startswith` of what they have in common, and an `rlike` where that
    does not decide, in front of it an `endswith` and a `contains` of the literals that the regex needs.
    Parquet skips what it can by all but the last; a Python source is handed no OR.

    Args:
        column: subjects, strings or binary. What is not UTF-8 matches no pattern of a text dialect.
        pattern: a pattern, or a spec as `oz.compile` takes it, such as `rv:Foo.*`.

    Warns:
        PythonWarning: Java would read the pattern differently, so that Python evaluates it.
    """
    compiled = compiled_pattern(pattern)
    subject = as_subject(column)
    if compiled.literal is not None:
        return _equals(subject, compiled.literal)
    try:
        rest = _native(subject, compiled, java_regex(compiled))
    except Unwritable as reason:
        text = f"Python evaluates {compiled!r} in Spark, and Java does not, because of {reason}"
        warnings.warn(text, PythonWarning, stacklevel=2)
        rest = decide(subject, compiled)
    begins = None if b"" in compiled.prefixes and rest is not None else _begins(subject, compiled)
    return _all_of(begins, rest)


def prefix(column: Column | str, pattern: Pattern | str | bytes) -> Column:
    """Tell which subjects ZeroMQ would let through for a pattern: all that match, and perhaps others.

    Args:
        column: subjects, strings or binary.
        pattern: a pattern, or a spec as `oz.compile` takes it.
    """
    return _begins(as_subject(column), compiled_pattern(pattern))


def token(column: Column | str, n: int, *, separator: str = SEPARATOR) -> Column:
    """Return one token of each subject; null where there is none.

    Args:
        column: subjects, strings or binary.
        n: which, counted from 1, or from the end with -1: as in Spark's own `split_part`.
        separator: what stands between tokens: `/` in mqtt.

    Raises:
        ValueError: there is no token 0.
    """
    if n == 0:
        raise ValueError("tokens are counted from 1, or from the end with -1; there is no token 0")
    return F.try_element_at(F.split(as_subject(column), _escaped(separator)), F.lit(n))


def depth(column: Column | str, *, separator: str = SEPARATOR) -> Column:
    """Count the tokens of each subject.

    Args:
        column: subjects, strings or binary.
        separator: what stands between tokens: `/` in mqtt.
    """
    return F.array_size(F.split(as_subject(column), _escaped(separator)))


def compiled_pattern(pattern: Pattern | str | bytes) -> Pattern:
    """Compile a spec; a pattern is returned as it is."""
    return compile(pattern)


def as_subject(column: Column | str) -> Column:
    """Return a column as a string; Spark drops the cast of a string: Parquet still sees the column."""
    return (F.col(column) if isinstance(column, str) else column).cast("string")


def _native(subject: Column, pattern: Pattern, java: JavaRegex) -> Column | None:
    """Say what Java has to check beside the prefixes."""
    if pattern.is_bytes:
        if java.text is None:
            return None
        # One character for each byte: what is a byte to the pattern is one character to Java.
        regex = F.decode(subject.cast("binary"), "ISO-8859-1").rlike(java.text)
        return _all_of(*_has_literals(subject, java), regex)
    is_text = F.is_valid_utf8(subject)  # Java would see U+FFFD instead
    if java.text is None:
        return is_text
    # In this order: few subjects are left to be looked at again.
    return _all_of(*_has_literals(subject, java), subject.rlike(java.text), is_text)


def _has_literals(subject: Column, java: JavaRegex) -> Iterator[Column]:
    """Look for what the regex needs anyway: to compare bytes takes a fifth of the time."""
    if java.ending:
        yield subject.endswith(java.ending)
    if java.inside:
        yield subject.contains(java.inside)


def _begins(subject: Column, pattern: Pattern) -> Column:
    begins = reduce(or_, (_starts_with(subject, prefix) for prefix in pattern.prefixes))
    common = _whole_characters(pattern.prefix) if len(pattern.prefixes) > 1 else ""
    # It follows from the others; but Spark hands no OR to a Python source.
    return subject.startswith(common) & begins if common else begins


def _whole_characters(prefix: bytes) -> str:
    try:
        return prefix.decode()
    except UnicodeDecodeError as error:
        return prefix[: error.start].decode()


def _starts_with(subject: Column, prefix: bytes) -> Column:
    try:
        return subject.startswith(prefix.decode())
    except UnicodeDecodeError as error:
        # Spark would tell Parquet of a broken character as of U+FFFD, and so lose rows.
        exact = F.startswith(subject.cast("binary"), F.lit(prefix))
        readable = prefix[: error.start].decode()
        return subject.startswith(readable) & exact if readable else exact


def _equals(subject: Column, literal: bytes) -> Column:
    try:
        return subject == F.lit(literal.decode())
    except UnicodeDecodeError:
        return _starts_with(subject, literal) & (subject.cast("binary") == F.lit(literal))


def _all_of(*conditions: Column | None) -> Column:
    return reduce(lambda left, right: left & right, (each for each in conditions if each is not None))


def _escaped(separator: str) -> str:
    if not separator:
        raise ValueError("the separator is empty")
    return "".join(character(ord(char)) for char in separator)


_SUBJECT = "__oz_subject"


def match_all(column: Column | str, patterns: Iterable[Pattern | str] | Pattern | str) -> Column:
    """Return the patterns that each subject matches, as an array of strings; null where there is no subject.

    One index of all patterns is built in each Python worker, which then looks up each distinct subject of a
    batch once: its time hardly grows with the number of patterns.

    Args:
        column: subjects, strings or binary.
        patterns: patterns, or specs as `oz.compile` takes them, of any dialects; or one. A spec is returned
            as it was given, a pattern as its text; in the order of this list, and each once.

    Raises:
        ValueError: the text of a pattern is not UTF-8, so that Spark cannot hold it.
    """
    if isinstance(patterns, (str, Pattern)):
        patterns = [patterns]
    named = {_name(pattern): compiled_pattern(pattern) for pattern in patterns}
    names = list(named)
    packed = zlib.compress(pickle.dumps(list(named.values())))

    def lookup(subject: bytes) -> list[str]:
        return [names[number] for number in sorted(_index(packed).match(subject))]

    lookup.__name__ = "match_all"  # which Spark shows in plans, and as the name of the column
    return for_each_distinct(
        as_subject(column), lookup, ArrayType(StringType(), False), pa.list_(pa.string())
    )


def join_patterns(
    dataframe: DataFrame,
    column: Column | str,
    patterns: Iterable[Pattern | str] | Pattern | str,
    *,
    name: str = "pattern",
) -> DataFrame:
    """Return each row once for each pattern that its subject matches, and the pattern beside it.

    Each distinct subject is looked up once, and the result is joined back. Rows that match nothing are left
    out.

    Args:
        dataframe: the rows.
        column: which of its columns holds the subjects.
        patterns: as for `match_all`.
        name: how to call the new column.
    """
    rows = dataframe.withColumn(_SUBJECT, as_subject(column))
    found = F.explode(match_all(_SUBJECT, patterns)).alias(name)
    matched = rows.select(_SUBJECT).distinct().select(_SUBJECT, found)
    return rows.join(matched, on=_SUBJECT).drop(_SUBJECT)


def _name(pattern: Pattern | str) -> str:
    text = pattern.text if isinstance(pattern, Pattern) else pattern
    if isinstance(text, str):
        return text
    raise ValueError(f"Spark's strings are UTF-8, and this pattern is not: {text!r}")


@lru_cache(maxsize=4)
def _index(packed: bytes) -> PatternIndex:
    """Build an index once in each worker process, which outlives the task."""
    index = PatternIndex()
    patterns: list[Pattern] = pickle.loads(zlib.decompress(packed))
    for number, pattern in enumerate(patterns):
        index.add(pattern, number)
    return index


def gaps(sequence: Column | str, origin: Column | str, *, order: Column | str | None = None) -> Column:
    """Count the messages of each publisher that are missing right before each row.

    Use it in `select` or `withColumn`, before anything filters by subject: what a filter leaves out is
    missing too. A publisher that was started again is another origin. The numbers of one origin begin anew
    when another recorder goes on with the journal, or when the publisher had forgotten the recorder: say
    `order="offset"` where that may be.

    Args:
        sequence: the publisher's numbers.
        origin: the publisher.
        order: what to sort each publisher's rows by. None: by their numbers, so that a message which arrived
            late, or twice, is none that is missing. With `"offset"` rows stand as they were recorded, and a
            number that is not above the one before begins a new count.

    Returns:
        A bigint: 0 where none is missing; null for the first of an origin, for the first of a new count, and
        where there is no number or no origin.
    """
    number, publisher = _column(sequence).cast("long"), _column(origin)
    place = number if order is None else _column(order)
    is_numbered = number.isNotNull() & publisher.isNotNull()
    # Else all that is plain ZeroMQ would be sorted by one task.
    apart = F.when(~is_numbered, F.pmod(F.hash(place), F.lit(_SPREAD)))
    before = F.lag(number).over(Window.partitionBy(publisher, is_numbered, apart).orderBy(place))
    step = number - before - 1
    missing = F.greatest(step, F.lit(0)) if order is None else F.when(step >= 0, step)
    return F.when(is_numbered & before.isNotNull(), missing)


def _column(column: Column | str) -> Column:
    return F.col(column) if isinstance(column, str) else column
