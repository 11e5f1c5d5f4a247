"""The settings of the sink."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from oz.errors import OptionError, OzError, SubjectError
from oz.spark.option_names import refuse_unknown
from oz.subjects import dialects
from oz.subjects.pattern import DEFAULT_DIALECT, validate_subject
from oz.transport import endpoints

ENCODINGS = ("msgpack", "json")
"""How structs become payloads."""

POLICIES = ("fail", "skip")
"""What may become of a row that cannot be published."""

ABSENCES = ("fail", "wait", "drop")
"""What may become of a batch when nobody listens."""

NAMES = (
    "endpoint",
    "bind",
    "subject",
    "dialect",
    "payload",
    "invalid",
    "subscribers",
    "absent",
    "timeout",
    "staging",
    "run",
    "batch",
    "checkpointLocation",
    "queryName",
)
"""The options of the sink, as written; Spark hands them over in lower case. The last two are its own."""

FOREIGN = {
    "kafka.bootstrap.servers": "endpoint, or bind",
    "topic": "subject",
    "includeheaders": "the column headers",
}
"""Options that others have for it, in lower case."""

_LONGEST = 86_400.0
_NO_DIRECTORY = "it is a directory on a file system that the driver and all executors share"


@dataclass(frozen=True)
class SinkSettings:
    """The options of a sink, checked.

    Attributes:
        connect: endpoints to connect to: option `endpoint`, with commas between several.
        bind: endpoints to bind to: option `bind`.
        dialect: the dialect that subjects must be valid in.
        payload: how a struct is encoded: `msgpack` or `json`.
        invalid: what becomes of a row that cannot be published: `fail` or `skip`.
        subscribers: subscriptions to wait for before a batch is published.
        absent: what becomes of a batch when they do not come: `fail`, `wait` or `drop`.
        timeout: seconds to wait for them, for a subscriber that is full, and for the last row to go out.
        staging: the directory under which rows are staged.
        run: of a batch write: a name that makes its ids those of the run before it with the same name.
        batch: the number of a batch of a run; what it holds is kept until the next one is published.
        subject: the subject of all rows, whatever column they have.
    """

    connect: tuple[str, ...]
    bind: tuple[str, ...]
    dialect: str
    payload: str
    invalid: str
    subscribers: int
    absent: str
    timeout: float
    staging: str
    run: str | None = None
    batch: int | None = None
    subject: str | None = None

    @property
    def endpoints(self) -> tuple[str, ...]:
        """All endpoints."""
        return self.bind + self.connect


def read_settings(options: Mapping[str, str], *, is_streaming: bool) -> SinkSettings:
    """Read the options of a sink.

    Args:
        options: as Spark gives them, whatever the case of their names.
        is_streaming: whether they are a streaming query's, which has a checkpoint.

    Raises:
        OptionError: one is missing, unknown or wrong; says which and what to write.
    """
    given = {name.lower(): text for name, text in options.items()}
    refuse_unknown(given, NAMES, FOREIGN, "the sink has no such option")
    for name in ("run", "batch"):
        if is_streaming and name in given:
            rule = "it names a batch write; a streaming query has an id of its own"
            raise OptionError(name, given[name], rule)
    return SinkSettings(
        *_where(given),
        _choice(given, "dialect", dialects.DIALECTS, DEFAULT_DIALECT),
        _choice(given, "payload", ENCODINGS, ENCODINGS[0]),
        _choice(given, "invalid", POLICIES, POLICIES[0]),
        _subscribers(given),
        _choice(given, "absent", ABSENCES, ABSENCES[0]),
        _seconds(given, "timeout", 30.0),
        _staging(given, is_streaming=is_streaming),
        given.get("run") or None,
        _batch(given),
        _subject(given),
    )


def _where(given: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    connect, bind = _endpoints(given, "endpoint"), _endpoints(given, "bind")
    if not connect and not bind:
        rule = "give where to publish to: endpoint=tcp://hub:5555 to connect, or bind=tcp://*:5555"
        raise OptionError("endpoint", None, rule)
    for one in bind:
        if one.startswith("tcp://") and one.endswith((":*", ":0")):
            raise OptionError(
                "bind", one, "it would be another port for each batch: name one, as in tcp://*:5555"
            )
    return connect, bind


def _subject(given: Mapping[str, str]) -> str | None:
    text = given.get("subject")
    if text is not None:
        try:
            validate_subject(text, _choice(given, "dialect", dialects.DIALECTS, DEFAULT_DIALECT))
        except SubjectError as error:
            raise OptionError("subject", text, str(error)) from None
    return text


def _endpoints(given: Mapping[str, str], name: str) -> tuple[str, ...]:
    found = tuple(one.strip() for one in given.get(name, "").split(",") if one.strip())
    for one in found:
        try:
            endpoints.check(one, own_context=True)
        except (ValueError, OzError) as error:
            raise OptionError(name, one, str(error)) from None
    return found


def _choice(given: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str) -> str:
    text = given.get(name, default).strip().lower()
    if text not in allowed:
        raise OptionError(name, text, f"it is one of {', '.join(allowed)}")
    return text


def _subscribers(given: Mapping[str, str]) -> int:
    text = given.get("subscribers", "1").strip()
    if not (text.isascii() and text.isdecimal()):
        rule = "it is how many subscriptions to wait for; with 0 rows are published even if nobody listens"
        raise OptionError("subscribers", text, rule)
    return int(text)


def _batch(given: Mapping[str, str]) -> int | None:
    text = given.get("batch")
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()) or not given.get("run"):
        raise OptionError(
            "batch", text, "it is the number of a batch, from 0, of the run that option run names"
        )
    return int(text)


def _seconds(given: Mapping[str, str], name: str, default: float) -> float:
    text = given.get(name, str(default))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= _LONGEST:
        raise OptionError(name, text, f"it is a number of seconds above 0 and up to {_LONGEST:g}")
    return seconds


def _staging(given: Mapping[str, str], *, is_streaming: bool) -> str:
    if text := given.get("staging"):
        path = _local(text)
        if path is None:
            raise OptionError("staging", text, _NO_DIRECTORY)
        return path
    if not is_streaming:
        return os.path.join(tempfile.gettempdir(), f"oz-sink-{os.getuid()}")
    checkpoint = given.get("checkpointlocation")
    path = _local(checkpoint) if checkpoint else None
    if path is None:
        where = f"the checkpoint {checkpoint!r} is none" if checkpoint else "there is no checkpointLocation"
        raise OptionError("staging", None, f"give one: {_NO_DIRECTORY}, and {where}")
    return os.path.join(path, "oz-staging")


def _local(text: str) -> str | None:
    """Return the absolute path that a path or a `file:` address names; None if it is neither."""
    parts = urlsplit(text)
    if not parts.scheme:
        return os.path.abspath(text)
    return unquote(parts.path) if parts.scheme == "file" and parts.path.startswith("/") else None
