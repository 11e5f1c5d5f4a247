"""The rows of the table of benchmarks, and how what was measured is shown in them: text in, text out.

A row compares one side of `table` with a rival that ran in the same rounds, round by round.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Measured = dict[str, Any]
"""What `table` writes as JSON."""

BUSY = 2.0
"""The load from which on others are in the way."""

MEDIAN = 5
"""The place of the 50th percentile among `running.SHOWN`."""


class Row(NamedTuple):
    """A row.

    Attributes:
        name: text of the row.
        ours: the side of oz.
        rival: the other side of the ratio.
        c: the side in C or of plain sockets; empty for none.
        at_least: the least ratio.
        goal: the ratio of the design.
        is_time: the ratio is of median times, so that less is better; otherwise of messages a second.
    """

    name: str
    ours: str
    rival: str
    c: str
    at_least: float
    goal: float
    is_time: bool = False


NODES = (
    ("node", "oz"),
    ("node, `inline=True`", "oz, inline"),
    ("node in asyncio", "oz.asyncio"),
    ("node in asyncio, `inline=True`", "oz.asyncio, inline"),
)

ROWS = (
    Row("W1 one to one, a handler for each message", "W1 handler", "pyzmq", "C", 10, 12),
    Row("W1, `for message in subscriber`", "W1 iteration", "pyzmq", "C", 11, 13),
    Row("W1, `receive_many`", "W1 batches", "pyzmq", "C", 14, 16),
    Row("W2, one in a hundred matches, published", "W2", "pyzmq W2", "C", 35, 40),
    Row("W4, one to four", "W4", "pyzmq W4", "C W4", 6.5, 8),
    Row("W4, `receive_many`", "W4 batches", "pyzmq W4", "C W4", 6.5, 8),
    Row("prefix mode, any ZeroMQ publisher", "prefix", "pyzmq", "C", 2.5, 3),
    Row("W5, 10,000 subscriptions with handlers, beside nats-py", "W5", "nats-py W5", "", 30, 35),
    Row("round trip of sockets, p50", "round trip", "pyzmq round trip", "C round trip", 0.95, 0.9, True),
    *(
        Row(f"request of a {name}, p50, beside nats-py", side, "nats-py", "REQ, REP", 1, 0.8, True)
        for name, side in NODES
    ),
    *(
        Row(f"32 in flight, {name}, beside nats-py", f"{side} 32", "nats-py 32", "REQ, REP 32", 1, 2)
        for name, side in NODES
    ),
    Row("W1, asyncio on both sides, beside `zmq.asyncio`", "W1 asyncio", "pyzmq asyncio", "", 20, 20),
    Row("W1, without the compiled part", "W1 in Python", "pyzmq", "C", 6, 6),
    Row("W1 with keys, beside W1 without", "W1 keys", "W1 handler", "", 0.7, 0.8),
    Row("W1, iteration, beside nats-py", "W1 iteration", "nats-py W1", "", 1, 1),
    Row("W1, iteration, beside zenoh", "W1 iteration", "zenoh W1", "", 1, 1),
    Row("request of a node, p50, beside zenoh", "oz", "zenoh", "", 1, 1, True),
    Row("32 in flight, node, beside zenoh", "oz 32", "zenoh 32", "", 1, 1),
)


def figure(run: dict[str, Any], *, is_time: bool) -> float:
    """Return what a run is compared by: its median time, or its rate."""
    return float(run["times"][MEDIAN] if is_time else run["rate"])


def ratios(measured: Measured, side: str, row: Row) -> list[float]:
    """Return the ratios of a side to its rival in the same rounds, or an empty list if one is missing."""
    sides = measured["sides"]
    if side not in sides or row.rival not in sides:
        return []
    pairs = zip(sides[side], sides[row.rival], strict=True)
    return [figure(ours, is_time=row.is_time) / figure(theirs, is_time=row.is_time) for ours, theirs in pairs]


def processor(measured: Measured, side: str) -> float:
    """Return the median of the microseconds of processor for each message."""
    return statistics.median(run["processor"] for run in measured["sides"][side])


def reaches(ratio: float, wanted: float, row: Row) -> bool:
    """Return whether a ratio reaches the wanted ratio."""
    return ratio <= wanted if row.is_time else ratio >= wanted


def number(value: float) -> str:
    """Show three digits at most."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def cell(measured: Measured, side: str, row: Row) -> str:
    """Show the ratio of a side, its range, and its processor time; `–` where it is missing."""
    found = ratios(measured, side, row)
    if not found:
        return "–"
    spread = f"{number(statistics.median(found))} ({number(min(found))} to {number(max(found))})"
    return f"{spread} [{number(processor(measured, side))}]"


def cells(measured: Measured, mark: str) -> Iterator[list[str]]:
    """Return the value of each row of a measured side.

    Args:
        measured: by `table`.
        mark: text on both sides of a ratio below the wanted one.
    """
    for row in ROWS:
        if row.ours not in measured["sides"]:
            continue
        ours = cell(measured, row.ours, row)
        found = ratios(measured, row.ours, row)
        if found and not reaches(statistics.median(found), row.at_least, row):
            ours = f"{mark}{ours}{mark}"
        yield [row.name, ours, cell(measured, row.c, row), number(row.at_least), number(row.goal)]


HEADER = ["", "oz", "C", "at least", "goal"]


def as_text(measured: Measured) -> str:
    """Return the table for a terminal."""
    lines = [HEADER, *cells(measured, "*")]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([*table, "", *explanations(measured), "", *losses(measured)])


def as_markdown(measured: Measured) -> str:
    """Return the table for a page, with the machine, and the rows in which oz is slower."""
    lines = [f"| {' | '.join(line)} |" for line in (HEADER, ["---"] * len(HEADER), *cells(measured, "**"))]
    return "\n".join([*lines, "", *explanations(measured), "", *losses(measured)])


def explanations(measured: Measured) -> list[str]:
    """Return lines that explain the figures and name the machine."""
    versions = ", ".join(f"{name} {version}" for name, version in measured["versions"].items())
    before, after = measured["load"]
    part = "with" if measured["compiled"] else "without"
    lines = [
        f"Medians of {measured['rounds']} interleaved rounds. Round brackets have the least and the greatest value,",
        "square brackets the microseconds of processor time for each message, in all processes.",
        f"{measured['machine']}, load {before:.1f} before and {after:.1f} after,",
        f"oz {part} its compiled part.",
        f"{versions}.",
    ]
    if before >= BUSY:
        lines.append(
            "**Other programs used the machine during the run, so that these figures are unreliable.**"
        )
    return lines + [f"{name}: {reason}." for name, reason in measured["missing"].items()]


def losses(measured: Measured) -> Iterator[str]:
    """Yield a table of the rows in which the rival, or C, is faster than oz."""
    yield "| faster than oz | rows, with the ratio |"
    yield "| --- | --- |"
    for name, side_of in (
        ("the other side", lambda row: row.rival),
        ("C, or REQ and REP", lambda row: row.c),
    ):
        yield f"| {name} | {'; '.join(_behind(measured, side_of)) or 'none'} |"


def _behind(measured: Measured, side_of: Callable[[Row], str]) -> Iterator[str]:
    """Return the rows in which a side is better than oz, with the ratio of oz to that side."""
    for row in ROWS:
        ours, theirs = ratios(measured, row.ours, row), ratios(measured, side_of(row), row)
        if ours and theirs:
            ratio = statistics.median(item / other for item, other in zip(ours, theirs, strict=True))
            if not reaches(ratio, 1, row):
                yield f"{row.name}: {number(ratio)}"
