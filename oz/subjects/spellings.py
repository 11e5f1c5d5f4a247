"""How patterns are written in a dialect: token by token, as a glob, or as a regex."""

from __future__ import annotations

from collections.abc import Sequence

import regex

from oz.errors import PatternError
from oz.subjects.dialects.base import Stem, Token, Wild
from oz.subjects.expressions import (
    ANY_BYTE,
    ANY_CHAR,
    Alt,
    Bytes,
    Chars,
    Expression,
    Ranges,
    Repeat,
    Seq,
    Text,
    complement,
    ranges_of,
)

_WILDCARDS = {
    "mqtt": {Wild.ONE: "+", Wild.REST: "+/#", Wild.ANY: "#"},
    "amqp": {Wild.ONE: "*", Wild.REST: "*.#", Wild.ANY: "#"},
}
_DOTTED = {Wild.ONE: "*", Wild.REST: ">", Wild.ANY: ">"}


def words_text(words: Sequence[Token], dialect: str, separator: str) -> str:
    """Write tokens in a dialect that has them, with its nearest wildcard where it lacks one.

    Raises:
        PatternError: `#` stands where the dialect has no wildcard for it.
        UnicodeDecodeError: a token is not UTF-8.
    """
    wildcards = _WILDCARDS.get(dialect, _DOTTED)
    written: list[str] = []
    for at, word in enumerate(words):
        if word is Wild.ANY and dialect != "amqp" and at < len(words) - 1:
            rule = "it has no wildcard for any number of tokens before the last"
            raise PatternError(dialect, separator.join([*written, "#", "…"]), 0, rule)
        if isinstance(word, Wild):
            written.append(wildcards[word])
        elif isinstance(word, Stem):
            written.append(word.text.decode() + "*" if dialect == "kubemq" else wildcards[Wild.ONE])
        else:
            written.append(word.decode())
    return separator.join(written)


def glob_text(words: Sequence[Token], separator: str, *, may_be_empty: bool) -> bytes:
    """Write tokens as a glob; its stars do not stop at a separator.

    Args:
        words: the tokens.
        separator: what stands between them.
        may_be_empty: whether a token may, so that `*` says more than `?*`.
    """
    star = b"*" if may_be_empty else b"?*"
    written, glue = b"", b""
    for word in words:
        if word is Wild.ANY:  # no token, and no separator then
            written, glue = written + b"*", separator.encode() if written else b""
            continue
        if isinstance(word, Stem):
            text = escaped_glob(word.text) + b"*"
        else:
            text = escaped_glob(word) if isinstance(word, bytes) else star
        written, glue = written + glue + text, separator.encode()
    return written


def escaped_glob(text: bytes) -> bytes:
    """Write bytes as a glob that matches nothing else."""
    return regex.sub(rb"([*?\[\\])", rb"\\\1", text)


def regex_text(expression: Expression) -> str:
    """Write an expression as a regex, as near as characters come where it is about bytes.

    Raises:
        UnicodeDecodeError: it has literal bytes that are not UTF-8, which no regex of text can match.
    """
    return f"(?s){_regex(expression)}"


def _regex(expression: Expression) -> str:
    match expression:
        case Text(value):
            return regex.escape(value.decode(), special_only=True, literal_spaces=True)
        case Bytes(mask):
            return _class(_as_characters(mask))
        case Chars(ranges):
            return _class(ranges)
        case Seq(items):
            return "".join(_grouped(item) if isinstance(item, Alt) else _regex(item) for item in _run(items))
        case Alt(items):
            return "|".join(map(_regex, items))
        case Repeat(item, 1, 1):
            return _grouped(item)
        case Repeat(item, least, most):
            sign = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
            return _grouped(item) + (sign or f"{{{least},{'' if most is None else most}}}")


def _grouped(item: Expression) -> str:
    one = isinstance(item, (Bytes, Chars))
    return _regex(item) if one else f"(?:{_regex(item)})"


def _run(items: Sequence[Expression]) -> list[Expression]:
    """Join what is literal: a character may be several bytes."""
    joined: list[Expression] = []
    for item in items:
        if isinstance(item, Bytes) and item.mask.bit_count() == 1:
            item = Text(bytes([item.mask.bit_length() - 1]))
        if isinstance(item, Text) and joined and isinstance(joined[-1], Text):
            joined[-1] = Text(joined[-1].value + item.value)
        else:
            joined.append(item)
    return joined


def _as_characters(mask: int) -> Ranges:
    """Take bytes above ASCII for characters: all of them for all others, and some for none."""
    high = [(0x80, 0x10FFFF)] if mask >> 128 == ANY_BYTE.mask >> 128 else []
    return ranges_of([*((byte, byte) for byte in range(128) if mask >> byte & 1), *high])


def _class(ranges: Ranges) -> str:
    if ranges == ANY_CHAR.ranges:
        return "."
    if not ranges:
        return r"[^\x00-\U0010ffff]"  # not [^\s\S]: the engine takes that for any character
    others = complement(ranges)
    if len(others) < len(ranges):
        return f"[^{_members(others)}]"
    return f"[{_members(ranges)}]"


def _members(ranges: Ranges) -> str:
    ends = ((_member(low), _member(high)) for low, high in ranges)
    return "".join(low if low == high else f"{low}-{high}" for low, high in ends)


def _member(code: int) -> str:
    char = chr(code)
    if not char.isprintable():
        return f"\\U{code:08x}"
    return f"\\{char}" if char in r"\]^-[&|~" else char
