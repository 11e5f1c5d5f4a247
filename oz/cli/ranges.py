"""Options that select records of a journal: `--pattern`, `--start` and `--end`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from oz.cli.options import dialect_option
from oz.times import read_moment

if TYPE_CHECKING:  # the module needs pyarrow, which is an extra
    from oz.journal import Journal

_F = TypeVar("_F", bound=Callable[..., Any])

RANGES = """--start and --end are an offset, a time such as 2026-03-01T09:00, a time before now such as
-90s or -1h (units ms, s, m, h, d and w), or now. A time without a zone is local time."""


def range_options(command: _F) -> _F:
    """Add `--start` and `--end` to a command. Their values are offsets or times."""
    for name, text in (
        ("--end", "The offset or time before which to stop."),
        ("--start", "The first offset or time."),
    ):
        command = click.option(name, metavar="OFFSET|TIME", callback=_bound, help=text)(command)
    return command


def pattern_option(command: _F) -> _F:
    """Add `--pattern` and its `--dialect` to a command that selects records."""
    option = click.option(
        "--pattern", metavar="PATTERN", help="Only messages whose subject matches this pattern."
    )
    return option(dialect_option("the pattern, if it has no dialect name")(command))


def span_of(journal: Journal, start: object, end: object) -> tuple[int, int]:
    """Return the first and the end offset of a range, for a progress bar. Bounds that are times are ignored."""
    first = max(start, journal.first_offset) if isinstance(start, int) else journal.first_offset
    last = min(end, journal.end_offset) if isinstance(end, int) else journal.end_offset
    return first, max(first + 1, last)


def _bound(ctx: click.Context, option: click.Parameter, text: str | None) -> int | datetime | None:
    if text is None:
        return None
    bound = _read(text)
    bounds = {**ctx.params, option.name: bound}  # when the second option is parsed, both bounds are known
    start, end = bounds.get("start"), bounds.get("end")
    if type(start) is type(end) and start is not None and end < start:
        raise click.BadParameter(f"the range ends before it begins: --start {start} --end {end}")
    return bound


def _read(text: str) -> int | datetime:
    try:
        return int(text) if text.isdecimal() else read_moment(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither an offset nor a time such as 2026-03-01T09:00 or -1h"
        ) from None
