"""`oz explain --against`: patterns held against subjects from a file or from a running publisher."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

import oz
from oz.cli.output import console, is_terminal, json_field, plain_table, printable, write_json, write_line

_BAR = 32


@dataclass(slots=True)
class Selectivity:
    """The result of one pattern on a stream of subjects.

    Attributes:
        pattern: the pattern.
        seen: the messages of the stream.
        crossed: those that its prefixes let through, so that they cross the wire.
        matched: those of them that it matches, so that they are delivered.
    """

    pattern: oz.Pattern
    seen: int = 0
    crossed: int = 0
    matched: int = 0

    @property
    def in_vain(self) -> int:
        """The messages that cross the wire only to be filtered on arrival."""
        return self.crossed - self.matched

    @property
    def precision(self) -> float:
        """The part of what crosses that is delivered; 1.0 when nothing crosses."""
        return self.matched / self.crossed if self.crossed else 1.0


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
    results = _measure(patterns, subjects)
    if as_json:
        write_json([_as_data(result) for result in results])
    elif is_terminal():
        _show_table(results)
    else:
        write_line(plain_table([_HEADER, *(_as_row(result) for result in results)]))


def _measure(patterns: Iterable[oz.Pattern], subjects: Iterable[bytes]) -> list[Selectivity]:
    """Count, for each pattern, what crosses the wire and what of it matches.

    Args:
        patterns: those to compare.
        subjects: one for each message; the same subject may come many times.

    Returns:
        One result for each pattern, in their order.
    """
    counts: dict[bytes, int] = {}
    for subject in subjects:
        counts[subject] = counts.get(subject, 0) + 1
    return [_measure_one(pattern, counts) for pattern in patterns]


def _measure_one(pattern: oz.Pattern, counts: dict[bytes, int]) -> Selectivity:
    found = Selectivity(pattern)
    for subject, count in counts.items():
        found.seen += count
        if subject.startswith(pattern.prefixes):
            found.crossed += count
            found.matched += count * _matches(pattern, subject)
    return found


def _matches(pattern: oz.Pattern, subject: bytes) -> bool:
    try:
        return pattern.matches(subject)
    except (oz.SubjectError, oz.PatternTimeout):
        # Neither would be delivered.
        return False


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
