"""Payloads and headers on the command line and in the output."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from oz.cli.output import json_field
from oz.escaping import json_text, json_value, printable
from oz.wire.codec import MsgpackCodec

_F = TypeVar("_F", bound=Callable[..., Any])


def headers_option(note: str) -> Callable[[_F], _F]:
    """Add `--header`. The command gets the argument `headers`, a dict from text to text."""
    return click.option(
        "-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", callback=_read, help=note
    )


def headers_as_json(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return headers as a dict of JSON values. A value that is not UTF-8 gets the name `NAME_base64`."""
    fields: dict[str, Any] = {}
    for name, value in headers.items():
        fields |= json_field(name, value) if isinstance(value, (str, bytes)) else {name: value}
    return fields


def _read(_ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE, such as user=ann")
        if name in headers:
            raise click.BadParameter(f"{name!r} is given twice; a message has one header of a name")
        headers[_text(name)] = _text(value)
    return headers


def _text(given: str) -> str:
    try:
        given.encode()
    except UnicodeEncodeError:
        shown = printable(given.encode(errors="surrogateescape"))
        raise click.BadParameter(f"{shown} is not UTF-8") from None
    return given


FORMS = ("text", "json", "bytes")


def payload_option(note: str = "") -> Callable[[_F], _F]:
    """Add `--payload`."""
    return click.option(
        "--payload",
        "form",
        type=click.Choice(FORMS),
        default=FORMS[0],
        help=f"Form of the payloads: text; json for values that are written as JSON; or bytes, if the nodes of the bus "
        f"have no codec.{note}  [default: text]",
    )


@dataclass(frozen=True, slots=True)
class EncodedPayload:
    """Payload that is encoded already. The codec returns its bytes unchanged."""

    frame: bytes


class _TolerantCodec(MsgpackCodec):
    """MessagePack codec. If a payload is not MessagePack, it is returned as bytes."""

    def encode(self, value: Any) -> bytes:
        return value.frame if isinstance(value, EncodedPayload) else super().encode(value)

    def decode(self, payload: bytes) -> Any:
        try:
            return super().decode(payload)
        except Exception:  # msgpack raises many classes of errors.
            return payload


class _BytesCodec(_TolerantCodec):
    """Codec that does not change bytes. Other values, such as errors of handlers, are encoded as MessagePack."""

    def encode(self, value: Any) -> bytes:
        return value if isinstance(value, bytes) else super().encode(value)

    def decode(self, payload: bytes) -> Any:
        return payload


class PayloadForm:
    """Form of payloads on the command line and in the output.

    Attributes:
        name: name of the form, one of `FORMS`.
        codec: codec for `oz.Node`.
    """

    def __init__(self, name: str) -> None:
        """Create a form. `name` is one of `FORMS`."""
        self.name = name
        self.codec = _BytesCodec() if name == "bytes" else _TolerantCodec()

    def read(self, written: bytes) -> Any:
        """Return the value of a payload that was written on the command line or by a process.

        Raises:
            BadPayload: the form is "json", and the payload is not JSON.
        """
        if self.name == "bytes":
            return written
        if self.name == "json":
            try:
                return json.loads(written)
            except (ValueError, RecursionError) as error:
                raise BadPayload(f"the payload {_short(written)} is not JSON: {error}") from None
        return text_or_bytes(written)

    def write(self, value: Any) -> bytes:
        """Return a value as it is printed. In the forms "text" and "bytes", text and bytes are printed unchanged.

        All other values are printed as JSON.
        """
        if self.name != "json":
            if isinstance(value, bytes):
                return value
            if isinstance(value, str):
                return value.encode(errors="surrogateescape")
        return json_text(json_value(value)).encode(errors="backslashreplace")


class BadPayload(click.UsageError):
    """A payload or a line of stdin does not have the form that an option demands."""


def field(name: str, value: Any) -> dict[str, Any]:
    """Return `{name: value}` for JSON; or `{name_base64: …}` if the value is not UTF-8."""
    return json_field(name, value) if isinstance(value, (str, bytes)) else {name: json_value(value)}


def text_or_bytes(written: bytes) -> str | bytes:
    """Return UTF-8 bytes as text, and other bytes unchanged."""
    try:
        return written.decode()
    except UnicodeDecodeError:
        return written


def _short(written: bytes) -> str:
    shown = printable(written)
    return repr(shown if len(shown) <= 80 else f"{shown[:60]}…")
