"""The legs of a forwarder as you give them: `--leg bus=lan,…`, or a TOML file."""

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
"""What a leg may say: more than once, and once."""

TABLE = "forwarder"


def parse_leg(text: str) -> dict[str, Any]:
    """Read what `--leg` was given.

    Raises:
        click.BadParameter: it means nothing; says what.
    """
    leg: dict[str, Any] = {}
    for part in text.split(","):
        key, sign, value = part.partition("=")
        _check_key(key, text)
        if not sign or not value:
            raise click.BadParameter(f"{part!r} in {text!r}: write {key}=VALUE")
        if key in SEVERAL:
            leg.setdefault(key, []).append(value)
        elif key in leg:
            raise click.BadParameter(f"{key!r} stands twice in {text!r}, and a leg has one")
        else:
            try:
                leg[key] = ONE[key](value)
            except ValueError:
                raise click.BadParameter(f"{key!r} is a number, not {value!r}, in {text!r}") from None
    return leg


def read_legs(path: Path) -> list[dict[str, Any]]:
    """Read the legs from a file: tables `[[forwarder.leg]]`.

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
    legs = table.get("leg") if isinstance(table, dict) else None
    if not isinstance(legs, list) or not all(isinstance(one, dict) for one in legs):
        raise click.BadParameter(f"{path} has no legs: write a table [[{TABLE}.side]] for each bus")
    for leg in legs:
        for key in leg:
            _check_key(key, str(path))
    return legs


def _check_key(key: str, where: str) -> None:
    if key not in ONE and key not in SEVERAL:
        known = ", ".join([*ONE, *SEVERAL])
        raise click.BadParameter(f"{key!r} in {where!r} is nothing that a leg has; there are {known}")
