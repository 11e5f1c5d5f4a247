"""Patterns evaluated by Python, a batch of subjects at a time, each distinct subject of a batch once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BooleanType, DataType

from oz.errors import SubjectError
from oz.subjects.pattern import Pattern


def decide(subject: Column, pattern: Pattern) -> Column:
    """Tell which subjects match.

    In the query, not here, a pattern that takes too long raises `oz.PatternTimeout`.
    """

    def matches(each: bytes) -> bool:
        try:
            return pattern.matches(each)
        except SubjectError:
            return False  # not UTF-8: no subject of a text dialect

    return for_each_distinct(subject, matches, BooleanType(), pa.bool_())


def for_each_distinct(
    subject: Column, function: Callable[[bytes], Any], spark_type: DataType, arrow_type: pa.DataType
) -> Column:
    """Apply a function to the bytes of each subject; null stays null. The column has the function's name."""

    def batch(subjects: pa.Array) -> pa.Array:
        encoded = subjects.dictionary_encode()
        answers = [function(each) for each in encoded.dictionary.to_pylist()]
        return pa.array(answers, arrow_type).take(encoded.indices)

    batch.__name__ = function.__name__
    vectorise: Any = (
        arrow_udf  # its types ask for the number of the kind, which it finds from the annotations
    )
    applied: Column = vectorise(batch, spark_type)(subject.cast("binary"))
    return applied
