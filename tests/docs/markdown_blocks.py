"""Fenced code blocks of the README and of `docs`, and their instructions for running them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHON = frozenset({"python", "pycon"})
SHELL = frozenset({"sh", "bash", "console"})
# Output and data. A block of any other language must say why it does not run.
DATA = frozenset({"text", "json", "ini", "toml", "yaml", "csv", "diff"})

_FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<marks>`{3,}|~{3,})(?P<info>[^`]*)")
_DIRECTIVE = re.compile(r"<!--\s*(?P<name>no-run|run|command)(?:\s*:\s*(?P<value>.*?))?\s*-->")


@dataclass(frozen=True)
class Block:
    """One code block; `line` is that of its first line of code, counted from 1."""

    path: Path
    line: int
    language: str
    text: str
    directive: str = ""
    value: str = ""

    @property
    def is_run(self) -> bool:
        """Whether a test, or the continuous integration (`command`), runs it."""
        if self.language in PYTHON:
            return self.directive != "no-run"
        return self.language in SHELL and self.directive in ("run", "command")

    @property
    def is_session(self) -> bool:
        """Whether it is an interactive session, to be run as a doctest."""
        return self.text.lstrip().startswith(">>>")

    @property
    def is_explained(self) -> bool:
        """Whether it is run, or need not be, or says why not."""
        return self.is_run or self.language in DATA or (self.directive == "no-run" and bool(self.value))

    def __str__(self) -> str:
        page = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        return f"{page}:{self.line} ({self.language or 'no language'})"


def pages() -> list[Path]:
    """The README and every page of `docs`."""
    readme = ROOT / "README.md"
    found = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in page.parts]
    return [readme, *found] if readme.exists() else found


def blocks(page: Path) -> list[Block]:
    """All code blocks of one page, in order."""
    return list(_scan(page, page.read_text("utf-8").splitlines(), 1))


def _scan(page: Path, lines: list[str], first: int) -> Iterator[Block]:
    """Yield the blocks of `lines`. `first` is the number of the first line in the page."""
    directive = None
    at = 0
    while at < len(lines):
        opening = _FENCE.fullmatch(lines[at])
        if opening is None:
            # A directive speaks for the block that follows, blank lines allowed.
            directive = _DIRECTIVE.fullmatch(lines[at].strip()) if lines[at].strip() else directive
            at += 1
            continue
        end = _closing(lines, at + 1, opening["marks"])
        body = [_unindent(line, len(opening["indent"])) for line in lines[at + 1 : end]]
        info = opening["info"].strip()
        if info.startswith("{") and not info.startswith("{code-block}"):
            # Another MyST directive (a note, a tab): its body is Markdown again.
            yield from _scan(page, body, first + at + 1)
        else:
            language = info.removeprefix("{code-block}").strip().partition(" ")[0]
            name, value = (directive["name"], directive["value"] or "") if directive else ("", "")
            yield Block(page, first + at + 1, language, "\n".join([*body, ""]), name, value)
        directive = None
        at = end + 1


def _closing(lines: list[str], at: int, marks: str) -> int:
    for number in range(at, len(lines)):
        line = lines[number].strip()
        if len(line) >= len(marks) and set(line) == {marks[0]}:
            return number
    return len(lines)


def _unindent(line: str, width: int) -> str:
    return line.lstrip(" ") if line[:width].strip() else line[width:]
