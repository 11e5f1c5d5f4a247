"""The counts of subjects and of publishers.

How much each subject carries, when it was heard and when it was silent; what each publisher sent, and the
losses of each in each hour.
"""

from __future__ import annotations

from collections.abc import Iterable
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


_PIECE = 1_000_000
"""Offsets are gone through in pieces of this size: the numbers of one publisher are not one task's work."""
_LOSSES = ("lost", "unknown", "missing")
_PUBLISHED = ("messages", "payload_bytes", "first_ns", "last_ns")
_LOST = ("messages", "gaps", *_LOSSES, "restarts", "damaged")
_PERIODS = (1, 2, 3, 6, 12, 24, 48, 168, 336, 720, 2160, 8760, 87_600, 876_000, 8_760_000)
_MOST_PERIODS = 744  # the hours of a month
_SUMS = ("messages", "payload_bytes", "gaps", *_LOSSES, "restarts", "damaged")


def by_hour(rows: DataFrame, hours: Steps, *, is_whole: bool) -> DataFrame:
    """Sum up each publisher's hours.

    Args:
        rows: of `narrow_rows`.
        hours: the hours that the record spans.
        is_whole: whether no pattern selected them, so that a number which no message has is missing.

    Returns:
        Columns `origin`, `hour` (a number), `messages`, `payload_bytes`, `first_ns`, `last_ns`; of gap
        records `gaps` (how many), `lost` (the messages that they stand for) and `unknown` (those that do not
        know how many); of the publishers' numbers `missing` and `restarts`; and `damaged`.
    """
    zero = F.lit(0).cast("bigint")
    amounts = rows.withColumn("hour", hours.number()).select(
        "origin",
        "hour",
        F.when(is_kind(Kind.MESSAGE), 1).otherwise(zero).alias("messages"),
        F.when(is_kind(Kind.MESSAGE), F.col("size")).otherwise(zero).alias("payload_bytes"),
        F.when(is_kind(Kind.GAP), 1).otherwise(zero).alias("gaps"),
        F.when(is_kind(Kind.GAP), F.coalesce("lost", zero)).otherwise(zero).alias("lost"),
        F.when(is_kind(Kind.GAP) & F.col("lost").isNull(), 1).otherwise(zero).alias("unknown"),
        zero.alias("missing"),
        zero.alias("restarts"),
        F.when(is_kind(Kind.DAMAGED), 1).otherwise(zero).alias("damaged"),
        F.when(is_kind(Kind.MESSAGE), F.col("time_ns")).alias("first_ns"),
        F.when(is_kind(Kind.MESSAGE), F.col("time_ns")).alias("last_ns"),
    )
    if is_whole:
        amounts = amounts.unionByName(_missing(rows, hours), allowMissingColumns=True)
    return amounts.groupBy("origin", "hour").agg(*_totals())


def _totals() -> list[Column]:
    sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _SUMS]
    return [*sums, F.min("first_ns").alias("first_ns"), F.max("last_ns").alias("last_ns")]


def _missing(rows: DataFrame, hours: Steps) -> DataFrame:
    """Count the numbers that no message has, piece by piece and then from piece to piece."""
    numbered = rows.where(
        is_kind(Kind.MESSAGE) & F.col("sequence").isNotNull() & F.col("origin").isNotNull()
    ).select(
        "origin",
        "offset",
        "sequence",
        hours.number().alias("hour"),
        F.expr(f"coalesce(offset, 0) div {_PIECE}").alias("piece"),
    )
    place = Window.partitionBy("origin", "piece").orderBy("offset", "sequence")
    step = F.col("sequence") - F.lag("sequence").over(place) - 1
    ends = F.struct("offset", "sequence", "hour")
    pieces = (
        numbered.withColumn("step", step)
        .groupBy("origin", "piece", "hour")
        .agg(*_holes(), F.min(ends).alias("first"), F.max(ends).alias("last"))
    )
    edges = pieces.groupBy("origin", "piece").agg(F.min("first").alias("first"), F.max("last").alias("last"))
    before = F.lag("last.sequence").over(Window.partitionBy("origin").orderBy("piece"))
    seams = edges.select(
        "origin", F.col("first.hour").alias("hour"), (F.col("first.sequence") - before - 1).alias("step")
    )
    between = seams.groupBy("origin", "hour").agg(*_holes())
    return pieces.select("origin", "hour", "missing", "restarts").unionByName(between)


def _holes() -> list[Column]:
    step = F.col("step")
    return [
        F.sum(F.when(step > 0, step)).alias("missing"),
        F.sum(F.when(step < 0, 1)).alias("restarts"),
    ]


class PublisherCounts:
    """Answers what is asked of the publishers; its tables are kept until `forget`."""

    def __init__(self, table: DataFrame, hours: Steps) -> None:
        """Begin.

        Args:
            table: of `by_hour`.
            hours: the hours that the record spans.
        """
        self._table = table.persist()
        self._hours = hours
        self._each = self._table.groupBy("origin").agg(*_totals()).persist()
        total = self._each.agg(
            F.count_if(F.col("messages") > 0).alias("publishers"),
            F.count_if(_is_lossy()).alias("lossy_publishers"),
            *_totals(),
        ).first()
        assert total is not None
        self._total = total

    def forget(self) -> None:
        """Let go of the tables."""
        self._each.unpersist()
        self._table.unpersist()

    def most(self, count: int) -> dict[str, Any]:
        """List the publishers with the most bytes, and sum the others up."""
        publishing = self._each.where(F.col("messages") > 0)
        worst_first = (F.desc("payload_bytes"), F.desc("messages"), "origin")
        named = [
            _publisher(row, _PUBLISHED) for row in publishing.orderBy(*worst_first).limit(count).collect()
        ]
        rest = {"count": self._total.publishers - len(named)}
        for name in ("messages", "payload_bytes"):
            rest[name] = self._total[name] - sum(one[name] for one in named)
        return {
            "count": self._total.publishers,
            "most": named,
            "others": rest if rest["count"] else None,
        }

    def losses(self, count: int) -> dict[str, Any]:
        """Sum losses up: all of them, those of the publishers that lost the most, by hour, and by both.

        Several hours make one period where the record has more of them than a month has.
        """
        lossy = self._each.where(_is_lossy())
        worst = lossy.orderBy(*_worst_first(), "origin").limit(count).collect()
        merged = _coarser(self._hours)
        period = F.expr(f"hour div {merged}").alias("period")
        periods = self._table.groupBy(period).agg(*_totals()).where(_is_lossy()).orderBy("period").collect()
        cells = _cells(self._table, [row.origin for row in worst], period).where(_is_lossy())
        return {
            **_fields(self._total, _LOST),
            "publishers": [_publisher(row, _LOST) for row in worst],
            "publisher_count": self._total.lossy_publishers,
            "hours_per_period": merged,
            "periods": -(-self._hours.count // merged),
            "first_period_ns": self._hours.start_ns,
            "by_period": [self._at(row, merged) | _fields(row, _LOST) for row in periods],
            "by_publisher_and_period": [
                {"origin": _hex(row.origin)} | self._at(row, merged) | _fields(row, _LOST)
                for row in cells.orderBy("origin", "period").collect()
            ],
        }

    def _at(self, row: Row, merged: int) -> dict[str, Any]:
        return {"period": row.period, "time_ns": self._hours.begin(row.period * merged)}


def _cells(table: DataFrame, origins: list[Any], period: Column) -> DataFrame:
    known = [bytes(origin) for origin in origins if origin is not None]
    wanted = F.col("origin").isin(*map(F.lit, known)) if known else F.lit(False)
    if None in origins:
        wanted = wanted | F.col("origin").isNull()
    return table.where(F.coalesce(wanted, F.lit(False))).groupBy("origin", period).agg(*_totals())


def _coarser(hours: Steps) -> int:
    """Return the hours of one period, so that there are at most `_MOST_PERIODS`."""
    return next(each for each in _PERIODS if -(-hours.count // each) <= _MOST_PERIODS)


def _worst_first() -> Iterable[Column]:
    return F.desc(F.expr("greatest(lost, missing)")), F.desc("gaps"), F.desc("damaged")


def _is_lossy() -> Column:
    return F.expr("gaps + missing + damaged > 0")


def _publisher(row: Row, names: Iterable[str]) -> dict[str, Any]:
    return {"origin": _hex(row.origin)} | _fields(row, names)


def _fields(row: Row, names: Iterable[str]) -> dict[str, Any]:
    return {name: row[name] for name in names}


def _hex(origin: bytes | bytearray | None) -> str | None:
    return None if origin is None else bytes(origin).hex()
