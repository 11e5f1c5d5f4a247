"""MQTT topics: levels with `/` between them. A level may be empty.

Sources: MQTT 3.1.1 and MQTT 5.0, section 4.7, "Topic Names and Topic Filters"; answers of a mosquitto server in
tests/vectors; for invalid text, `mosquitto_validate_utf8`. The dialect refuses shared subscriptions,
`$share/group/filter` (MQTT 5, section 4.8.2), because oz has queue groups instead.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import regex

from oz.errors import PatternError, SubjectError
from oz.subjects.dialects import literals
from oz.subjects.dialects.base import CompiledPattern, Dialect, Form, Splitting, Token, Wild, encode_word
from oz.subjects.dialects.literals import check_length
from oz.subjects.expressions import (
    ANY_TEXT,
    Expression,
    Repeat,
    Seq,
    Text,
    chars_but,
    joined,
    nonempty,
    optional,
    seq,
)

SEPARATOR = "/"
SHARED = "$share/"
"""Prefix of a shared subscription."""
MAX_BYTES = 65_535
"""Maximum size in bytes of a string, because its length field has two bytes (MQTT 3.1.1, section 1.5.3)."""

# Control characters and Unicode noncharacters. MQTT 3.1.1, section 1.5.3, allows a server to refuse these characters,
# and mosquitto refuses them.
_FORBIDDEN = regex.compile(r"[\x00-\x1f\x7f-\x9f\p{Noncharacter_Code_Point}]")


_SLASH = Text(b"/")
_LEVEL = Repeat(chars_but(SEPARATOR), 0, None)


def _levels(subject: bytes) -> list[bytes] | None:
    # The empty subject is not a topic name, and no filter matches it.
    return subject.split(b"/") if subject else None


def _is_reserved(subject: bytes) -> bool:
    return subject.startswith(b"$")


class Mqtt(Dialect):
    """MQTT dialect.

    `+` matches one level, and a last `#` matches zero or more levels. If the first level begins with `$`, no wildcard
    matches it.
    """

    name = "mqtt"
    form = Form.WORDS
    separator = SEPARATOR
    splitting = Splitting(_levels, _is_reserved)
    wildcards = "+#"
    spelling = MappingProxyType({Wild.ONE: "+", Wild.REST: "+/#", Wild.ANY: "#"})

    def compile(self, text: str | bytes, *, lenient: bool = False) -> CompiledPattern:
        """Parse the levels and compute the prefix; see `Dialect.compile`."""
        assert isinstance(text, str)
        self._check_text(text, PatternError)
        self._check_not_shared(text)
        words = self._parse(text)
        literal = text.encode() if all(isinstance(word, bytes) for word in words) else None
        start = literal if literal is not None else prefix(words)
        return CompiledPattern(regex=None, prefixes=(start,), literal=literal, words=words)

    def make_regex(self, compiled: CompiledPattern) -> regex.Pattern[Any]:
        """Return the regex of a filter; see `Dialect.make_regex`."""
        assert compiled.words is not None
        return regex.compile(to_regex(compiled.words), regex.DOTALL)

    def expression(self, text: str | bytes, compiled: CompiledPattern) -> Expression:
        """Return the expression of a filter. `a/#` also matches `a`; see `Dialect.expression`."""
        levels = list(compiled.words or ())
        has_rest = levels[-1] is Wild.ANY
        if has_rest:
            levels.pop()
        if levels in ([], [Wild.ONE]) and has_rest:
            whole: Expression = _not_dollar("", ANY_TEXT)
        else:
            parts: list[Expression] = [
                Text(level) if isinstance(level, bytes) else _LEVEL for level in levels
            ]
            if levels[0] is Wild.ONE:
                parts[0] = _not_dollar(SEPARATOR, _LEVEL)
            rest = [optional(Seq((_SLASH, ANY_TEXT)))] if has_rest else []
            whole = seq(joined(parts, _SLASH), *rest)
        # A topic has at least one character.
        return nonempty(whole)

    def check_subject(self, subject: str | bytes) -> None:
        """Refuse an empty topic name, wildcards, control characters, and more than `MAX_BYTES` bytes."""
        assert isinstance(subject, str)
        self._check_text(subject, SubjectError)
        for position, char in enumerate(subject):
            if char in "+#":
                rule = f"{char!r} is a wildcard; messages are published to a topic name without any"
                raise SubjectError(self.name, subject, position, rule)

    def _check_text(self, text: str, error: type[PatternError | SubjectError]) -> None:
        if not text:
            raise error(self.name, text, 0, "a topic has at least one character")
        found = _FORBIDDEN.search(text)
        if found:
            kind = "control characters and noncharacters are not allowed"
            raise error(self.name, text, found.start(), f"U+{ord(found[0]):04X}: {kind}")
        check_length(self.name, text, MAX_BYTES, error)

    def _check_not_shared(self, text: str) -> None:
        if not text.startswith(SHARED):
            return
        group, _, rest = text.removeprefix(SHARED).partition(SEPARATOR)
        named = (rest, group) if group and rest and not {"+", "#"} & set(group) else ("filter", "name")
        rule = "a shared subscription is a queue group here: subscribe to {!r} with group={!r}".format(*named)
        raise PatternError(self.name, text, 0, rule)

    def _parse(self, text: str) -> tuple[Token, ...]:
        words: list[Token] = []
        position = 0
        parts = text.split(SEPARATOR)
        for number, part in enumerate(parts):
            words.append(self._word(part, position, text, last=number == len(parts) - 1))
            position += len(part) + 1
        return tuple(words)

    def _word(self, part: str, position: int, text: str, *, last: bool) -> Token:
        if part == "+":
            return Wild.ONE
        if part == "#":
            if last:
                return Wild.ANY
            raise PatternError(self.name, text, position, "'#' may only be the last level")
        for at, char in enumerate(part):
            if char in "+#":
                raise PatternError(self.name, text, position + at, f"{char!r} must be a whole level")
        return encode_word(part)


def _not_dollar(excluded: str, rest: Expression) -> Expression:
    return optional(Seq((chars_but("$" + excluded), rest)))


def to_regex(words: tuple[Token, ...]) -> str:
    """Return the regex for the levels of a filter. The regex does not backtrack, because each repeat is possessive.

    The regex does not match the empty subject, which is not a topic name.
    """
    written = [r"(?!\Z)" if isinstance(words[0], bytes) else r"(?!\Z|\$)"]
    literal: list[str] = []
    for word in words:
        if isinstance(word, bytes):
            literal.append(word.decode())
        elif word is Wild.ONE:
            written += literals.literal_regex(SEPARATOR.join([*literal, ""])), "[^/]*+"
            literal = [""]  # The next literal begins with a separator.
        else:
            written += (
                literals.literal_regex(SEPARATOR.join(literal)),
                "(?:/.*+)?+" if len(words) > 1 else ".*+",
            )
            literal = []
    return "".join(written) + literals.literal_regex(SEPARATOR.join(literal))


def prefix(words: tuple[Token, ...]) -> bytes:
    """Return the levels before the first wildcard.

    A separator follows if each matching subject has a separator there.
    """
    count = next(at for at, word in enumerate(words) if not isinstance(word, bytes))
    literal = [word for word in words[:count] if isinstance(word, bytes)]
    # `a/#` also matches `a`. Therefore its prefix has no separator. `/#` does not match the empty subject.
    if literal and (words[count] is Wild.ONE or literal == [b""]):
        literal.append(b"")
    return SEPARATOR.encode().join(literal)
