"""`spark-submit` to a real cluster: its settings override the defaults of a session."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import oz

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import pyarrow.parquet as pq
from pyspark.find_spark_home import _find_spark_home

from oz.journal import Writer
from oz.spark.session import java_home
from support.waiting import until

SUBMIT = Path(_find_spark_home()) / "bin" / "spark-submit"
PROGRAM = """
import sys
import oz.spark

spark = oz.spark.session(**{"spark.sql.shuffle.partitions": 3})
rows = spark.read.format("oz").option("journal", sys.argv[1]).load().repartition(4)
count = rows.filter(oz.spark.matches("subject", r"regex:a\\.1\\b")).count()
conf = spark.sparkContext.getConf()
named = [conf.get(f"spark.{name}") for name in ("master", "app.name", "executor.memory", "ui.enabled")]
print("found", count, *named, spark.conf.get("spark.sql.shuffle.partitions"))
spark.stop()
"""


@pytest.fixture
def journal(tmp_path):
    with Writer(tmp_path / "journal") as writer:
        writer.append([(f"a.{number % 10}", b"") for number in range(1_000)])
    return tmp_path / "journal"


def submit(tmp_path, master, *arguments):
    """Run spark-submit, and return its output."""
    settings = ["--conf", "spark.ui.enabled=false", "--conf", "spark.executor.memory=600m"]
    home = {"JAVA_HOME": home} if (home := java_home()) else {}
    command = [SUBMIT, "--master", master, "--name", tmp_path.name, *settings, *arguments]
    return run(tmp_path, command, PYSPARK_PYTHON=sys.executable, **home)


def run(tmp_path, command, **environment):
    """Run a driver to its end, and return its output."""
    whole = {
        **os.environ,
        "PYTHONPATH": str(Path(oz.__file__).parents[1]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(tmp_path),
        **environment,
    }
    ran = subprocess.run(
        list(map(str, command)), env=whole, capture_output=True, text=True, timeout=1_000, check=False
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return ran.stdout


def ending_of(name, standalone):
    """Return the final state of an application, once the master has it."""

    def ended():
        with urllib.request.urlopen(f"{standalone.page}/json/", timeout=60) as answer:
            return {app["name"]: app["state"] for app in json.load(answer)["completedapps"]}.get(name)

    return until(ended, 60)


@pytest.mark.heavy
def test_a_submitted_program_keeps_what_spark_submit_says(standalone, journal, tmp_path):
    (tmp_path / "nightly.py").write_text(PROGRAM)
    said = submit(tmp_path, standalone.url, tmp_path / "nightly.py", journal)
    assert f"found 100 {standalone.url} {tmp_path.name} 600m false 3\n" in said
    assert ending_of(tmp_path.name, standalone) == "FINISHED"


@pytest.mark.heavy
def test_the_command_can_be_submitted(standalone, journal, tmp_path):
    command = tmp_path / "oz_command.py"
    command.write_text("from oz.cli import main\n\nmain(prog_name='oz')\n")
    archive = tmp_path / "archive"
    submit(tmp_path, standalone.url, command, "spark", "archive", journal, archive)
    assert sum(pq.ParquetFile(path).metadata.num_rows for path in archive.rglob("*.parquet")) == 1_000
    assert ending_of(tmp_path.name, standalone) == "FINISHED"  # it ran there, and not in local[2]
