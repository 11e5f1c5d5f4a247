"""The names that docstrings and comments of oz cite in backticks, as in `module.NAME`, exist."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import zmq

ROOT = Path(__file__).parents[2]
TEXTS = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "oz").rglob("*.py"))}
CITED = re.compile(r"`([A-Za-z_]\w*)\.([A-Za-z_][\w.]*)`")


def names_in(tree: ast.AST) -> Iterator[str]:
    """The names that some code defines, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.asname or node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value  # in `__slots__`, and names that are made at run time


class Names:
    """All names of oz: of its modules, by the last part of their names, and of its classes."""

    def __init__(self) -> None:
        self.modules: dict[str, set[str]] = defaultdict(set)
        self.members: dict[str, set[str]] = defaultdict(set)
        self.bases: dict[str, set[str]] = defaultdict(set)
        for path, text in TEXTS.items():
            tree = ast.parse(text)
            self.modules[path.parent.name if path.stem == "__init__" else path.stem] |= set(names_in(tree))
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    self.members[node.name] |= set(names_in(node))
                    self.bases[node.name] |= {ast.unparse(one).split("[")[0] for one in node.bases}

    def of_class(self, name: str) -> tuple[set[str], bool]:
        """The names of a class and its bases, and whether some of these are not of oz."""
        found: set[str] = set()
        seen, left, is_foreign = set(), [name], False
        while left:
            one = left.pop().rpartition(".")[2]
            if one in seen:
                continue
            seen.add(one)
            is_foreign |= one not in self.members
            found |= self.members.get(one, set())
            left += self.bases.get(one, ())
        return found, is_foreign

    def has(self, head: str, rest: str) -> bool:
        """Tell whether a cited name exists, as far as one can tell: what begins with a variable does."""
        first = rest.split(".")[0]
        if head == "oz":
            return self._has_path(rest.split("."))
        if head in self.members:
            names, is_foreign = self.of_class(head)
            if first in names or is_foreign:
                return True
        if head[:1].isupper():
            return hasattr(getattr(zmq, head, None), first)
        # Of a module a constant or class is cited; what is in lower case may be an attribute of anything.
        if not first[:1].isupper() or first in self.modules.get(head, ()):
            return True
        return find_spec(head) is not None and hasattr(import_module(head), first)

    def _has_path(self, parts: list[str]) -> bool:
        """Tell whether there is such a module or package of oz, or such a name in one."""
        place = ROOT / "oz"
        while parts and (place / parts[0]).is_dir():
            place /= parts.pop(0)
        if parts and (place / f"{parts[0]}.py").exists():
            place /= f"{parts.pop(0)}.py"
        return not parts or parts[0] in self.modules[place.stem]


@cache
def names() -> Names:
    """Give all names; each process of the tests imports this module, and one runs its tests."""
    return Names()


def stale(text: str) -> list[str]:
    return [cited[0] for cited in CITED.finditer(text) if not names().has(cited[1], cited[2])]


@pytest.mark.documents
def test_a_name_that_does_not_exist_is_found():
    text = "`batching.STEP`, `packing.STEP`, `Batches.send`, `Batches.post`, `oz.wire.gone`, `oz.wire.batch`"
    assert stale(text) == ["`packing.STEP`", "`Batches.post`", "`oz.wire.gone`"]


@pytest.mark.documents
def test_all_names_that_are_cited_exist():
    found = {
        f"{path.relative_to(ROOT)}:{number}": cited
        for path, text in TEXTS.items()
        for number, line in enumerate(text.splitlines(), 1)
        if (cited := stale(line))
    }
    assert not found, f"names that are gone: {found}"
