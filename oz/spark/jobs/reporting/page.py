"""One page with all figures: no script, nothing loaded from anywhere."""

from __future__ import annotations

import html
from typing import Any

from oz.spark.jobs.reporting.parts import (
    LossMark,
    TimeSteps,
    bar,
    bars,
    by_size,
    definitions,
    details,
    figure,
    over_time,
    section,
    table,
    tracks,
)
from oz.spark.jobs.reporting.steps import HOUR, SECOND
from oz.spark.jobs.reporting.writing import duration, exact, moment, number, others, publisher, subject

STYLE = """
:root{color-scheme:light dark;--page:#f4f5f7;--card:#fff;--text:#1b1f24;--soft:#59626d;--line:#dfe3e8;
--bar:#2b6cb0;--loss:#c2410c;--empty:#eef0f3}
@media (prefers-color-scheme:dark){:root{--page:#101317;--card:#191e24;--text:#e7eaee;--soft:#9aa5b1;
--line:#2c343d;--bar:#63a4e8;--loss:#fb8a5b;--empty:#222931}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:16px/1.45 system-ui,sans-serif;
-webkit-text-size-adjust:100%}
main{max-width:1060px;margin:0 auto;padding:12px;display:grid;gap:12px;
grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));align-items:start}
header,footer,.wide{grid-column:1/-1}
h1{font-size:1.35rem;margin:8px 0 2px;overflow-wrap:anywhere}
h2{font-size:1.05rem;margin:0 0 2px}
h3{font-size:.9rem;margin:14px 0 4px}
p{margin:2px 0 8px}
.soft,footer,figcaption{color:var(--soft);font-size:.85rem}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px;min-width:0}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:10px;margin:0}
dt{color:var(--soft);font-size:.8rem}
dd{margin:0;font-size:1.25rem;font-weight:600;font-variant-numeric:tabular-nums}
dd small{display:block;font-size:.8rem;font-weight:400;color:var(--soft)}
figure{margin:0 0 10px}
svg{display:block;width:100%;height:auto}
ul{list-style:none;margin:0;padding:0}
.row{padding:3px 0}
.row{display:grid;grid-template-columns:minmax(0,1fr) auto;column-gap:10px;align-items:baseline}
.row>b{font:500 .85rem ui-monospace,monospace;overflow-wrap:anywhere}
.row>span{font-size:.85rem;font-variant-numeric:tabular-nums;white-space:nowrap}
.row>i{grid-column:1/-1;height:5px;border-radius:3px;background:var(--empty);overflow:hidden}
.row>i:before{content:"";display:block;height:100%;width:var(--share);min-width:2px;background:var(--bar)}
.row.red>i:before{background:var(--loss)}
details details,details>ul{margin-left:12px}
summary{cursor:pointer}
summary.row>b:before{content:"▸ ";color:var(--soft)}
details[open]>summary.row>b:before{content:"▾ "}
details>summary:not(.row){color:var(--soft);font-size:.85rem;padding:4px 0}
.scroll{overflow-x:auto;max-height:60vh}
table{border-collapse:collapse;width:100%;font-size:.82rem;font-variant-numeric:tabular-nums}
th,td{padding:3px 8px 3px 0;text-align:right;border-bottom:1px solid var(--line);vertical-align:top}
td,thead th{white-space:nowrap}
th:first-child{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:9em}
thead th{font-weight:500;color:var(--soft)}
tbody th{font-weight:400}
"""


Figures = dict[str, Any]


def page(figures: Figures) -> str:
    """Write the page of a report's figures."""
    title = f"What passed over the bus: {html.escape(str(figures['source']))}"
    body = _summary(figures)
    if figures["total"]["messages"]:
        parts = (_timeline, levels, subjects, _publishers, silent, losses, _sizes)
        body += "".join(part(figures) for part in parts)
    else:
        body += section("Nothing", "<p>There is no message in this record.</p>", full_width=True)
    made = f"Made by oz at {html.escape(figures['made'])}. Times are in UTC; bytes are those of payloads."
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; img-src data:\">"
        f'<link rel="icon" href="data:,"><title>{title}</title><style>{STYLE}</style></head>'
        f"<body><main><header><h1>{title}</h1>{_about(figures)}</header>{body}<footer>{made}</footer></main>"
        "</body></html>\n"
    )


def _about(figures: Figures) -> str:
    if figures["pattern"] is None:
        return ""
    return f'<p class="soft">Only what matches <b>{html.escape(figures["pattern"])}</b>.</p>'


def _summary(figures: Figures) -> str:
    total, lost = figures["total"], figures["losses"]
    span = f"{moment(total['first_ns'])} to {moment(total['last_ns'])}" if total["messages"] else ""
    pairs = [
        ("Messages", number(total["messages"]), _rate(total, "messages")),
        ("Payload", number(total["payload_bytes"], "B"), _rate(total, "payload_bytes", "B")),
        ("Time", duration(total["seconds"]), span),
        ("Subjects", number(total["subjects"]), f"{exact(figures['silent']['count'])} silent at the end"),
        ("Publishers", number(figures["publishers"]["count"]), ""),
        ("Lost", number(lost["lost"] if lost else 0), _unknown(lost)),
    ]
    return section("In short", definitions(pairs), full_width=True)


def _rate(total: Figures, name: str, unit: str = "") -> str:
    mean, peak = total[f"{name}_per_second"], total.get(f"peak_{name}_per_second")
    return f"{number(mean, unit)}/s, at most {number(peak, unit)}/s" if mean is not None else ""


def _unknown(lost: Figures | None) -> str:
    return f"and {exact(lost['unknown'])} losses of unknown size" if lost and lost["unknown"] else ""


def _timeline(figures: Figures) -> str:
    line = figures["timeline"]
    steps, seconds = line["steps"], line["step_seconds"]
    step_ns = round(seconds * SECOND)
    times = [moment(step["time_ns"], step_ns=step_ns) for step in steps]
    span = TimeSteps(steps[0]["time_ns"], step_ns, len(steps))
    charts = ""
    for name, title, unit in (("messages", "Messages", ""), ("payload_bytes", "Payload", "B")):
        values = [step[name] for step in steps]
        most = max(values)
        facts = (
            f"{title} in each of {len(steps)} steps of {duration(seconds)}, from {times[0]} to "
            f"{times[-1]} UTC. The most is {number(most, unit)}, at {times[values.index(most)]}."
        )
        drawn = over_time(name, values, span, title=title, unit=unit)
        charts += f"<h3>{title} per {duration(seconds)}</h3>{figure(f'{title} in time. {facts}', drawn)}"
    cells = (
        (at, exact(step["messages"]), exact(step["payload_bytes"]))
        for at, step in zip(times, steps, strict=True)
    )
    heads = ("From (UTC)", "Messages", "Payload bytes")
    return section("In time", charts + details("The figures", table(heads, cells)))


def _publishers(figures: Figures) -> str:
    found = figures["publishers"]
    rows, rest = found["most"], found["others"]
    greatest = max((row["payload_bytes"] for row in rows), default=0) or 1
    listed = bars(
        (
            publisher(row["origin"]),
            f"{number(row['payload_bytes'], 'B')}, {number(row['messages'])}",
            row["payload_bytes"] / greatest,
        )
        for row in rows
    )
    if rest:
        listed += bar(
            f"<i>{others(rest['count'])}</i>",
            f"{number(rest['payload_bytes'], 'B')}, {number(rest['messages'])}",
            0,
        )
    cells = (
        (
            publisher(row["origin"]),
            exact(row["messages"]),
            exact(row["payload_bytes"]),
            moment(row["first_ns"]),
            moment(row["last_ns"]),
        )
        for row in rows
    )
    heads = ("Publisher", "Messages", "Payload bytes", "First heard", "Last heard")
    note = "By payload, then messages. A publisher that is started again has another id."
    return section("Publishers", listed + details("The figures", table(heads, cells)), note=note)


def _sizes(figures: Figures) -> str:
    found = figures["sizes"]
    bins = found["histogram"]
    values = [one["messages"] for one in bins]
    names = [_bin(one) for one in bins]
    most = max(values)
    facts = (
        f"Messages by the size of their payloads, from {exact(found['least'])} to "
        f"{exact(found['greatest'])} bytes; most, {number(most)}, have {names[values.index(most)]} bytes."
    )
    drawn = figure(f"Payload sizes. {facts}", by_size("sizes", values, [one["from"] for one in bins]))
    quantiles = [("Mean", number(found["mean"], "B"), "")]
    quantiles += [
        (f"{float(share):.4g} quantile", number(size, "B"), "") for share, size in found["quantiles"].items()
    ]
    quantiles.append(("Largest", number(found["greatest"], "B"), ""))
    cells = (
        (name, exact(one["messages"]), exact(one["payload_bytes"]))
        for name, one in zip(names, bins, strict=True)
    )
    heads = ("Bytes", "Messages", "Payload bytes")
    return section(
        "Payload sizes", definitions(quantiles) + drawn + details("The figures", table(heads, cells))
    )


def _bin(one: Figures) -> str:
    low, high = exact(one["from"]), exact(one["to"])
    return low if low == high else f"{low} to {high}"


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
