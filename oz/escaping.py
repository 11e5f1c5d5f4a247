r"""Escapes for untrusted text in terminals, logs and JSON.

An attacker may write any characters into a subject. C0 and C1 characters, such as U+009B, control a terminal. Line
ends, such as U+0085 and U+2028, can forge a line of a log. U+202E reverses the text behind it. Therefore oz shows text
of peers, messages and files only through `printable`, and in JSON through `json_text`.
"""

from __future__ import annotations

import base64
import json
import math
import re
import unicodedata
from typing import Any

_INVISIBLE = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
"""Unicode categories of invisible characters: control, format, surrogate, private and unassigned characters, and line
ends."""

# The functions below call `str.isprintable` first. It is false for any text with an invisible character.
_NOT_PLAIN = re.compile(r"[^\x20-\x7e]")
_ASCII_END = 0x80


def printable(value: str | bytes) -> str:
    r"""Return text as one line that is safe for a terminal.

    Invisible characters except the tab become escapes such as `\n`, `\x9b` or `\u202e`. Bytes that are not UTF-8, also
    in the form of `surrogateescape`, become escapes such as `\xff`.
    """
    if isinstance(value, str) and value.isprintable():
        return value
    text = (raw_text(value) if isinstance(value, str) else value).decode(errors="backslashreplace")
    return text if text.isprintable() else _NOT_PLAIN.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    if char == "\t" or unicodedata.category(char) not in _INVISIBLE:
        return char
    return char.encode("unicode_escape").decode()


def raw_text(text: str) -> bytes:
    """Return text as bytes. Surrogates of `surrogateescape` become the bytes that they represent."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        # The text has other surrogates, which come from JSON.
        return text.encode(errors="backslashreplace")


def json_text(value: Any, *, indent: int | None = None) -> str:
    r"""Return a value as JSON, with escapes such as `\u202e` for invisible characters."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return text if text.isprintable() else _NOT_PLAIN.sub(_escape_json, text)


def json_value(value: Any) -> Any:
    """Convert a value to a value of JSON. Bytes become text. If they are not UTF-8, the text is Base64."""
    if isinstance(value, dict):
        return {
            element if isinstance(element, str) else str(json_value(element)): json_value(value[element])
            for element in value
        }
    if isinstance(value, (list, tuple)):
        return [json_value(element) for element in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, (str, int)) else str(value)


def _escape_json(found: re.Match[str]) -> str:
    char = found[0]
    # `json.dumps` has already escaped control characters of strings. The line ends and tabs that remain are the
    # indentation.
    if char in "\n\t" or unicodedata.category(char) not in _INVISIBLE:
        return char
    return f"\\u{ord(char):04x}" if ord(char) < _ASCII_END else json.dumps(char)[1:-1]
