"""The options of the source."""

from __future__ import annotations

import difflib
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from tempfile import gettempdir

from oz.errors import OptionError, OzError
from oz.subjects import dialects
from oz.subjects.pattern import Pattern, parse
from oz.transport import endpoints

EARLIEST, LATEST = "earliest", "latest"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_YEAR = Decimal(253_402_300_800)  # seconds from 1970 to the year 10000

NAMES = (
    "journal",
    "endpoint",
    "subject",
    "startingOffset",
    "startingTime",
    "endingOffset",
    "endingTime",
    "maxRowsPerTrigger",
    "failOnDataLoss",
    "gaps",
    "payload",
    "payloadSchema",
    "numPartitions",
    "rowsPerPartition",
    "pushFilters",
    "filtering",
    "dedupe",
    "retainBytes",
    "retainSeconds",
)
"""The options of the source, as they are written; Spark hands them over in lower case."""

PAYLOADS = ("raw", "string", "json", "msgpack")


@dataclass(frozen=True)
class Options:
    """The options of a read; docs/spark-source.md explains each.

    Attributes:
        journal: the directory.
        is_private: whether it is a temporary one, of this query alone.
        endpoints: where a recorder connects to; empty when the journal is only read.
        subject: the specs of patterns, one a line; empty for all.
        start: an offset, `EARLIEST` or `LATEST`.
        start_ns: the earliest time, in nanoseconds since 1970.
        end: the offset to stop before.
        end_ns: the time to stop before, in nanoseconds since 1970.
        most_rows: records of a micro-batch at most.
        fails_on_loss: whether it is an error that retention was faster.
        gaps: whether to give records that are no messages too.
        payload: one of `PAYLOADS`.
        payload_schema: the columns of a payload, as DDL.
        partitions: how many partitions to make.
        partition_rows: or of how many records each.
        pushes: whether to take Spark's filters.
        filtering: who filters for a recorder: `"prefix"` or `"publisher"`.
        dedupe: whether the recorder drops repeats.
        retain_bytes: how much a recorder keeps, in bytes.
        retain_seconds: for how long a recorder keeps it, in seconds.
    """

    journal: Path
    is_private: bool = False
    endpoints: tuple[str, ...] = ()
    subject: str = ""
    start: int | str = EARLIEST
    start_ns: int | None = None
    end: int | None = None
    end_ns: int | None = None
    most_rows: int | None = None
    fails_on_loss: bool = True
    gaps: bool = False
    payload: str = "raw"
    payload_schema: str | None = None
    partitions: int | None = None
    partition_rows: int | None = None
    pushes: bool = False
    filtering: str = "prefix"
    dedupe: bool = False
    retain_bytes: int | None = None
    retain_seconds: float | None = None
    written: frozenset[str] = field(default=frozenset())

    def patterns(self) -> list[Pattern]:
        """Compile the patterns; none means that every subject is wanted.

        Raises:
            PatternError: a dialect does not allow one.
        """
        return [parse(line) for line in self.subject.splitlines() if line.strip()]


def read_options(options: Mapping[str, str]) -> Options:
    """Read the options as Spark hands them over.

    Raises:
        OptionError: one is unknown, contradicts another, or makes no sense.
        PatternError: a dialect does not allow a pattern.
    """
    given = {key.lower(): str(value) for key, value in options.items()}
    _refuse_unknown(given)
    start_ns = _time(given, "startingTime")
    published_at = _endpoints(given)
    if "journal" not in given and not published_at:
        raise OptionError("journal", None, "give the directory of a journal, or the endpoint of a publisher")
    read = Options(
        journal=_directory(given),
        is_private="journal" not in given,
        endpoints=published_at,
        subject=given.get("subject", ""),
        start=_start(given),
        start_ns=start_ns,
        end=_whole(given, "endingOffset", least=0),
        end_ns=_time(given, "endingTime"),
        most_rows=_whole(given, "maxRowsPerTrigger"),
        fails_on_loss=_flag(given, "failOnDataLoss", True),
        gaps=_flag(given, "gaps", False),
        payload=_one_of(given, "payload", PAYLOADS),
        payload_schema=given.get("payloadschema"),
        partitions=_whole(given, "numPartitions"),
        partition_rows=_whole(given, "rowsPerPartition"),
        pushes=_flag(given, "pushFilters", False),
        filtering=_one_of(given, "filtering", ("prefix", "publisher")),
        dedupe=_flag(given, "dedupe", False),
        retain_bytes=_whole(given, "retainBytes"),
        retain_seconds=_seconds(given, "retainSeconds"),
        written=frozenset(name for name in NAMES if name.lower() in given),
    )
    _refuse_contradictions(read)
    refuse_commas(read.subject)
    read.patterns()
    return read


def refuse_commas(subject: str) -> None:
    """Refuse what is several patterns with commas between, as other connectors have them.

    Raises:
        OptionError: a pattern that names no dialect has a comma.
    """
    for line in subject.splitlines():
        if "," in line and line.partition(":")[0] not in dialects.BY_NAME:
            raise OptionError(
                "subject",
                line,
                "a comma is part of a subject, and several patterns are one a line. "
                f"Where the comma is meant, name the dialect: nats:{line}",
            )


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in NAMES}
    for key in given:
        if key not in known:
            similar = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = "journal" if key == "path" else known[similar[0]] if similar else None
            meant = f"did you mean {hint}? " if hint else ""
            raise OptionError(key, None, f"there is no such option; {meant}There are {', '.join(NAMES)}")


def _refuse_contradictions(read: Options) -> None:
    for one, other in (("numPartitions", "rowsPerPartition"),):
        if {one, other} <= read.written:
            raise OptionError(one, None, f"give it or {other}, not both")
    if not read.endpoints:
        for name in ("filtering", "dedupe", "retainBytes", "retainSeconds"):
            if name in read.written:
                raise OptionError(name, None, "it is for the recorder that the option endpoint starts")
    if read.payload in ("raw", "string") and read.payload_schema is not None:
        raise OptionError("payloadSchema", read.payload_schema, "it needs payload=json or payload=msgpack")
    if read.dedupe and read.filtering != "publisher":
        raise OptionError("dedupe", None, "it needs filtering=publisher: only such a message brings its id")
    if isinstance(read.start, int) and read.end is not None and read.start > read.end:
        raise OptionError("startingOffset", read.start, f"it is behind endingOffset={read.end}")
    if read.start_ns is not None and read.end_ns is not None and read.start_ns > read.end_ns:
        raise OptionError("startingTime", None, "it is later than endingTime")


def _directory(given: Mapping[str, str]) -> Path:
    if "journal" in given:
        path = given["journal"].removeprefix("file:")
        if not path.strip() or "://" in path:
            rule = "it is a directory, on a file system that the driver and all executors see"
            raise OptionError("journal", given["journal"], rule)
        return Path(os.path.abspath(path))
    return Path(gettempdir(), f"oz-live-{uuid.uuid4().hex}")


def _endpoints(given: Mapping[str, str]) -> tuple[str, ...]:
    found = tuple(one.strip() for one in given.get("endpoint", "").split(",") if one.strip())
    for one in found:
        try:
            endpoints.check(one, own_context=True)
        except (ValueError, OzError) as error:
            raise OptionError("endpoint", one, str(error)) from None
    return found


def _start(given: Mapping[str, str]) -> int | str:
    text = given.get("startingoffset", EARLIEST).strip().lower()
    if text in (EARLIEST, LATEST):
        return text
    try:
        return _at_least(int(text), 0)
    except ValueError:
        raise OptionError("startingOffset", text, "it is earliest, latest, or an offset from 0") from None


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


def _seconds(given: Mapping[str, str], name: str) -> float | None:
    text = given.get(name.lower())
    try:
        seconds = None if text is None else float(text)
        if seconds is None or 0 < seconds < float("inf"):
            return seconds
    except ValueError:
        pass
    raise OptionError(name, text, "it is a number of seconds greater than 0")


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


def _time(given: Mapping[str, str], name: str) -> int | None:
    """Read a time: ISO 8601 with a zone, or seconds since 1970."""
    text = given.get(name.lower())
    if text is None:
        return None
    try:
        seconds = Decimal(text.strip())
    except InvalidOperation:
        return _iso(name, text.strip())
    if not (seconds.is_finite() and abs(seconds) < _LAST_YEAR):
        raise OptionError(name, text, "a number is one of seconds since 1970, and this is no time in them")
    return int(seconds * 1_000_000_000)


def _iso(name: str, text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        wanted = "a time as in 2026-03-01T09:30:00+01:00, or a number of seconds since 1970"
        raise OptionError(name, text, f"it is {wanted}") from None
    if moment.tzinfo is None:
        raise OptionError(name, text, f"it names no time zone: write {moment.isoformat()}+00:00 if it is UTC")
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
