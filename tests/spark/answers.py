"""What Spark says of many patterns and many subjects, in few queries."""

import itertools
import warnings

from pyspark.sql import functions as F

import oz.spark

CHUNK = 150


def answers(spark, patterns, subjects, function=None):
    """For each pattern the set of subjects (bytes) that Spark says match; no answer may be null.

    The subjects are in the columns `subject` and `bytes`.
    """
    function = function or oz.spark.matches
    rows = spark.createDataFrame([(each,) for each in subjects], "subject binary")
    rows = rows.select(
        F.col("subject").cast("string").alias("subject"), F.col("subject").alias("bytes")
    ).cache()
    found = {}
    waiting = iter(patterns)
    while chunk := list(itertools.islice(waiting, CHUNK)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", oz.spark.PythonWarning)
            columns = [function("subject", pattern).alias(str(at)) for at, pattern in enumerate(chunk)]
        table = rows.select(*columns).toArrow()
        for pattern, column in zip(chunk, table.columns, strict=True):
            said = column.to_pylist()
            assert None not in said
            found[pattern] = {subject for subject, yes in zip(subjects, said, strict=True) if yes}
    rows.unpersist()
    return found


def python_answer(pattern, subject):
    try:
        return pattern.matches(subject)
    except oz.SubjectError:
        return False
