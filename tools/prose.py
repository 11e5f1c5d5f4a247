"""Check the first lines of docstrings, --help and error texts by the rules of docs/styles, which are Vale's.

Usage: python tools/prose.py [--write DIRECTORY] [PATH…]     in a checkout with oz installed

It reads the rules itself: the package of Vale brings no binary but downloads one, which CI cannot. With
`--write` the texts are written to files, for a Vale that is there: `vale DIRECTORY`.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import yaml

ROOT = Path(__file__).parents[1]
STYLES = ROOT / "docs" / "styles" / "Oz"
DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
SENTENCE_END = re.compile(r"(?<=[.!?:]) +(?=[A-Z`\"-])")


class Text(NamedTuple):
    """A text, and where it is."""

    kind: str
    place: str
    text: str


def docstrings(path: Path, tree: ast.Module) -> Iterator[Text]:
    """Find the first lines of docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, DEFINITIONS) and (docstring := ast.get_docstring(node)):
            yield Text("docstrings", f"{path}:{getattr(node, 'lineno', 1)}", docstring.split("\n")[0])


def errors(path: Path, tree: ast.Module) -> Iterator[Text]:
    """Find the texts of errors, with VALUE for what is filled in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for argument in node.exc.args:
                if text := literal(argument):
                    yield Text("errors", f"{path}:{node.lineno}", text)


def literal(node: ast.expr) -> str:
    """Return a text as it stands in the code, or nothing."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(literal(part) or "VALUE" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return literal(node.left) + literal(node.right)
    return ""


def help_texts(command: click.Command, name: str) -> Iterator[Text]:
    """Walk a command, and all below it."""
    for text in (command.short_help, *(command.help or "").split("\n\n")):
        if text and not text.startswith("\b"):
            yield Text("help", name, " ".join(text.split()))
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.help:
            yield Text("help", f"{name} {parameter.opts[0]}", " ".join(parameter.help.split()))
    if isinstance(command, click.Group):
        context = click.Context(command)
        for below in command.list_commands(context):
            if (found := command.get_command(context, below)) is not None:
                yield from help_texts(found, f"{name} {below}")


def texts() -> Iterator[Text]:
    """Find all texts."""
    for path in sorted((ROOT / "oz").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield from docstrings(path.relative_to(ROOT), tree)
        yield from errors(path.relative_to(ROOT), tree)
    from oz.cli import main

    yield from help_texts(main, "oz")


class Rule:
    """One file of docs/styles, of the kinds existence, substitution and occurrence."""

    def __init__(self, path: Path) -> None:
        """Read it."""
        rule: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        self.name, self.message = f"Oz.{path.stem}", rule["message"]
        flags = re.IGNORECASE if rule.get("ignorecase") else 0
        around = "{}" if rule.get("nonword") else r"\b(?:{})\b"
        kind = rule["extends"]
        self.max = rule["max"] if kind == "occurrence" else None
        tokens = rule.get("tokens") or [rule.get("token")]
        swap = rule["swap"] if kind == "substitution" else dict.fromkeys(tokens)
        pattern = "{}" if kind == "occurrence" else around
        self.patterns = [(re.compile(pattern.format(one), flags), better) for one, better in swap.items()]

    def check(self, text: str) -> Iterator[str]:
        """Say what is wrong with a text."""
        if self.max is not None:
            pattern = self.patterns[0][0]
            if any(len(pattern.findall(one)) > self.max for one in SENTENCE_END.split(text)):
                yield self.message
            return
        for pattern, better in self.patterns:
            for match in pattern.finditer(text):
                said = [match.group().strip()] if better is None else [better.strip(), match.group().strip()]
                yield re.sub("%s", lambda _, said=said: said.pop(0), self.message)


def write(directory: Path) -> None:
    """Write the texts for Vale."""
    directory.mkdir(parents=True, exist_ok=True)
    found = list(texts())
    for kind in sorted({one.kind for one in found}):
        lines = [one.text for one in found if one.kind == kind]
        (directory / f"{kind}.txt").write_text("\n\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", metavar="DIRECTORY", type=Path, help="write the texts, check nothing")
    parser.add_argument("paths", metavar="PATH", nargs="*", help="only texts whose place begins so")
    options = parser.parse_args()
    if options.write:
        write(options.write)
        return 0
    rules, wrong = [Rule(path) for path in sorted(STYLES.glob("*.yml"))], 0
    for one in texts():
        if options.paths and not one.place.startswith(tuple(options.paths)):
            continue
        for rule in rules:
            for message in rule.check(one.text):
                wrong += 1
                print(f"{one.place}: {rule.name}: {message}\n    {one.text}")
    print(f"{wrong} errors", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
