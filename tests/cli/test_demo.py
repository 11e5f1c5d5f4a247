"""`oz demo` against counts taken directly from the data."""

import csv
import itertools
import json
import lzma
import re
import sys
import time
from importlib import resources
from pathlib import Path
from types import SimpleNamespace

import pytest

from oz.demo import run as demo
from oz.demo.child import ChildError
from support.sizes import in_suite

WANTED = {
    "flight.*.LAX.>": lambda origin, dest, carrier: dest == "LAX",
    "flight.JFK.*.*": lambda origin, dest, carrier: origin == "JFK",
    "flight.[EL]*.BOS.*": lambda origin, dest, carrier: origin in ("EWR", "LGA") and dest == "BOS",
    r"^flight\.(JFK|LGA)\.(ORD|MDW)\..*": lambda origin, dest, carrier: (
        origin in ("JFK", "LGA") and dest in ("ORD", "MDW")
    ),
    "flight.EWR.ORD.UA": lambda origin, dest, carrier: (origin, dest, carrier) == ("EWR", "ORD", "UA"),
}
DIALECTS = ["nats", "rv", "redis", "regex", "nats"]


@pytest.fixture(scope="module")
def flights():
    packed = resources.files("oz.demo").joinpath("data/flights-2013-01.csv.xz").read_bytes()
    rows = csv.DictReader(lzma.decompress(packed).decode().splitlines())
    return [(row["origin"], row["dest"], row["carrier"]) for row in rows]


def check(rows, flights):
    assert [row["dialect"] for row in rows] == DIALECTS
    assert [row["pattern"] for row in rows] == list(WANTED)
    for row in rows:
        subjects = [f"flight.{'.'.join(flight)}" for flight in flights]
        assert row["delivered"] == sum(WANTED[row["pattern"]](*flight) for flight in flights)
        assert row["received"] == sum(subject.startswith(tuple(row["prefixes"])) for subject in subjects)
        assert row["expected"] == row["delivered"]
        assert row["lost"] == 0
        assert row["rate"] > 0


@pytest.mark.heavy
def test_only_matches_cross_the_wire_when_the_publisher_filters(oz_run, flights):
    ended = oz_run("demo", "--json", "--filtering", "publisher")
    assert (ended.code, ended.stderr) == (0, "")
    rows = json.loads(ended.stdout)
    assert [row["delivered"] for row in rows] == [
        sum(matches(*flight) for flight in flights) for matches in WANTED.values()
    ]
    assert all(row["received"] == row["delivered"] == row["expected"] for row in rows)


@pytest.fixture(scope="module")
def measured():
    """Return the results of a run and the calls of its progress function.

    The clock advances an hour for each reading until the first message arrives, so that a slow start ends no run.
    """
    hours, counts, seen = itertools.count(), [], []

    def monotonic():
        return 3_600.0 * (counts[0] if counts else next(hours))

    def progress(done, total):
        counts.append(next(hours) - 1)
        seen.append((done, total))

    clock = SimpleNamespace(monotonic=monotonic, perf_counter=time.perf_counter)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "time", clock)
        return demo.run(progress=progress), seen


def test_counts_are_those_of_the_data_and_nothing_is_lost(oz, monkeypatch, flights, measured):
    results, seen = measured
    total = sum(result.expected for result in results)
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)
    monkeypatch.setattr(demo, "run", lambda **_: results)
    ended = oz("demo", "--json")
    assert (ended.exit_code, ended.stderr) == (0, "")
    rows = json.loads(ended.stdout)
    check(rows, flights)
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    shown = [line.split()[:5] for line in readme.splitlines() if line.startswith((" flight.", " ^flight"))]
    counts = ("received", "delivered", "lost")
    assert shown == [
        [row["pattern"], row["dialect"], *(f"{row[count]:,}" for count in counts)] for row in rows
    ]
    heading, *rows = oz("demo").stdout.splitlines()
    assert heading.split("  ")[0] == "pattern"
    assert [row.split("  ")[0] for row in rows] == list(WANTED)
    assert "\x1b" not in "".join(rows)


def program(body):
    start = f"import sys, oz\npublisher = oz.Publisher(bind='tcp://127.0.0.1:*', codec='msgpack')\n{body}"
    return [sys.executable, "-c", start]


ANNOUNCE = "print(publisher.endpoint, flush=True)\n"
HALF = f"publisher.wait_for_subscribers('demo.end', count={len(WANTED)}, timeout=60)\n" + (
    "publisher.publish('flight.JFK.LAX.AA', {})\n"
)


def test_a_publisher_that_is_killed_is_noticed():
    with pytest.raises(ChildError, match="ended with status -9"):
        demo.run(command=program(ANNOUNCE + HALF + "import os; os.kill(os.getpid(), 9)"))


@pytest.mark.parametrize("end", in_suite(["import time; time.sleep(60)"], ["sys.exit(0)"]))
def test_a_publisher_that_falls_silent_is_given_up(monkeypatch, end):
    monkeypatch.setattr(demo, "SILENCE_TIMEOUT", 0.5)
    with pytest.raises(ChildError, match=re.escape("no message from the publisher for 0.5 s")):
        demo.run(command=program(ANNOUNCE + HALF + end))


def test_a_failure_is_one_line_and_exit_1(oz, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    result = oz("demo")
    assert result.exit_code == 1
    assert result.stderr == "oz demo: the publisher process ended with status 1: it wrote no error\n"
