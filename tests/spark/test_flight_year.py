"""The flight year: 336,776 flights through sockets, journal, archive, a streaming join, and sockets again."""

import csv
import json
import lzma
import os
import subprocess
import sys
from collections import defaultdict
from hashlib import sha256
from pathlib import Path

import pytest

import oz

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark"
TEXTS = {
    "flights-2013.csv.xz": "563db8f117faf6ffd76aa868099df37dfa78dc17b5ac6d3d9ea6476e051a0bc4",
    "weather-2013.csv.xz": "5d1ea2548a3941eac0b4a9ca70805daa9fa49bbb711a0c7557b2bba0bd7c3f64",
}
EXAMPLE_SECONDS = 1_800
FLIGHTS = 336_776
REPORTS = 26_115
MARKS = 2  # the flight and the report that tell that time has passed


def text_of(name):
    return lzma.decompress((EXAMPLE / "data" / name).read_bytes())


def test_the_data_is_what_its_readme_says():
    readme = (EXAMPLE / "data" / "README.md").read_text()
    for name, digest in TEXTS.items():
        assert sha256(text_of(name)).hexdigest() == digest
        assert digest in readme
        assert sha256((EXAMPLE / "data" / name).read_bytes()).hexdigest() in readme


def sums_of_csv():
    """Delays by route; another program than that of the example."""
    reports = csv.DictReader(text_of("weather-2013.csv.xz").decode().splitlines())
    precipitation = {f"{row['origin']} {row['time_hour']}": row["precip"] for row in reports}
    sums = defaultdict(lambda: [0] * 6)
    for row in csv.DictReader(text_of("flights-2013.csv.xz").decode().splitlines()):
        rain = precipitation.get(f"{row['origin']} {row['time_hour']}")
        delay = None if row["dep_delay"] == "NA" else int(row["dep_delay"])
        wet = rain is not None and float(rain) > 0 and delay is not None
        add = (1, delay is not None, delay or 0, wet, delay if wet else 0, rain is None)
        route = f"{row['origin']}.{row['dest']}"
        sums[route] = [before + more for before, more in zip(sums[route], add, strict=True)]
    return sums


def run_the_example():
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(oz.__file__).parents[1]), os.environ["PYTHONPATH"]]),
    }
    command = [sys.executable, str(EXAMPLE / "flight_year.py"), "--json"]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=EXAMPLE_SECONDS, check=False
    )


@pytest.mark.heavy
@pytest.mark.timeout(2 * EXAMPLE_SECONDS)
def test_the_year_comes_out_as_it_is_in_the_files():
    ran = run_the_example()
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["recorded"] == found["archived"] == FLIGHTS + REPORTS + MARKS
    assert found["dropped"] == 0
    assert found["batches"] > 3  # a stream, and not one big batch
    expected = sums_of_csv()
    names = ("flights", "departed", "delay", "departed_in_rain", "delay_in_rain", "without_weather")
    assert {route: [sums[name] for name in names] for route, sums in found["totals"].items()} == expected
    assert sum(sums[0] for sums in expected.values()) == FLIGHTS
    assert sum(sums[5] for sums in expected.values()) == 1_556
