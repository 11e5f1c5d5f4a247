"""The journal beside the journal of an older commit, in one interleaved run.

    git worktree add --detach /tmp/old b7aea18b
    python benchmarks/journal.py --old /tmp/old [--rounds 5] [--rows 400000] [--directory DIR] [--row NAME]

Each journal runs in a process of its own, because both import as `oz`. The processes take turns: each row is
measured once with the old journal and once with the new one in each round, and the order alternates. The
times are medians of the rounds. The ratio in brackets compares the fastest rounds, and decides, because other
programs disturb the medians. `first` is the first reading of a process, when no footer is cached. Records
have JSON payloads of about 110 bytes and 250 subjects.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

OLD = "oz.journal"
NEW = "oz.journal"
SUBJECTS = [f"md.{market}.{symbol}" for market in range(10) for symbol in range(25)]
START = 1_700_000_000_000_000  # microseconds since 1970 of the first record
STEP = 100  # microseconds between two records
GROUP = 8192  # records of one append
SEGMENTS = 1000  # of the row `open`

# name: (ratio that issue 40 asks for, or the longest time in ms)
WANTED = {
    "read": 1.7, "subject": 1.0, "absent": 0.8, "time": 0.9, "offset": 0.9, "columns": 0.95, "pairs": 1.2,
    "pause": 150.0, "size": 0.6, "open": 20.0, "read_messages": 0.0,
}  # fmt: skip
READS = ("read", "subject", "absent", "time", "offset", "read_messages")
ABSOLUTE = ("pause", "open")


# --- measured side: one process for each journal ----------------------------------------------------------


class Side:
    """One of the two journals: what differs between their interfaces, and the rows."""

    def __init__(self, package: str, rows: int, directory: Path) -> None:
        self.rows, self.directory = rows, directory
        self.module: Any = importlib.import_module(package)
        importlib.import_module("pyarrow.parquet")
        self.is_old = hasattr(self.module.Writer, "append_columns")
        self.main = directory / "main"

    # the interfaces ---

    def writer(self, directory: Path, **options: Any) -> Any:
        """Return a writer that leaves the time of writes to the system, if it has that mode."""
        options.setdefault("sync", "never" if self.is_old else "none")
        return self.module.Writer(directory, **options)

    def append_columns(self, writer: Any, first: int, rows: int, payloads: list[bytes]) -> None:
        """Append one group in columns."""
        import pyarrow as pa

        subjects = pa.array([SUBJECTS[at % len(SUBJECTS)] for at in range(first, first + rows)])
        times = range(START + first * STEP, START + (first + rows) * STEP, STEP)
        columns: dict[str, Any] = {"subject": subjects, "payload": pa.array(payloads, pa.binary())}
        if self.is_old:
            columns["time_ns"] = pa.array([at * 1000 for at in times], pa.int64())
            writer.append_columns(columns)
        else:
            columns["time"] = pa.array(times, pa.timestamp("us", "UTC"))
            writer.append(pa.table(columns))

    def batches(self, pattern: str | None = None, **bounds: Any) -> Iterator[Any]:
        """Read all columns as Arrow batches."""
        return iter(self.module.Journal(self.main).batches(pattern, **bounds))

    # rows: each returns seconds, and a count that must be equal on both sides ---

    def write(self) -> tuple[float, int]:
        """Write the journal that is read; return its bytes."""
        payloads = json_payloads(self.rows)
        began = time.perf_counter()
        with self.writer(self.main) as writer:
            for first in range(0, self.rows, GROUP):
                self.append_columns(
                    writer, first, len(payloads[first : first + GROUP]), payloads[first : first + GROUP]
                )
        spent = time.perf_counter() - began
        pattern = "*.arrow*" if self.is_old else "*.parquet"
        return spent, sum(path.stat().st_size for path in self.main.glob(pattern))

    def _read(self, pattern: str | None = None, **bounds: Any) -> tuple[float, int]:
        began = time.perf_counter()
        rows = sum(batch.num_rows for batch in self.batches(pattern, **bounds))
        return time.perf_counter() - began, rows

    def read(self) -> tuple[float, int]:
        """Read all columns of all records."""
        return self._read()

    def subject(self) -> tuple[float, int]:
        """Read one subject of 250."""
        return self._read("md.3.7")

    def absent(self) -> tuple[float, int]:
        """Read a subject that does not occur, although it lies between two subjects of the journal."""
        return self._read("md.3.absent")

    def time(self) -> tuple[float, int]:
        """Read a hundredth of the records, by time."""
        first = START + self.rows // 3 * STEP
        low, high = (datetime.fromtimestamp(at / 1e6, UTC) for at in (first, first + self.rows // 100 * STEP))
        return self._read(start=low, end=high)

    def offset(self) -> tuple[float, int]:
        """Read a hundredth of the records, by offset."""
        first = self.rows // 3
        return self._read(start=first, end=first + self.rows // 100)

    def read_messages(self) -> tuple[float, int]:
        """Read a tenth of the records one by one."""
        began = time.perf_counter()
        journal = self.module.Journal(self.main)
        rows = sum(1 for _ in journal.read(start=0, end=self.rows // 10))
        return time.perf_counter() - began, rows

    def columns(self) -> tuple[float, int]:
        """Append in columns, until all is sealed."""
        shutil.rmtree(self.main.with_name("columns"), ignore_errors=True)
        payloads = json_payloads(self.rows)
        began = time.perf_counter()
        with self.writer(self.main.with_name("columns")) as writer:
            for first in range(0, self.rows, GROUP):
                some = payloads[first : first + GROUP]
                self.append_columns(writer, first, len(some), some)
            end = int(writer.end_offset)
        return time.perf_counter() - began, end

    def pairs(self) -> tuple[float, int]:
        """Append pairs of subject and payload, 100 at a time."""
        shutil.rmtree(self.main.with_name("pairs"), ignore_errors=True)
        count = self.rows // 4
        payloads = json_payloads(count)
        pairs = [(SUBJECTS[at % len(SUBJECTS)], payload) for at, payload in enumerate(payloads)]
        began = time.perf_counter()
        with self.writer(self.main.with_name("pairs")) as writer:
            for first in range(0, count, 100):
                writer.append(pairs[first : first + 100])
            end = int(writer.end_offset)
        return time.perf_counter() - began, end

    def pause(self) -> tuple[float, int]:
        """Return the longest of 2,000 appends of 1,000 records, while segments of 32 MiB are sealed."""
        shutil.rmtree(self.main.with_name("pause"), ignore_errors=True)
        payloads = json_payloads(1000)
        longest = 0.0
        with self.writer(self.main.with_name("pause"), segment_bytes=32 << 20) as writer:
            for turn in range(2000):
                began = time.perf_counter()
                self.append_columns(writer, turn * 1000, 1000, payloads)
                longest = max(longest, time.perf_counter() - began)
        return longest, 2_000_000

    def write_segments(self) -> tuple[float, int]:
        """Write the journal of 1,000 segments."""
        began = time.perf_counter()
        with self.writer(self.main.with_name("segments"), segment_bytes=1) as writer:
            for at in range(SEGMENTS):
                writer.append([(SUBJECTS[at % len(SUBJECTS)], b"{}")] * 10)
        return time.perf_counter() - began, SEGMENTS

    def open(self) -> tuple[float, int]:
        """Open a journal of 1,000 segments to read it: its offsets and its list of segments."""
        began = time.perf_counter()
        journal = self.module.Journal(self.main.with_name("segments"))
        ends = journal.first_offset, journal.end_offset
        segments = journal.segments() if callable(journal.segments) else journal.segments
        count = len(list(segments))
        spent = time.perf_counter() - began
        assert ends == (0, 10 * SEGMENTS), ends
        return spent, count - bool(self.is_old and count > SEGMENTS)


def json_payloads(count: int) -> list[bytes]:
    """Return payloads as of a market data feed: ticks around a price of each symbol, volumes in lots."""
    chance = random.Random(1)
    prices = [chance.randrange(2_000, 20_000) for _ in range(250)]
    made = []
    for at in range(count):
        price = prices[at % 250] = prices[at % 250] + chance.randint(-3, 3)
        made.append(
            b'{"symbol":"S%03d","bid":%.2f,"ask":%.2f,"volume":%d,"venue":"XETR","time":%d,"flags":["a","b"]}'
            % (at % 250, price / 100, (price + 1) / 100, 100 * chance.randint(1, 50), START + at * STEP)
        )
    return made


def serve(package: str, rows: int, directory: Path) -> None:
    """Answer names of rows, a line each, with seconds and a count."""
    side = Side(package, rows, directory)
    for line in sys.stdin:
        measured: Callable[[], tuple[float, int]] = getattr(side, line.strip())
        gc.collect()
        print(json.dumps(measured()), flush=True)


# --- measuring side ---------------------------------------------------------------------------------------


class Process:
    """A process that measures one of the journals."""

    def __init__(self, package: str, checkout: Path, rows: int, directory: Path) -> None:
        self._command = [sys.executable, __file__, "--serve", package, str(rows), str(directory)]
        self._environment = {**os.environ, "PYTHONPATH": str(checkout), "OZ_COMPILED": "0"}
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self._environment
        )

    def measure(self, row: str) -> tuple[float, int]:
        """Measure a row once."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(row + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"{row}: the process of {self._command[3]} failed")
        spent, count = json.loads(answer)
        return spent, count

    def restart(self) -> None:
        """Go on in a new process, where nothing is cached."""
        self.close()
        self._start()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def compare(row: str, sides: tuple[Process, Process], rounds: int) -> str:
    """Measure a row on both sides in turns; return the line of the table."""
    times: tuple[list[float], list[float]] = ([], [])
    firsts: list[float] = []
    for turn in range(rounds):
        order = (0, 1) if turn % 2 else (1, 0)
        counts = {}
        for at in order:
            if row == "open" or (turn == 0 and row in READS):
                sides[at].restart()
                if row in READS:
                    firsts.append(sides[at].measure(row)[0])
            spent, counts[at] = sides[at].measure(row)
            times[at].append(spent)
        if counts[0] != counts[1]:
            raise SystemExit(f"{row}: the journals disagree: {counts}")
    old, new = (statistics.median(one) for one in times)
    best = min(times[0]) / min(times[1])
    first = f"  first {firsts[1] * 1e3:,.1f} and {firsts[0] * 1e3:,.1f} ms" if firsts else ""
    if row in ABSOLUTE:
        verdict, met = f"at most {WANTED[row]:g} ms", min(times[1]) * 1e3 <= WANTED[row]
    else:
        verdict, met = f"at least {WANTED[row]:g}", best >= WANTED[row]
    return (
        f"{row:14} {old * 1e3:10,.1f} {new * 1e3:10,.1f} {old / new:7.2f} ({best:.2f})  {verdict}: "
        f"{'met' if met else 'NOT met'}{first}  load {os.getloadavg()[0]:.1f}"
    )


def main(arguments: list[str] | None = None) -> None:
    """Measure and print a table: old and new in milliseconds, and old ÷ new."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--old", type=Path, required=True, help="a checkout of the older commit")
    parser.add_argument("--new", type=Path, default=Path(__file__).parents[1], help="a checkout of the newer")
    parser.add_argument("--package", default=NEW, help="of the newer journal")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=400_000, help="records")
    parser.add_argument("--directory", type=Path, help="where to write; on the disk that is meant")
    parser.add_argument("--row", action="append", choices=sorted(WANTED), help="only this row")
    given = parser.parse_args(arguments)
    chosen = given.row or list(WANTED)
    with tempfile.TemporaryDirectory(dir=given.directory) as where, ExitStack() as stack:
        made = []
        for name, package, checkout in (("old", OLD, given.old), ("new", given.package, given.new)):
            (Path(where) / name).mkdir()
            made.append(Process(package, checkout.resolve(), given.rows, Path(where) / name))
            stack.callback(made[-1].close)
        sides = (made[0], made[1])
        sizes = [side.measure("write")[1] for side in sides]
        if "open" in chosen:
            for side in sides:
                side.measure("write_segments")
        print(f"{given.rows} records, {given.rounds} rounds, {os.cpu_count()} cores")
        print(f"{'row':14} {'old ms':>10} {'new ms':>10} {'ratio':>7} (of minima)", flush=True)
        if "size" in chosen:
            ratio = sizes[1] / sizes[0]
            met = "met" if ratio <= WANTED["size"] else "NOT met"
            each = [size / given.rows for size in sizes]
            print(
                f"{'size':14} {each[0]:10.1f} {each[1]:10.1f} {ratio:7.2f}  bytes a record, wanted 0.6: {met}"
            )
        for row in chosen:
            if row != "size":
                print(compare(row, sides, given.rounds), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
    else:
        main()
