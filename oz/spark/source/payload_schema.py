"""The columns of a payload as an option writes them.

Spark says of a mistake in them that another column is wrong.
"""

from __future__ import annotations

import re

from oz.errors import OptionError

_TYPES = (
    "TINYINT BYTE SMALLINT SHORT INT INTEGER BIGINT LONG FLOAT REAL DOUBLE DECIMAL DEC NUMERIC BOOLEAN "
    "STRING CHAR CHARACTER VARCHAR BINARY DATE TIME TIMESTAMP TIMESTAMP_NTZ TIMESTAMP_LTZ ARRAY MAP STRUCT "
    "INTERVAL VARIANT VOID GEOMETRY GEOGRAPHY"
)
_KNOWN = frozenset(_TYPES.split())
_TOKEN = re.compile(
    r"""`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[<>(),:]|[^\s`'"<>(),:]+""", re.DOTALL
)
_MARKS = frozenset("<>(),:")
_DIGITS = 38
"""Digits that a decimal of Spark has at most."""


def refuse_misread(payload_schema: str) -> None:
    """Refuse columns that Spark would misread, and name the one that is wrong.

    Args:
        payload_schema: columns, as in `price DOUBLE, size BIGINT`.

    Raises:
        OptionError: one is no name and type.
    """
    columns = _Columns(payload_schema)
    if not columns.are_right():
        rule = f"{columns.wrong!r} is no name and type as in 'price DOUBLE, size BIGINT'"
        raise OptionError("payloadSchema", payload_schema, rule)


class _Columns:
    """Reads columns word by word; each method tells whether it found what it looks for, and passes it by."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found = list(_TOKEN.finditer(text))
        self._at = self._begins = 0

    @property
    def wrong(self) -> str:
        """The column that it stopped in, up to there."""
        ends = self._found[min(self._at, len(self._found) - 1)].end() if self._found else 0
        begins = self._found[self._begins].start() if self._begins < len(self._found) else ends
        return self._text[begins:ends]

    def are_right(self) -> bool:
        """Read them all."""
        while self._column():
            if self._at == len(self._found):
                return True
            if not self._take(","):
                return False
            self._begins = self._at
        return False

    def _column(self) -> bool:
        if self._word() in ("", *_MARKS):
            return False
        self._at += 1
        self._take(":")
        return self._kind() and self._rest()

    def _rest(self) -> bool:
        while self._word() in ("NOT", "COMMENT"):
            is_null = self._take("NOT")
            self._at += 1
            if is_null:
                continue
            if not self._word().startswith(("'", '"')):
                return False
            while self._word().startswith(("'", '"')):
                self._at += 1
        return True

    def _kind(self) -> bool:
        kind = self._word()
        if kind not in _KNOWN:
            return False
        self._at += 1
        if kind == "STRUCT":
            return self._take("<") and (self._take(">") or (self._fields() and self._take(">")))
        if kind == "ARRAY":
            return self._take("<") and self._kind() and self._take(">")
        if kind == "MAP":
            return self._take("<") and self._kind() and self._take(",") and self._kind() and self._take(">")
        return self._size(is_decimal=kind.startswith(("DEC", "NUM"))) and self._more(kind)

    def _fields(self) -> bool:
        while self._column():
            if not self._take(","):
                return True
        return False

    def _size(self, *, is_decimal: bool) -> bool:
        """Pass by what stands in brackets, as in `DECIMAL(9, 2)`."""
        if not self._take("("):
            return True
        if is_decimal and not (self._word().isdecimal() and int(self._word()) <= _DIGITS):
            return False
        while self._word() not in ("", ")"):
            self._at += 1
        return self._take(")")

    def _more(self, kind: str) -> bool:
        """Pass by the other words of a type, as in `TIMESTAMP WITHOUT TIME ZONE`."""
        begins = {"INTERVAL": "", "STRING": "COLLATE"}.get(kind, "WITH" if kind.startswith("TIME") else None)
        if begins is None or not self._word().startswith(begins):
            return True
        while self._word() not in ("", "NOT", "COMMENT", *_MARKS):
            self._at += 1
        return True

    def _take(self, word: str) -> bool:
        is_there = self._word() == word
        self._at += is_there
        return is_there

    def _word(self) -> str:
        return self._found[self._at][0].upper() if self._at < len(self._found) else ""
