"""Line numbers of the values in a TOML file, for error messages. `tomllib` does not report lines.

`TomlLines` finds keys with two regexes: one for the header of a table, one for `key =`. The regexes do not cover all of
TOML. Because `tomllib` has already accepted the text, an error of the regexes only gives a wrong line number in a
message. If a key is not found, the line of its table is used.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect
from typing import Any

_HEADER = re.compile(r"\s*\[{1,2}(?P<name>[^\[\]]+)\]{1,2}\s*(#.*)?$")
_ASSIGNED = re.compile(
    r"""\s*(?P<key>(?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*="""
)

KeyPath = tuple[str | int, ...]
"""Path of a value in the file: keys of tables, and indexes of lists, which count from 0."""


class TomlLines:
    """Line numbers of the values of one text that `tomllib` has accepted."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._starts: dict[tuple[str, ...], int] = {}
        self._around: dict[tuple[str, ...], int] = {}
        self._numbers: list[int] = []
        self._texts: dict[int, dict[str, int]] = {}
        table: tuple[str, ...] = ()
        for number, line in enumerate(self._lines, start=1):
            if found := _HEADER.match(line):
                table = _split_key(found["name"])
                self._begin(table, number)
            elif found := _ASSIGNED.match(line):
                self._begin(table + _split_key(found["key"]), number)

    def _begin(self, start: tuple[str, ...], number: int) -> None:
        self._numbers.append(number)
        self._starts.setdefault(start, number)
        for size in range(len(start)):
            self._around.setdefault(start[:size], number)

    def line_of(self, path: KeyPath, value: Any = None) -> int:
        """Return the line of a value, counted from 1.

        Args:
            path: path of the value in the file.
            value: value at the path. If it is a text in a list of several lines, its own line is returned.
        """
        keys = tuple(part for part in path if isinstance(part, str))
        above = (
            self._starts.get(keys[:size]) or self._around.get(keys[:size]) for size in range(len(keys), 0, -1)
        )
        # If a table has no header, the line of the first table nested in it is used.
        line = next(filter(None, above), 1)
        return self._within(line).get(value, line) if isinstance(value, str) else line

    def _within(self, line: int) -> dict[str, int]:
        """Return a dict from quoted texts to their lines. The texts are between the key on `line` and the next key."""
        if line not in self._texts:
            at = bisect(self._numbers, line)
            end = self._numbers[at] if at < len(self._numbers) else len(self._lines) + 1
            found = self._texts[line] = {}
            for number in range(line, end):
                for quote in "\"'":
                    for text in self._lines[number - 1].split(quote)[1:-1]:
                        found.setdefault(text, number)
        return self._texts[line]


def _split_key(name: str) -> tuple[str, ...]:
    """Split a dotted key. By the rules of TOML, a dot in quotes does not separate parts."""
    parts: list[str] = []
    try:
        table: Any = tomllib.loads(f"{name} = 0")
    except tomllib.TOMLDecodeError:
        return ()
    while isinstance(table, dict):
        [(key, table)] = table.items()
        parts.append(key)
    return tuple(parts)


def format_location(path: KeyPath, line: int) -> str:
    """Return a path and its line as text, such as `roles.reader.subscribe.deny[0], line 7`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return f"{text}, line {line}"
