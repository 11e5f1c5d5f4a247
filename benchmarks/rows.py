"""The rows of the table of benchmarks, and how what was measured is shown in them: text in, text out.

A row compares one side of `table` with a rival that ran in the same rounds, round by round.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any, NamedTuple

Measured = dict[str, Any]
"""What `table` writes as JSON."""

MEDIAN = 5
"""The place of the 50th percentile among `running.SHOWN`."""


class Row(NamedTuple):
    """A row.

    Attributes:
        name: what is measured.
        ours: the side of oz.
        rival: what it is compared with.
        c: the side that does the same without Python, or without anything but sockets; empty for none.
        at_least: the ratio that is asked for.
        goal: the ratio that is hoped for.
        is_time: the ratio is of median times, so that less is better; otherwise of messages a second.
    """

    name: str
    ours: str
    rival: str
    c: str
    at_least: float
    goal: float
    is_time: bool = False


ROWS = (
    Row("W1 one to one, a handler for each message", "W1 handler", "pyzmq", "C", 10, 12),
    Row("W1, `for message in subscriber`", "W1 iteration", "pyzmq", "C", 11, 13),
    Row("W1, `receive_batches`", "W1 batches", "pyzmq", "C", 14, 16),
    Row("W2, one in a hundred matches, published", "W2", "pyzmq W2", "C", 35, 40),
    Row("W4, one to four", "W4", "pyzmq W4", "C W4", 6.5, 8),
    Row("W4, `receive_batches`", "W4 batches", "pyzmq W4", "C W4", 6.5, 8),
    Row("prefix mode, any ZeroMQ publisher", "prefix", "pyzmq", "C", 2.5, 3),
    Row("W5, 10,000 subscriptions with handlers, beside nats-py", "W5", "nats-py W5", "", 30, 35),
    Row("round trip of sockets, p50", "round trip", "pyzmq round trip", "C round trip", 0.95, 0.9, True),
    *(
        Row(f"request of a {name}, p50, beside nats-py", side, "nats-py", "REQ, REP", 1, 0.8, True)
        for name, side in (
            ("node", "oz"),
            ("node, `inline=True`", "oz, inline"),
            ("node in asyncio", "oz.asyncio"),
            ("node in asyncio, `inline=True`", "oz.asyncio, inline"),
        )
    ),
    *(
        Row(f"32 in flight, {name}, beside nats-py", f"{side} 32", "nats-py 32", "REQ, REP 32", 1, 2)
        for name, side in (
            ("node", "oz"),
            ("node, `inline=True`", "oz, inline"),
            ("node in asyncio", "oz.asyncio"),
            ("node in asyncio, `inline=True`", "oz.asyncio, inline"),
        )
    ),
    Row("W1, asyncio on both sides, beside `zmq.asyncio`", "W1 asyncio", "pyzmq asyncio", "", 20, 20),
    Row("W1, without the compiled part", "W1 in Python", "pyzmq", "C", 6, 6),
    Row("W1, iteration, beside nats-py", "W1 iteration", "nats-py W1", "", 1, 1),
    Row("W1, iteration, beside zenoh", "W1 iteration", "zenoh W1", "", 1, 1),
)


def figure(run: dict[str, Any], *, is_time: bool) -> float:
    """Return what a run is compared by: its median time, or its rate."""
    return float(run["times"][MEDIAN] if is_time else run["rate"])


def ratios(measured: Measured, side: str, row: Row) -> list[float]:
    """Return what a side gave by what the rival gave in the same round; none where one of them is missing."""
    sides = measured["sides"]
    if side not in sides or row.rival not in sides:
        return []
    pairs = zip(sides[side], sides[row.rival], strict=True)
    return [figure(ours, is_time=row.is_time) / figure(theirs, is_time=row.is_time) for ours, theirs in pairs]


def processor(measured: Measured, side: str) -> float:
    """Return the median of the microseconds of processor for each message."""
    return statistics.median(run["processor"] for run in measured["sides"][side])


def reaches(ratio: float, wanted: float, row: Row) -> bool:
    """Tell whether a ratio is as good as what is wanted."""
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


def cells(measured: Measured) -> Iterator[tuple[Row, list[str]]]:
    """Give each row of a side that was measured, and what stands in it behind its name."""
    for row in ROWS:
        if row.ours not in measured["sides"]:
            continue
        shown = [cell(measured, row.ours, row), cell(measured, row.c, row)]
        yield row, [*shown, number(row.at_least), number(row.goal)]


HEADER = ["", "oz", "C", "at least", "goal"]


def as_text(measured: Measured) -> str:
    """Return the table for a terminal."""
    lines = [HEADER, *([row.name.replace("`", ""), *shown] for row, shown in cells(measured))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    return "\n".join([table, *explanations(measured), *losses(measured)])


def as_markdown(measured: Measured) -> str:
    """Return the table for a page, with what it was taken on, and where oz loses."""
    lines = [f"| {' | '.join(line)} |" for line in (HEADER, ["---"] * len(HEADER))]
    for row, shown in cells(measured):
        found = ratios(measured, row.ours, row)
        if found and not reaches(statistics.median(found), row.at_least, row):
            shown[0] = f"**{shown[0]}**"
        lines.append(f"| {' | '.join([row.name, *shown])} |")
    return "\n".join(
        ["\n".join(lines), "", "\n".join(explanations(measured)), "", "\n".join(losses(measured))]
    )


def explanations(measured: Measured) -> list[str]:
    """Say what the figures are, and what they were taken on."""
    versions = ", ".join(f"{name} {version}" for name, version in measured["versions"].items())
    before, after = measured["load"]
    part = "with" if measured["compiled"] else "without"
    lines = [
        f"Medians of {measured['rounds']} interleaved rounds, least and greatest in round brackets,",
        "microseconds of processor for each message in all processes in square ones.",
        f"{measured['machine']}, load {before:.1f} before and {after:.1f} after,",
        f"oz {part} its compiled part; {versions}.",
    ]
    return lines + [f"{name}: {reason}." for name, reason in measured["missing"].items()]


def losses(measured: Measured) -> list[str]:
    """Say where oz is worse than what it is compared with, and where it misses what is asked for."""
    behind, missed, behind_c = [], [], []
    for row in ROWS:
        found = ratios(measured, row.ours, row)
        if not found:
            continue
        ratio = statistics.median(found)
        if not reaches(ratio, 1, row):
            behind.append(row.name)
        if not reaches(ratio, row.at_least, row):
            missed.append(row.name)
        in_c = ratios(measured, row.c, row)
        if in_c and not reaches(ratio, statistics.median(in_c), row):
            behind_c.append(row.name)
    return [
        _listed("oz loses against its rival in", behind),
        "",
        _listed("What is asked for at least is missed in", missed),
        "",
        _listed("C, or a socket of REQ and REP, is ahead in", behind_c),
    ]


def _listed(text: str, names: list[str]) -> str:
    return f"{text}: {'; '.join(names) or 'no row'}."
