"""Times and durations, as the options of the source say them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation

from oz.errors import OptionError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_YEAR = Decimal(253_402_300_800)  # seconds from 1970 to the year 10000
_SECOND = 1_000_000_000
_UNITS = {"ms": 10**6, "s": _SECOND, "m": 60 * _SECOND, "h": 3_600 * _SECOND, "d": 86_400 * _SECOND}
_UNITS["w"] = 7 * _UNITS["d"]
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")


def is_relative(text: str | None) -> bool:
    """Tell whether a time counts from now: `now`, or a duration with a minus before it."""
    return text is not None and (text.strip() == "now" or _ago(text) is not None)


def read_time(name: str, text: str | None) -> int | None:
    """Read a time: ISO 8601 with a zone, seconds since 1970, `now`, or how long ago, as in `-1h`.

    Args:
        name: the option's.
        text: what was given; None for nothing.

    Returns:
        Nanoseconds since 1970.

    Raises:
        OptionError: it is no time.
    """
    if text is None:
        return None
    if is_relative(text):
        return time.time_ns() - (_ago(text) or 0)
    try:
        seconds = Decimal(text.strip())
    except InvalidOperation:
        return _iso(name, text.strip())
    if not (seconds.is_finite() and abs(seconds) < _LAST_YEAR):
        raise OptionError(name, text, "a number is one of seconds since 1970, and this is no time in them")
    return int(seconds * _SECOND)


def read_duration(name: str, text: str) -> float:
    """Read a duration, as in `15m` or `1.5h`, or a number of seconds.

    Returns:
        Seconds, more than 0.

    Raises:
        OptionError: it is none.
    """
    found = _nanoseconds(text)
    try:
        seconds = float(text) if found is None else found / _SECOND
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise OptionError(name, text, "it is a duration as in 90s, 15m or 1.5h, or a number of seconds")
    return seconds


def iso_nanoseconds(text: str) -> int | None:
    """Read a time in ISO 8601; None where it is none, or names no zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment.tzinfo is None else (moment - _EPOCH) // timedelta(microseconds=1) * 1000


def _ago(text: str) -> int | None:
    text = text.strip()
    return _nanoseconds(text[1:]) if text.startswith("-") else None


def _nanoseconds(text: str) -> int | None:
    found = _DURATION.fullmatch(text.strip())
    return None if found is None else int(Decimal(found[1]) * _UNITS[found[2]])


def _iso(name: str, text: str) -> int:
    found = iso_nanoseconds(text)
    if found is not None:
        return found
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        wanted = "it is a time as in 2026-03-01T09:30:00+01:00, a number of seconds since 1970, or -1h"
        raise OptionError(name, text, wanted) from None
    raise OptionError(name, text, f"it names no time zone: write {moment.isoformat()}+00:00 if it is UTC")
