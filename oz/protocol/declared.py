"""Patterns as they travel to a publisher, and back."""

from __future__ import annotations

import struct

import regex

from oz.errors import PatternError, ProtocolError
from oz.subjects.dialects import BY_NAME
from oz.subjects.pattern import Pattern, compile, regex_with_flags
from oz.wire.keys import MAX_PATTERN, Declared

_FLAGS = struct.Struct(">I")

KNOWN_FLAGS = int(
    regex.A | regex.B | regex.E | regex.F | regex.I | regex.L | regex.M | regex.P | regex.R | regex.S
    | regex.U | regex.V0 | regex.V1 | regex.W | regex.X
)  # fmt: skip
"""The flags of the `regex` package that mean something to a pattern: not DEBUG, which prints."""


LENIENT, FLAGGED = "rv lenient", "regex flags"
"""Spellings of rv and regex that need more than the text."""

DIALECT_NUMBERS = {name: dialect.number for name, dialect in BY_NAME.items()} | {LENIENT: 12, FLAGGED: 13}
"""What stands for a dialect on the wire."""

_NAMES = {number: name for name, number in DIALECT_NUMBERS.items()}


def declare(pattern: Pattern) -> Declared:
    """Return the form in which a pattern travels.

    Raises:
        PatternError: it has none, or one that is too long.
    """
    text = pattern.text.encode() if isinstance(pattern.text, str) else pattern.text
    dialect, flags, lists = pattern.dialect, pattern.flags, pattern.named_lists
    if lists:
        rule = "named lists cannot be sent to a publisher; write the words into the pattern"
        raise PatternError(dialect, pattern.text, 0, rule)
    if flags & KNOWN_FLAGS:
        dialect, text = FLAGGED, _FLAGS.pack(flags & KNOWN_FLAGS) + text
    elif pattern.is_lenient:
        dialect = LENIENT
    if len(text) > MAX_PATTERN:
        rule = f"{len(text)} bytes are too long to be sent to a publisher, which takes {MAX_PATTERN}"
        raise PatternError(dialect, pattern.text, 0, rule)
    return Declared(DIALECT_NUMBERS[dialect], text)


def restore(declared: Declared) -> Pattern:
    """Compile a pattern that came from a subscriber.

    Raises:
        PatternError: its dialect does not allow it.
        ProtocolError: it is cut short, or of a dialect that is not known here.
    """
    dialect = _NAMES.get(declared.dialect)
    if dialect is None:
        raise ProtocolError(f"dialect number {declared.dialect} is not known here")
    if dialect == LENIENT:
        return compile(declared.text, "rv", lenient=True)
    if dialect == FLAGGED:
        if len(declared.text) < _FLAGS.size:
            raise ProtocolError("a regex without its flags")
        (flags,) = _FLAGS.unpack_from(declared.text)
        if flags & ~KNOWN_FLAGS:
            raise ProtocolError(f"regex flags {flags:#x} are not known here")
        return regex_with_flags(declared.text[_FLAGS.size :], flags)
    return compile(declared.text, dialect)
