"""`oz demo --spark`: Spark counts what the sockets delivered."""

import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from oz import compile as compile_pattern
from oz.demo import run as demo


def oz(*arguments, before=""):
    program = f"import sys\n{before}\nfrom oz.cli import main; main(prog_name='oz')"
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=1_000, check=False)


DELIVERED = 1159, 9161, 759, 933, 290


@pytest.mark.usefixtures("spark")
def test_spark_counts_what_the_patterns_match():
    expected = demo.count_matches([compile_pattern(spec) for spec in demo.SPECS])
    assert demo.count_in_spark(demo.SPECS) == expected == list(DELIVERED)


def counting(*counts):
    """Return code that replaces the sockets and the Spark job of the demo by fixed counts."""
    return f"""
import oz.demo.run as demo
results = [demo.PatternResult("p", "nats", ("p",), n, n, n, rate=1.0) for n in {DELIVERED}]
demo.run = lambda **_: results
demo.count_in_spark = lambda specs: {list(counts)}
"""


def test_the_table_has_one_column_more():
    ended = oz("demo", "--spark", before=counting(*DELIVERED))
    assert ended.returncode == 0, ended.stderr
    heading, *rows = ended.stdout.splitlines()
    assert heading.split("  ")[-1] == "spark"
    delivered = heading.index("delivered")
    assert [row.split()[-1] for row in rows] == [row[delivered:].split()[0] for row in rows]


def test_a_difference_is_a_failure():
    ended = oz("demo", "--spark", before=counting(*DELIVERED[:-1], 291))
    assert ended.returncode == 1
    assert ended.stderr.startswith("oz demo: Spark and oz count different numbers of matches of ")
