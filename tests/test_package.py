"""The package: its version, and the names of `from oz import *`."""

import configparser
import pickle
import subprocess
import sys
from importlib import metadata
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

import pytest

import oz
from oz import doctor
from oz.version import VERSION, check_package, warn_of_other

ROOT = Path(__file__).parents[1]


def test_the_version_is_in_one_place():
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    assert settings["metadata"]["version"] == "attr: oz.version.VERSION"
    assert oz.__version__ == VERSION


def test_a_checkout_that_is_not_installed_knows_its_version():
    code = (
        "import importlib.metadata as m; m.distributions = m.version = None; import oz; print(oz.__version__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True, timeout=60
    )
    assert done.stdout.strip() == VERSION


def test_a_star_import_keeps_asyncio_and_compile_of_python():
    names: dict[str, object] = {}
    exec("import asyncio\nfrom oz import *", names)
    assert names["asyncio"].__name__ == "asyncio"
    assert "compile" not in names
    assert names["Subscriber"] is oz.Subscriber
    assert oz.compile("a.*").matches("a.b")
    assert oz.asyncio.Subscriber is not oz.Subscriber


@pytest.mark.parametrize("part", ["journal", "services", "spark", "testing"])
def test_a_part_that_was_not_imported_raises_an_error_with_the_import(part):
    said = python(f"import oz; oz.{part}", fails=True).stderr
    assert f"module 'oz' has no attribute '{part}' until it is imported: import oz.{part}" in said


def test_an_unknown_name_is_a_plain_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'oz' has no attribute 'Publishr'$"):
        oz.Publishr  # noqa: B018


def python(code, *, fails=False, cwd=ROOT):
    """Run a program in the checkout."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, check=False, timeout=60
    )
    assert (done.returncode != 0) is fails, done.stderr
    return done


# --- PyPI's other `oz` --------------------------------------------------------------------------------------


def test_the_other_package_oz_is_refused_by_the_first_module_of_ozmq(tmp_path):
    there = tmp_path / "oz"
    there.mkdir()
    # The state after `pip install oz`: its `__init__`, and the other files of ozmq.
    (there / "__init__.py").write_text(f"def uimodule(): ...\n__path__.append({str(ROOT / 'oz')!r})\n")
    said = python("import oz.cli", fails=True, cwd=tmp_path).stderr
    assert "ImportError: the package `oz` of PyPI has overwritten files of ozmq: python -m pip" in said


def test_a_package_whose_init_was_uninstalled_with_the_other_is_refused():
    spec = ModuleSpec("oz", None, is_package=True)
    with pytest.raises(ImportError, match=r"oz/__init__\.py is missing"):
        check_package(module_from_spec(spec))


def test_this_package_passes_the_check():
    check_package(oz)
    check_package(None)
    warn_of_other(oz.__path__[0])
    check_package(ModuleType("oz"))


def test_files_of_the_other_package_beside_ours_are_warned_of(tmp_path):
    (tmp_path / "aws_cdn").mkdir()
    with pytest.warns(RuntimeWarning, match=r"of PyPI is installed in .*pip uninstall -y oz ozmq"):
        warn_of_other(str(tmp_path))


def test_the_doctor_finds_the_other_package(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: {"oz": "1.2.0", "ozmq": VERSION}[name])
    found = doctor._oz()
    assert (found.state, found.value) == ("broken", VERSION)
    assert found.add.endswith("-m pip uninstall -y oz ozmq, and then install ozmq again")


# --- systems that are not POSIX -----------------------------------------------------------------------------

ELSEWHERE = """
import asyncio, importlib, pkgutil, sys, tempfile
sys.path.insert(0, "tests")
from support import elsewhere
elsewhere.hide()
import oz
from oz.journal import Writer
from oz.multicast.endpoints import parse

def refused(work, kind):
    try:
        work()
    except kind as error:
        print(error)

for module in pkgutil.walk_packages(oz.__path__, "oz."):
    if not module.name.startswith(("oz.spark", "oz.explorer", "oz.__main__")):
        importlib.import_module(module.name)

for filtering in ("prefix", "publisher"):
    with oz.Publisher("tcp://127.0.0.1:*") as pub, oz.Subscriber(pub.endpoint, filtering=filtering) as sub:
        sub.subscribe("a.*")
        pub.wait_for_subscribers(timeout=40)
        pub.publish("a.b", b"x")
        assert sub.receive(timeout=40).payload == b"x"

async def main():
    async with oz.asyncio.Publisher("tcp://127.0.0.1:*") as pub, oz.asyncio.Subscriber(pub.endpoint) as sub:
        sub.subscribe("a.*")
        await pub.wait_for_subscribers(timeout=40)
        await pub.publish("a.b", b"x")
        assert (await sub.receive(timeout=40)).payload == b"x"

asyncio.run(main())
with oz.Node("x", bind="tcp://127.0.0.1:*") as x, oz.Node("y", connect=[x.endpoint]) as y:
    received = x.subscribe("q")
    y.wait_ready("x", timeout=40)
    for _ in range(200):
        y.publish("q", 1)
        try:
            assert received.receive(timeout=0.2).payload == 1
            break
        except oz.Timeout:
            continue
    else:
        sys.exit("nothing came")

refused(lambda: Writer(tempfile.mkdtemp()), oz.JournalError)
refused(oz.Node, oz.ConfigurationError)
refused(lambda: parse("epgm://lo;239.192.1.1:5555"), oz.EndpointError)
"""


def test_oz_works_without_posix_and_names_the_missing_features(tmp_path):
    said = python(f"import tempfile; tempfile.tempdir = {str(tmp_path)!r}" + ELSEWHERE).stdout.splitlines()
    assert len(said) == 3
    assert said[0].endswith("this operating system has no flock, which a writer needs")
    assert "has no Unix sockets; give the node connect= or bind=" in said[1]
    assert "multicast needs Linux" in said[2]


def test_the_manifest_has_all_files_beside_the_package():
    told = (ROOT / "MANIFEST.in").read_text()
    grafted = {line.split()[1] for line in told.splitlines() if line.startswith("graft")}
    assert grafted >= {"tests", "docs", "examples", "benchmarks", "tools"}
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "README.md", "tox.ini", "setup.cfg"):
        assert name in told


def test_a_missing_module_of_an_extra_is_named_with_the_extra():
    program = "import sys, pickle; sys.modules['pyarrow'] = None; import oz, oz.journal"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.stderr.splitlines()[-1] == (
        "oz.errors.MissingDependency: oz.journal needs pyarrow, which is not installed; "
        "in a checkout: pip install '.[journal]'"
    )
    error = oz.MissingDependency("no pyspark", name="pyspark")
    assert isinstance(error, ImportError)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.name) == (str(error), "pyspark")
