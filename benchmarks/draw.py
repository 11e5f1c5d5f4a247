"""Draws what `table` has measured, as SVG in docs/plots, and writes the tables of docs/performance.md.

    python benchmarks/draw.py [--page-only]

The same JSON gives the same files, to the byte with the same Matplotlib. A plot has no background, and its
letters and lines are of colours that can be read on white and on black.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rows

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "performance.md"
PLOTS = DOCS / "plots"
MEASURED = Path(__file__).with_name("measured.json")

GREY = "#808080"
COLOURS = ("#3d85c6", "#d9822b", "#3a9a5b", "#a661c2", "#c9504c", "#7f8c2a")

_BLOCK = re.compile(r"(<!-- begin: ([\w-]+) -->\n).*?(<!-- end: \2 -->)", re.DOTALL)

AXES = {
    "subscribers": ("subscribers", "messages delivered a second, in all"),
    "payload": ("bytes of a payload", "messages delivered a second"),
    "patterns": ("patterns", "subjects matched a second"),
}
"""Plots of rates, and the labels of their axes."""

SHOWN = (1, 5, 10, 25, 50, 75, 90, 95, 98, 99, 99.5, 99.9)
LATENCIES = {
    "round trip": "sockets of oz",
    "pyzmq round trip": "sockets of pyzmq",
    "oz, inline": "request of oz, inline",
    "oz.asyncio": "request of oz.asyncio",
    "nats-py": "request of nats-py",
    "REQ, REP": "REQ and REP",
}
"""The sides in the plot of latencies, and their names there."""


def blocks(measured: rows.Measured) -> dict[str, str]:
    """Return the text between the markers of the page, by their names."""
    return {"table": f"\n{rows.as_markdown(measured)}\n\n"}


def page(text: str, measured: rows.Measured) -> str:
    """Return a page with new text between its markers."""
    found = blocks(measured)
    return _BLOCK.sub(lambda match: match[1] + found[match[2]] + match[3], text)


def key_of(measured: rows.Measured) -> str:
    """Return what tells one measurement from another; each plot names it."""
    return hashlib.sha256(json.dumps(measured, sort_keys=True).encode()).hexdigest()[:16]


def draw_rates(axes: Any, name: str, measured: rows.Measured) -> None:
    """Draw one of the curves; both axes are logarithmic."""
    for (side, points), colour in zip(measured["curves"][name].items(), COLOURS, strict=False):
        axes.plot(points["at"], points["rate"], "o-", color=colour, label=side, markersize=3)
    axes.set_xscale("log", base=2 if name == "subscribers" else 10)
    axes.set_yscale("log")
    if name == "subscribers":
        at = next(iter(measured["curves"][name].values()))["at"]
        axes.set_xticks(at, list(map(str, at)))
    axes.set_xlabel(AXES[name][0])
    axes.set_ylabel(AXES[name][1])


def draw_latency(axes: Any, measured: rows.Measured) -> None:
    """Draw the percentiles of round trips and requests."""
    for (side, label), colour in zip(LATENCIES.items(), COLOURS, strict=True):
        runs = [run["times"] for run in measured["sides"].get(side, ())]
        if runs:
            medians = [rows.statistics.median(times) for times in zip(*runs, strict=True)]
            # On this scale the slowest 10% of the requests take as much space as the other 90%.
            behind = [100 / (100 - item) for item in SHOWN]
            axes.plot(behind, medians, "o-", color=colour, label=label, markersize=3)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([2, 10, 100, 1000], ["50%", "90%", "99%", "99.9%"])
    axes.set_xlabel("of one after the other took no longer than")
    axes.set_ylabel("microseconds")


def draw(measured: rows.Measured) -> None:
    """Write all plots."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot
    from matplotlib.ticker import EngFormatter, LogLocator

    grey = dict.fromkeys(
        ("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "text.color", "grid.color"), GREY
    )
    fixed = {"svg.hashsalt": "oz", "svg.fonttype": "none", "legend.frameon": False, "font.size": 9}
    PLOTS.mkdir(exist_ok=True)
    with pyplot.rc_context({**grey, **fixed}):
        for name in (*AXES, "latency"):
            figure, axes = pyplot.subplots(figsize=(5.2, 3.1), layout="constrained")
            draw_latency(axes, measured) if name == "latency" else draw_rates(axes, name, measured)
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter(EngFormatter(sep=""))
            axes.minorticks_off()
            axes.grid(alpha=0.3, linewidth=0.5)
            axes.spines[["top", "right"]].set_visible(False)
            axes.legend()
            figure.savefig(
                PLOTS / f"{name}.svg",
                transparent=True,
                metadata={"Date": None, "Creator": None, "Description": f"measured {key_of(measured)}"},
            )
            pyplot.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw, and write the page.

    Args:
        arguments: of the command line.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--page-only", action="store_true", help="draw nothing")
    options = parser.parse_args(arguments)
    measured = json.loads(MEASURED.read_text("utf-8"))
    PAGE.write_text(page(PAGE.read_text("utf-8"), measured), "utf-8")
    if not options.page_only:
        draw(measured)


if __name__ == "__main__":
    main()
