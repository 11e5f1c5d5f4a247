"""Names in oz are made of the words of docs/glossary.md, and of none that it says were given up."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LISTS = re.findall(
    r"```text\n(.*?)```", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.DOTALL
)
WORDS, NAMES = (set(one.split()) for one in LISTS)
FORMS = WORDS | {f"{word}s" for word in WORDS}
ELSEWHERE = ("oz/spark/", "oz/journal/", "oz/subjects/", "oz/demo/")
"""Where the exact names mean something else."""

MODULES = sorted((ROOT / "oz").rglob("*.py"))


def words_of(name: str) -> set[str]:
    """The words of a name in snake or camel case."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)}


def names_in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def test_the_glossary_lists_what_is_refused():
    assert {"herald", "lane", "intake"} <= WORDS
    assert {"keep", "max_waiting"} <= NAMES


@pytest.mark.parametrize("name", ["_lanes", "HeraldIndex", "MulticastIntake", "near_origin", "is_told"])
def test_a_word_is_found_within_a_name(name):
    assert words_of(name) & FORMS


@pytest.mark.documents
def test_no_name_has_a_word_that_was_given_up():
    found = []
    for path in MODULES:
        place = path.relative_to(ROOT).as_posix()
        names = [(1, path.stem), *names_in(ast.parse(path.read_text(encoding="utf-8")))]
        is_elsewhere = place.startswith(ELSEWHERE)
        found += [
            f"{place}:{line}: {name}"
            for line, name in names
            if words_of(name) & FORMS or (name in NAMES and not is_elsewhere)
        ]
    assert not found, f"docs/glossary.md says what to write instead:\n{chr(10).join(found)}"
