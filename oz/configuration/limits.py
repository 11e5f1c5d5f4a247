"""The table `[limits]` of the TOML file: the fields of `oz.Limits`, by name."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from oz.configuration.settings import meant
from oz.errors import ConfigurationError
from oz.security.limits import Limits, check_limit

TABLE = "limits"

NAMES = tuple(one.name for one in fields(Limits))


def limits_of(table: Any, path: Path, text: str) -> tuple[dict[str, float], list[ConfigurationError]]:
    """Read a table of limits.

    Args:
        table: it, from the file; or what stands there in place of one.
        path: of the file.
        text: of the file, to tell the line of what is wrong.

    Returns:
        The limits that it gives, and what is wrong with others.
    """
    if not isinstance(table, dict):
        rule = f"write limits below a line [{TABLE}]"
        return {}, [ConfigurationError(TABLE, table, f"file {path}", rule)]
    found: dict[str, float] = {}
    faults = []
    for name, value in table.items():
        try:
            if name not in NAMES:
                raise ValueError(_unknown(name))
            found[name] = check_limit(name, value)
        except (TypeError, ValueError) as error:
            faults.append(ConfigurationError(name, value, _place(path, text, name), str(error)))
    return found, faults


def _unknown(name: str) -> str:
    guess = meant(name, NAMES)
    advice = f"did you mean {guess}?" if guess else "docs/limits.md lists them"
    return f"no limit is called so; {advice}"


def _place(path: Path, text: str, name: str) -> str:
    """Say where a key of the table stands; only the file when it is not written in the usual way."""
    is_inside = False
    for number, line in enumerate(text.splitlines(), 1):
        start = line.partition("#")[0].strip()
        if start.startswith("["):
            is_inside = start.strip("[]").strip() == TABLE
        elif is_inside and start.partition("=")[0].strip().strip("\"'") == name:
            return f"file {path}, line {number}"
    return f"file {path}"
