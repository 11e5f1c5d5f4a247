"""Parts of the page: cards, lists with bars, trees, tables, and charts. What comes in is HTML already.

Charts are drawn by Matplotlib as SVG that stands in the page and takes the page's colours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from typing import Any

from oz.errors import SparkMissing

try:
    import matplotlib.style
    from matplotlib.axes import Axes
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, MaxNLocator
except ImportError as error:
    raise SparkMissing((error.name or "matplotlib").partition(".")[0]) from None

from oz.spark.jobs.reporting.steps import SECOND
from oz.spark.jobs.reporting.writing import moment


def section(title: str, body: str, *, note: str = "", full_width: bool = False) -> str:
    """Put something under a heading."""
    said = f'<p class="soft">{note}</p>' if note else ""
    return f"<section{' class=wide' if full_width else ''}><h2>{title}</h2>{said}{body}</section>"


def figure(facts: str, drawn: str) -> str:
    """Put a chart into the page.

    Args:
        facts: what the chart shows, in words.
        drawn: the chart.
    """
    return f'<figure role="img" aria-label="{facts}">{drawn}</figure>'


def details(summary: str, body: str) -> str:
    """Put something away until it is asked for."""
    return f'<details><summary>{summary}</summary><div class="scroll">{body}</div></details>'


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay rows out; the first cell of each is what the row is of."""
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def bars(rows: Iterable[tuple[str, str, float]], *, red: bool = False) -> str:
    """List names with their values, and a bar below each.

    Args:
        rows: name, value as it is written, and its share of the greatest, from 0 to 1.
        red: for what nobody wants.
    """
    items = "".join(f"<li>{bar(name, value, share, red=red)}</li>" for name, value, share in rows)
    return f'<ul class="bars">{items}</ul>'


def bar(name: str, value: str, share: float, *, red: bool = False, tag: str = "div") -> str:
    """Write one name and value with a bar."""
    return (
        f'<{tag} class="row{" red" if red else ""}"><b>{name}</b><span>{value}</span>'
        f'<i aria-hidden="true" style="--share:{share:.1%}"></i></{tag}>'
    )


def definitions(pairs: Iterable[tuple[str, str, str]]) -> str:
    """List names with values, and something small below each."""
    return f"<dl>{''.join(_definition(*pair) for pair in pairs)}</dl>"


def _definition(name: str, value: str, small: str) -> str:
    return f"<div><dt>{name}</dt><dd>{value}{f'<small>{small}</small>' if small else ''}</dd></div>"


# Matplotlib writes these into the SVG, where the page's own colours, light or dark, take their places.
_TEXT, _LINE, _BAR, _LOSS = "#010203", "#010204", "#010205", "#010206"
_VARIABLES = {_TEXT: "--soft", _LINE: "--line", _BAR: "--bar", _LOSS: "--loss"}

_WIDTH = 4.2
"""Inches. The page stretches each chart to its column: 10 points are about 11 pixels on a phone."""

_STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # to measure with; the page's own font is narrower
    "font.size": 10,
    "text.color": _TEXT,
    "text.parse_math": False,
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _TEXT,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": _LINE,
    "xtick.color": _LINE,
    "xtick.labelcolor": _TEXT,
    "xtick.major.pad": 6,
    "ytick.labelcolor": _TEXT,
    "ytick.left": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "oz",
}

# For ticks that are years, months, days, hours, minutes and seconds apart. Each says what it is by itself,
# and the day, or the year, stands below them once.
_TIMES: dict[str, Any] = {
    "formats": ["%Y", "%b", "%d %b", "%H:%M", "%H:%M", "%H:%M:%S"],
    "zero_formats": ["", "%Y", "%d %b", "%d %b", "%H:%M", "%H:%M:%S"],
    "offset_formats": ["", "%Y", "%Y", "%Y-%m-%d", "%Y-%m-%d", "%Y-%m-%d"],
}


@dataclass(frozen=True)
class TimeSteps:
    """Equal steps of time.

    Attributes:
        start_ns: where the first begins, nanoseconds since 1970.
        step_ns: how long each is.
        count: how many there are.
    """

    start_ns: int
    step_ns: int
    count: int


@dataclass(frozen=True)
class LossMark:
    """Something that was lost.

    Attributes:
        row: whose track it is on, from 0.
        step: the number of its step.
        share: of the greatest, from 0 to 1.
    """

    row: int
    step: int
    share: float


def over_time(name: str, values: Sequence[float], span: TimeSteps, *, title: str, unit: str = "") -> str:
    """Draw how much there was in each step.

    Args:
        name: of the chart, different from those of all others in the page.
        values: one for each step.
        span: the steps.
        title: of the vertical axis.
        unit: of the values.

    Returns:
        SVG to stand in a page.
    """
    with _axes(name, height=1.9) as (axes, written):
        edges = _time_axis(axes, span)
        axes.stairs(values, edges, fill=True, color=_BAR, clip_on=False, linewidth=0)
        axes.set_xlim(edges[0], edges[-1])
        _value_axis(axes, title, unit)
    return written[0]


def by_size(name: str, values: Sequence[int], starts: Sequence[int]) -> str:
    """Draw how many messages there are of each size.

    Args:
        name: of the chart, different from those of all others in the page.
        values: the messages in each bin.
        starts: the least size in each bin, in bytes; each bin but the first two is twice as wide as the last.

    Returns:
        SVG to stand in a page.
    """
    with _axes(name, height=1.9) as (axes, written):
        axes.bar(range(len(values)), values, width=0.86, color=_BAR, clip_on=False)
        axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))
        axes.xaxis.set_major_formatter(
            lambda at, _: _size(starts[round(at)]) if 0 <= round(at) < len(starts) else ""
        )
        axes.set_xlabel("Payload size, from this to twice this")
        _value_axis(axes, "Messages")
    return written[0]


def tracks(name: str, rows: Sequence[str], marks: Sequence[LossMark], span: TimeSteps, *, title: str) -> str:
    """Draw a track for each name, and marks on it, the stronger the greater their share is.

    Args:
        name: of the chart, different from those of all others in the page.
        rows: the names.
        marks: what stands on the tracks.
        span: the steps that marks may stand at.
        title: what a mark says.

    Returns:
        SVG to stand in a page.
    """
    with _axes(name, height=0.75 + 0.24 * len(rows)) as (axes, written):
        edges = _time_axis(axes, span)
        axes.set_yticks(range(len(rows)), rows, family="monospace")
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(edges[0], edges[-1])
        for mark in marks:
            begin, end = edges[mark.step : mark.step + 2]
            axes.barh(
                mark.row,
                end - begin,
                left=begin,
                height=0.7,
                color=(_LOSS, 0.35 + 0.65 * mark.share),
                edgecolor=_LOSS,
                linewidth=0.8,
                clip_on=False,
            )
        axes.set_ylabel("Publisher")
        axes.set_title(title, loc="left", fontsize=10)
    return written[0]


@contextmanager
def _axes(name: str, height: float) -> Iterator[tuple[Axes, list[str]]]:
    written: list[str] = []
    with matplotlib.style.context(["default", _STYLE]):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        figure.patch.set_visible(False)
        axes = figure.add_subplot()
        axes.patch.set_visible(False)
        yield axes, written
        text = StringIO()
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    written.append(_for_page(text.getvalue(), name))


def _for_page(svg: str, name: str) -> str:
    """Leave out what only a file of its own needs, and make ids differ from those of other charts."""
    svg = svg[svg.index("<svg") :].rstrip()
    svg = re.sub(r"<defs>\s*<style.*?</defs>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (?:xmlns(?::\w+)?|version)="[^"]*"', "", svg)
    svg = re.sub(r'<svg width="[^"]*" height="[^"]*"', "<svg", svg)
    svg = re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    return re.sub("|".join(_VARIABLES), lambda found: f"var({_VARIABLES[found[0]]})", svg)


def _time_axis(axes: Axes, span: TimeSteps) -> list[float]:
    """Prepare the axis, and say where each step begins and the last one ends."""
    ends = [span.step_ns * number for number in range(span.count + 1)]
    if span.step_ns < SECOND:  # more finely than dates of Matplotlib
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(EngFormatter(unit="s"))
        axes.set_xlabel(f"Time since {moment(span.start_ns, step_ns=span.step_ns)} UTC")
        return [end / SECOND for end in ends]
    locator = AutoDateLocator(tz=UTC, minticks=3, maxticks=6)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC, **_TIMES))
    axes.set_xlabel("Time (UTC)", loc="left")  # at the right is the day
    return [float(date2num(datetime.fromtimestamp((span.start_ns + end) // SECOND, UTC))) for end in ends]


def _value_axis(axes: Axes, title: str, unit: str = "") -> None:
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_formatter(EngFormatter(unit, sep=" " if unit else ""))
    axes.grid(axis="y", linewidth=0.8)
    axes.set_ylim(0, max(axes.get_ylim()[1], 1))
    axes.set_ylabel(title)


def _size(least: int) -> str:
    for bits, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if least >> bits:
            return f"{least >> bits} {unit}"
    return f"{least} B"
