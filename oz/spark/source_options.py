"""Options of the source of `format("oz")`, and their parser."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from oz.journal import Journal
from oz.spark.options import OptionValues, option_error
from oz.spark.rows import RowOptions
from oz.subjects import dialects
from oz.subjects.pattern import Pattern, compile
from oz.times import read_time

EARLIEST, LATEST = "earliest", "latest"

NAMES = (
    "journal",
    "path",
    "subject",
    "startingOffset",
    "startingTime",
    "endingOffset",
    "endingTime",
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
    "failOnDataLoss",
    "gaps",
    "payload",
    "payloadSchema",
    "mode",
    "columnNameOfCorruptRecord",
    "headers",
    "keyHeader",
    "timeHeader",
    "numPartitions",
)
"""Names of the options of the source. docs/spark-reference.md documents each option."""

_FOREIGN = {
    "kafka.bootstrap.servers": "journal",
    "endpoint": "journal, a directory that `oz record` writes",
    "subscribe": "subject",
    "subscribepattern": "subject",
    "pattern": "subject",
    "assign": "journal",
    "start": "startingOffset or startingTime",
    "end": "endingOffset or endingTime",
    "startingoffsets": "startingOffset",
    "endingoffsets": "endingOffset",
    "startingtimestamp": "startingTime",
    "endingtimestamp": "endingTime",
    "maxoffsetspertrigger": "maxRowsPerTrigger",
    "minoffsetspertrigger": "trigger(processingTime=…)",
    "maxtriggerdelay": "trigger(processingTime=…)",
    "minpartitions": "numPartitions",
    "rowsperpartition": "numPartitions",
    "maxrecordsperpartition": "numPartitions",
    "includeheaders": "headers",
}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class SourceOptions:
    """The options of a read.

    Attributes:
        journals: the directories or URIs of the journals.
        patterns: patterns of subjects; empty for all subjects.
        start: the first offset, or `EARLIEST` or `LATEST`.
        start_time: the earliest time of receipt; None for no limit.
        end: the offset before which `spark.read` stops; None for the end of the journal.
        end_time: the time of receipt before which `spark.read` stops; None for no limit.
        max_rows: maximum number of rows in a micro-batch; None for no limit.
        max_bytes: maximum size of the records in a micro-batch in bytes; None for no limit.
        fail_on_loss: whether missing records are an error.
        gaps: whether the rows include gap records.
        rows: the options that change or add columns.
        partitions: number of partitions; None to choose it from the number of rows.
        parallelism: number of tasks that the Spark session runs at once.
        given: dict from the names of the options that were given to their texts.
    """

    journals: tuple[str, ...]
    patterns: tuple[Pattern, ...]
    start: int | str
    start_time: datetime | None
    end: int | None
    end_time: datetime | None
    max_rows: int | None
    max_bytes: int | None
    fail_on_loss: bool
    gaps: bool
    rows: RowOptions
    partitions: int | None
    parallelism: int
    given: Mapping[str, str] = field(default_factory=dict)

    def check_journals(self) -> None:
        """Raise `JournalError` if a directory contains no journal."""
        for each in self.journals:
            Journal(each)


def read_source_options(given: Mapping[str, str], parallelism: int = 1) -> SourceOptions:
    """Parse the options of the source.

    Args:
        given: dict from names of options to their texts, as Spark passes it.
        parallelism: number of tasks that the Spark session runs at once.

    Raises:
        ConfigurationError: an option is unknown or wrong, or contradicts another option.
        PatternError: a pattern is not allowed in its dialect.
    """
    given = dict(given)
    if "paths" in given:  # `load` was called with several paths
        given["path"] = "\n".join(json.loads(given.pop("paths")))
    values = OptionValues(given, NAMES, _FOREIGN, "source")
    journals, are_several = _journals(values)
    options = SourceOptions(
        journals=journals,
        patterns=_patterns(values.text("subject") or ""),
        start=values.parse("startingOffset", lambda text: _offset(text, (EARLIEST, LATEST))) or EARLIEST,
        start_time=values.parse("startingTime", _time),
        end=_end(values),
        end_time=values.parse("endingTime", _time),
        max_rows=values.integer("maxRowsPerTrigger"),
        max_bytes=values.integer("maxBytesPerTrigger"),
        fail_on_loss=values.flag("failOnDataLoss", default=True),
        gaps=values.flag("gaps", default=False),
        rows=_rows(values, names_journal=are_several),
        partitions=values.integer("numPartitions"),
        parallelism=parallelism,
        given={name: text for name in NAMES if (text := values.given(name)) is not None},
    )
    if are_several:
        for name, offset in (("startingOffset", options.start), ("endingOffset", options.end)):
            if isinstance(offset, int) and name in values:
                rule = "an offset belongs to one journal; give a time for several journals"
                raise option_error(name, offset, rule)
    _check_range(options)
    return options


def _check_range(options: SourceOptions) -> None:
    start, end = options.start, options.end
    if isinstance(start, int) and end is not None and start > end:
        raise option_error("startingOffset", start, f"it is after endingOffset={end}")
    if options.start_time and options.end_time and options.start_time > options.end_time:
        raise option_error("startingTime", str(options.start_time), "it is after endingTime")


def _rows(values: OptionValues, *, names_journal: bool) -> RowOptions:
    payload = values.choice("payload", ("raw", "string", "json", "msgpack"), "raw")
    schema = values.text("payloadSchema")
    if payload in ("json", "msgpack") and schema is None:
        raise option_error("payload", payload, "it needs the option payloadSchema, as in 'price DOUBLE'")
    if payload in ("raw", "string") and schema is not None:
        raise option_error("payloadSchema", schema, "it needs payload=json or payload=msgpack")
    if payload == "raw":
        for name in ("mode", "columnNameOfCorruptRecord"):
            if name in values:
                raise option_error(name, values.text(name), "it needs payload=string, json or msgpack")
    return RowOptions(
        payload,
        schema,
        values.choice("mode", ("permissive", "failfast", "dropmalformed"), "permissive"),
        values.text("columnNameOfCorruptRecord") or "payload_raw",
        header_map=values.choice("headers", ("raw", "map"), "raw") == "map",
        key_header=values.text("keyHeader"),
        time_header=values.text("timeHeader"),
        names_journal=names_journal,
    )


def _patterns(text: str) -> tuple[Pattern, ...]:
    lines = [line for line in text.splitlines() if line.strip()]
    for line in lines:
        # Other connectors separate topics by commas. In oz, a comma is a part of the subject.
        if "," in line and line.partition(":")[0] not in dialects.BY_NAME:
            rule = f"write one pattern in each line; if the comma is part of the subject, write nats:{line}"
            raise option_error("subject", line, rule)
    return tuple(compile(line) for line in lines)


def _offset(text: str, words: tuple[str, ...]) -> int | str:
    word = text.strip().lower()
    if word in words:
        return word
    if word.isascii() and word.isdecimal() and not int(word) >> 63:
        return int(word)
    raise ValueError(f"it must be {', '.join(words)}, or an offset of at least 0")


def _end(values: OptionValues) -> int | None:
    found = values.parse("endingOffset", lambda text: _offset(text, (LATEST,)))
    return found if isinstance(found, int) else None


def _time(text: str) -> datetime:
    return _EPOCH + timedelta(microseconds=read_time(text) // 1000)


def _journals(values: OptionValues) -> tuple[tuple[str, ...], bool]:
    """Return the journals; and whether the option may name several, because it has several lines or a glob."""
    if "journal" in values and "path" in values:
        raise option_error("journal", values.text("journal"), "give either journal or load(path), not both")
    name = "journal" if "journal" in values else "path"
    lines = [line.strip() for line in (values.text(name) or "").splitlines() if line.strip()]
    if not lines:
        raise option_error("journal", None, "give the directory of a journal")
    found = [journal for line in lines for journal in _expand(line)]
    if not found:
        raise option_error(name, lines[0], "the glob matches no directory")
    return tuple(dict.fromkeys(found)), len(lines) > 1 or _is_glob(lines[0])


def _is_glob(line: str) -> bool:
    return "://" not in line and glob.has_magic(line) and not os.path.isdir(line)


def _expand(line: str) -> list[str]:
    line = line.removeprefix("file:")  # Spark converts the argument of `load` to a URI
    if "://" in line:
        return [line]
    path = os.path.abspath(line)
    if not _is_glob(path):
        return [path]
    return [each for each in sorted(glob.glob(path)) if os.path.isdir(each)]
