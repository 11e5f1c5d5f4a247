"""What tools/release.py decides; `tox -e release` builds and runs what comes of it."""

import importlib.util
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def release():
    """The tool, as a module."""
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_release_of_python_that_the_metadata_names_gets_wheels_here_and_elsewhere(release):
    named = release.promised((ROOT / "setup.cfg").read_text(encoding="utf-8"))
    assert named[0] == "3.11"
    assert len(named) >= 3
    told = tomllib.loads((ROOT / ".ci" / "cibuildwheel.toml").read_text(encoding="utf-8"))["tool"][
        "cibuildwheel"
    ]
    assert told["build"] == [f"cp{name.replace('.', '')}-*" for name in named]


def test_linux_gets_a_wheel_for_each_c_library_and_other_systems_none(release):
    found = release.targets("Linux", "x86_64")
    assert [one.tag for one in found] == ["manylinux_2_17_x86_64", "musllinux_1_2_x86_64"]
    assert [one.tag for one in release.targets("Linux", "aarch64")] == [
        "manylinux_2_17_aarch64",
        "musllinux_1_2_aarch64",
    ]
    for system, machine in [("Linux", "riscv64"), ("Darwin", "arm64"), ("Windows", "AMD64")]:
        assert release.targets(system, machine) == []


def test_the_compiled_module_is_named_for_its_release_and_c_library_and_has_no_path_of_the_builder(release):
    for target in release.targets("Linux", "x86_64"):
        tools = release.tools_for("3.13", target, "/the/python")
        assert tools["SETUPTOOLS_EXT_SUFFIX"] == f".cpython-313-{target.suffix}.so"
        assert target.triple in tools["CC"]
        assert tools["LDSHARED"].startswith(tools["CC"] + " -shared")
        assert "rpath" not in tools["LDSHARED"]
        assert tools["OZ_COMPILED"] == "require"


def test_a_wheel_is_built_with_the_first_plain_cpython_of_a_release_that_has_headers(release):
    def python(path, implementation="CPython", version="3.12", flags="", has_headers=True):
        return release.Interpreter(implementation, version, flags, path, has_headers)

    found = [
        python("pypy", implementation="PyPy"),
        python("without headers", has_headers=False),
        python("debug", flags="d"),
        python("free-threaded", flags="t"),
        python("old", version="3.10"),
        python("this"),
        python("another"),
    ]
    assert release.chosen(found, ["3.11", "3.12"]) == {"3.12": python("this")}


def test_what_is_not_built_is_said(release):
    wheels = release.targets("Linux", "x86_64")
    said = release.left_out(["3.11", "3.12"], ["3.11"], wheels, "x86_64")
    assert [line.partition(":")[0] for line in said] == ["CPython 3.12", "Linux on aarch64", "macOS"]
    said = release.left_out(["3.11", "3.12"], [], [], "arm64")
    assert [line.partition(":")[0] for line in said] == ["Linux", "macOS"]


def test_the_suite_runs_with_the_wheel_of_its_python_or_with_the_one_for_all(release):
    names = ["ozmq-1-cp312-cp312-manylinux2014_x86_64.whl", "ozmq-1-cp312-cp312-musllinux_1_2_x86_64.whl"]
    names += ["ozmq-1-py3-none-any.whl", "ozmq-1.tar.gz"]
    assert release.wheel_for("3.12", names) == names[0]
    assert release.wheel_for("3.11", names) == "ozmq-1-py3-none-any.whl"


def test_this_python_is_among_those_that_are_found(release):
    [mine, *_] = release.interpreters([])
    assert (mine.path, mine.release) == (sys.executable, "{}.{}".format(*sys.version_info))
