"""Headers, as they are given on the command line and shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from oz.cli.output import json_field, printable

_F = TypeVar("_F", bound=Callable[..., Any])


def headers_option(note: str) -> Callable[[_F], _F]:
    """Offer `--header`; gives a dict of text to text as `headers`."""
    return click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", callback=_read, help=note)


def headers_as_json(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Give headers a form that JSON has; what is not UTF-8 as `NAME_base64`."""
    fields: dict[str, Any] = {}
    for name, value in headers.items():
        fields |= json_field(name, value) if isinstance(value, (str, bytes)) else {name: value}
    return fields


def _read(_ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{one!r} is not NAME=VALUE")
        if name in headers:
            raise click.BadParameter(f"{name!r} is given twice")
        headers[_text(name)] = _text(value)
    return headers


def _text(given: str) -> str:
    try:
        given.encode()
    except UnicodeEncodeError:
        shown = printable(given.encode(errors="surrogateescape"))
        raise click.BadParameter(f"{shown} is not UTF-8") from None
    return given
