"""Bounds and times that the documentation promises, held against those of the code.

What happens one beyond a bound of many thousands is no part of a run.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path

from simulation.ledger import check

PAGE = Path(__file__).resolve().parents[2] / "docs" / "wire.md"
ROW = re.compile(r"^\|[^|]*\| ([0-9,.]+) \| `(oz\.protocol\.[a-z_.]+)\.([A-Z_]+)` \|$", re.MULTILINE)

SAID = {
    # docs/wire.md, Contradictions
    "subscriber.contradictions": {
        "PATIENCE": 3.0, "CALM": 600.0, "MOST_MESSAGES": 10_000_000, "SLACK": 10.0, "LONGEST": 3_600.0,
        "MOST_EPOCHS": 1_048_576, "MOST_RIVALS": 33,
    },
    "subscriber.stream": {"OUTLIVED": 5.0},
    # docs/wire.md, what a subscriber does
    "subscriber.declarations": {
        "FIRST_PATIENCE": 0.5, "LONGEST_PATIENCE": 64.0, "GREETING": 10.0, "MOST_SMALL": 64,
    },
    "subscriber.streams": {"RENEW_EVERY": 0.1},
    # docs/routing.md
    "subscriber.dedupe": {"SINGLES": 262_144, "SERIES": 16_384, "SPANS": 262_144, "FRAMES": 16_384},
    "subscriber.publishers": {"SILENCE": 3.5},
    # docs/limits.md
    "publisher.last_value_cache": {"LIMIT": 65_536},
    "publisher.key_ownership": {"MOST_OWNERS": 65_536},
    "publisher.backlog": {"WATCHED_FROM": 512},
    "publisher.accounts": {"TOO_LONG": 1.0},
    # docs/wire.md, the names of streams
    "publisher.stream": {"NAME_SIZE": 14},
}  # fmt: skip
"""Numbers that stand in the text, by modules of `oz.protocol`."""


@cache
def _promised():
    """Return module, name and value of each: those of the text, and those of the table of limits."""
    found = [(f"oz.protocol.{one}", name, value) for one, two in SAID.items() for name, value in two.items()]
    rows = [
        (place, name, float(text.replace(",", ""))) for text, place, name in ROW.findall(PAGE.read_text())
    ]
    check(len(rows) >= 8, "docs/wire.md has {} bounds of publishers and subscribers", len(rows))
    return found + rows


def check_promises():
    """Compare each."""
    for place, name, value in _promised():
        found = getattr(import_module(place), name)
        check(found == value, "{} of {} is {}, and said to be {}", name, place, found, value)
