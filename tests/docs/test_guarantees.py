"""The page docs/guarantees.md lists each promise with its test file and the variants it excludes."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guarantees.md"


def _promises():
    """Return the file, sentence and excluded variants of each promise."""
    for path in sorted((ROOT / "tests" / "contract").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "promise":
                options = {one.arg: ast.literal_eval(one.value) for one in node.keywords}
                name = path.relative_to(ROOT).as_posix()
                yield name, ast.literal_eval(node.args[0]), options.get("not_for", {})


@pytest.mark.documents
def test_page_lists_each_promise_with_its_file_and_exclusions():
    lines = PAGE.read_text().splitlines()
    promises = list(_promises())
    missing = [
        (name, sentence, excluded)
        for name, sentence, excluded in promises
        if not any(
            sentence in line and name in line and all(one in line for one in excluded) for line in lines
        )
    ]
    assert not missing
    assert sum("tests/contract/" in line for line in lines if line.startswith("|")) == len(promises)
