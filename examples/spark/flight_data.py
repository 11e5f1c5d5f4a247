"""The flights and the weather of 2013 as messages, in the order in which one learns of them."""

import csv
import json
import lzma
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path

DATA = Path(__file__).parent / "data"
TEXT = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})

Event = tuple[float, str, bytes]
"""When it is known, in seconds since 1970; subject; payload."""


def rows(name: str) -> list[dict[str, str]]:
    """Read one of the two files."""
    with lzma.open(DATA / f"{name}-2013.csv.xz", "rt", encoding="ascii", newline="") as text:
        return list(csv.DictReader(text))


def events(days: int) -> list[Event]:
    """Give the messages of the first days of the year.

    A flight is known of when it departs, or was to depart if it never did: up to 22 hours after its scheduled
    hour. So messages come late, as they do.
    """
    ends = end_of(days)
    found = [(departure(row), _flight(row), row) for row in rows("flights")]
    found += [(hour(row), f"weather.{row['origin']}", row) for row in rows("weather")]
    found.sort(key=itemgetter(0))
    return [(known, subject, _payload(row)) for known, subject, row in found if known < ends] + _later(ends)


def end_of(days: int) -> float:
    """Give the end of some days of the year, in seconds since 1970."""
    return (datetime(2013, 1, 1, tzinfo=UTC) + timedelta(days=days)).timestamp()


def departure(row: dict[str, str]) -> float:
    """Say when a flight departed or was to depart, in seconds since 1970."""
    delay = 0 if row["dep_delay"] == "NA" else int(row["dep_delay"])
    return hour(row) + 60 * (int(row["minute"]) + delay)


def hour(row: dict[str, str]) -> float:
    """Give the hour of a report, or the scheduled one of a flight, in seconds since 1970."""
    return datetime.fromisoformat(row["time_hour"]).timestamp()


def _flight(row: dict[str, str]) -> str:
    return f"flight.{row['origin']}.{row['dest']}.{row['carrier']}"


def _later(ends: float) -> list[Event]:
    """Give a flight and a report from after all others: they tell a query that time has passed."""
    known = ends + 30 * 86_400
    time_hour = f"{datetime.fromtimestamp(known, UTC):%Y-%m-%dT%H:%M:%SZ}"
    payload = _payload({"time_hour": time_hour, "origin": "END", "dest": "END"})
    return [(known, "flight.END.END.END", payload), (known, "weather.END", payload)]


def _payload(row: dict[str, str]) -> bytes:
    values = {name: _value(name, cell) for name, cell in row.items()}
    return json.dumps(values, separators=(",", ":")).encode()


def _value(name: str, cell: str) -> str | float | None:
    if cell == "NA":
        return None
    if name in TEXT:
        return cell
    return int(cell) if cell.removeprefix("-").isdecimal() else float(cell)
