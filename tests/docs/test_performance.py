"""The tables and plots of docs/performance.md are those of what was measured."""

import copy
import json
import re
import sys
from pathlib import Path
from runpy import run_path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def draw(monkeypatch):
    """The script that writes them."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield run_path(str(BENCHMARKS / "draw.py"))
    sys.modules.pop("rows", None)


@pytest.fixture
def measured():
    return json.loads((BENCHMARKS / "measured.json").read_text("utf-8"))


def test_the_page_is_what_the_script_makes_of_what_was_measured(draw, measured):
    page = draw["PAGE"].read_text("utf-8")
    assert "<!-- begin: table -->" in page
    assert page == draw["page"](page, measured)


def test_each_plot_is_of_what_was_measured_and_stands_in_the_page(draw, measured):
    page, key = draw["PAGE"].read_text("utf-8"), draw["key_of"](measured)
    shown = set(re.findall(r"\(plots/([\w.]+)\)", page))
    assert shown == {path.name for path in draw["PLOTS"].iterdir()}
    stale = [
        name for name in sorted(shown) if f"measured {key}" not in (draw["PLOTS"] / name).read_text("utf-8")
    ]
    assert stale == [], "python benchmarks/draw.py draws them anew"


def test_every_side_of_a_row_was_measured_or_is_said_to_be_missing(draw, measured):
    rows = draw["rows"].ROWS
    absent = {one for row in rows for one in (row.ours, row.rival, row.c) if one} - set(measured["sides"])
    assert not absent or measured["missing"]


def test_a_row_in_which_oz_loses_is_named_and_one_without_its_rival_says_why(draw, measured):
    measured = copy.deepcopy(measured)
    ours = measured["sides"]["W1 handler"]
    measured["sides"]["pyzmq"] = [run | {"rate": 2 * run["rate"]} for run in ours]
    del measured["sides"]["C"]
    measured["missing"] = {"C": "there is no C compiler"}
    text = draw["blocks"](measured)["table"]
    row = next(line for line in text.splitlines() if line.startswith("| W1 one to one"))
    assert re.match(r"\| [^|]+ \| \*\*0\.50 \(0\.50 to 0\.50\) \[[\d.]+\]\*\* \| – \| 10\.0 \| 12\.0 \|", row)
    lost = text.partition("oz loses against what stands beside it in:")[2].partition("\n\nC, ")[0]
    assert "- W1 one to one, a handler for each message: 0.50" in lost
    assert "C: there is no C compiler." in text
