"""The public API is what tests/api/public.txt says: a change of it is seen, and accepted on purpose."""

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("oz", "oz.asyncio", "oz.journal", "oz.services", "oz.spark", "oz.testing")


def documented():
    """Name all that docs/api.md has: its headings, and its table of errors."""
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    names = re.findall(r"^### `(oz\.[\w.]+)`$", page, re.MULTILINE)
    errors = re.findall(r"^\| `(oz\.\w+)` \|", page.partition("## Errors")[2], re.MULTILINE)
    assert names
    assert errors
    return {*names, *errors}


def is_at_the_top(name):
    package, _, rest = name.rpartition(".")
    if package == "oz.spark":  # its import needs PySpark, which most environments lack
        source = (ROOT / "oz" / "spark" / "__init__.py").read_text(encoding="utf-8")
        [listed] = re.findall(r"^__all__ = (\[.*?\])", source, re.DOTALL | re.MULTILINE)
        return rest in ast.literal_eval(listed)
    return package in PACKAGES and hasattr(importlib.import_module(package), rest)


def test_the_services_list_what_they_load_when_asked():
    services = importlib.import_module("oz.services")
    assert set(services.__all__) <= set(dir(services))
    assert {name for name in services.__all__ if hasattr(services, name)} == set(services.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Cheese'"):
        services.Cheese  # noqa: B018


@pytest.mark.documents
def test_the_public_api_is_what_the_snapshot_says():
    command = [sys.executable, "tools/api_snapshot.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=120)
    if done.returncode:
        pytest.fail(done.stderr, pytrace=False)


def test_a_changed_line_is_named_with_the_command_that_accepts_it(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    tool = importlib.import_module("api_snapshot")
    before = (ROOT / "tests" / "api" / "public.txt").read_text(encoding="utf-8")
    name = "oz.Publisher.flush: "
    other = before.replace(name, "oz.Publisher.flash: ")
    assert other != before
    monkeypatch.setattr(tool, "snapshot", lambda: before)
    monkeypatch.setattr(tool, "SNAPSHOT", tmp_path / "public.txt")
    tool.SNAPSHOT.write_text(other, encoding="utf-8")
    assert [line[:20] for line in tool.difference().splitlines()[2:]] == [
        "-oz.Publisher.flash:",
        "+oz.Publisher.flush:",
    ]
    monkeypatch.setattr(sys, "argv", ["api_snapshot.py", "--check"])
    with pytest.raises(SystemExit, match=r"python tools/api_snapshot\.py"):
        tool.main()


def test_what_the_page_of_the_api_names_is_importable_from_its_package():
    deeper = {name for name in documented() if not is_at_the_top(name)}
    assert deeper == set(), "docs/api.md names these deeper than in a public package"
