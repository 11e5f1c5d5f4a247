"""Messages as JSON lines, which `oz sub --json` writes and `oz pub --json` reads."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, NamedTuple

from oz.cli.payloads import BadPayload

_SUFFIX = "_base64"
_FIELDS = ("subject", "payload", "headers", "more")


class JsonMessage(NamedTuple):
    """Message from one line."""

    subject: bytes
    payload: bytes
    headers: dict[str, Any]


def read_json_line(line: bytes) -> JsonMessage:
    """Return the message of a line.

    Raises:
        BadPayload: the line is not a JSON object with the fields of `JsonMessage`, or the message has several payload
            frames.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadPayload(f"the line is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadPayload('the line is not an object such as {"subject": "a.b", "payload": "c"}')
    fields = _decoded(found)
    for name in fields:
        if name not in _FIELDS:
            raise BadPayload(f"unknown field {name!r}; the fields are {', '.join(_FIELDS[:3])}")
    if "more" in fields:
        raise BadPayload("the message has several payload frames, and oz publishes one")
    headers = fields.get("headers", {})
    if not isinstance(headers, dict):
        raise BadPayload('headers is not an object such as {"name": "value"}')
    return JsonMessage(_bytes(fields, "subject"), _bytes(fields, "payload"), _decoded(headers))


def _decoded(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields, with a field `NAME` of decoded bytes in place of each field `NAME_base64`."""
    decoded = {}
    for name, value in fields.items():
        if name.endswith(_SUFFIX):
            try:
                decoded[name.removesuffix(_SUFFIX)] = base64.b64decode(value, validate=True)
            except (binascii.Error, TypeError, ValueError):
                raise BadPayload(f"{name} is not base64") from None
        else:
            decoded[name] = value
    return decoded


def _bytes(fields: dict[str, Any], name: str) -> bytes:
    value = fields.get(name)
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    raise BadPayload(f"{name} is text, or {name}{_SUFFIX} is base64")
