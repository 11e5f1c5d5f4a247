"""Parser of times: ISO 8601, seconds since 1970, `now`, and times before now such as `-1h`."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_YEAR = Decimal(253_402_300_800)  # seconds from 1970 to the year 10000
_SECOND = 1_000_000_000
_UNITS = {"ms": 10**6, "s": _SECOND, "m": 60 * _SECOND, "h": 3_600 * _SECOND, "d": 86_400 * _SECOND}
_UNITS["w"] = 7 * _UNITS["d"]
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")


def read_time(text: str) -> int:
    """Parse a time: ISO 8601 with a time zone, seconds since 1970, `now`, or a time before now such as `-1h`.

    Returns:
        Nanoseconds since 1970.

    Raises:
        ValueError: the text is not a time, or has no time zone.
    """
    ago = _ago(text)
    if ago is not None:
        return time.time_ns() - ago
    try:
        seconds = Decimal(text.strip())
    except InvalidOperation:
        return _iso(text.strip())
    if not (seconds.is_finite() and abs(seconds) < _LAST_YEAR):
        raise ValueError("write seconds since 1970, up to the year 9999")
    return int(seconds * _SECOND)


def read_moment(text: str) -> datetime:
    """Parse a time: ISO 8601, `now`, or a time before now such as `-1h`.

    Returns:
        Time with its time zone. A text without a time zone is local time.

    Raises:
        ValueError: the text is not a time.
    """
    ago = _ago(text)
    try:
        if ago is not None:
            return datetime.now(UTC) - timedelta(microseconds=ago // 1000)
        moment = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a time; write it as 2026-03-01T09:00, now or -1h") from None
    try:
        return moment if moment.tzinfo is not None else moment.astimezone()
    except (ValueError, OverflowError):  # `astimezone` fails for `datetime.min` and `datetime.max`.
        return moment.replace(tzinfo=UTC)


def iso_nanoseconds(text: str) -> int | None:
    """Parse a time in ISO 8601 to nanoseconds since 1970. Return None if the text is not a time or has no time zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment.tzinfo is None else (moment - _EPOCH) // timedelta(microseconds=1) * 1000


def _ago(text: str) -> int | None:
    """Return the number of nanoseconds before now for a text such as `-1h`. Return None for other text."""
    text = text.strip()
    if text == "now":
        return 0
    return _nanoseconds(text[1:]) if text.startswith("-") else None


def _nanoseconds(text: str) -> int | None:
    found = _DURATION.fullmatch(text.strip())
    return None if found is None else int(Decimal(found[1]) * _UNITS[found[2]])


def _iso(text: str) -> int:
    found = iso_nanoseconds(text)
    if found is not None:
        return found
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        wanted = "write a time such as 2026-03-01T09:30:00+01:00, a number of seconds since 1970, or -1h"
        raise ValueError(wanted) from None
    raise ValueError(f"the time has no zone: write {moment.isoformat()}+00:00 if it is UTC")
