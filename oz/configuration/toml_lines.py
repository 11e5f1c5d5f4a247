"""The lines of a TOML file on which its values stand, for errors: Python's parser does not tell them."""

from __future__ import annotations

import re
import tomllib
from typing import Any

_HEADER = re.compile(r"\s*\[{1,2}(?P<name>[^\[\]]+)\]{1,2}\s*(#.*)?$")
_ASSIGNED = re.compile(
    r"""\s*(?P<key>(?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*="""
)

Keys = tuple[str | int, ...]
"""The way to a value: keys of tables, and places in lists, counted from 0."""


class TomlLines:
    """The lines of the values of one text; for what cannot be told, the line of the table that holds it."""

    def __init__(self, text: str) -> None:
        """Take the text of a file that the parser has accepted."""
        self._lines = text.splitlines()
        self._starts: list[tuple[tuple[str, ...], int]] = []
        table: tuple[str, ...] = ()
        for number, line in enumerate(self._lines, start=1):
            if found := _HEADER.match(line):
                table = _parts(found["name"])
                self._starts.append((table, number))
            elif found := _ASSIGNED.match(line):
                self._starts.append((table + _parts(found["key"]), number))

    def line_of(self, path: Keys, value: Any = None) -> int:
        """Return the line of a value, counted from 1.

        Args:
            path: the way to it.
            value: what it is; a text is looked for behind its key.
        """
        keys = tuple(part for part in path if isinstance(part, str))
        best, line = 0, 0
        for start, number in self._starts:
            if best < len(start) <= len(keys) and keys[: len(start)] == start:
                best, line = len(start), number
        if not line:
            # Only tables within it are written.
            line = next((number for start, number in self._starts if start[: len(keys)] == keys), 1)
        return self._within(line, value) if isinstance(value, str) else line

    def _within(self, line: int, value: str) -> int:
        """Look for a text from a line on, up to the next key or table."""
        following = [number for _, number in self._starts if number > line]
        end = min(following, default=len(self._lines) + 1)
        quoted = (f'"{value}"', f"'{value}'")
        for number in range(line, end):
            if any(one in self._lines[number - 1] for one in quoted):
                return number
        return line


def _parts(name: str) -> tuple[str, ...]:
    """Split a key at its dots, as TOML does."""
    parts: list[str] = []
    try:
        table: Any = tomllib.loads(f"{name} = 0")
    except tomllib.TOMLDecodeError:
        return ()
    while isinstance(table, dict):
        [(key, table)] = table.items()
        parts.append(key)
    return tuple(parts)


def place(path: Keys, line: int) -> str:
    """Write a path as a reader would: `roles.reader.subscribe.deny[0], line 7`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return f"{text}, line {line}"
