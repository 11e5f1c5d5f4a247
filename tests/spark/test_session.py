"""The session, and what stands in the way of one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import oz

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import oz.spark
from oz.spark.session import _is_local


def test_settings_of_the_session(spark):
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.sparkContext.uiWebUrl is None
    assert os.environ["PYSPARK_PYTHON"]
    assert oz.spark.session() is spark


def test_a_session_that_is_there_is_used_as_it_is(spark):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        assert oz.spark.session() is spark
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Kolkata"
        assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
        oz.spark.session(**{"spark.sql.session.timeZone": before})
        assert spark.conf.get("spark.sql.session.timeZone") == before
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def run(program, **environment):
    command = [sys.executable, "-W", "error", "-c", program]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=1_000, check=False, env={**os.environ, **environment}
    )


def test_oz_alone_loads_no_pyspark():
    loaded = "[name for name in ('pyspark', 'pyarrow', 'pandas') if name in sys.modules]"
    program = f"import sys, oz, oz.cli.demo, oz.demo.run; print({loaded})"
    assert run(program).stdout == "[]\n"


@pytest.mark.parametrize("module", ["pyspark", "pyarrow"])
def test_without_the_extra_the_import_says_what_to_install(module):
    program = f"import sys; sys.modules['{module}'] = None; import oz.spark"
    ended = run(program)
    said = f"oz.spark needs {module}, which is not installed; in a checkout: pip install '.[spark]'"
    assert ended.stderr.splitlines()[-1] == f"oz.errors.SparkMissing: {said}"
    assert issubclass(oz.SparkMissing, ImportError)


@pytest.fixture(scope="module")
def ended():
    """A program that has had three sessions, one after the other."""
    program = """
import oz.spark
name = "spark.sql.shuffle.partitions"
masters = {"local": {}, "local[3]": {}, "local[2]": {name: 7}}
for master, conf in masters.items():
    spark = oz.spark.session(master, **conf)
    print(spark.conf.get(name), *([spark.range(3).count()] if master == "local" else []))
    spark.stop()
"""
    return run(program, PYTHONPATH=str(Path(oz.__file__).parents[1]), SPARK_LOCAL_IP="127.0.0.1")


def test_a_new_session_shuffles_into_few_partitions_on_a_local_master(ended):
    assert ended.stdout.splitlines() == ["4 3", "12", "7"], ended.stderr


def test_only_a_local_master_gets_few_partitions():
    masters = [
        "local",
        "local[4]",
        "local[*]",
        "local[2,3]",
        "local-cluster[2,1,1024]",
        "spark://hub:7077",
        "yarn",
    ]
    assert [one for one in masters if _is_local(one)] == masters[:4]


def test_a_session_says_nothing_but_what_java_insists_on(ended):
    assert ended.returncode == 0
    javas = ("incubator modules", "JDK_JAVA_OPTIONS")  # the latter where tox says how Java is to run
    said = [line for line in ended.stderr.splitlines() if not any(one in line for one in javas)]
    assert said == []
