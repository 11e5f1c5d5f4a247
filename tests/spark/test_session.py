"""The session, and what stands in the way of one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import oz

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import oz.spark


def test_settings_of_the_session(spark):
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.sparkContext.uiWebUrl is None
    assert os.environ["PYSPARK_PYTHON"]
    assert oz.spark.session() is spark


def run(program, **environment):
    command = [sys.executable, "-W", "error", "-c", program]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment}
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


@pytest.mark.timeout(120)
def test_a_session_says_nothing_but_what_java_insists_on():
    program = "import oz.spark; s = oz.spark.session('local[1]'); print(s.range(3).count()); s.stop()"
    ended = run(program, PYTHONPATH=str(Path(oz.__file__).parents[1]))
    assert (ended.returncode, ended.stdout) == (0, "3\n")
    said = [line for line in ended.stderr.splitlines() if "incubator modules" not in line]
    assert said == []
