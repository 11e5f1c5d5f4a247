"""Loggers that escape untrusted text, and limit the rate of records that peers can cause."""

from __future__ import annotations

import logging
import traceback
from contextlib import suppress

from oz.escaping import printable

FIRST = 10
"""Number of records of one kind that the log accepts at once."""
SECONDS = 5.0
"""Seconds between two records of one kind after the first `FIRST` records. A record that follows dropped records has
their number."""
_KINDS = 256


class LineRate:
    """Token bucket that limits the log records of one kind."""

    __slots__ = ("_dropped", "_seen", "_tokens")

    def __init__(self) -> None:
        self._tokens = float(FIRST)
        self._seen: float | None = None
        self._dropped = 0

    def take(self, now: float) -> int | None:
        """Remove a token for one record.

        Args:
            now: current time in seconds. The clock may jump.

        Returns:
            The number of records that were dropped since the last token. None if there is no token, so that this record
            must be dropped too.
        """
        passed = max(0.0, now - self._seen) if self._seen is not None else 0.0
        self._seen = now
        self._tokens = min(float(FIRST), self._tokens + passed / SECONDS)
        if self._tokens < 1:
            self._dropped += 1
            return None
        self._tokens -= 1
        dropped, self._dropped = self._dropped, 0
        return dropped


class _EscapeFilter(logging.Filter):
    """Filter that replaces invisible characters in the message and the traceback of a log record."""

    def filter(self, record: logging.LogRecord) -> bool:
        with suppress(Exception):  # If a record cannot be formatted, the handlers of `logging` report it.
            message = record.getMessage()
            if not message.isprintable():
                record.msg, record.args = printable(message), ()
            if record.exc_info and record.exc_info[0] is not None:
                lines = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n").split("\n")
                # Lines of a traceback are indented, so that they do not look like log records.
                record.exc_text = "\n".join(f"  {printable(line)}" for line in lines)
        return True


class _RateFilter(logging.Filter):
    """Filter that drops frequent log records. Records from the same line of code are of the same kind."""

    def __init__(self) -> None:
        super().__init__()
        self._rates: dict[tuple[str, int], LineRate] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.pathname, record.lineno
        if kind not in self._rates and len(self._rates) >= _KINDS:
            self._rates.clear()
        dropped = self._rates.setdefault(kind, LineRate()).take(record.created)
        if dropped:
            record.msg = f"{record.msg} ({dropped} similar records were dropped)"
        return dropped is not None

    def forget(self) -> None:
        self._rates.clear()


_escape_filter, _rate_filter = _EscapeFilter(), _RateFilter()


def logger(name: str) -> logging.Logger:
    """Return a logger that escapes its records. Use it if records contain text from files or users."""
    found = logging.getLogger(name)
    found.addFilter(_escape_filter)
    return found


def peer_logger(name: str) -> logging.Logger:
    """Return a logger that escapes its records and limits their rate. Use it for events that peers can cause."""
    found = logging.getLogger(name)
    found.addFilter(_rate_filter)
    return logger(name)


def forget_rates() -> None:
    """Reset the limits of all loggers. Tests call this function."""
    _rate_filter.forget()
