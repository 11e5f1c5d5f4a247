"""The package as a whole: its version, and what a star brings."""

import configparser
import subprocess
import sys
from pathlib import Path

import oz
from oz.version import VERSION

ROOT = Path(__file__).parents[1]


def test_the_version_stands_in_one_place():
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


def test_a_star_leaves_what_python_calls_asyncio_and_compile_alone():
    names: dict[str, object] = {}
    exec("import asyncio\nfrom oz import *", names)
    assert names["asyncio"].__name__ == "asyncio"
    assert "compile" not in names
    assert names["Subscriber"] is oz.Subscriber
    assert oz.compile("a.*").matches("a.b")
    assert oz.asyncio.Subscriber is not oz.Subscriber
