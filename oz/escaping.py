r"""Escapes for untrusted text in terminals, logs and JSON.

A subject may contain control sequences of a terminal (C0 and C1, such as U+009B). A subject may also contain line
ends that forge a line of a log (U+0085, U+2028), and marks that reverse text (U+202E). Therefore oz shows text of
peers, messages and files only through `printable`, and in JSON through `json_text`.
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

# `str.isprintable` is false for each text with an invisible character.
_NOT_PLAIN = re.compile(r"[^\x20-\x7e]")
_ASCII_END = 0x80


def printable(value: str | bytes) -> str:
    r"""Return text as one line that is safe for a terminal.

    Invisible characters except the tab become escapes such as `\n`, `\x9b` or `\u202e`. Bytes that are not UTF-8
    become escapes such as `\xff`. In text, `surrogateescape` stands for such bytes.
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
    """Return the bytes of text. Surrogates that `surrogateescape` has made become the original bytes."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        # Text from JSON may contain other surrogates.
        return text.encode(errors="backslashreplace")


def json_text(value: Any, *, indent: int | None = None) -> str:
    r"""Return JSON in which invisible characters are escapes such as `\u202e`. A parser reads the original value."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return text if text.isprintable() else _NOT_PLAIN.sub(_escape_json, text)


def json_value(value: Any) -> Any:
    """Convert a value to a value that JSON can hold. Bytes become text, in Base64 if they are not UTF-8."""
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
    # `json.dumps` has escaped all controls below 32. The remaining line ends and tabs are its indentation.
    if char in "\n\t" or unicodedata.category(char) not in _INVISIBLE:
        return char
    return f"\\u{ord(char):04x}" if ord(char) < _ASCII_END else json.dumps(char)[1:-1]
