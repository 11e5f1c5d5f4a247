"""`oz top`: live tables of the nodes, subscribers, subjects, groups and losses of a bus."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

import oz
from oz.cli.exits import NOBODY
from oz.cli.joining import is_ready, joined, joining_options, print_ready
from oz.cli.options import Number, Whole
from oz.cli.output import console, is_terminal, json_option, plain_table, print_stderr, write_line
from oz.cli.subject_counts import SubjectCounts
from oz.cli.waiting import Waiting, listening
from oz.escaping import json_text, printable
from oz.node.bus_view import Row, Sample, tables
from oz.node.observation import take_sample

if TYPE_CHECKING:
    from rich.console import Group

_HELP = """Show the bus live: nodes, subscribers, subjects, groups and losses.

The command joins the bus, and requests the statistics of each node once in each --interval. Slow subscribers come
first. A subscriber is slow if its oldest pending message is older than 1 second, or if messages for it are dropped.

\b
Keys: 1 nodes  2 subscribers  3 subjects  4 groups  5 losses
      s next column to sort by  / filter  p pause  q quit

For the table of subjects, the command must receive messages. --pattern subscribes to a pattern, and the key 3
subscribes to all subjects. Publishers never wait for this subscription. A filter keeps the rows whose first column
contains the text of the filter, or matches the text as a pattern.

--once prints the tables once, with rates over one --interval, and exits 3 if the bus has no node. --json prints one
object in each line, or with --once a single object in several lines.

\b
Examples:
  oz top
  oz top --pattern 'md.>' --bus trading --connect tcp://192.0.2.7:5756
  oz top --once --json | jq -r '.subscribers[] | select(.slow) | .node'
"""

VIEWS = ("nodes", "subscribers", "subjects", "groups", "losses")
_HIDDEN = ("id", "pending_bytes", "messages")
_ANSWER_SECONDS = 1.0


@click.command(help=_HELP, short_help="Show the nodes, subscribers and losses of the bus live.")
@click.option("--once", is_flag=True, help="Print the tables once and exit.")
@json_option("Write JSON.")
@click.option("--interval", type=Number(0.2, 3_600), default=1.0, metavar="SECONDS",
              help="Time between two samples.  [default: 1]")  # fmt: skip
@click.option(
    "--pattern", "subjects", metavar="PATTERN", help="Count the messages of the subjects of this pattern."
)
@click.option(
    "--filter", "wanted", default="", metavar="TEXT", help="Show only rows with this text or pattern."
)
@click.option("--limit", type=Whole(1, 100_000), default=100, metavar="N",
              help="Maximum rows of each table.  [default: 100]")  # fmt: skip
@joining_options
@click.pass_context
def top(
    ctx: click.Context,
    /,
    once: bool,
    as_json: bool,
    interval: float,
    subjects: str | None,
    wanted: str,
    limit: int,
    **joining: Any,
) -> None:
    """Show the tables; `_HELP` is the text of `--help`."""
    with listening() as waiting, joined(ctx, joining, codec=None, node_options={"echo": False}) as node:
        source = _Source(node, limit)
        if subjects is not None:
            source.count(subjects)
        if not once and not as_json and is_terminal():
            is_ready(node)
            _Screen(source, interval, wanted).run(waiting)
            return
        print_ready(ctx, node, interval)
        source.ask()
        while True:
            waiting.wait(source.at + interval)
            found = source.sample()
            shown = {view: _filtered(rows, wanted) for view, rows in found.items()}
            if as_json:
                write_line(json_text(source.summary() | shown, indent=2 if once else None))
            else:
                _print(shown)
            if once:
                if not source.nodes:
                    silent = ", ".join(map(printable, source.summary()["unanswered"]))
                    why = f"; no answer from {silent}" if silent else ""
                    print_stderr(
                        ctx,
                        f"no node on bus {printable(node.bus)}{why}; give the name of another --bus, or --connect",
                    )
                    ctx.exit(NOBODY)
                return


class _Source:
    """Samples of the bus.

    Attributes:
        at: time of the last sample, in seconds of `time.monotonic`.
        nodes: number of nodes that answered.
        pattern: pattern of the subjects that are counted; None if subjects are not counted.
    """

    def __init__(self, node: oz.Node, limit: int) -> None:
        self._node, self._limit = node, limit
        self._before: Sample | None = None
        self._counts = SubjectCounts()
        self._id = node.snapshot().id
        self.pattern: str | None = None
        self._counted_at = 0.0
        self.at = time.monotonic()
        self.nodes = 0

    def count(self, pattern: str) -> None:
        self._counts.subscribe(self._node, pattern)
        self.pattern, self._counted_at = pattern, time.monotonic()

    def ask(self) -> Sample:
        """Request a sample from all nodes. The next sample has rates over the time since this sample."""
        self._before = found = take_sample(self._node, _ANSWER_SECONDS)
        self.at, self.nodes = found.at, len(found.snapshots)
        return found

    def sample(self) -> dict[str, list[Row]]:
        before, sample = self._before, self.ask()
        found = {view: rows[: self._limit] for view, rows in tables(sample, before, self._id).items()}
        since, self._counted_at = self._counted_at, time.monotonic()
        found["subjects"] = self._counts.take(max(self._counted_at - since, 1e-9), self._limit)
        return found

    def summary(self) -> dict[str, Any]:
        """Return the bus, the number of nodes, and the names or endpoints of nodes that did not answer."""
        silent = [] if self._before is None else list(self._before.unanswered)
        return {"bus": self._node.bus, "time": time.time(), "answered": self.nodes, "unanswered": silent}


class _Screen:
    """Screen of the terminal. It shows one table, and handles keys."""

    def __init__(self, source: _Source, interval: float, wanted: str) -> None:
        self._source, self._interval, self._wanted = source, interval, wanted
        self._view, self._sort = "subscribers", 0
        self._typed: str | None = None
        self._is_paused = False
        self._found: dict[str, list[Row]] = {view: [] for view in VIEWS}

    def run(self, waiting: Waiting) -> None:
        from rich.live import Live

        shown = console()
        with _keys(waiting) as read, Live(console=shown, screen=True, auto_refresh=False) as live:
            due = 0.0
            while True:
                now = time.monotonic()
                if now >= due and not self._is_paused:
                    self._found = self._source.sample()
                    due = now + self._interval
                live.update(self._render(shown.height), refresh=True)
                waiting.wait(due if not self._is_paused else now + 3_600)
                for key in read():
                    if self._press(key):
                        return

    def _press(self, key: str) -> bool:
        if self._typed is not None:
            if key in "\r\n":
                self._wanted, self._typed = self._typed, None
            elif key == "\x1b":
                self._typed = None
            elif key in "\x7f\b":
                self._typed = self._typed[:-1]
            elif key.isprintable():
                self._typed += key
            return False
        if key == "q":
            return True
        if key in "12345":
            self._view, self._sort = VIEWS[int(key) - 1], 0
            if self._view == "subjects" and self._source.pattern is None:
                self._source.count(">")
        elif key == "s":
            self._sort += 1
        elif key == "p":
            self._is_paused = not self._is_paused
        elif key == "/":
            self._typed = ""
        return False

    def _render(self, height: int) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        summary = self._source.summary()
        rows = _filtered(self._found[self._view], self._wanted)
        columns = _columns(rows)
        column = columns[self._sort % len(columns)] if columns and self._sort else ""
        if column:
            rows = sorted(rows, key=lambda row: _sort_key(row[column]))
        silent = ", ".join(map(printable, summary["unanswered"][:10]))
        title = f"oz top  bus {printable(summary['bus'])}  {summary['answered']} nodes"
        title += f"  no answer: {silent}" if silent else ""
        title += "  PAUSED" if self._is_paused else ""
        views = "  ".join(
            f"[{number}] {view.upper() if view == self._view else view}"
            for number, view in enumerate(VIEWS, 1)
        )
        table = Table(box=None, expand=True, pad_edge=False)
        for name in columns:
            table.add_column(name + (" *" if name == column else ""), no_wrap=True, overflow="ellipsis")
        for row in rows[: max(height - 5, 1)]:
            table.add_row(
                *(_cell(name, row[name]) for name in columns), style="bold red" if row.get("slow") else ""
            )
        filtered = f"/{self._typed}_" if self._typed is not None else f"filter: {self._wanted or '-'}"
        footer = f"{filtered}   s sort  / filter  p pause  q quit   {len(rows)} rows"
        return Group(Text(title, style="bold"), Text(views), table, Text(printable(footer), style="dim"))


@contextmanager
def _keys(waiting: Waiting) -> Iterator[Callable[[], str]]:
    """Yield a function that returns the keys that were pressed. In the block, keys are not echoed and need no Enter."""
    if not sys.stdin.isatty():
        yield lambda: ""
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    waiting.add(descriptor)
    os.set_blocking(descriptor, False)

    def read() -> str:
        with suppress(BlockingIOError):
            return os.read(descriptor, 100).decode(errors="ignore")
        return ""

    try:
        tty.setcbreak(descriptor)
        yield read
    finally:
        os.set_blocking(descriptor, True)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _filtered(rows: list[Row], wanted: str) -> list[Row]:
    """Return the rows whose first column contains the text `wanted`, or matches it as a pattern."""
    if not wanted:
        return rows
    matches: Callable[[str], bool] = lambda text: False  # noqa: E731
    with suppress(oz.PatternError):
        matches = oz.compile(wanted).matches

    def is_wanted(row: Row) -> bool:
        text = str(next(iter(row.values())))
        with suppress(oz.OzError):
            return wanted in text or matches(text)
        return False

    return [row for row in rows if is_wanted(row)]


def _columns(rows: Sequence[Row]) -> list[str]:
    return [name for name in (rows[0] if rows else ()) if name not in _HIDDEN]


def _sort_key(value: Any) -> tuple[bool, Any]:
    """Return a sort key that puts numbers first, in descending order, and then texts in ascending order."""
    if isinstance(value, (int, float)):
        return False, -value
    return True, "" if value is None else str(value)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "slow" if value else ""
    if name in ("memory", "bytes_rate"):
        return f"{value / 1e6:,.1f} MB"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, int) and name != "pid":
        return f"{value:,}"
    return printable(", ".join(map(str, value)) if isinstance(value, list) else str(value))


def _print(shown: Mapping[str, list[Row]]) -> None:
    for view in VIEWS:
        rows = shown[view]
        if rows:
            columns = _columns(rows)
            cells = [[_cell(name, row[name]) for name in columns] for row in rows]
            write_line(f"{view.upper()}\n{plain_table([columns, *cells])}\n")
