"""`oz config`: the effective configuration, and the source of each setting."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import click

import oz
from oz.cli.exits import FAILED, describe
from oz.cli.output import json_option, plain_table, print_stderr, write_json, write_line
from oz.configuration import ConfigurationSurvey, Setting, survey
from oz.escaping import printable
from oz.transport.security import resolve_security

_HELP = """Show the configuration that a node would have if it were started in this directory.

An argument overrides an environment variable, such as OZ_BUS for the setting bus. A variable overrides the tables
[node] and [limits] of a TOML file, and the file overrides the defaults. OZ_CONFIG names the file. Without OZ_CONFIG
the file is oz.toml in this directory, or otherwise oz/config.toml in $XDG_CONFIG_HOME or ~/.config.
"""

_SHOW_HELP = """Show every setting, its value, and its source. Also show the limits of the file,
the source of keys, and the configuration files.

A wrong value is shown unchanged, and reported on stderr. The exit code is then 1, and otherwise 0.

\b
Examples:
  oz config show
  OZ_BUS=test oz config show
  oz config show --json | jq -r '.settings[] | select(.source != "default").name'
"""

_UNSET = {"name": "(program and process id)"}


@click.group(help=_HELP, short_help="Show the effective configuration and the source of each setting.")
def config() -> None:
    """Group the commands of `oz config`; `_HELP` is the text of `--help`."""


@config.command(help=_SHOW_HELP, short_help="Show every setting and its source.")
@json_option()
@click.pass_context
def show(ctx: click.Context, as_json: bool) -> None:
    """Show the effective settings and their sources; `_SHOW_HELP` is the text of `--help`."""
    found = survey()
    faults = [*found.faults, *_key_faults(found)]
    found = replace(found, faults=tuple(faults))
    if as_json:
        write_json(_data(found))
    else:
        _show(found)
    for name, guess in found.unused.items():
        print_stderr(ctx, f"warning: {_shown(name)} has no effect; did you mean {guess}?")
    for fault in found.faults:
        print_stderr(ctx, _shown(describe(fault)))
    if found.faults:
        ctx.exit(FAILED)


def _key_faults(found: ConfigurationSurvey) -> list[oz.ConfigurationError]:
    try:
        if not found.faults:
            resolve_security()
    except oz.ConfigurationError as error:
        return [error]
    except oz.MissingDependency as error:
        return [oz.ConfigurationError("security", None, found.security[0].source, str(error))]
    return []


def _show(found: ConfigurationSurvey) -> None:
    wrong = {(fault.setting, fault.source) for fault in found.faults}
    rows = [("setting", "value", "source")]
    for setting in found.settings:
        note = " (wrong)" if (setting.name, setting.source) in wrong else ""
        rows.append((setting.name, _shown(_text(setting)), _shown(setting.source) + note))
    rows += [(f"limits.{limit.name}", f"{limit.value:g}", _shown(limit.source)) for limit in found.limits]
    rows += [
        (_shown(f"security.{setting.name}"), _shown(_text(setting)), _shown(setting.source))
        for setting in found.security
    ]
    write_line(plain_table(rows))
    write_line("")
    files = [(candidate.state, _shown(candidate.path), candidate.place) for candidate in found.candidates]
    write_line(plain_table([("state", "path", "source"), *files]))


def _text(setting: Setting) -> str:
    value = setting.value
    if isinstance(value, (tuple, list)):
        return ", ".join(map(str, value)) or "-"
    return _UNSET.get(setting.name, "-") if value is None else str(value)


def _data(found: ConfigurationSurvey) -> dict[str, Any]:
    wrong = {(fault.setting, fault.source) for fault in found.faults}
    return {
        "ok": not found.faults,
        "settings": [
            {
                "name": setting.name,
                "value": _json_value(setting.value),
                "source": _shown(setting.source),
                "ok": (setting.name, setting.source) not in wrong,
            }
            for setting in found.settings
        ],
        "limits": [
            {"name": limit.name, "value": _limit(limit.value), "source": _shown(limit.source)}
            for limit in found.limits
        ],
        "security": [
            {
                "name": _shown(setting.name),
                "value": _json_value(setting.value),
                "source": _shown(setting.source),
            }
            for setting in found.security
        ],
        "files": [
            {"path": _shown(candidate.path), "named_by": candidate.place, "state": candidate.state}
            for candidate in found.candidates
        ],
        "faults": [_shown(describe(fault)) for fault in found.faults],
        "unused": {_shown(name): guess for name, guess in found.unused.items()},
    }


def _limit(value: float) -> float | None:
    """Return a limit as a value of JSON. Infinity becomes None, because JSON has no infinity."""
    return value if math.isfinite(value) else None


def _json_value(value: object) -> Any:
    """Return the value of a setting as a value of JSON. A wrong value may have any type of TOML."""
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, (tuple, list)):
        return [_json_value(element) for element in value]
    return _shown(value)


def _shown(value: object) -> str:
    """Return a value as one printable line. Environment variables may contain bytes that are not UTF-8."""
    return printable(str(value).encode(errors="surrogateescape"))
