"""Patterns as they travel to a publisher, and back."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

import regex

from oz.errors import PatternError, ProtocolError
from oz.subjects.dialects import BY_NAME
from oz.subjects.dialects.base import Dialect, Form
from oz.subjects.dialects.regular import Regular
from oz.subjects.pattern import Pattern, compile, regex_with_flags, weight_of
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


def spell(pattern: Pattern) -> tuple[str, str | bytes]:
    """Return dialect and text of a pattern as a link declares it.

    Raises:
        PatternError: as `declare`.
    """
    declared = declare(pattern)
    name = _NAMES[declared.dialect]
    return name, declared.text if name == FLAGGED else pattern.text


def restore_spelled(dialect: str, text: str | bytes) -> Pattern:
    """Compile a pattern that a link has declared, if that takes no more than a few milliseconds.

    Raises:
        PatternError, ProtocolError: as `restore`; or the text is longer than `MAX_PATTERN`.
    """
    number = DIALECT_NUMBERS.get(dialect)
    if number is None:
        raise ProtocolError(f"dialect {dialect[:100]!r} is not known here")
    packed = text.encode() if isinstance(text, str) else text
    if len(packed) > MAX_PATTERN:
        raise _too_long(dialect, packed, f"{len(packed)} bytes", MAX_PATTERN)
    return restore(Declared(number, packed))


_NONE: Mapping[Declared, Pattern] = MappingProxyType({})

MAX_REGEX = 256
"""Characters of a regex that a publisher compiles, which takes it a few milliseconds."""

MAX_GLOB = 400
"""Bytes of a glob with wildcards; the same."""

MAX_ELEMENTS = 4_000
"""The most nodes that the engine may make of such a regex, each repeat written out as often as it must
occur."""


def restoring(
    patterns: Iterable[Declared], room: float, known: Mapping[Declared, Pattern] = _NONE
) -> Iterator[Pattern]:
    """Compile patterns that came from a subscriber, each at a step of its own; you may pause between them.

    Args:
        patterns: the patterns.
        room: the bytes of memory that they may take together, as `weight_of` estimates them.
        known: those of them that were compiled already.

    Raises:
        PatternError, ProtocolError: as `restore`; or they take more.
    """
    for declared in patterns:
        pattern = known.get(declared) or restore(declared)
        room -= weight_of(pattern)
        if room < 0:
            raise ProtocolError(
                "the patterns of this connection would take more memory than a publisher gives to one "
                "(pattern_weight): use fewer or simpler ones"
            )
        yield pattern


def restore(declared: Declared) -> Pattern:
    """Compile a pattern that came from a subscriber, if that takes no more than a few milliseconds.

    Raises:
        PatternError: its dialect does not allow it, or it is too long or too heavy to be compiled here.
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
        return _restore_regex(declared.text[_FLAGS.size :], flags)
    if dialect == Regular.name:
        return _restore_regex(declared.text, 0)
    if BY_NAME[dialect].form is Form.GLOB and len(declared.text) > MAX_GLOB:
        _refuse_long_glob(BY_NAME[dialect], declared.text)
    return compile(declared.text, dialect)


def _refuse_long_glob(dialect: Dialect, text: bytes) -> None:
    """Refuse one with wildcards; a literal is compared as it is."""
    if any(wildcard.encode() in text for wildcard in dialect.wildcards):
        raise _too_long(dialect.name, text, f"{len(text)} bytes", MAX_GLOB)


def _restore_regex(text: bytes, flags: int) -> Pattern:
    characters = len(text.decode(errors="replace"))
    if characters > MAX_REGEX:
        raise _too_long(Regular.name, text, f"{characters} characters", MAX_REGEX)
    return regex_with_flags(text, flags, max_weight=MAX_ELEMENTS)


def _too_long(dialect: str, text: bytes, size: str, most: int) -> PatternError:
    rule = (
        f"{size} take too long to compile at a publisher, which takes {most}: split it into several "
        'patterns, or use filtering="prefix"'
    )
    return PatternError(dialect, text[:most], 0, rule)
