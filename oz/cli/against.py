"""`oz explain --against`: patterns held against subjects from a file or from a running publisher."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

import oz
from oz.cli.output import console, is_terminal, json_field, plain_table, printable, write_json, write_line
from oz.subjects.selectivity import Selectivity, measure

_BAR = 32


def show_against(patterns: Sequence[oz.Pattern], source: str, seconds: float, *, as_json: bool) -> None:
    """Measure patterns and show the result: a table and bars, plain columns, or JSON.

    Args:
        patterns: those to compare.
        source: a file of subjects, one a line; `-` for stdin; or an endpoint to listen to.
        seconds: how long to listen.
        as_json: write a list of objects.
    """
    subjects = list(_sampled(source, seconds) if "://" in source else _lines(source))
    if not subjects:
        raise click.ClickException(f"no subjects came from {source}; nothing can be said of the patterns")
    results = measure(patterns, subjects)
    if as_json:
        write_json([_as_data(result) for result in results])
    elif is_terminal():
        _show_table(results)
    else:
        write_line(plain_table([_HEADER, *(_as_row(result) for result in results)]))


def _lines(source: str) -> Iterator[bytes]:
    data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    return (line.rstrip(b"\r") for line in data.split(b"\n") if line.strip())


def _sampled(endpoint: str, seconds: float) -> Iterator[bytes]:
    """Listen to everything for a while."""
    deadline = time.monotonic() + seconds
    with oz.Subscriber(endpoint) as sub:
        sub.subscribe(b"")
        console(stderr=True).print(f"listening to {endpoint} for {seconds:g} s")
        while (left := deadline - time.monotonic()) > 0:
            try:
                yield sub.receive(timeout=left).frames[0]
            except oz.Timeout:
                return


_HEADER = ("pattern", "dialect", "seen", "crossed", "matched", "in vain")


def _as_row(result: Selectivity) -> tuple[str, ...]:
    numbers = (result.seen, result.crossed, result.matched, result.in_vain)
    pattern = result.pattern
    return (printable(pattern.text), pattern.dialect, *(str(number) for number in numbers))


def _as_data(result: Selectivity) -> dict[str, Any]:
    return {
        **json_field("pattern", result.pattern.text),
        "dialect": result.pattern.dialect,
        "prefixes": [printable(prefix) for prefix in result.pattern.prefixes],
        "seen": result.seen,
        "crossed": result.crossed,
        "matched": result.matched,
        "in_vain": result.in_vain,
        "precision": round(result.precision, 6),
    }


def _show_table(results: Sequence[Selectivity]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"{results[0].seen:,} messages", box=None, title_justify="left")
    for name in _HEADER[:2]:
        table.add_column(name)
    for name in _HEADER[3:]:
        table.add_column(name, justify="right")
    table.add_column("delivered, in vain, kept away", no_wrap=True)
    for result in results:
        numbers = (result.crossed, result.matched, result.in_vain)
        table.add_row(
            Text(printable(result.pattern.text), overflow="fold"),
            result.pattern.dialect,
            *(f"{number:,}" for number in numbers),
            _bar(result),
        )
    console().print(table)


def _bar(result: Selectivity) -> Any:
    """Draw what was delivered, what crossed in vain, and what the prefixes kept away."""
    from rich.text import Text

    delivered = round(_BAR * result.matched / result.seen)
    crossed = max(delivered, round(_BAR * result.crossed / result.seen))
    return Text.assemble(
        ("█" * delivered, "green"),
        ("▒" * (crossed - delivered), "red"),
        ("·" * (_BAR - crossed), "dim"),
    )
