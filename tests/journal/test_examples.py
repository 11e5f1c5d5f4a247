"""The programs of examples/journal, one after the other, on one journal."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "journal"
DEADLINE = 100.0  # seconds; one takes some on a quiet machine

pytestmark = pytest.mark.timeout(250)


def run(name, directory):
    with subprocess.Popen(
        [sys.executable, str(EXAMPLES / f"{name}.py"), str(directory)],
        env={**os.environ, "PYTHONWARNINGS": "error"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=DEADLINE)
        finally:
            process.kill()
    assert (process.returncode, err) == (0, "")
    return out.splitlines()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    directory = tmp_path_factory.mktemp("examples") / "flights"
    return directory, run("record_flights", directory)


@pytest.mark.documents
def test_the_flights_of_a_day_are_recorded(recorded):
    assert recorded[1] == [
        "published 842, recorded 842, lost 0",
        "the first of B6 from JFK: flight.JFK.BQN.B6, to BQN",
    ]


@pytest.mark.documents
def test_the_flights_are_replayed_ten_times_as_fast_into_a_dashboard(recorded):
    *lines, last = run("dashboard", recorded[0])
    assert len(lines) == 4
    assert re.fullmatch(r"EWR +\d+  JFK +\d+  LGA +\d+", lines[-1])
    found = re.fullmatch(r"842 flights, recorded in (.*) s, replayed in (.*) s", last)
    assert float(found[2]) < float(found[1])


@pytest.mark.skipif(importlib.util.find_spec("duckdb") is None, reason="DuckDB is not installed")
def test_duckdb_counts_the_flights(recorded):
    *lines, last = run("query_flights", recorded[0])
    assert last == "842 of 842 records"
    assert sum(int(line.split()[1]) for line in lines) == 842


def test_the_list_of_examples_is_complete():
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    for program in EXAMPLES.glob("*.py"):
        assert f"]({program.name})" in listed
