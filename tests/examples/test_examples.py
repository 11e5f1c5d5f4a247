import difflib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import zmq

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))
RECIPES = sorted((EXAMPLES / "recipes").glob("*.py"))
RECIPES_PAGE = EXAMPLES.parent / "docs" / "recipes.md"
DEADLINE = 100.0  # seconds; an example takes one or two on a quiet machine

pytestmark = pytest.mark.timeout(120)

# Lines that must be in the output, and lines that must not.
TELLING = {
    "quickstart": (
        ["delivered time.us.east 12:00", "delivered time.eu.east 18:00", "crossed the wire 2"],
        ["delivered time.us.west 09:00"],
    ),
    "dropin_before": (["weather.oslo.wind    3 m/s", "2 of 6 topics"], ["weather.bergen.wind  11 m/s"]),
    "dropin_after": (["weather.bergen.wind  11 m/s", "4 of 6 topics"], ["weather.bergen.temp  5 C"]),
    "asyncio_quotes": (
        ["xetra  md.xetra.bmw  96.1", "all    fx.eur.usd    1.09", "done"],
        ["xetra  md.nyse.ibm   171.2"],
    ),
    "market_data": (
        [
            "order: order.xetra.fill.17 100 sap",
            "alarm: alarm.xetra.halt volatility",
            "trades: ['trade.xetra.sap 100 at 128.4', 'trade.xetra.bmw 10 at 96.1']",
        ],
        ["order: order.xetra.new.18 50 sap", "order: order.xetra.fill.20 not seen"],
    ),
    "routing": (
        [
            "east: 100 of 1,000 matched, 100 crossed the wire, lost: []",
            "workers: 5 and 5 jobs, each job once: True",
        ],
        [],
    ),
    "node_service": (["rates 50 True", "no responder for risk.margin.rates", "received 2"], []),
    "node_workers": (
        ["shares ('ann', 4) ('bob', 4) ('cho', 4)", "without cho ['ann', 'bob']", "each job once True"],
        ["each job once False"],
    ),
    "dialects": (["nats        foo.*                    foo.                     foo.bar"], []),
}

RECIPE_LINES = {
    "graceful_shutdown": ["each job once: True", "after the shutdown: {'second'}"],
    "job_retries": ["gave up broken.png: not an image", "resized cat.png"],
    "last_value_cache": ["joined with 1.09 1.27", "then 1.1"],
    "publish_from_threads": ["['thread.a', 'thread.b', 'thread.c'] in order: True"],
    "query_a_journal": [
        "oz: [128.4, 128.6, 128.5]",
        "pyarrow: {'subject': ['md.nyse.ibm', 'md.xetra.sap'], 'offset_count': [1, 3]}",
    ],
    "replay_double_speed": [
        "subjects: ['md.0', 'md.1', 'md.2', 'md.3', 'md.4']",
        "took at least a second: True",
    ],
    "replicas": ["reply: tea costs 42", "no responder, at once"],
    "slow_consumer": [
        "display: newest 99999 of 100,000, skipped some: True",
        "archive: reported {'dropped'}",
        "delivered and lost are all messages: True",
    ],
    "test_a_service": ["passed, and nothing waited"],
    "two_keys": ["desk: b'encrypted'", "stranger: refused"],
    "urgent_first": ["alarm.normal.0 alarm.urgent.fire alarm.normal.1 alarm.normal.2"],
    "web_handler": ["202 web.order.17 {'method': 'GET'}"],
}
"""The output of each recipe."""

RECIPE_LOGS = {"two_keys": "a connection from .* is refused: its key .* is not in .*\n"}
"""Patterns of the lines that a recipe logs on standard error."""


def run(program: Path, directory: Path, logged: str = "") -> list[str]:
    """Run it in an empty directory, where it must leave nothing behind, and return its lines."""
    # Nodes meet where no other test's do; the paths of their sockets must be short.
    with (
        tempfile.TemporaryDirectory(prefix="oz", dir="/tmp") as bus,
        subprocess.Popen(
            [sys.executable, str(program)],
            cwd=directory,
            env={**os.environ, "PYTHONWARNINGS": "error", "PYTHONUNBUFFERED": "1", "OZ_DIRECTORY": bus},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        try:
            out, err = process.communicate(timeout=DEADLINE)
        finally:
            process.kill()
    assert process.returncode == 0, err
    assert re.fullmatch(logged, err), err
    assert not list(directory.iterdir())
    return [line.rstrip() for line in out.splitlines()]


def test_every_example_has_its_telling_lines():
    assert {program.stem for program in PROGRAMS} == set(TELLING)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_an_example_runs_and_prints_what_it_shows(program, tmp_path):
    lines = run(program, tmp_path)
    wanted, unwanted = TELLING[program.stem]
    assert [line for line in wanted if line not in lines] == [], lines
    assert [line for line in unwanted if line in lines] == [], lines
    # A message that two patterns match is handled once.
    assert lines.count("alarm: alarm.xetra.halt volatility") == (program.stem == "market_data")


def test_the_drop_in_differs_in_the_import_and_the_line_that_makes_the_socket():
    before, after = (
        [line for line in (EXAMPLES / f"dropin_{name}.py").read_text("utf-8").splitlines() if line]
        for name in ("before", "after")
    )
    changes = [line for line in difflib.ndiff(before, after) if line[:2] in ("- ", "+ ")]
    assert changes == [
        "+ import oz",
        "- sub = context.socket(zmq.SUB)",
        '+ sub = context.socket(zmq.SUB, socket_class=oz.SubSocket, dialect="nats")',
    ]


@pytest.mark.documents
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_recipe_prints_its_lines(recipe, tmp_path):
    if "oz.journal" in recipe.read_text("utf-8"):
        pytest.importorskip("pyarrow", reason="needs: pip install '.[journal]'")
    if "oz.Security" in recipe.read_text("utf-8") and not zmq.has("curve"):
        pytest.skip("this libzmq has no CURVE")
    assert run(recipe, tmp_path, RECIPE_LOGS.get(recipe.stem, "")) == RECIPE_LINES[recipe.stem]


def test_each_recipe_is_short_and_listed():
    page = RECIPES_PAGE.read_text("utf-8")
    assert {recipe.stem for recipe in RECIPES} == set(RECIPE_LINES)
    assert [recipe.name for recipe in RECIPES if f"examples/recipes/{recipe.name})" not in page] == []
    assert [recipe.name for recipe in RECIPES if len(recipe.read_text("utf-8").splitlines()) > 40] == []


@pytest.mark.documents
def test_the_market_data_bus_runs_from_one_script(tmp_path):
    lines = run(EXAMPLES / "bus" / "run.py", tmp_path)
    assert {"prices peer_up", "pricing peer_up"} <= set(lines), lines
    quotes = [line for line in lines if re.fullmatch(r"[A-Z]{6} [0-9.]+, bid [0-9.]+, ask [0-9.]+", line)]
    assert len(quotes) == 5, lines
    assert lines[-1] == "lost 0"


@pytest.mark.documents
@pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")
def test_on_the_secure_bus_each_key_has_only_its_permissions(tmp_path):
    # Denials are logged, by default on stderr.
    lines = run(EXAMPLES / "secure" / "run.py", tmp_path, r"((key |peer |user ).*(refuse|may not).*\n)+")
    assert lines == [
        "tap     may not read >",
        "tap     may not read orders.>",
        "tap     receives orders.open.17 buy 100",
        "viewer  receives md.xetra.sap 128.4",
        "viewer  may not publish md.xetra.sap",
        "feed    has received forged prices: 0",
    ]


def test_the_list_of_examples_is_complete():
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    assert [program.name for program in PROGRAMS if f"]({program.name})" not in listed] == []
