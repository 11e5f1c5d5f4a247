"""The session, and what stands in the way of one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import oz

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import oz.spark
from oz.spark.session import require_java


def fake_java(directory, version):
    program = directory / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{version}\n")
    program.chmod(0o755)
    return str(directory)


def says(version):
    return f"echo 'openjdk version \"{version}\" 2020-01-01' >&2"


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.1+12", "25-ea"])
def test_a_java_that_is_new_enough(monkeypatch, tmp_path, version):
    monkeypatch.setenv("JAVA_HOME", fake_java(tmp_path, says(version)))
    require_java()


@pytest.mark.parametrize(
    ("version", "found"),
    [
        (says("1.8.0_392"), "is Java 8:"),
        (says("11.0.2"), "is Java 11:"),
        ("exit 1", "of an unknown version:"),
    ],
)
def test_a_java_that_is_too_old(monkeypatch, tmp_path, version, found):
    monkeypatch.setenv("JAVA_HOME", fake_java(tmp_path, version))
    with pytest.raises(oz.JavaMissing, match=f"{found} Spark needs Java 17 or newer") as caught:
        oz.spark.session()
    assert "apt-get install openjdk-17-jre-headless" in str(caught.value)


def test_no_java_at_all(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(oz.JavaMissing, match="no java in PATH: Spark needs Java 17 or newer; install one"):
        oz.spark.session()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(oz.JavaMissing, match=r"no java in JAVA_HOME=.*gone"):
        oz.spark.session()


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
