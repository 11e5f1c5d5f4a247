"""What is legal in a pattern but unwise, in words."""

from __future__ import annotations

from oz.subjects.dialects.base import Wild
from oz.subjects.pattern import Pattern

MAX_TOKENS = 16
"""More tokens than this suggest data in the subject that belongs in the payload."""

_SEPARATOR = b"."


def advice(pattern: Pattern) -> list[str]:
    """Return a sentence for each thing that is unwise; nothing when all is well."""
    checks = (_everything_crosses(pattern), _many_tokens(pattern), _not_ascii(pattern))
    return [warning for warning in checks if warning is not None]


def _everything_crosses(pattern: Pattern) -> str | None:
    if b"" not in pattern.prefixes:
        return None
    return (
        "the prefix is empty: everything that is published crosses the wire and is filtered on arrival; "
        "begin with a literal"
    )


def _many_tokens(pattern: Pattern) -> str | None:
    count = _least_tokens(pattern)
    if count <= MAX_TOKENS:
        return None
    return f"{count} tokens, more than {MAX_TOKENS}: put what nobody selects by into the payload"


def _least_tokens(pattern: Pattern) -> int:
    if pattern.tokens is not None:
        return len(pattern.tokens)
    if pattern.words is not None:
        return sum(word is not Wild.ANY for word in pattern.words)
    # A dialect without tokens: a dot is sure to be a literal only in a prefix.
    return max(prefix.count(_SEPARATOR) for prefix in pattern.prefixes) + 1


def _not_ascii(pattern: Pattern) -> str | None:
    if pattern.text.isascii():
        return None
    return (
        "not ASCII: subjects are compared byte by byte, so text that looks the same but is composed "
        "differently does not match"
    )
