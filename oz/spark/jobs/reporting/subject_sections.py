"""The page's sections on subjects."""

from __future__ import annotations

from typing import Any

from oz.spark.jobs.reporting.parts import bar, bars, details, section, table
from oz.spark.jobs.reporting.writing import duration, exact, moment, number, others, subject

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
