"""`spark-submit`: its settings override the defaults of a session."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import oz

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import pyarrow.parquet as pq
from pyspark.find_spark_home import _find_spark_home

from oz.journal import Writer
from oz.spark.session import java_home

CLUSTER = "local-cluster[2,1,1024]"
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
COMMAND = """
from pyspark import SparkContext

from oz.cli import main

stop = SparkContext.stop
SparkContext.stop = lambda context: (print("ran on", context.master), stop(context))
main(prog_name="oz")
"""


@pytest.fixture
def journal(tmp_path):
    with Writer(tmp_path / "journal") as writer:
        writer.append([(f"a.{number % 10}", b"") for number in range(1_000)])
    return tmp_path / "journal"


def submit(tmp_path, master, *arguments):
    """Run spark-submit, and return its output."""
    settings = ["--conf", "spark.ui.enabled=false", "--conf", "spark.executor.memory=600m"]
    command = [SUBMIT, "--master", master, "--name", tmp_path.name, *settings, *arguments]
    environment = {
        **os.environ,
        **({"JAVA_HOME": home} if (home := java_home()) else {}),
        "PYTHONPATH": str(Path(oz.__file__).parents[1]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(tmp_path),
        "PYSPARK_PYTHON": sys.executable,
    }
    ran = subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, timeout=1_000, check=False
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return ran.stdout


@pytest.mark.heavy
def test_a_submitted_program_keeps_what_spark_submit_says(journal, tmp_path):
    (tmp_path / "nightly.py").write_text(PROGRAM)
    said = submit(tmp_path, CLUSTER, tmp_path / "nightly.py", journal)
    assert f"found 100 {CLUSTER} {tmp_path.name} 600m false 3\n" in said


@pytest.mark.heavy
def test_the_command_can_be_submitted(journal, tmp_path):
    command = tmp_path / "oz_command.py"
    command.write_text(COMMAND)
    archive = tmp_path / "archive"
    said = submit(tmp_path, CLUSTER, command, "spark", "archive", journal, archive)
    assert sum(pq.ParquetFile(path).metadata.num_rows for path in archive.rglob("*.parquet")) == 1_000
    assert f"ran on {CLUSTER}\n" in said
