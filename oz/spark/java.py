r"""Java regular expressions with the meaning of oz patterns, for Spark's RLIKE.

Theory of operation. RLIKE searches with the regex engine of Java. This engine has no time limit, and a deep recursion
can end the JVM. Three rules make Java agree with Python's engine, and protect the JVM:

- The Java regex consists of a few constructs with the same meaning in both engines: `\A`, `\z`, escaped literals,
  classes of listed characters, `[^.]+`, `[\s\S]*`, atomic groups and alternatives. The regex does not contain `$`,
  `\Z`, `.` and `\w`, which have another meaning in Java.

- Java runs a repeat of a single character or of a possessive group in a loop, and other repeats by recursion. Therefore
  only single characters and one possessive group repeat without a limit. A literal between two stars is in an atomic
  group, so that Java tries only its first match. The time therefore grows at most with the square of the subject's
  length.

- A pattern of tokens and a glob are translated from their parsed tokens. A pattern of the regex dialect is translated
  only if it consists of the constructs in `_REGEX_ITEM`. Python evaluates all other patterns.

A byte dialect matches bytes. The regex of such a pattern expects subjects that were decoded as ISO-8859-1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from oz.subjects import dialects
from oz.subjects.dialects.base import Stem, Token, Wild
from oz.subjects.dialects.globs import ANY_BYTE, Element, Glob, GlobDialect
from oz.subjects.pattern import Pattern

MAX_WILDCARDS = 100
"""Maximum number of wildcards in a pattern. Java uses stack for each element of a pattern, and the stack overflowed
near 2,000 elements.
"""
MAX_REPEATS = 3
"""Maximum number of repeats in a regex that can match the same characters. Three such repeats can divide 256 characters
among themselves in about 3 million ways, and Java may try each of them.
"""
MAX_REGEX_LENGTH = 300  # characters

ANYTHING = r"[\s\S]*"
NEVER = "(?!)"


def java_regex(pattern: Pattern) -> str | None:
    """Return a Java regex for a pattern. The regex expects subjects that begin with a prefix of the pattern.

    Args:
        pattern: a pattern that is not a literal.

    Returns:
        The regex for RLIKE; an empty text if every subject with a prefix of the pattern matches; None if Python must
        evaluate the pattern.
    """
    if pattern._dialect.is_prefix:
        return ""
    if pattern.dialect == "regex":
        return _regex(pattern)
    rules = dialects.find(pattern.dialect)
    if isinstance(rules, GlobDialect):
        return _glob(rules.elements(pattern.text), pattern)
    words = pattern._compiled.tokens if pattern._compiled.tokens is not None else pattern._compiled.words
    if words is None or sum(not isinstance(word, bytes) for word in words) > MAX_WILDCARDS:
        return None
    write = {"mqtt": _levels, "amqp": _routing_key}.get(pattern.dialect, _tokens)
    return write(words)


def escape(text: str) -> str:
    """Return a Java regex that matches exactly one text."""
    return "".join(map(_character, text))


def _character(char: str) -> str:
    if char.isascii() and char.isalnum():
        return char
    return f"\\{char}" if "!" <= char <= "~" else f"\\x{{{ord(char):x}}}"


# Dot-separated tokens: nats, rv, kubemq, raims.rv -------------------------------------------------


def _tokens(tokens: Sequence[Token]) -> str:
    return r"\A" + r"\.".join(map(_token, tokens)) + r"\z"


def _token(token: Token) -> str:
    if isinstance(token, Stem):
        return escape(token.text.decode()) + "[^.]*"
    if isinstance(token, bytes):
        return escape(token.decode())
    return "[^.]+" if token is Wild.ONE else r"[^.]+(?:\.[^.]+)*+"


# mqtt: levels, which may be empty -----------------------------------------------------------------


def _levels(levels: Sequence[Token]) -> str:
    has_rest = levels[-1] is Wild.ANY
    written = [
        "[^/]*" if level is Wild.ONE else escape(level.decode())
        for level in levels
        if isinstance(level, bytes) or level is Wild.ONE
    ]
    # A wildcard in the first level does not match a topic that starts with `$`. A topic is never empty.
    guard = r"(?!\z)" if isinstance(levels[0], bytes) else r"(?!\z|\$)"
    if not written:
        return rf"\A{guard}"
    return rf"\A{guard}{'/'.join(written)}" + (r"(?:/|\z)" if has_rest else r"\z")


# amqp: words, which may be empty, with `#` anywhere -----------------------------------------------


def _routing_key(words: Sequence[Token]) -> str:
    segments: list[list[str]] = [[]]
    for word in words:
        if word is Wild.ANY:
            segments.append([])
        else:
            segments[-1].append(escape(word.decode()) if isinstance(word, bytes) else "[^.]*+")
    first, *others = [r"\.".join(segment) if segment else None for segment in segments]
    if not others:
        return rf"\A(?!\z){first}\z"
    if first is None and others == [None]:
        return ""
    end_of_word = r"(?=\.|\z)"
    written = r"\A(?!\z)" if first is None else rf"\A(?!\z){first}{end_of_word}"
    for segment in others[:-1]:
        # Each segment has a fixed number of words, so that the first match of the segment suffices.
        start = r"(?:\A|\.)" if written == r"\A(?!\z)" else r"\."
        written += rf"(?>{ANYTHING}?{start}{segment}{end_of_word})"
    if others[-1] is not None:
        start = r"(?:\A|\.)" if written == r"\A(?!\z)" else r"\."
        written += rf"{ANYTHING}{start}{others[-1]}\z"
    return written


# Globs over bytes: redis, raims.glob --------------------------------------------------------------


def _glob(elements: Sequence[Element], pattern: Pattern) -> str | None:
    if all(isinstance(element, Glob) for element in elements):
        # An empty subject does not match, although `*` could match it.
        return r"\A[\s\S]" if Glob.STAR in elements else rf"\A[\s\S]{{1,{len(elements)}}}\z"
    *head, last = elements
    if last is Glob.STAR and Glob.STAR not in head and {len(head)} == set(map(len, pattern.prefixes)):
        return ""
    if sum(isinstance(element, Glob) for element in elements) > MAX_WILDCARDS:
        return None
    optional = elements.count(Glob.MAYBE)
    if optional > 1 and (optional > MAX_REPEATS or Glob.STAR in elements):
        return None
    segments: list[str] = [""]
    for element in elements:
        if element is Glob.STAR:
            segments.append("")
        else:
            segments[-1] += _one_byte(element)
    if len(segments) == 1:
        return rf"\A{segments[0]}\z"
    is_fixed = optional == 0
    middle = [rf"(?>{ANYTHING}?{each})" if is_fixed else rf"{ANYTHING}?{each}" for each in segments[1:-1]]
    end = rf"{ANYTHING}{segments[-1]}\z" if segments[-1] else ""
    return rf"\A{segments[0]}{''.join(middle)}{end}"


def _one_byte(element: Element) -> str:
    if element is Glob.MAYBE:
        return r"[\s\S]?"
    if element == ANY_BYTE:
        return r"[\s\S]"
    assert isinstance(element, frozenset)
    members = sorted(element)
    if not members:
        return NEVER
    return _character(chr(members[0])) if len(members) == 1 else f"[{_ranges(members)}]"


def _ranges(members: Iterable[int]) -> str:
    numbers = set(members)
    starts = sorted(number for number in numbers if number - 1 not in numbers)
    ends = sorted(number for number in numbers if number + 1 not in numbers)
    pairs = zip(starts, ends, strict=True)
    return "".join(f"{_character(chr(low))}-{_character(chr(high))}" for low, high in pairs)


# The regex dialect: constructs with the same meaning in both engines --------------------------------

_PLAIN = r"[A-Za-z0-9_\-/:,;@%=~<>!\"']|[^\x00-\x7f]"
_ESCAPED = r"\\[!-/:-@\[-`{-~]"
_MEMBER = rf"(?:[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9_./:,;@*+?$#]|[^\x00-\x7f]|{_ESCAPED})"
_REGEX_ITEM = re.compile(
    rf"""
    (?P<open>\((?:\?:)?(?![?*])) | (?P<close>\)\??(?![?*+{{])) | (?P<branch>\|)
    | (?P<start>\^(?![?*+{{])) | (?P<end>\$(?![?*+{{]))
    | (?P<atom>
        (?P<literal>{_PLAIN}|{_ESCAPED}) | (?P<dot>\.) | \[(?P<negated>\^?)(?P<members>{_MEMBER}+)\]
      )
      (?P<repeat>(?:[?*+]|\{{\d{{1,2}}(?:,\d{{1,2}})?\}})[?+]?)?(?![?*+{{])
    """,
    re.VERBOSE,
)


def _regex(pattern: Pattern) -> str | None:
    text, flags = pattern.text, pattern._flags
    if flags or pattern._named_lists or not isinstance(text, str) or len(text) > MAX_REGEX_LENGTH:
        return None
    dot = "[^\\x{a}]"
    if text.startswith("(?s)"):
        text, dot = text.removeprefix("(?s)"), r"[\s\S]"
    written: list[str] = []
    repeats, at = 0, 0
    previous: str | None = None  # the atom before this item, if it is repeated
    while at < len(text):
        item = _REGEX_ITEM.match(text, at)
        if item is None:
            return None
        literal = item["literal"]
        if previous is not None and (
            literal is None or item["repeat"] or re.fullmatch(previous, literal[-1])
        ):
            repeats += 1
        previous = item["atom"] if item["repeat"] else None
        written.append(_item_text(item, dot))
        at = item.end()
    repeats += previous is not None
    return None if repeats > MAX_REPEATS else rf"\A(?:{''.join(written)})\z"


def _item_text(item: re.Match[str], dot: str) -> str:
    if item["open"]:
        return "(?:"
    if item["start"] or item["end"]:
        return r"\A" if item["start"] else r"\z"
    if item["close"] or item["branch"]:
        return item[0]
    if item["literal"]:
        atom = _character(item["literal"][-1])
    elif item["dot"]:
        atom = dot
    else:
        members = [_member(found) for found in re.findall(_MEMBER, item["members"])]
        atom = f"[{item['negated']}{''.join(members)}]"
    return atom + (item["repeat"] or "")


def _member(text: str) -> str:
    return text if len(text) == 3 else _character(text[-1])
