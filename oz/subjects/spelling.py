"""Spelling of patterns in declarations: dialect and text. A subscriber declares its patterns to a publisher.

In a declaration, a regex with flags and a lenient pattern of rv have special dialect names. A publisher compiles the
patterns of its peers. Therefore `restore` refuses a pattern that takes more than a few milliseconds to compile.
"""

from __future__ import annotations

import struct

import regex

from oz.errors import PatternError, ProtocolError
from oz.subjects.dialects import BY_NAME
from oz.subjects.dialects.base import Dialect, Form
from oz.subjects.dialects.regular import Regular
from oz.subjects.pattern import Pattern, compile, regex_with_flags

MAX_PATTERN = 8_192
"""Maximum size of a pattern in bytes."""
MAX_REGEX = 256
"""Maximum length of a regex in characters. A publisher compiles a regex of this size in a few milliseconds."""
MAX_GLOB = 400
"""Maximum size in bytes of a glob with wildcards. A publisher compiles such a glob in a few milliseconds."""
MAX_ELEMENTS = 4_000
"""Maximum number of nodes of a compiled regex. A repeat counts with all its copies."""

LENIENT, FLAGGED = "rv lenient", "regex flags"
"""Dialect names that occur only in declarations: a pattern of rv with `lenient=True`, and a regex behind its flags."""

KNOWN_FLAGS = int(
    regex.A | regex.B | regex.E | regex.F | regex.I | regex.L | regex.M | regex.P | regex.R | regex.S
    | regex.U | regex.V0 | regex.V1 | regex.W | regex.X
)  # fmt: skip
"""Flags of the `regex` package that a pattern may have. DEBUG is missing, because it only prints the parse tree."""

_FLAGS = struct.Struct(">I")


def spell(pattern: Pattern) -> tuple[str, str | bytes]:
    """Return the dialect and the text of a pattern for a declaration.

    Raises:
        PatternError: the pattern is too long, or has named lists.
    """
    dialect, text = pattern.dialect, pattern.text
    packed = text.encode() if isinstance(text, str) else text
    if pattern._named_lists:
        rule = "named lists cannot be sent to a publisher; write the words into the pattern"
        raise PatternError(dialect, text, 0, rule)
    flags = pattern._flags & KNOWN_FLAGS
    if flags:
        dialect, text = FLAGGED, _FLAGS.pack(flags) + packed
    elif pattern._is_lenient:
        dialect = LENIENT
    if len(packed) + (_FLAGS.size if flags else 0) > MAX_PATTERN:
        rule = f"{len(packed)} bytes are too long to be sent to a publisher, which takes {MAX_PATTERN}"
        raise PatternError(dialect, pattern.text, 0, rule)
    return dialect, text


def restore(dialect: str, text: str | bytes) -> Pattern:
    """Compile a pattern that a subscriber declared.

    Raises:
        PatternError: the dialect does not allow the pattern, or the pattern is too large to be compiled for a peer.
        ProtocolError: the dialect or a flag is unknown, or the flags of a regex are missing.
    """
    if dialect not in BY_NAME and dialect not in (LENIENT, FLAGGED):
        raise ProtocolError(f"dialect {dialect[:100]!r} is unknown")
    packed = text.encode() if isinstance(text, str) else text
    if len(packed) > MAX_PATTERN:
        raise _too_long(dialect, packed, f"{len(packed)} bytes", MAX_PATTERN)
    if dialect == LENIENT:
        return compile(packed, "rv", lenient=True)
    if dialect == FLAGGED:
        if len(packed) < _FLAGS.size:
            raise ProtocolError("a regex without its flags")
        (flags,) = _FLAGS.unpack_from(packed)
        if flags & ~KNOWN_FLAGS:
            raise ProtocolError(f"regex flags {flags:#x} are unknown")
        return _restore_regex(packed[_FLAGS.size :], flags)
    if dialect == Regular.name:
        return _restore_regex(packed, 0)
    if BY_NAME[dialect].form is Form.GLOB and len(packed) > MAX_GLOB:
        _refuse_long_glob(BY_NAME[dialect], packed)
    return compile(packed, dialect)


def _refuse_long_glob(dialect: Dialect, text: bytes) -> None:
    """Raise PatternError for a glob that is long and has wildcards.

    A long literal is allowed, because it is not compiled.
    """
    if any(wildcard.encode() in text for wildcard in dialect.wildcards):
        raise _too_long(dialect.name, text, f"{len(text)} bytes", MAX_GLOB)


def _restore_regex(text: bytes, flags: int) -> Pattern:
    characters = len(text.decode(errors="replace"))
    if characters > MAX_REGEX:
        raise _too_long(Regular.name, text, f"{characters} characters", MAX_REGEX)
    return regex_with_flags(text, flags, max_weight=MAX_ELEMENTS)


def _too_long(dialect: str, text: bytes, size: str, maximum: int) -> PatternError:
    rule = (
        f"{size} take too long to compile at a publisher, which takes {maximum}: split it into several patterns, "
        'or use filtering="prefix" and publisher.wait_for_subscribers()'
    )
    return PatternError(dialect, text[:maximum], 0, rule)
