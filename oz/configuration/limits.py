"""The table `[limits]` of the TOML file: the fields of `oz.Limits`, by name."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from oz.configuration.settings import meant
from oz.errors import ConfigurationError
from oz.options import Limits

TABLE = "limits"

NAMES = tuple(one.name for one in fields(Limits))


def limits_of(table: Any, path: Path, text: str) -> tuple[dict[str, Any], list[ConfigurationError]]:
    """Read a table of limits.

    Args:
        table: value of `[limits]` in the file.
        path: of the file.
        text: of the file, to find the lines of faults.

    Returns:
        Limits by name, and the faults of wrong ones.
    """
    if not isinstance(table, dict):
        rule = f"write limits below a line [{TABLE}]"
        return {}, [ConfigurationError(TABLE, table, f"file {path}", rule)]
    found: dict[str, Any] = {}
    faults = []
    for name, value in table.items():
        try:
            if name not in NAMES:
                raise ValueError(_unknown(name))
            Limits(**{name: value})
            found[name] = value
        except ConfigurationError as error:
            faults.append(ConfigurationError(name, value, _place(path, text, name), error.rule))
        except ValueError as error:
            faults.append(ConfigurationError(name, value, _place(path, text, name), str(error)))
    return found, faults


def _unknown(name: str) -> str:
    guess = meant(name, NAMES)
    advice = f"did you mean {guess}?" if guess else "docs/limits.md lists them"
    return f"no limit has this name; {advice}"


def _place(path: Path, text: str, name: str) -> str:
    """Return file and line of a key of the table; only the file if the line is not found."""
    is_inside = False
    for number, line in enumerate(text.splitlines(), 1):
        start = line.partition("#")[0].strip()
        if start.startswith("["):
            is_inside = start.strip("[]").strip() == TABLE
        elif is_inside and start.partition("=")[0].strip().strip("\"'") == name:
            return f"file {path}, line {number}"
    return f"file {path}"
