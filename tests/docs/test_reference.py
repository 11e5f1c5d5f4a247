"""The page docs/reference.md has each public name, and no other."""

import ast
import importlib
import re
from pathlib import Path

import pytest

import oz.errors

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference.md"
MODULES = ("oz", "oz.asyncio", "oz.testing", "oz.journal", "oz.spark", "oz.services")
OTHERS = {
    "oz.compile",
    "oz.configuration.Configuration",
    "oz.configuration.resolve",
    "oz.metrics.Collector",
    "oz.metrics.Server",
    "oz.tracing.instrument",
    "oz.tracing.process",
    "oz.tracing.uninstrument",
}
"""Public names outside of `__all__`: `compile` hides a builtin, and programs need only a part of `oz.configuration`."""

DIRECTIVE = re.compile(r"^\.\. (?:auto\w+|py:\w+|(currentmodule)):: ([\w.]+)", re.MULTILINE)


def public():
    """Return the qualified names of `__all__` in each module, and `OTHERS`."""
    found = set(OTHERS)
    for module in MODULES:
        tree = ast.parse((ROOT.joinpath(*module.split(".")) / "__init__.py").read_text("utf-8"))
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                found |= {f"{module}.{name}" for name in ast.literal_eval(node.value)}
    return found


def is_public(name, member):
    """Return whether `automodule:: oz.errors` documents a member."""
    return isinstance(member, type) and member.__module__ == "oz.errors" and not name.startswith("_")


def documented():
    """Return the qualified names of the directives of the page."""
    found, module = set(), "oz"
    for kind, name in DIRECTIVE.findall(PAGE.read_text("utf-8")):
        if kind:
            module = name
        elif name == "oz.errors":
            found |= {f"oz.errors.{name}" for name, kind in vars(oz.errors).items() if is_public(name, kind)}
        elif name not in MODULES:
            found.add(name if name.startswith("oz.") else f"{module}.{name}")
    return found


def origin(name):
    """Return the name under which a class or function is defined, because several modules may export it."""
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ImportError:  # the extra of the module is missing
        return f"oz.errors.{attribute}" if hasattr(oz.errors, attribute) else name
    return f"{found.__module__}.{attribute}" if hasattr(found, "__module__") else name


@pytest.mark.documents
def test_page_has_each_public_name_and_no_other():
    names = {origin(name): name for name in public()}
    found = {origin(name): name for name in documented()}
    assert {name for key, name in names.items() if key not in found} == set()
    assert {name for key, name in found.items() if key not in names} == set()
