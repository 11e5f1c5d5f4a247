"""Advice on patterns that are legal but unwise."""

from __future__ import annotations

import difflib

from oz.subjects.dialects import DIALECTS
from oz.subjects.dialects.base import Wild
from oz.subjects.pattern import Pattern

MAX_TOKENS = 16
"""Maximum number of tokens without advice. A subject with more tokens probably contains data that belongs in the
payload."""

_SEPARATOR = b"."


def advice(pattern: Pattern) -> list[str]:
    """Return the advice on a pattern, one sentence for each fault."""
    checks = (_everything_crosses(pattern), _many_tokens(pattern), _not_ascii(pattern), _foreign(pattern))
    return [warning for warning in checks if warning is not None]


def misspelled_dialect(text: str) -> str | None:
    """Return the advice for text such as `redsi:a*`, which begins with a misspelled dialect; None for other text."""
    word, colon, rest = text.partition(":")
    # Most texts return here. `subscribe` calls this function, and a comparison of names takes a quarter of its time.
    if not colon or word in DIALECTS:
        return None
    near = difflib.get_close_matches(word.lower(), DIALECTS, n=1, cutoff=0.75)
    if not near:
        return None
    return f"no dialect has the name {word!r}, so it is part of the pattern; did you mean {near[0]}:{rest}?"


def foreign_wildcard(pattern: Pattern) -> tuple[str, tuple[str, ...]] | None:
    """Return a token of a nats pattern that is literal in nats and has a wildcard in another dialect, such as `+`.

    Returns:
        The token, and the names of the dialects in which it has a wildcard. None if the pattern has no such token.
    """
    if pattern.dialect != "nats" or not isinstance(pattern.text, str):
        return None
    words = {word for token in pattern.text.split(".") for word in token.split("/")}
    if "+" in words:
        return "+", ("mqtt",)
    if "#" in words:
        return "#", ("mqtt",) if "/" in pattern.text else ("amqp",) if "." in pattern.text else (
            "mqtt",
            "amqp",
        )
    for token in pattern.text.split("."):
        if "*" in token and token != "*":
            return token, ("redis", "kubemq") if token.index("*") == len(token) - 1 else ("redis",)
    return None


def _foreign(pattern: Pattern) -> str | None:
    found = foreign_wildcard(pattern)
    return None if found is None else foreign_wildcard_text(*found)


def foreign_wildcard_text(wildcard: str, owners: tuple[str, ...]) -> str:
    """Return the advice for a result of `foreign_wildcard`."""
    verb = "is" if len(wildcard) == 1 else "has"
    text = f"{wildcard!r} is literal text in nats, and {verb} a wildcard in {' and in '.join(owners)}"
    return f"{text} (mqtt separates at '/')" if "mqtt" in owners else text


def _everything_crosses(pattern: Pattern) -> str | None:
    if b"" not in pattern.prefixes:
        return None
    return (
        "the prefix is empty, so that a plain publisher sends all messages and the subscriber filters them; "
        "begin the pattern with a literal"
    )


def _many_tokens(pattern: Pattern) -> str | None:
    count = _least_tokens(pattern)
    if count <= MAX_TOKENS:
        return None
    return f"{count} tokens, more than {MAX_TOKENS}: move data that no pattern selects by into the payload"


def _least_tokens(pattern: Pattern) -> int:
    if pattern._compiled.tokens is not None:
        return len(pattern._compiled.tokens)
    if pattern._compiled.words is not None:
        return sum(word is not Wild.ANY for word in pattern._compiled.words)
    # In a dialect without tokens, only the dots of a prefix are certainly literal.
    return max(prefix.count(_SEPARATOR) for prefix in pattern.prefixes) + 1


def _not_ascii(pattern: Pattern) -> str | None:
    if pattern.text.isascii():
        return None
    return (
        "not ASCII: subjects are compared byte by byte, so that the composed and the decomposed form of a "
        "character differ"
    )
