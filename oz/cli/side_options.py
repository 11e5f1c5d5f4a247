"""How the sides of a forwarder are given: `--side bus=lan,…`, or a TOML file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from oz.configuration.files import load_toml, open_file

SEVERAL = ("nameserver", "bind", "peers", "allow")
ONE: dict[str, Callable[[str], Any]] = {
    "bus": str,
    "name": str,
    "advertise": str,
    "directory": str,
    "join_timeout": float,
    "lost_after": float,
    "high_water_mark": int,
}
"""What a side may say: more than once, and once."""

TABLE = "forwarder"


def parse_side(text: str) -> dict[str, Any]:
    """Read what `--side` was given.

    Raises:
        click.BadParameter: it means nothing; says what.
    """
    side: dict[str, Any] = {}
    for part in text.split(","):
        key, sign, value = part.partition("=")
        _check_key(key, text)
        if not sign or not value:
            raise click.BadParameter(f"{part!r} in {text!r}: write {key}=VALUE")
        if key in SEVERAL:
            side.setdefault(key, []).append(value)
        elif key in side:
            raise click.BadParameter(f"{key!r} stands twice in {text!r}, and a side has one")
        else:
            try:
                side[key] = ONE[key](value)
            except ValueError:
                raise click.BadParameter(f"{key!r} is a number, not {value!r}, in {text!r}") from None
    return side


def read_sides(path: Path) -> list[dict[str, Any]]:
    """Read the sides from a file: tables `[[forwarder.side]]`.

    Raises:
        click.BadParameter: it cannot be read, or means nothing; says what.
    """
    try:
        with open_file(path) as file:
            whole = load_toml(file)
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"{path} is no TOML: {error}") from None
    table = whole.get(TABLE)
    sides = table.get("side") if isinstance(table, dict) else None
    if not isinstance(sides, list) or not all(isinstance(one, dict) for one in sides):
        raise click.BadParameter(f"{path} has no sides: write a table [[{TABLE}.side]] for each bus")
    for side in sides:
        for key in side:
            _check_key(key, str(path))
    return sides


def _check_key(key: str, where: str) -> None:
    if key not in ONE and key not in SEVERAL:
        known = ", ".join([*ONE, *SEVERAL])
        raise click.BadParameter(f"{key!r} in {where!r} is nothing that a side has; there are {known}")
