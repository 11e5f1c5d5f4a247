"""The table's sides of oz beside those of another commit, in interleaved rounds.

    git worktree add ../old COMMIT
    python -m venv ../old/.venv && ../old/.venv/bin/pip install ../old
    python benchmarks/beside.py ../old ../old/.venv/bin/python [--rounds 5] [--scale 1] [NAME ...]

Each side runs once in each round by the benchmarks and the Python of its commit, so that both commits meet the
same machine. A line has the median of the ratios of a side, new to old, with the least and the greatest. For
a side that measures times the ratio is of the median times, and less is better.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import machine
import rows
from rows import number

HERE = Path(__file__).parent
LIMIT = 600  # seconds for one side

NAMES = ["W1 handler", "W1 iteration", "W1 batches", "W1 in Python", "W1 asyncio", "W2"]
NAMES += ["W4", "W4 batches", "W5", "prefix", "round trip"]

_RUN = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
os.environ["PYTHONPATH"] = sys.argv[1]
import table
table.start_by("forkserver")
side = table.oz_sides(table.turns(250_000 * float(sys.argv[3])))[sys.argv[2]]
print(json.dumps(side()._asdict()))
"""


def run(python: str, benchmarks: Path, name: str, scale: float) -> dict[str, Any] | None:
    """Run one side of one commit; None if it fails, and the error goes to the terminal."""
    # Python does not put the directory into its path, so that each commit imports the oz of its environment.
    command = [python, "-P", "-c", _RUN, str(benchmarks), name, str(scale)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    # In another directory, because Python would import the `oz` of the checkout.
    ran = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, env=environment, cwd="/", timeout=LIMIT, check=False
    )
    return None if ran.returncode else json.loads(ran.stdout.splitlines()[-1])


def ratio(new: dict[str, Any], old: dict[str, Any]) -> float:
    """Return the ratio of two runs: of the rates, or of the median times."""
    is_time = bool(new["times"])
    return rows.figure(new, is_time=is_time) / rows.figure(old, is_time=is_time)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old", type=Path, help="checkout of the other commit")
    parser.add_argument("python", help="Python of the environment in which the other commit is installed")
    parser.add_argument("names", nargs="*", metavar="NAME", help="sides of oz, by default all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1, help="of the messages of a run")
    given = parser.parse_args(arguments)
    commits = {
        "new": (sys.executable, HERE),
        "old": (str(Path(given.python).absolute()), given.old.absolute() / "benchmarks"),
    }
    names = given.names or NAMES
    print(machine.describe(), flush=True)
    found: dict[str, list[dict[str, dict[str, Any] | None]]] = {name: [] for name in names}
    for turn in range(given.rounds):
        for name in names:
            pair = {}
            for commit in list(commits)[:: -1 if turn % 2 else 1]:
                pair[commit] = run(*commits[commit], name, given.scale)
            found[name].append(pair)
            print(f"round {turn + 1} of {given.rounds}: {name}", file=sys.stderr, flush=True)
    print(f"{'side':<14} {'new/old':<24} new [µs of processor], old [µs of processor], medians")
    for name, pairs in found.items():
        print(f"{name:<14} {_line(pairs)}")
    print(machine.describe())


def _line(pairs: list[dict[str, dict[str, Any] | None]]) -> str:
    both = [(pair["new"], pair["old"]) for pair in pairs]
    ratios = [ratio(new, old) for new, old in both if new is not None and old is not None]
    if not ratios:
        return "failed"
    spread = f"{number(statistics.median(ratios))} ({number(min(ratios))} to {number(max(ratios))})"
    sides = []
    for at in range(2):
        runs = [pair[at] for pair in both if pair[at] is not None]
        is_time = bool(runs[0]["times"])  # type: ignore[index]
        value = statistics.median(rows.figure(item, is_time=is_time) for item in runs)  # type: ignore[arg-type]
        cost = statistics.median(item["processor"] for item in runs)  # type: ignore[index]
        sides.append(f"{number(value)}{' µs' if is_time else '/s'} [{number(cost)}]")
    missing = len(pairs) - len(ratios)
    return f"{spread:<24} {sides[0]:<22} {sides[1]}" + f"  ({missing} rounds failed)" * bool(missing)


if __name__ == "__main__":
    main()
