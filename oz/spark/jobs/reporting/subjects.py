"""The subjects: how much each carries, when it was heard, and when it was silent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from oz.journal import Kind
from oz.spark.jobs.reporting.rows import is_kind
from oz.spark.jobs.reporting.steps import SECOND, Steps

_SUBJECT = ("subject", "subject_raw")


@dataclass(frozen=True, slots=True)
class Subjects:
    """Two tables that all figures by subject and by time come from.

    Attributes:
        pulses: one row for each subject and step in which it was heard.
        table: one row for each subject.
        steps: how time is divided.
    """

    pulses: DataFrame
    table: DataFrame
    steps: Steps

    @classmethod
    def of(cls, rows: DataFrame, steps: Steps) -> Subjects:
        """Count messages; both tables are kept until `forget`."""
        pulses = (
            rows.where(is_kind(Kind.MESSAGE))
            .groupBy(*_SUBJECT, steps.number().alias("step"))
            .agg(*_counts(), F.min("time_ns").alias("first_ns"), F.max("time_ns").alias("last_ns"))
            .persist()
        )
        return cls(pulses, _table_of(pulses).persist(), steps)

    def forget(self) -> None:
        """Let go of the tables."""
        self.table.unpersist()
        self.pulses.unpersist()

    def timeline(self) -> list[dict[str, Any]]:
        """Count messages and bytes in each step, those without any included."""
        sums = self.pulses.groupBy("step").agg(*sums_of("messages", "payload_bytes"))
        found = {row.step: row for row in sums.collect()}
        return [
            {
                "time_ns": self.steps.begin(number),
                "messages": found[number].messages if number in found else 0,
                "payload_bytes": found[number].payload_bytes if number in found else 0,
            }
            for number in range(self.steps.count)
        ]

    def counts(self, since_ns: int) -> tuple[int, int]:
        """Count all subjects, and those not heard since a time."""
        silent = F.count_if(F.col("last_ns") < since_ns).alias("silent")
        row = self.table.agg(F.count(F.lit(1)).alias("subjects"), silent).first()
        assert row is not None
        return row.subjects, row.silent

    def lists(self, since_ns: int, end_ns: int, count: int) -> dict[str, list[dict[str, Any]]]:
        """List subjects, some of each kind, by one query.

        Args:
            since_ns: silent is who was not heard since then.
            end_ns: where the record ends.
            count: how many of each kind.

        Returns:
            `by_messages` and `by_payload_bytes`, the most first; `silent`, those that had said the most
            first; `longest`, the longest pause of each subject between two messages, if longer than a step.
        """
        table, pause = self.table, F.col("pause.length_ns")
        asked = {
            "by_messages": (table, F.col("messages")),
            "by_payload_bytes": (table, F.col("payload_bytes")),
            "silent": (table.where(F.col("last_ns") < since_ns), F.col("messages")),
            "longest": (table.where(pause > self.steps.length_ns), pause),
        }
        lists = [
            rows.orderBy(key.desc(), *_SUBJECT).limit(count).select("*", F.lit(name).alias("list"))
            for name, (rows, key) in asked.items()
        ]
        found = reduce(DataFrame.unionAll, lists).collect()
        show = {"silent": lambda row: _silence(row, end_ns), "longest": _longest}
        return {
            name: [_named(row) | show.get(name, _amounts)(row) for row in found if row["list"] == name]
            for name in asked
        }


def sums_of(*names: str) -> list[Column]:
    """Sum columns up under their own names."""
    return [F.sum(name).alias(name) for name in names]


def _counts() -> list[Column]:
    return [F.count(F.lit(1)).alias("messages"), F.sum("size").alias("payload_bytes")]


def _table_of(pulses: DataFrame) -> DataFrame:
    """Sum up each subject. A pause longer than a step lies between two pulses, and so is found exactly."""
    before = F.lag("last_ns").over(Window.partitionBy(*_SUBJECT).orderBy("step"))
    pause = F.when(
        before.isNotNull(), F.struct((F.col("first_ns") - before).alias("length_ns"), before.alias("from_ns"))
    )
    return (
        pulses.withColumn("pause", pause)
        .groupBy(*_SUBJECT)
        .agg(
            *sums_of("messages", "payload_bytes"),
            F.min("first_ns").alias("first_ns"),
            F.max("last_ns").alias("last_ns"),
            F.max("pause").alias("pause"),
        )
    )


def _named(row: Row) -> dict[str, Any]:
    raw = row.subject_raw
    return {"subject": row.subject if raw is None else bytes(raw).decode(errors="backslashreplace")}


def _amounts(row: Row) -> dict[str, Any]:
    return {
        "messages": row.messages,
        "payload_bytes": row.payload_bytes,
        "first_ns": row.first_ns,
        "last_ns": row.last_ns,
    }


def _longest(row: Row) -> dict[str, Any]:
    start, length = row.pause.from_ns, row.pause.length_ns
    return {"from_ns": start, "to_ns": start + length, "seconds": length / SECOND}


def _silence(row: Row, end_ns: int) -> dict[str, Any]:
    usual = (row.last_ns - row.first_ns) / SECOND / (row.messages - 1) if row.messages > 1 else None
    return {
        "messages": row.messages,
        "last_ns": row.last_ns,
        "silent_seconds": (end_ns - row.last_ns) / SECOND,
        "usual_seconds": usual,
    }
