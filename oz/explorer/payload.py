"""Payloads as text for the page. The text has no invisible characters except line ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from oz.escaping import json_text, json_value, printable
from oz.wire.codec import MsgpackCodec

_HEX_BYTES = 4_096
"""Maximum number of bytes that are shown as hexadecimal digits."""
_PREVIEW_BYTES = 256
_PREVIEW_CHARACTERS = 80

_codec = MsgpackCodec()


def decode(payload: bytes, form: str) -> tuple[str, str]:
    """Return the form in which a payload is shown, and its text.

    Args:
        payload: bytes of the message.
        form: one of `FORMS`. "auto" tries JSON, text and MessagePack. If the form does not fit, hex is used.
    """
    return _decode(payload, form, indent=2)


def preview(payload: bytes) -> str:
    """Return the beginning of a payload as one line."""
    text = _decode(payload[:_PREVIEW_BYTES], "auto", indent=None)[1]
    line = printable(" ".join(text[: 4 * _PREVIEW_CHARACTERS].split()))
    return line if len(line) <= _PREVIEW_CHARACTERS else f"{line[:_PREVIEW_CHARACTERS]}…"


def encode(text: str, form: str) -> bytes:
    """Return the payload of a message from the text that the user has typed on the page.

    Args:
        text: text of the user.
        form: "msgpack" to convert JSON to MessagePack. Otherwise the payload is the text in UTF-8.

    Raises:
        ValueError: the text is not JSON, or MessagePack cannot represent it.
    """
    if form != "msgpack":
        return text.encode(errors="surrogateescape")
    try:
        return _codec.encode(json.loads(text))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"the payload is not JSON that MessagePack can hold: {error}; write text in double quotes"
        ) from None


def _decode(payload: bytes, form: str, indent: int | None) -> tuple[str, str]:
    for name in _ORDER if form == "auto" else (form,):
        try:
            return name, _DECODERS[name](payload, indent)
        except Exception:
            # Decoders of untrusted bytes raise exceptions of many classes, also RecursionError.
            continue
    return "hex", _hex(payload, indent)


def _json(payload: bytes, indent: int | None) -> str:
    return json_text(json_value(json.loads(payload.decode())), indent=indent)


def _msgpack(payload: bytes, indent: int | None) -> str:
    return json_text(json_value(_codec.decode(payload)), indent=indent)


def _text(payload: bytes, _indent: int | None) -> str:
    lines = payload.decode().split("\n")
    if any(not line.removesuffix("\r").replace("\t", "").isprintable() for line in lines):
        raise ValueError
    return "\n".join(map(printable, lines))


def _hex(payload: bytes, indent: int | None) -> str:
    if indent is None:
        return payload.hex(" ")
    shown = payload[:_HEX_BYTES]
    return "\n".join(f"{at:04x}  {shown[at : at + 16].hex(' ')}" for at in range(0, len(shown), 16))


_DECODERS: dict[str, Callable[[Any, int | None], str]] = {
    "msgpack": _msgpack, "json": _json, "text": _text, "hex": _hex,
}  # fmt: skip
_ORDER = ("json", "text", "msgpack")
FORMS = ("auto", *_DECODERS)
