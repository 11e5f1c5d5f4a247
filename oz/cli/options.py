"""Options that several commands take, and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

import oz

DEFAULT_ENDPOINT = "tcp://127.0.0.1:5750"
"""Where `oz pub` and `oz sub` meet when they are told nothing: this machine only."""

_F = TypeVar("_F", bound=Callable[..., Any])


def dialect_option(of_what: str) -> Callable[[_F], _F]:
    """Offer `--dialect`, saying whose dialect it is."""
    return click.option(
        "--dialect",
        type=click.Choice(oz.DIALECTS),
        default=oz.DIALECTS[0],
        show_default=True,
        help=f"The dialect of {of_what}.",
    )


def endpoint_options(default: str) -> Callable[[_F], _F]:
    """Offer `--bind` and `--connect`; `default` names the one that applies when neither is given."""

    def offer(command: _F) -> _F:
        for name in ("--connect", "--bind"):
            note = f"  [default: {DEFAULT_ENDPOINT}]" if name == default else ""
            text = f"{name[2:].capitalize()} to this endpoint; may be repeated.{note}"
            command = click.option(name, multiple=True, metavar="ENDPOINT", help=text)(command)
        return command

    return offer


def parse_all(specs: Sequence[str], dialect: str) -> list[oz.Pattern]:
    """Compile patterns given on the command line, whatever bytes they were.

    Raises:
        PatternError: a dialect does not allow one of them.
    """
    return [oz.parse(text_or_bytes(spec), dialect) for spec in specs]


def text_or_bytes(argument: str) -> str | bytes:
    """Return an argument as text, or as the bytes that were typed where those are not UTF-8."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return argument.encode(errors="surrogateescape")
    return argument
