"""One page with all figures: no script, nothing loaded from anywhere."""

from __future__ import annotations

import html
from typing import Any

from oz.spark.jobs.reporting.charts import TimeSteps, by_size, over_time
from oz.spark.jobs.reporting.parts import bar, bars, definitions, details, figure, section, table
from oz.spark.jobs.reporting.sections import levels, losses, silent, subjects
from oz.spark.jobs.reporting.steps import SECOND
from oz.spark.jobs.reporting.writing import duration, exact, moment, number, others, publisher

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
