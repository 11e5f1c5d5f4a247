"""The TOML file: which one is read, and its tables `[node]`, `[limits]` and `[security]`, its lines."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from bisect import bisect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from oz.configuration import limits
from oz.configuration.settings import BY_NAME, meant
from oz.errors import ConfigurationError
from oz.system import user

VARIABLE = "OZ_CONFIG"
FILE = "oz.toml"
TABLE = "node"
SECURITY_TABLE = "security"

MOST_BYTES = 1 << 16
"""How large a file may be; nobody writes so many settings."""

MOST_DOTS = 1_000
"""How many dots a line may have: for a key of many parts the parser takes cubic time."""

_ANOTHER = f"or name another file with {VARIABLE}; {VARIABLE}=/dev/null is none"


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """A file that may hold settings.

    Attributes:
        path: its absolute path.
        place: why it is looked at.
        state: "read", "wrong", "not there", or "not needed" as one before it was there.
    """

    path: Path
    place: str
    state: str


@dataclass(frozen=True, slots=True)
class FileSettings:
    """The settings that files give.

    Attributes:
        candidates: all that were looked at, in order.
        path: the one that was read.
        table: its table of settings.
        limits: the limits that it gives.
        security: its table `[security]`; None without one.
        faults: what is wrong with it, but for the values of settings.
        limit_faults: what is wrong with limits; it is in `faults` too.
    """

    candidates: tuple[ConfigurationFile, ...] = ()
    path: Path | None = None
    table: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    security: Mapping[str, Any] | None = None
    faults: tuple[ConfigurationError, ...] = ()
    limit_faults: tuple[ConfigurationError, ...] = ()


def look() -> FileSettings:
    """Read the first file that is there: `$OZ_CONFIG` alone, or else `./oz.toml`, or else the user's."""
    places = _places()
    at = next((at for at, (path, _) in enumerate(places) if os.path.isfile(path)), len(places))
    if os.environ.get(VARIABLE):
        at = 0  # also when it is not there, which is an error
    found = _read(*places[at]) if at < len(places) else FileSettings()
    states = ["not there"] * at + ["wrong" if found.faults else "read"] + ["not needed"] * len(places)
    candidates = tuple(ConfigurationFile(*place, state) for place, state in zip(places, states, strict=False))
    return replace(found, candidates=candidates)


def _places() -> list[tuple[Path, str]]:
    named = os.environ.get(VARIABLE)
    if named:
        return [(Path(os.path.abspath(os.path.expanduser(named))), VARIABLE)]
    places = []
    with suppress(OSError):  # it was removed
        places.append((Path.cwd() / FILE, "working directory"))
    home = os.environ.get("XDG_CONFIG_HOME", "")
    # A relative path there is to be ignored (XDG Base Directory Specification 0.8).
    home = home if os.path.isabs(home) else os.path.expanduser("~/.config")
    if os.path.isabs(home):
        places.append((Path(home, "oz", "config.toml"), "user's configuration"))
    return places


def _read(path: Path, place: str) -> FileSettings:
    """Return the tables, without what no setting and no limit is called, and what is wrong with the file."""
    try:
        with open_file(path) as file:
            if place == "working directory" and _is_planted(path, file):
                return _wrong(path, f"{_PLANTED}{VARIABLE}={path}")
            text, is_anybodys = read_text(file), is_writable_by_all(file)
        whole = tomllib.loads(text)
    except OSError as error:
        return _wrong(path, f"{error.strerror or error}; make it readable, {_ANOTHER}")
    # Numbers of thousands of digits and text that is not UTF-8 are ValueErrors, as bad TOML is.
    except (ValueError, RecursionError) as error:
        return _wrong(path, f"no TOML: {error}; correct it, {_ANOTHER}")
    table = whole.pop(TABLE, {})
    if not isinstance(table, dict):
        return _wrong(path, f"write settings below a line [{TABLE}]", TABLE, table)
    security = whole.pop(SECURITY_TABLE, None)
    if security is not None and not isinstance(security, dict):
        return _wrong(
            path, f"write key and trusted below a line [{SECURITY_TABLE}]", SECURITY_TABLE, security
        )
    if security is not None and is_anybodys:
        return _wrong(path, f"{ANYBODY}: chmod o-w {path}", SECURITY_TABLE)
    given, limit_faults = limits.limits_of(whole.pop(limits.TABLE, {}), path, text)
    # Tables of other names are somebody else's.
    strays = {key: value for key, value in whole.items() if not isinstance(value, dict)}
    faults = [
        _fault(path, f"write it below a line [{TABLE}], or remove it", *stray) for stray in strays.items()
    ]
    faults += [_unknown(path, key, table[key]) for key in table if key not in BY_NAME]
    # Nearly one of ours: what it protects from would be let in without a word.
    faults += [
        _fault(path, f"[{key}] is none of oz's tables, and nearly [{near}]: correct it, or call it otherwise")
        for key in whole
        if key not in strays and (near := meant(key.lower(), (TABLE, SECURITY_TABLE, limits.TABLE)))
    ]
    known = {key: value for key, value in table.items() if key in BY_NAME}
    return FileSettings((), path, known, given, security, (*faults, *limit_faults), tuple(limit_faults))


def _wrong(path: Path, rule: str, key: str | None = None, value: object = None) -> FileSettings:
    return FileSettings(path=path, faults=(_fault(path, rule, key, value),))


def open_file(path: Path) -> BinaryIO:
    """Open a file of settings for reading; it never waits.

    Raises:
        OSError: it cannot be read, or is neither a file nor /dev/null: a pipe may never say anything, and a
            device may never end.
    """
    file = open(path, "rb", opener=_open_at_once)  # noqa: SIM115 - whoever asked closes it
    found = os.fstat(file.fileno())
    if stat.S_ISREG(found.st_mode) or os.path.samestat(found, os.stat(os.devnull)):
        return file
    file.close()
    raise OSError("it is a pipe or a device, and no file")


ANYBODY = "anybody may write it, and so choose the keys that are trusted"


def is_writable_by_all(file: BinaryIO) -> bool:
    """Tell whether anybody may write a file: then it may not say who is to be trusted."""
    return bool(os.fstat(file.fileno()).st_mode & stat.S_IWOTH)


def _open_at_once(path: str, flags: int) -> int:
    # Without it the opening of a named pipe waits for somebody to write; Windows has neither.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def load_toml(file: BinaryIO, most: int = MOST_BYTES) -> dict[str, Any]:
    """Read a file of settings.

    Args:
        file: the file.
        most: bytes that it may have.

    Raises:
        OSError: it cannot be read.
        ValueError: it is larger, has a line with more than `MOST_DOTS` dots, or is no TOML.
        RecursionError: it is nested too deep.
    """
    return tomllib.loads(read_text(file, most))


def read_text(file: BinaryIO, most: int = MOST_BYTES) -> str:
    """Read the text of a file of settings, for who tells lines from it.

    Args:
        file: the file.
        most: bytes that it may have.

    Raises:
        OSError: it cannot be read.
        ValueError: it is larger, has a line with more than `MOST_DOTS` dots, or is no UTF-8.
    """
    data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"it is larger than {most} bytes")
    if any(line.count(b".") > MOST_DOTS for line in data.splitlines()):
        raise ValueError(f"a line has more than {MOST_DOTS} dots")
    return data.decode()


_PLANTED = "somebody else put it where anybody can write; read it, and if you trust it say so: "


def _is_planted(path: Path, file: BinaryIO) -> bool:
    """Tell whether another user put it there: a program that starts in /tmp must not obey others."""
    owners = {path.lstat().st_uid, os.fstat(file.fileno()).st_uid}
    is_open_to_all = bool(path.parent.stat().st_mode & stat.S_IWOTH)
    return is_open_to_all and not owners <= {0, user()}


def _unknown(path: Path, key: str, value: object) -> ConfigurationError:
    guess = meant(key, BY_NAME)
    advice = f"did you mean {guess}?" if guess else f"there are {', '.join(BY_NAME)}"
    return _fault(path, f"no setting is called so; {advice}", key, value)


def _fault(path: Path, rule: str, key: str | None = None, value: object = None) -> ConfigurationError:
    return ConfigurationError(key, value, f"file {path}", rule)


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
        self._starts: dict[tuple[str, ...], int] = {}
        self._around: dict[tuple[str, ...], int] = {}
        self._numbers: list[int] = []
        self._texts: dict[int, dict[str, int]] = {}
        table: tuple[str, ...] = ()
        for number, line in enumerate(self._lines, start=1):
            if found := _HEADER.match(line):
                table = _parts(found["name"])
                self._begin(table, number)
            elif found := _ASSIGNED.match(line):
                self._begin(table + _parts(found["key"]), number)

    def _begin(self, start: tuple[str, ...], number: int) -> None:
        self._numbers.append(number)
        self._starts.setdefault(start, number)
        for size in range(len(start)):
            self._around.setdefault(start[:size], number)

    def line_of(self, path: Keys, value: Any = None) -> int:
        """Return the line of a value, counted from 1.

        Args:
            path: the way to it.
            value: what it is; a text is looked for behind its key.
        """
        keys = tuple(part for part in path if isinstance(part, str))
        above = (self._starts.get(keys[:size]) for size in range(len(keys), 0, -1))
        # Or only tables within it are written.
        line = next(filter(None, above), None) or self._around.get(keys, 1)
        return self._within(line).get(value, line) if isinstance(value, str) else line

    def _within(self, line: int) -> dict[str, int]:
        """Return the lines of all that is quoted from a line on, up to the next key or table."""
        if line not in self._texts:
            at = bisect(self._numbers, line)
            end = self._numbers[at] if at < len(self._numbers) else len(self._lines) + 1
            found = self._texts[line] = {}
            for number in range(line, end):
                for quote in "\"'":
                    for text in self._lines[number - 1].split(quote)[1:-1]:
                        found.setdefault(text, number)
        return self._texts[line]


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
