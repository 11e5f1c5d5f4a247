"""Check sentences against the rules of CONTRIBUTING.md, for `tox -e lint`.

Usage: python tools/plain.py              compare each directory with its budget
       python tools/plain.py --lower      write smaller counts into the budget
       python tools/plain.py --list PATH  print the faults of files and directories

It reads pages, and the docstrings and comments of Python. The table [tool.plain] of pyproject.toml is the budget: the
number of faults that each directory may have. A budget only falls. The rules find habits by their words, so that a
sentence without a fault may still be hard to read.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
BUDGET = ROOT / "pyproject.toml"

MAX_WORDS = 30
MIN_WORDS = 4
"""Shorter texts are headings, labels or code."""

_ACT = (
    "is|are|was|were|has|have|had|can|cannot|may|must|do|does|did|comes?|goes|gets?|gives?|asks?|waits?|wants?|needs?|"
    "knows?|holds?|reads?|sends?|makes?|uses?|says?|finds?"
)

RULES = {
    "a clause in place of a noun": re.compile(
        r"(?:^|[;:,(] ?|\b(?:of|by|to|for|from|with|than|as|in|on|about|and|or|is|are|gives?|takes?|tells?|says?) )"
        rf"(?:what|whatever|who|whom|whoever)(?: \w+){{0,2}} (?:{_ACT}|it|they|there|the|a|an|this|that|its)\b",
        re.IGNORECASE,
    ),
    "a person in place of a part": re.compile(
        r"\b(?:some|no|any|every)body\b|\b(?:someone|anyone|everyone|whoever)\b|\b(?:those|they|he) who\b",
        re.IGNORECASE,
    ),
    "a pronoun without its noun": re.compile(
        r"\b(?:one|ones|those|others|all) (?:that|which|whose|who|of which)\b|\ball else\b|"
        r"(?<!are )(?<!as )(?<!beside )\bthose of\b|\bthe rest\b(?! of)|\bthe same (?:for|of|with|there|here)\b",
        re.IGNORECASE,
    ),
    "a phrase with a private meaning": re.compile(
        r"\bown(?:s|ed)? up\b|\bmak(?:e|es|ing) room\b|\blooks? again\b|\bnow and then\b|\bin vain\b|\bgo(?:es)? by\b|"
        r"\b(?:is|are) (?:there )?to be \w+|"
        r"\b(?:have|has|had|having) (?:it|its|them|their \w+|the \w+) \w+(?:ed|en|wn)\b",
        re.IGNORECASE,
    ),
    "a quantity without a noun": re.compile(
        r"\b(?:so|as) (?:many|much)\b(?! (?:as|that)\b)(?! \w+ as\b)", re.IGNORECASE
    ),
}

_WEAK_VERBS = re.compile(r"(?:Say|Tell|Give|Take|Have|See|Let|Look)\b")
_ITEM = re.compile(r"\s*- |\s{4,}[\w`*][\w`*., ]*: ")
_COLUMNS = re.compile(r"\S {2,}\S|[=├└│-]{3,}")
_CODE = re.compile(r"``?[^`]+``?")


class Sentence(NamedTuple):
    """Sentence and its place.

    Attributes:
        line: at which its paragraph begins.
        text: with `CODE` in place of code.
        is_summary: whether it is the first line of a function.
    """

    line: int
    text: str
    is_summary: bool = False


def faults_of(sentence: Sentence) -> list[str]:
    """Return the names of the rules that a sentence violates."""
    found = [name for name, rule in RULES.items() if rule.search(sentence.text)]
    if len(sentence.text.split()) > MAX_WORDS:
        found.append(f"more than {MAX_WORDS} words")
    if sentence.is_summary and _WEAK_VERBS.match(sentence.text):
        found.append("a summary without the verb of its effect")
    return found


def sentences_of_text(text: str, line: int, *, is_summary: bool = False) -> Iterator[Sentence]:
    """Split a paragraph into sentences."""
    plain = " ".join(_CODE.sub("CODE", text).split())
    for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z*])", plain):
        if len(re.findall(r"[A-Za-z]{2,}", sentence)) >= MIN_WORDS:
            yield Sentence(line, sentence, is_summary)
        is_summary = False


def sentences_of_python(source: str) -> Iterator[Sentence]:
    """Return the sentences of docstrings, attribute docs and comments."""
    for node in ast.walk(ast.parse(source)):
        for text, line in _strings_of(node):
            is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            yield from _sentences_of_docstring(text, line, is_function=is_function)
    yield from _sentences_of_comments(source)


def _strings_of(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Return the texts of a body that are statements."""
    if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return
    for statement in node.body:
        match statement:
            case ast.Expr(ast.Constant(str(text))):
                yield text, statement.lineno


def _sentences_of_docstring(text: str, line: int, *, is_function: bool) -> Iterator[Sentence]:
    """Split a docstring at blank lines, and its lists of arguments, errors and attributes at each name."""
    paragraph: list[str] = []
    start = line
    for number, row in enumerate([*text.splitlines(), ""], line):
        is_item = _ITEM.match(row) is not None
        is_empty = not row.strip() or _COLUMNS.search(row) is not None
        if paragraph and (is_empty or is_item):
            yield from sentences_of_text(" ".join(paragraph), start, is_summary=is_function and start == line)
            paragraph = []
        if not is_empty:
            start = start if paragraph else number
            paragraph.append(_ITEM.sub("", row, count=1) if is_item else row)


def _sentences_of_comments(source: str) -> Iterator[Sentence]:
    """Join comments of adjacent lines."""
    block: list[str] = []
    start = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or re.match(r"#\s*(?:fmt:|type:|noqa|pragma)", token.string):
            continue
        if token.start[0] != last + 1 or token.line.strip() != token.string:
            yield from sentences_of_text(" ".join(block), start)
            block, start = [], token.start[0]
        block.append(token.string.lstrip("#! "))
        last = token.start[0]
    yield from sentences_of_text(" ".join(block), start)


def sentences_of_markdown(text: str) -> Iterator[Sentence]:
    """Return the sentences of a page without its code, tables and headings."""
    paragraph: list[str] = []
    start, fence, is_comment = 1, "", False
    for number, row in enumerate([*text.splitlines(), ""], 1):
        mark = re.match(r"\s*(`{3,}|~{3,})", row)
        if mark is not None and (not fence or row.strip().startswith(fence)):
            fence = "" if fence else mark[1]
            row = ""
        is_comment = is_comment or "<!--" in row
        is_skipped = bool(fence) or is_comment or re.match(r"\s*(?:\||#|<|:::)", row) is not None
        is_comment = is_comment and "-->" not in row
        bullet = re.match(r"\s*(?:[-*+]|\d+\.) ", row)
        if paragraph and (is_skipped or bullet or not row.strip()):
            yield from sentences_of_text(_without_links(" ".join(paragraph)), start)
            paragraph = []
        if row.strip() and not is_skipped:
            start = start if paragraph else number
            paragraph.append(row[bullet.end() :] if bullet else row.lstrip("> "))


def _without_links(text: str) -> str:
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)


def files_of(top: Path) -> list[Path]:
    """Return the pages and the Python files of a directory; a file is its own list."""
    if top.is_file():
        return [top]
    found = (path for suffix in ("md", "py") for path in top.rglob(f"*.{suffix}"))
    return sorted(
        path
        for path in found
        if not any(part.startswith((".", "_build")) for part in path.parts[len(ROOT.parts) :])
    )


def check(top: Path) -> tuple[int, list[str]]:
    """Return the number of sentences in a directory or file, and a line for each fault."""
    count, faults = 0, []
    for path in files_of(top):
        read = sentences_of_python if path.suffix == ".py" else sentences_of_markdown
        for sentence in read(path.read_text(encoding="utf-8")):
            count += 1
            shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
            faults += [f"{shown}:{sentence.line}: {name}: {sentence.text}" for name in faults_of(sentence)]
    return count, faults


def compare(budget: dict[str, int], *, lower: bool) -> bool:
    """Print the count of each directory beside its budget; return whether all are within it."""
    is_within = True
    for name, allowed in budget.items():
        count, faults = check(ROOT / name)
        print(f"{name}: {len(faults)} faults in {count} sentences, {allowed} allowed")
        if len(faults) > allowed:
            is_within = False
            print(*faults, sep="\n")
        elif lower and len(faults) < allowed:
            text = BUDGET.read_text(encoding="utf-8")
            line = re.compile(rf'^("?{re.escape(name)}"? = ){allowed}$', re.MULTILINE)
            BUDGET.write_text(line.sub(rf"\g<1>{len(faults)}", text), encoding="utf-8")
    return is_within


def main() -> None:
    """Compare with the budget, or list faults."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lower", action="store_true", help="write smaller counts into the budget")
    parser.add_argument(
        "--list", nargs="+", type=Path, metavar="PATH", help="print the faults of these files and directories"
    )
    given = parser.parse_args()
    if given.list:
        for path in given.list:
            print(*check(path.resolve())[1], sep="\n")
        return
    budget = tomllib.loads(BUDGET.read_text(encoding="utf-8"))["tool"]["plain"]
    if not compare(budget, lower=given.lower):
        sys.exit("more faults than [tool.plain] of pyproject.toml allows; CONTRIBUTING.md has the rules")


if __name__ == "__main__":
    main()
