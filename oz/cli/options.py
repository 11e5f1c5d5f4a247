"""Options that several commands take, and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

import oz
from oz.transport import endpoints

DEFAULT_ENDPOINT = "tcp://127.0.0.1:5750"
"""Where `oz pub` and `oz sub` meet when they are told nothing: this machine only."""

_F = TypeVar("_F", bound=Callable[..., Any])


def dialect_option(of_what: str) -> Callable[[_F], _F]:
    """Offer `--dialect`, saying whose dialect it is."""
    return click.option(
        "--dialect",
        type=click.Choice(oz.DIALECTS),
        default=oz.DIALECTS[0],
        metavar="NAME",
        help=f"The dialect of {of_what}: {', '.join(oz.DIALECTS)}.  [default: {oz.DIALECTS[0]}]",
    )


def endpoint_options(default: str) -> Callable[[_F], _F]:
    """Offer `--bind` and `--connect`; `default` names the one that applies when neither is given."""

    def offer(command: _F) -> _F:
        for name in ("--connect", "--bind"):
            note = f"  [default: {DEFAULT_ENDPOINT}]" if name == default else ""
            text = f"{name[2:].capitalize()} to this endpoint; may be repeated.{note}"
            option = click.option(name, multiple=True, metavar="ENDPOINT", callback=_checked, help=text)
            command = option(command)
        return command

    return offer


def _checked(_ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> list[str]:
    for endpoint in given:
        try:
            endpoints.check(endpoint, own_context=True)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return list(given)


def ready_line(socket: oz.Publisher | oz.Subscriber, bind: Sequence[str], connect: Sequence[str]) -> str:
    """Say that a socket is ready, and where: with the port that a `*` became."""
    bound = [f"bound to {one}" for one in (*bind[:-1], socket.endpoint)] if bind else []
    return f"ready, {', '.join(bound + [f'connected to {one}' for one in connect])}"


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
