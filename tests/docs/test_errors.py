"""The page docs/errors.md has an entry for each error, warning, gap reason and drop reason of the code."""

import ast
import re
from functools import cache
from pathlib import Path

import click
import pytest

from oz.cli import main
from oz.publisher.stats import REASONS
from support.cases import each

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "errors.md"
PUBLIC = ("oz", "oz.journal", "oz.services", "oz.spark", "oz.testing")
GAPS = {"Gap", "JournalGap", "Loss", "missing_gap"}
"""Classes and functions that create a gap from a reason."""


def entries(section):
    """Return the cells of each row in the table of a section, by the code in its first cell."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line[:3] == "| `"
    ]
    return {row[0].strip("`"): row[1:] for row in rows}


@cache
def sources():
    """Return the text of each module of oz."""
    return {path: path.read_text() for path in sorted((ROOT / "oz").rglob("*.py"))}


def name_of(node):
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def calls(pattern):
    """Return the calls in the modules with a text that matches, because to parse all modules takes seconds."""
    trees = [ast.parse(text) for text in sources().values() if re.search(pattern, text)]
    return [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]


def exported(module):
    """Return `__all__` of a module without an import, because `oz.spark` needs an extra."""
    tree = ast.parse(sources()[ROOT / module.replace(".", "/") / "__init__.py"])
    (names,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and name_of(node.targets[0]) == "__all__"
    )
    return ast.literal_eval(names)


def errors():
    """Return the names of all classes below OzError."""
    headers = re.findall(r"^class (\w+)\(([^)]*)\)", "\n".join(sources().values()), re.MULTILINE)
    bases = {name: set(re.findall(r"\w+", above)) for name, above in headers}
    found = {"OzError"}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found


def warned():
    """Return the names of the categories that oz passes to `warnings.warn`."""
    found = (call for call in calls(r"warnings\.warn\(") if ast.unparse(call.func) == "warnings.warn")
    arguments = (argument for call in found for argument in call.args[1:])
    return {name_of(argument) for argument in arguments if name_of(argument).endswith("Warning")}


def gap_reasons():
    """Return the texts of one lower-case word among the arguments of the calls that create a gap."""
    found = (call for call in calls(rf"\b({'|'.join(GAPS)})\(") if name_of(call.func) in GAPS)
    arguments = (
        argument for call in found for argument in [*call.args, *(keyword.value for keyword in call.keywords)]
    )
    texts = (
        argument.value
        for argument in arguments
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    )
    return {text for text in texts if re.fullmatch("[a-z]+", text)}


@pytest.mark.documents
def test_page_has_an_entry_with_cause_and_remedy_for_each_error_warning_gap_and_drop():
    classes = errors()
    public = {f"{module}.{name}" for module in PUBLIC for name in exported(module) if name in classes}
    listed = set(entries("Errors"))
    assert listed <= public
    # `oz.JournalError` is also `oz.journal.JournalError`.
    assert {name.rpartition(".")[2] for name in listed} == {name.rpartition(".")[2] for name in public}
    assert {name.rpartition(".")[2] for name in entries("Warnings")} == warned()
    assert {text.strip('"') for text in entries("Reasons of gaps")} == gap_reasons()
    assert {text.strip('"') for text in entries("Reasons of drops")} == set(REASONS)
    for section in ("Errors", "Warnings", "Reasons of gaps", "Reasons of drops"):
        found = entries(section)
        assert {name: cells for name, cells in found.items() if len(cells) != 2 or not all(cells)} == {}


@each("command", sorted({*re.findall(r"`oz ([a-z ]+)", PAGE.read_text())}))
def test_a_command_of_the_page_is_complete(command):
    found = main
    for name in command.split():
        found = found.get_command(click.Context(found), name)
    assert not isinstance(found, (click.Group, type(None)))
