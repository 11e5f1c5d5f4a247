"""Reader of the table `[limits]` in the configuration file. Its keys are the fields of `oz.Limits`."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from oz.configuration.settings import nearest_name
from oz.configuration.toml_lines import TomlLines
from oz.errors import ConfigurationError
from oz.options import Limits

TABLE = "limits"

NAMES = tuple(field.name for field in fields(Limits))


def limits_of(table: Any, path: Path, text: str) -> tuple[dict[str, Any], list[ConfigurationError]]:
    """Read a table of limits.

    Args:
        table: value of `[limits]` in the file.
        path: path of the file, for error messages.
        text: text of the file, in which the line of each fault is searched.

    Returns:
        A dict of the valid limits by name, and a list of the faults.
    """
    if not isinstance(table, dict):
        rule = f"write limits below a line [{TABLE}]"
        return {}, [ConfigurationError(TABLE, table, f"file {path}", rule)]
    found: dict[str, Any] = {}
    faults = []
    lines = TomlLines(text)
    for name, value in table.items():
        source = f"file {path}, line {lines.line_of((TABLE, name))}"
        try:
            if name not in NAMES:
                raise ValueError(_unknown(name))
            Limits(**{name: value})
            found[name] = value
        except ConfigurationError as error:
            faults.append(ConfigurationError(name, value, source, error.rule))
        except ValueError as error:
            faults.append(ConfigurationError(name, value, source, str(error)))
    return found, faults


def _unknown(name: str) -> str:
    guess = nearest_name(name, NAMES)
    advice = f"did you mean {guess}?" if guess else "docs/limits.md lists them"
    return f"no limit has this name; {advice}"
