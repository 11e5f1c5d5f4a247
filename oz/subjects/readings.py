"""What each dialect's patterns mean, as expressions.

Text, `*` and `>` of the dot-separated dialects, levels of mqtt, words of amqp, elements of a glob; a regex
has a module of its own (regexes.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oz.subjects.dialects import globs
from oz.subjects.dialects.base import Stem, Token, Wild
from oz.subjects.expressions import (
    ANY_BYTE,
    ANY_CHAR,
    ANY_TEXT,
    EMPTY,
    Bytes,
    Expression,
    Repeat,
    Seq,
    Text,
    chars_but,
    nonempty,
    optional,
    seq,
)
from oz.subjects.pattern import Pattern
from oz.subjects.regexes import read_regex

_DOT = Text(b".")
_WORD_CHAR = chars_but(".")
_TOKEN = Repeat(_WORD_CHAR, 1, None)
_WORD = Repeat(_WORD_CHAR, 0, None)
_SLASH = Text(b"/")
_LEVEL = Repeat(chars_but("/"), 0, None)


def expression_of(pattern: Pattern) -> Expression:
    """Write any pattern as an expression.

    Raises:
        Undecidable: a regex that uses more than expressions can say.
    """
    if pattern.literal is not None:
        return Text(pattern.literal)
    if pattern.dialect in _READERS:
        return _READERS[pattern.dialect](pattern)
    assert pattern.tokens is not None
    return _joined([_token(token) for token in pattern.tokens], _DOT)


def _joined(parts: Sequence[Expression], separator: Expression) -> Expression:
    return seq(*[item for part in parts for item in (separator, part)][1:])


def _token(token: Token) -> Expression:
    if isinstance(token, bytes):
        return Text(token)
    if isinstance(token, Stem):
        return Seq((Text(token.text), _WORD))
    return _TOKEN if token is Wild.ONE else Seq((_TOKEN, Repeat(Seq((_DOT, _TOKEN)), 0, None)))


def _mqtt(pattern: Pattern) -> Expression:
    """Levels may be empty; `#` is also its parent; no wildcard in the first level takes a `$`."""
    levels = _text(pattern).split("/")
    has_rest = levels[-1] == "#"
    if has_rest:
        levels.pop()
    if levels in ([], ["+"]) and has_rest:
        whole: Expression = _not_dollar("", ANY_TEXT)
    else:
        parts: list[Expression] = [_LEVEL if level == "+" else Text(level.encode()) for level in levels]
        if levels[0] == "+":
            parts[0] = _not_dollar("/", _LEVEL)
        rest = [optional(Seq((_SLASH, ANY_TEXT)))] if has_rest else []
        whole = seq(_joined(parts, _SLASH), *rest)
    # A topic has at least one character.
    return nonempty(whole)


def _not_dollar(excluded: str, rest: Expression) -> Expression:
    return optional(Seq((chars_but("$" + excluded), rest)))


def _amqp(pattern: Pattern) -> Expression:
    """Words may be empty, but the subject without characters has none; `#` is any number of them."""
    words = _text(pattern).split(".")
    collapsed = [word for at, word in enumerate(words) if word != "#" or words[at - 1 : at] != ["#"]]
    if collapsed == ["#"]:
        return ANY_TEXT
    if [word for word in collapsed if word != "#"] == ["*"] != collapsed:
        return Repeat(ANY_CHAR, 1, None)
    starts_open = collapsed[0] == "#"
    first, *others = collapsed[1:] if starts_open else collapsed
    items = [optional(Seq((ANY_TEXT, _DOT)))] if starts_open else []
    items.append(_word(first))
    for word in others:
        items += [optional(Seq((_DOT, ANY_TEXT)))] if word == "#" else [_DOT, _word(word)]
    return nonempty(seq(*items))


def _word(word: str) -> Expression:
    return _WORD if word == "*" else Text(word.encode())


def _text(pattern: Pattern) -> str:
    assert isinstance(pattern.text, str)
    return pattern.text


def _glob(pattern: Pattern) -> Expression:
    elements = elements_of(pattern)
    whole = seq(*(_element(element) for element in elements)) if elements else EMPTY
    # stringmatchlen leaves its loop before it looks at a star when the subject is empty.
    return nonempty(whole) if all(isinstance(element, globs.Glob) for element in elements) else whole


def elements_of(pattern: Pattern) -> list[globs.Element]:
    """Parse the glob of a redis or raims.glob pattern."""
    question = globs.ANY_BYTE if pattern.dialect == "redis" else globs.Glob.MAYBE
    text = pattern.text if isinstance(pattern.text, bytes) else pattern.text.encode()
    return globs.parse(text, question=question)


def _element(element: globs.Element) -> Expression:
    if element is globs.Glob.STAR:
        return Repeat(ANY_BYTE, 0, None)
    if element is globs.Glob.MAYBE:
        return optional(ANY_BYTE)
    assert isinstance(element, frozenset)
    return Bytes(sum(1 << byte for byte in element))


def _zmq(pattern: Pattern) -> Expression:
    text = pattern.text if isinstance(pattern.text, bytes) else pattern.text.encode()
    return Seq((Text(text), Repeat(ANY_BYTE, 0, None)))


_READERS: dict[str, Callable[[Pattern], Expression]] = {
    "mqtt": _mqtt,
    "amqp": _amqp,
    "redis": _glob,
    "raims.glob": _glob,
    "zmq": _zmq,
    "regex": read_regex,
}
