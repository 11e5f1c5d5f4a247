"""The page docs/guarantees.md lists each promise with its test file and the variants it excludes."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guarantees.md"


def _promises():
    """Return the file, sentence and excluded variants of each promise."""
    for path in sorted((ROOT / "tests" / "contract").rglob("test_*.py")):
        spec = importlib.util.spec_from_file_location(f"promises_of_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for test in vars(module).values():
            for mark in getattr(test, "pytestmark", ()):
                if mark.name == "promise":
                    yield path.relative_to(ROOT).as_posix(), mark.args[0], mark.kwargs["not_for"]


@pytest.mark.documents
def test_page_lists_each_promise_with_its_file_and_exclusions():
    lines = PAGE.read_text().splitlines()
    promises = list(_promises())
    missing = [
        (name, sentence, excluded)
        for name, sentence, excluded in promises
        if not any(
            sentence in line and name in line and all(item in line for item in excluded) for line in lines
        )
    ]
    assert not missing
    assert sum("tests/contract/" in line for line in lines if line.startswith("|")) == len(promises)
