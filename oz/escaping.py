r"""Text of strangers, as it may be shown: no character that cannot be seen, ends a line or turns text around.

A subject may hold control sequences of a terminal (C0 and C1, U+009B begins one), line ends that forge a line
of a log (U+0085, U+2028), and marks that show text backwards (U+202E). Whatever a peer, a message or a file
says is shown through `printable`, and as JSON through `json_text`.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
"""Controls, formatting such as marks of direction, surrogates, private and unassigned, ends of lines."""

# What `str.isprintable` takes for printable is none of these.
_SUSPECTS = re.compile(r"[^\x20-\x7e]")
_ASCII_END = 0x80


def printable(value: str | bytes) -> str:
    r"""Return text that is one line and does nothing to a terminal.

    What cannot be seen becomes an escape such as `\n`, `\x9b` or `\u202e`; so do bytes that are not UTF-8,
    such as `\xff`, also in text to which they came by `surrogateescape`. A tab stays.
    """
    if isinstance(value, str) and value.isprintable():
        return value
    text = (raw_text(value) if isinstance(value, str) else value).decode(errors="backslashreplace")
    return text if text.isprintable() else _SUSPECTS.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    char = found[0]
    if char == "\t" or unicodedata.category(char) not in _UNSEEN:
        return char
    return char.encode("unicode_escape").decode()


def raw_text(text: str) -> bytes:
    """Return the bytes of text, those that are not UTF-8 too, to which it came by `surrogateescape`."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        # Surrogates that stand for no byte; JSON can bring them.
        return text.encode(errors="backslashreplace")


def json_text(value: Any, *, indent: int | None = None) -> str:
    r"""Write JSON in which nothing unseen stands as it is: `\u202e` is the same value to who reads it."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return text if text.isprintable() else _SUSPECTS.sub(_json_escaped, text)


def _json_escaped(found: re.Match[str]) -> str:
    char = found[0]
    # JSON itself has escaped those below 32, and its own line ends are meant.
    if char in "\n\t" or unicodedata.category(char) not in _UNSEEN:
        return char
    return f"\\u{ord(char):04x}" if ord(char) < _ASCII_END else json.dumps(char)[1:-1]
