"""The page's sections on subjects, and on what was lost."""

from __future__ import annotations

from typing import Any

from oz.spark.jobs.reporting.charts import LossMark, TimeSteps, tracks
from oz.spark.jobs.reporting.parts import bar, bars, definitions, details, figure, section, table
from oz.spark.jobs.reporting.steps import HOUR
from oz.spark.jobs.reporting.writing import duration, exact, moment, number, others, publisher, subject

Figures = dict[str, Any]


def levels(figures: Figures) -> str:
    """Show the tree of subjects; a branch opens when it is tapped."""
    root = figures["levels"]
    seconds = figures["total"]["seconds"]
    greatest = max((node["messages"] for node in root["children"]), default=1)
    body = _branches(root, greatest, seconds)
    note = "Messages, payload and rate of all subjects that begin so. Tap to see what is below."
    return section("By level", body, note=note)


def _branches(node: Figures, greatest: int, seconds: float) -> str:
    written = "".join(_branch(child, greatest, seconds) for child in node["children"])
    if rest := node["others"]:
        name = f"<i>{others(rest['count'])}</i>"
        written += bar(name, _amounts(rest, seconds), min(1, rest["messages"] / greatest))
    return written


def _branch(node: Figures, greatest: int, seconds: float) -> str:
    share, below = node["messages"] / greatest, _branches(node, greatest, seconds)
    name, amounts = subject(node["subject"]), _amounts(node, seconds)
    if not below:
        return bar(name, amounts, share)
    return f"<details>{bar(name, amounts, share, tag='summary')}{below}</details>"


def _amounts(node: Figures, seconds: float) -> str:
    rate = f", {number(node['messages'] / seconds)}/s" if seconds else ""
    return f"{number(node['messages'])}, {number(node['payload_bytes'], 'B')}{rate}"


def subjects(figures: Figures) -> str:
    """List the subjects that carry the most."""
    written = ""
    for key, title, name in (
        ("by_messages", "By messages", "messages"),
        ("by_payload_bytes", "By payload", "payload_bytes"),
    ):
        rows = figures["subjects"][key]
        unit = "" if name == "messages" else "B"
        greatest = rows[0][name] or 1
        listed = bars(
            (subject(row["subject"]), number(row[name], unit), row[name] / greatest) for row in rows
        )
        cells = (
            (
                subject(row["subject"]),
                exact(row["messages"]),
                exact(row["payload_bytes"]),
                moment(row["first_ns"]),
                moment(row["last_ns"]),
            )
            for row in rows
        )
        heads = ("Subject", "Messages", "Payload bytes", "First heard", "Last heard")
        written += f"<h3>{title}</h3>{listed}{details('The figures', table(heads, cells))}"
    return section("Top subjects", written)


def silent(figures: Figures) -> str:
    """List subjects that fell silent, and the longest silences."""
    found = figures["silent"]
    count, after = found["count"], duration(found["after_seconds"])
    verb, of = "was" if count == 1 else "were", exact(figures["total"]["subjects"])
    written = f"<p>{exact(count)} of {of} {verb} not heard in the last {after}.</p>"
    if rows := found["most_messages"]:
        greatest = max(row["silent_seconds"] for row in rows) or 1
        listed = bars(
            (
                subject(row["subject"]),
                f"{duration(row['silent_seconds'])}, usually {duration(row['usual_seconds'])}",
                row["silent_seconds"] / greatest,
            )
            for row in rows
        )
        cells = (
            (
                subject(row["subject"]),
                exact(row["messages"]),
                duration(row["silent_seconds"]),
                duration(row["usual_seconds"]),
                moment(row["last_ns"]),
            )
            for row in rows
        )
        heads = ("Subject", "Messages before", "Silent for", "Usually every", "Last heard")
        written += (
            f"<h3>Those that had said the most</h3>{listed}{details('The figures', table(heads, cells))}"
        )
    return section("Silent subjects", written + _longest(found["longest"]))


def _longest(rows: list[Figures]) -> str:
    if not rows:
        return ""
    listed = bars(
        (subject(row["subject"]), duration(row["seconds"]), row["seconds"] / rows[0]["seconds"])
        for row in rows
    )
    cells = (
        (subject(row["subject"]), duration(row["seconds"]), moment(row["from_ns"]), moment(row["to_ns"]))
        for row in rows
    )
    figures = details("The figures", table(("Subject", "Silence", "From", "To"), cells))
    return f"<h3>Longest silences between two messages</h3>{listed}{figures}"


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
    places = {row["origin"]: place for place, row in enumerate(rows)}
    cells = [cell for cell in found["by_publisher_and_period"] if cell["origin"] in places]
    if not cells:
        return ""
    most = max(max(_weight(cell), 1) for cell in cells)
    marks = [LossMark(places[cell["origin"]], cell["period"], max(_weight(cell), 1) / most) for cell in cells]
    span = TimeSteps(found["first_period_ns"], found["hours_per_period"] * HOUR, found["periods"])
    worst = max(found["by_period"], key=_weight)
    facts = (
        f"Losses by publisher and hour. For each of {len(rows)} publishers, whether it lost messages in each "
        f"{_length(found)}. The most, {exact(_weight(worst))}, were lost from {moment(worst['time_ns'])} UTC "
        "on."
    )
    drawn = tracks(
        "losses",
        [_brief(row["origin"]) for row in rows],
        marks,
        span,
        title=f"The stronger, the more; at most {number(most)} lost",
    )
    cells_of_table = (
        (f"{publisher(cell['origin'])}<br>{moment(cell['time_ns'])}", *_values(cell))
        for cell in found["by_publisher_and_period"]
    )
    heads = (f"Publisher, {_length(found)} from (UTC)", *_HEADS)
    figures = details("The figures", table(heads, cells_of_table))
    return f"<h3>By publisher and {_length(found)}</h3>{figure(facts, drawn)}{figures}"


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
