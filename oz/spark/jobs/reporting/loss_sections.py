"""The page's section on what was lost."""

from __future__ import annotations

from typing import Any

from oz.spark.jobs.reporting.charts import grid
from oz.spark.jobs.reporting.parts import bars, definitions, details, figure, section, table
from oz.spark.jobs.reporting.steps import HOUR
from oz.spark.jobs.reporting.writing import duration, exact, moment, others, publisher

Figures = dict[str, Any]

_ROWS = 12
_HEADS = ("Lost", "Gap records", "of unknown size", "Numbers missing", "Counts begun anew", "Damaged")
_NAMES = ("lost", "gaps", "unknown", "missing", "restarts", "damaged")


def losses(figures: Figures) -> str:
    """Show what was lost of whom, and when."""
    found = figures["losses"]
    if not found["gaps"] + found["missing"] + found["damaged"]:
        return section("Losses", "<p>None is on record, and no number is missing.</p>")
    pairs = [
        ("Lost, as recorded", exact(found["lost"]), f"in {exact(found['gaps'])} gap records"),
        ("Losses of unknown size", exact(found["unknown"]), ""),
        ("Numbers missing", exact(found["missing"]) if found["are_numbers_known"] else "–", ""),
        ("Damaged records", exact(found["damaged"]), ""),
    ]
    note = (
        "Lost is what gap records say. Numbers are missing where a publisher's count goes on higher than it "
        "stopped: that should be the same losses, seen from the messages themselves."
    )
    return section("Losses", definitions(pairs) + _chart(found) + _tables(found), note=note)


def _chart(found: Figures) -> str:
    rows = found["publishers"][:_ROWS]
    place = {row["origin"]: at for at, row in enumerate(rows)}
    cells = {
        (place[cell["origin"]], cell["period"]): max(_weight(cell), 1)
        for cell in found["by_publisher_and_period"]
        if cell["origin"] in place
    }
    if not cells:
        return ""
    length_ns = found["hours_per_period"] * HOUR
    ends = (found["first_period_ns"], found["first_period_ns"] + (found["periods"] - 1) * length_ns)
    labels = list(zip((0, found["periods"] - 1), (moment(end)[:16] for end in ends), strict=True))
    worst = max(found["by_period"], key=_weight)
    facts = (
        f"For each of {len(rows)} publishers, whether it lost messages in each {_length(found)}. The most, "
        f"{exact(_weight(worst))}, were lost from {moment(worst['time_ns'])} UTC on."
    )
    drawn = grid(
        "Losses by publisher and hour",
        [_brief(row["origin"]) for row in rows],
        found["periods"],
        cells,
        labels=labels[:1] if found["periods"] == 1 else labels,
        alternative=facts,
    )
    cells_of_table = (
        (f"{publisher(cell['origin'])}<br>{moment(cell['time_ns'])}", *_values(cell))
        for cell in found["by_publisher_and_period"]
    )
    return f"<h3>By publisher and {_length(found)}</h3>" + figure(
        drawn, table((f"Publisher, {_length(found)} from (UTC)", *_HEADS), cells_of_table)
    )


def _tables(found: Figures) -> str:
    rows = found["publishers"]
    greatest = max(map(_weight, rows), default=0) or 1
    listed = bars(
        ((publisher(row["origin"]), exact(_weight(row)), _weight(row) / greatest) for row in rows), red=True
    )
    more = found["publisher_count"] - len(rows)
    rest = f'<p class="soft">and {others(more)}</p>' if more else ""
    cells = ((publisher(row["origin"]), *_values(row)) for row in rows)
    figures = details("The figures", table(("Publisher", *_HEADS), cells))
    return f"<h3>By publisher</h3>{listed}{rest}{figures}"


def _values(row: Figures) -> list[str]:
    return [exact(row[name]) for name in _NAMES]


def _weight(row: Figures) -> int:
    return max(int(row["lost"]), int(row["missing"]))


def _length(found: Figures) -> str:
    hours = found["hours_per_period"]
    return "hour" if hours == 1 else f"period of {duration(hours * 3600)}"


def _brief(origin: str | None) -> str:
    return "plain" if origin is None else origin[:6]
