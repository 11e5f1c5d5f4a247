"""Loggers whose lines peers may cause: what is in a line is escaped, and how many there are is limited."""

from __future__ import annotations

import logging
import traceback
from contextlib import suppress

from oz.escaping import printable

FIRST = 10
"""So many lines of a kind come at once,"""
SECONDS = 5.0
"""and then one in so many seconds, which counts those that were left out."""
_KINDS = 256


class LineRate:
    """The rate of lines of one kind: some at once, and then one now and then. It reads no clock."""

    __slots__ = ("_left_out", "_room", "_seen")

    def __init__(self) -> None:
        """Begin with room for the first."""
        self._room = float(FIRST)
        self._seen: float | None = None
        self._left_out = 0

    def take(self, now: float) -> int | None:
        """Ask for a line.

        Args:
            now: seconds, of a clock that need not be steady.

        Returns:
            How many were left out since the last; None when this one is left out too.
        """
        passed = max(0.0, now - self._seen) if self._seen is not None else 0.0
        self._seen = now
        self._room = min(float(FIRST), self._room + passed / SECONDS)
        if self._room < 1:
            self._left_out += 1
            return None
        self._room -= 1
        left_out, self._left_out = self._left_out, 0
        return left_out


held_back: dict[int | None, list[logging.LogRecord]] = {}
"""For threads by their numbers what they log, to be given to `write`. For one that another thread waits for,
which may be in a handler of logging and have its lock."""


def write(lines: list[logging.LogRecord]) -> None:
    """Write what was held back."""
    for one in lines:
        logging.getLogger(one.name).callHandlers(one)


class _Escaping(logging.Filter):
    """Escapes what a line is made of."""

    def filter(self, record: logging.LogRecord) -> bool:
        with suppress(Exception):  # what cannot be formatted is logging's to report
            message = record.getMessage()
            if not message.isprintable():
                record.msg, record.args = printable(message), ()
            if record.exc_info and record.exc_info[0] is not None:
                lines = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n").split("\n")
                # No line of it begins as one of the log does.
                record.exc_text = "\n".join(f"  {printable(line)}" for line in lines)
        held = held_back.get(record.thread)
        if held is not None:
            held.append(record)
        return held is None


class _Limiting(logging.Filter):
    """Leaves out what comes too often. Lines are of a kind that are written in one place."""

    def __init__(self) -> None:
        super().__init__()
        self._rates: dict[tuple[str, int], LineRate] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.pathname, record.lineno
        if kind not in self._rates and len(self._rates) >= _KINDS:
            self._rates.clear()
        left_out = self._rates.setdefault(kind, LineRate()).take(record.created)
        if left_out:
            record.msg = f"{record.msg} ({left_out} more like it were left out)"
        return left_out is not None

    def forget(self) -> None:
        self._rates.clear()


_escaping, _limiting = _Escaping(), _Limiting()


def logger(name: str) -> logging.Logger:
    """Return a logger that escapes the text in its lines: what comes from files or users."""
    found = logging.getLogger(name)
    found.addFilter(_escaping)
    return found


def peer_logger(name: str) -> logging.Logger:
    """Return a logger for what peers may cause: it escapes, and limits the lines of each kind."""
    found = logging.getLogger(name)
    found.addFilter(_limiting)
    return logger(name)


def forget_rates() -> None:
    """Begin anew, as tests do: what was written before does not count."""
    _limiting.forget()
