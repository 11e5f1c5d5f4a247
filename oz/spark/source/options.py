"""The options of the source."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from oz.errors import OptionError
from oz.journal import files
from oz.spark.option_names import refuse_unknown
from oz.spark.source.headers import HeaderColumns
from oz.subjects import dialects
from oz.subjects.pattern import Pattern, compile
from oz.times import is_relative, read_duration, read_time

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
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
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
    "rowsPerPartition",
)
"""The options of the source, as they are written; Spark hands them over in lower case."""

FOREIGN = {
    "kafka.bootstrap.servers": "journal",
    "endpoint": "journal, a directory that `oz record` writes",
    "subscribe": "subject",
    "subscribepattern": "subject",
    "assign": "journal",
    "startingoffsets": "startingOffset",
    "endingoffsets": "endingOffset",
    "startingtimestamp": "startingTime",
    "endingtimestamp": "endingTime",
    "startingoffsetsbytimestamp": "startingTime",
    "startingoffsetsbytimestampstrategy": "startingTime, where a time without records is no error",
    "endingoffsetsbytimestamp": "endingTime",
    "maxoffsetspertrigger": "maxRowsPerTrigger",
    "minpartitions": "numPartitions",
    "maxrecordsperpartition": "rowsPerPartition",
    "includeheaders": "headers",
}
"""Options that others have for it, in lower case; docs/spark.md has them all."""

PAYLOADS = ("raw", "string", "json", "msgpack")
MODES = ("permissive", "failfast", "dropmalformed")
"""What may become of payloads that do not decode, as Spark's own readers call it."""


@dataclass(frozen=True)
class Options:
    """The options of a read; docs/spark-source.md explains each.

    Attributes:
        journal: the directory; the first, where there are several.
        journals: the directories of several journals; empty for one.
        subject: the specs of patterns, one a line; empty for all.
        start: an offset, `EARLIEST` or `LATEST`.
        start_ns: the earliest time, in nanoseconds since 1970.
        relative: the options that say a time which counts from now.
        end: the offset to stop before.
        end_ns: the time to stop before, in nanoseconds since 1970.
        most_rows: records of a micro-batch at most.
        most_bytes: bytes of a micro-batch at most, as they are in the journal's files.
        least_rows: a micro-batch waits until there are so many records.
        delay: seconds that it waits at most.
        fails_on_loss: whether it is an error that retention was faster.
        gaps: whether to give records that are no messages too.
        payload: one of `PAYLOADS`.
        payload_schema: the columns of a payload, as DDL.
        mode: one of `MODES`.
        corrupt: the column for payloads that do not decode.
        headers: the columns that come out of the headers.
        partitions: how many partitions to make.
        partition_rows: or of how many records each.
        tasks: how many run at once, as far as that is known.
    """

    journal: Path
    journals: tuple[Path, ...] = ()
    subject: str = ""
    start: int | str = EARLIEST
    start_ns: int | None = None
    end: int | None = None
    end_ns: int | None = None
    most_rows: int | None = None
    most_bytes: int | None = None
    least_rows: int | None = None
    delay: float = 900.0
    fails_on_loss: bool = True
    gaps: bool = False
    payload: str = "raw"
    payload_schema: str | None = None
    mode: str = MODES[0]
    corrupt: str = "payload_raw"
    headers: HeaderColumns = field(default_factory=HeaderColumns)
    partitions: int | None = None
    partition_rows: int | None = None
    tasks: int = 1
    relative: frozenset[str] = field(default=frozenset())
    written: frozenset[str] = field(default=frozenset())

    def each(self) -> list[Options]:
        """Return the same for each journal by itself."""
        return [replace(self, journal=one, journals=()) for one in self.journals] or [self]

    def patterns(self) -> list[Pattern]:
        """Compile the patterns; none means that every subject is wanted.

        Raises:
            PatternError: a dialect does not allow one.
        """
        return [compile(line) for line in self.subject.splitlines() if line.strip()]


def read_options(options: Mapping[str, str]) -> Options:
    """Read the options as Spark hands them over.

    Raises:
        OptionError: one is unknown, contradicts another, or makes no sense.
        PatternError: a dialect does not allow a pattern.
    """
    given = {key.lower(): str(value) for key, value in options.items()}
    if "paths" in given:  # several of them were given to load
        given["path"] = "\n".join(json.loads(given.pop("paths")))
    refuse_unknown(given, NAMES, FOREIGN, "there is no such option")
    if not {"journal", "path"} & given.keys():
        raise OptionError("journal", None, "give the directory of a journal")
    directories, are_several = _directories(given)
    read = Options(
        journal=directories[0],
        journals=directories if are_several else (),
        subject=given.get("subject", ""),
        start=_start(given),
        start_ns=_time(given, "startingTime"),
        end=_end(given),
        end_ns=_time(given, "endingTime"),
        most_rows=_whole(given, "maxRowsPerTrigger"),
        most_bytes=_whole(given, "maxBytesPerTrigger"),
        least_rows=_whole(given, "minOffsetsPerTrigger"),
        delay=_read(read_duration, "maxTriggerDelay", given.get("maxtriggerdelay", "15m")),
        fails_on_loss=_flag(given, "failOnDataLoss", True),
        gaps=_flag(given, "gaps", False),
        payload=_one_of(given, "payload", PAYLOADS),
        payload_schema=given.get("payloadschema"),
        mode=_one_of(given, "mode", MODES),
        corrupt=given.get("columnnameofcorruptrecord", "payload_raw"),
        headers=_headers(given),
        partitions=_whole(given, "numPartitions"),
        partition_rows=_whole(given, "rowsPerPartition"),
        relative=frozenset(name for name in _TIMES if is_relative(given.get(name.lower()))),
        written=frozenset(name for name in NAMES if name.lower() in given),
    )
    _refuse_contradictions(read)
    refuse_commas(read.subject)
    read.patterns()
    return read


def refuse_commas(subject: str, option: str = "subject") -> None:
    """Refuse what is several patterns with commas between, as other connectors have them.

    Args:
        subject: patterns, one a line.
        option: what the user calls them.

    Raises:
        OptionError: a pattern that names no dialect has a comma.
    """
    for line in subject.splitlines():
        if "," in line and line.partition(":")[0] not in dialects.BY_NAME:
            raise OptionError(
                option,
                line,
                "a comma is part of a subject, and several patterns are one a line. "
                f"Where the comma is meant, name the dialect: nats:{line}",
            )


_TIMES = ("startingTime", "endingTime")

_T = TypeVar("_T")


def _time(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    return None if text is None else _read(read_time, name, text)


def _read(read: Callable[[str], _T], name: str, text: str) -> _T:
    try:
        return read(text)
    except ValueError as error:
        raise OptionError(name, text, str(error)) from None


def _refuse_contradictions(read: Options) -> None:
    for one, other in (("numPartitions", "rowsPerPartition"), ("journal", "path")):
        if {one, other} <= read.written:
            raise OptionError(one, None, f"give it or {other}, not both")
    if "maxTriggerDelay" in read.written and read.least_rows is None:
        raise OptionError(
            "maxTriggerDelay", None, "it needs minOffsetsPerTrigger, for which a micro-batch waits"
        )
    if read.payload in ("raw", "string") and read.payload_schema is not None:
        raise OptionError("payloadSchema", read.payload_schema, "it needs payload=json or payload=msgpack")
    if read.journals:
        _refuse_what_is_for_one(read)
    if read.payload == "raw" and (for_malformed := {"mode", "columnNameOfCorruptRecord"} & read.written):
        raise OptionError(
            min(for_malformed), None, "it needs a payload that is decoded: string, json or msgpack"
        )
    if isinstance(read.start, int) and read.end is not None and read.start > read.end:
        raise OptionError("startingOffset", read.start, f"it is behind endingOffset={read.end}")
    if read.start_ns is not None and read.end_ns is not None and read.start_ns > read.end_ns:
        raise OptionError("startingTime", None, "it is later than endingTime")


def _refuse_what_is_for_one(read: Options) -> None:
    for name, offset in (("startingOffset", read.start), ("endingOffset", read.end)):
        if isinstance(offset, int):
            rule = "several journals have offsets of their own: give a time, or earliest or latest"
            raise OptionError(name, offset, rule)


def _directories(given: Mapping[str, str]) -> tuple[tuple[Path, ...], bool]:
    """Return the journals, and whether they are several: one a line, or what a glob finds."""
    name = "journal" if "journal" in given else "path"
    text = given[name]
    lines = _lines(text)
    if not lines or any("://" in line for line in lines):
        rule = "it is a directory, on a file system that the driver and all executors see"
        raise OptionError(name, text, rule)
    found = [path for line in lines for path in _found(line)]
    if not found:
        raise OptionError(name, text, "there is no journal that the glob finds")
    return tuple(dict.fromkeys(found)), len(lines) > 1 or _is_glob(lines[0])


def _lines(text: str) -> list[str]:
    return [line.strip().removeprefix("file:") for line in text.splitlines() if line.strip()]


def _is_glob(line: str) -> bool:
    return glob.has_magic(line) and not files.is_journal(Path(line))


def _found(line: str) -> list[Path]:
    path = Path(os.path.abspath(line))
    if not _is_glob(line):
        return [path]
    return [one for one in map(Path, sorted(glob.glob(str(path)))) if files.is_journal(one)]


def _headers(given: Mapping[str, str]) -> HeaderColumns:
    return HeaderColumns(
        _one_of(given, "headers", ("raw", "map")) == "map",
        given.get("keyheader"),
        given.get("timeheader"),
    )


def _start(given: Mapping[str, str]) -> int | str:
    text = given.get("startingoffset", EARLIEST).strip().lower()
    if text in (EARLIEST, LATEST):
        return text
    try:
        return _at_least(int(text), 0)
    except ValueError:
        raise OptionError("startingOffset", text, "it is earliest, latest, or an offset from 0") from None


def _end(given: Mapping[str, str]) -> int | None:
    if given.get("endingoffset", LATEST).strip().lower() == LATEST:
        return None
    return _whole(given, "endingOffset", least=0)


def _whole(given: Mapping[str, str], name: str, least: int = 1) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    try:
        return _at_least(int(text), least)
    except ValueError:
        raise OptionError(name, text, f"it is a whole number from {least}") from None


def _at_least(number: int, least: int) -> int:
    if number < least or number >> 63:
        raise ValueError
    return number


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise OptionError(name, text, "it is true or false")
    return text == "true"


def _one_of(given: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    text = given.get(name.lower(), allowed[0]).strip().lower()
    if text not in allowed:
        raise OptionError(name, text, f"it is one of {', '.join(allowed)}")
    return text
