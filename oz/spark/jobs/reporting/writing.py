"""Figures and subjects as people read them, safe to stand in a page."""

from __future__ import annotations

import html
from datetime import UTC, datetime, timedelta

from oz.escaping import printable
from oz.spark.jobs.reporting.steps import SECOND

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = ("", "k", "M", "G", "T", "P", "E")
_LONGEST = 300


def number(value: float | None, unit: str = "") -> str:
    """Write a number in three digits or so: 950, 12.3k, 1.20 MB."""
    if value is None:
        return "–"
    size, at = float(value), 0
    while abs(size) >= 999.5 and at < len(_UNITS) - 1:
        size, at = size / 1000, at + 1
    mark = f" {_UNITS[at]}{unit}" if unit else _UNITS[at]
    if abs(size) < 0.1:
        return f"{size:.2g}{mark}"
    digits = 0 if at == 0 and size == int(size) else 2 if abs(size) < 9.995 else 1 if abs(size) < 99.95 else 0
    return f"{size:.{digits}f}{mark}"


def exact(value: int | None) -> str:
    """Write a whole number in full, with separators."""
    return "–" if value is None else f"{value:,}"


def others(count: int) -> str:
    """Say how many are not named."""
    return "1 other" if count == 1 else f"{count:,} others"


def moment(time_ns: int | None, *, step_ns: int = SECOND) -> str:
    """Write a time in UTC, as finely as a step is long."""
    if time_ns is None:
        return "–"
    whole, rest = divmod(time_ns, SECOND)
    text = (_EPOCH + timedelta(seconds=whole)).strftime("%Y-%m-%d %H:%M:%S")
    return text if step_ns >= SECOND else f"{text}.{rest:09d}"[: len(text) + 7]


def duration(seconds: float | None) -> str:
    """Write a length of time: 3.2 ms, 45 s, 2 h 5 min, 12 d 4 h."""
    if seconds is None:
        return "–"
    if seconds < 60:
        scale, unit = next(
            ((1 / s, u) for s, u in ((1e-6, "µs"), (1e-3, "ms")) if seconds < 1000 * s), (1, "s")
        )
        return f"{seconds * scale:.3g} {unit}" if seconds else "0 s"
    minutes = round(seconds / 60)
    for length, large, small, divisor in ((1440, "d", "h", 60), (60, "h", "min", 1)):
        if minutes >= length:
            whole, rest = divmod(minutes, length)
            return f"{whole:,} {large} {rest // divisor} {small}" if rest // divisor else f"{whole:,} {large}"
    return f"{minutes} min"


def subject(text: str) -> str:
    """Escape a subject for a page: as it is, but for what cannot be seen or would turn the text around."""
    shown = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
    return f"<bdi>{html.escape(printable(shown))}</bdi>" if shown else "<i>(empty)</i>"


def publisher(origin: str | None) -> str:
    """Write a publisher's id, or that there is none."""
    return "<i>no origin (plain ZeroMQ)</i>" if origin is None else html.escape(origin)
