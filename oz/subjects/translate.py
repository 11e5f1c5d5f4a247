"""A pattern of one dialect written in another, and what becomes of its meaning on the way."""

from __future__ import annotations

from dataclasses import dataclass

from oz.errors import PatternError, Undecidable
from oz.subjects import relations
from oz.subjects.automata import alone, preferring_text
from oz.subjects.dialects import find, globs
from oz.subjects.dialects.base import Dialect, Form, Stem, Token, Wild
from oz.subjects.pattern import Pattern, compile
from oz.subjects.regexes import regex_text

_Subject = str | None


@dataclass(frozen=True, slots=True)
class Translation:
    """A pattern in another dialect, beside the one it was made of.

    Attributes:
        pattern: the translation.
        also_matches: a shortest subject that only the translation matches; None if there is none.
        misses: a shortest subject that only the original matches; None if there is none.
        undecided: why it cannot be told how the two relate; None if it can.
    """

    pattern: Pattern
    also_matches: str | None = None
    misses: str | None = None
    undecided: str | None = None

    @property
    def relation(self) -> str:
        """`exact`, `wider`, `narrower`, `overlapping` (each matches what the other does not), `undecided`."""
        if self.undecided is not None:
            return "undecided"
        if self.also_matches is None:
            return "exact" if self.misses is None else "narrower"
        return "wider" if self.misses is None else "overlapping"

    @property
    def exact(self) -> bool:
        """Whether both match the same subjects."""
        return self.relation == "exact"

    @property
    def counterexample(self) -> str | None:
        """A subject that just one of the two matches."""
        return self.misses if self.misses is not None else self.also_matches


def translate(pattern: Pattern, dialect: str, *, exchange: bool = False) -> Translation:
    """Write a pattern in another dialect, as exactly as that can say it.

    Args:
        pattern: the pattern.
        dialect: one of `oz.DIALECTS`.
        exchange: subjects change too: `.` becomes `/` and `/` becomes `.`, as when `a/b` of mqtt becomes
            `a.b` of nats. Without it subjects stay as they are.

    Raises:
        PatternError: the dialect has nothing like it.
        ConfigurationError: no dialect has this name.
    """
    rules = find(dialect)
    try:
        written = _write(pattern, rules, exchange)
    except UnicodeDecodeError:
        raise _untranslatable(
            pattern, dialect, f"no pattern of {dialect} matches what is not UTF-8"
        ) from None
    try:
        misses, also = _differences(pattern, written, exchange)
    except Undecidable as error:
        return Translation(written, undecided=str(error))
    return Translation(written, also, misses)


def _differences(pattern: Pattern, written: Pattern, exchange: bool) -> tuple[_Subject, _Subject]:
    """Find what the translation misses, and what it matches beyond the original."""
    if not exchange:
        return relations.counterexample(written, pattern), relations.counterexample(pattern, written)
    before, after = relations.automaton_of(pattern).renamed(*b"./"), relations.automaton_of(written)
    misses, also = preferring_text(alone, before, after), preferring_text(alone, after, before)
    # Tried on the patterns themselves, as relations.py does.
    for found, matched, missed in ((misses, pattern, written), (also, written, pattern)):
        if found is not None and (
            not relations.takes(matched, _exchanged(found) if matched is pattern else found)
            or relations.takes(missed, _exchanged(found) if missed is pattern else found)
        ):
            raise Undecidable(f"{pattern!r} and {written!r} do not match {found!r} as their automata do")
    return _readable(misses), _readable(also)


def _readable(found: bytes | None) -> _Subject:
    return None if found is None else relations.readable(found)


def _write(pattern: Pattern, rules: Dialect, exchange: bool) -> Pattern:
    """Write a pattern; UnicodeDecodeError where a dialect of text would have to say what is no text."""
    if pattern.literal is not None:
        return _write_literal(_exchanged(pattern.literal) if exchange else pattern.literal, rules)
    if rules.name == pattern.dialect and not exchange:
        return pattern
    if rules.form is Form.PREFIX:
        return compile(_exchanged(pattern.prefix) if exchange else pattern.prefix, rules.name)
    if find(pattern.dialect).form is Form.REGEX or rules.form is Form.LITERAL:
        raise _untranslatable(pattern, rules.name, "it has wildcards that this dialect cannot express")
    if rules.form is Form.WORDS:
        return _write_words(pattern, rules, exchange)
    if exchange:
        raise _untranslatable(pattern, rules.name, "this dialect has no separator to exchange")
    if rules.form is Form.REGEX:
        return compile(regex_text(pattern.expression()), rules.name)
    return _write_glob(pattern, rules)


def _write_literal(text: bytes, rules: Dialect) -> Pattern:
    written = compile(rules.literal_text(text), rules.name, lenient=True)
    if written.literal != text and rules.form is not Form.PREFIX:
        raise PatternError(rules.name, text, 0, "in this dialect the text is no literal")
    return written


def _write_glob(pattern: Pattern, rules: Dialect) -> Pattern:
    assert isinstance(rules, globs.GlobDialect)
    words = pattern.tokens if pattern.tokens is not None else pattern.words
    if words is None:  # another glob, whose text is the same, or a prefix
        text = pattern.text if isinstance(pattern.text, bytes) else pattern.text.encode()
        return compile(globs.escaped(text) + b"*" if pattern.is_prefix else text, rules.name)
    may_be_empty = pattern.tokens is None or rules.question is globs.Glob.MAYBE
    separator = find(pattern.dialect).separator or ""
    return compile(globs.of_words(words, separator, may_be_empty=may_be_empty), rules.name)


def _write_words(pattern: Pattern, rules: Dialect, exchange: bool) -> Pattern:
    separator = rules.separator or ""
    words = _words_of(pattern, _exchanged_text(separator) if exchange else separator, rules)
    if exchange:
        words = [_exchanged_word(word) for word in words]
    written = compile(rules.words_text(words), rules.name)
    kept = written.tokens if written.tokens is not None else written.words
    if [word for word in words if isinstance(word, bytes)] != [
        word for word in kept or () if isinstance(word, bytes)
    ]:
        raise _untranslatable(pattern, rules.name, "one of its literal tokens would be a wildcard there")
    return written


def _words_of(pattern: Pattern, separator: str, rules: Dialect) -> list[Token]:
    """Split a pattern into tokens as the other dialect would, once subjects are as that has them."""
    words = pattern.tokens if pattern.tokens is not None else pattern.words
    if words is None:
        return _words_of_glob(pattern, separator.encode())
    own = find(pattern.dialect).separator
    if own != separator:
        rule = f"{pattern.dialect} splits subjects at {own!r}, and {rules.name} at {rules.separator!r}"
        hint = "exchange them (--exchange)" if rules.separator != own else "do not exchange them"
        raise _untranslatable(pattern, rules.name, f"{rule}: {hint}")
    return list(words)


def _words_of_glob(pattern: Pattern, separator: bytes) -> list[Token]:
    """Take a glob apart at its literal separators; a part with a wildcard in it becomes one for a token."""
    own = find(pattern.dialect)
    elements: list[globs.Element] = (
        own.elements(pattern.text)
        if isinstance(own, globs.GlobDialect)
        else [*(frozenset((byte,)) for byte in pattern.prefix), globs.Glob.STAR]
    )
    parts: list[list[globs.Element]] = [[]]
    for element in elements:
        if element == frozenset(separator):
            parts.append([])
        else:
            parts[-1].append(element)
    words = [_word_of_glob(part) for part in parts]
    # A last star takes any number of tokens.
    return [*words[:-1], Wild.REST] if parts[-1] == [globs.Glob.STAR] else words


def _word_of_glob(part: list[globs.Element]) -> Token:
    literal = part[:-1] if part[-1:] == [globs.Glob.STAR] else part
    text = b"".join(bytes(each) for each in literal if isinstance(each, frozenset) and len(each) == 1)
    if len(text) < len(literal) or part == [globs.Glob.STAR]:
        return Wild.ONE
    return text if literal is part else Stem(text)


def _exchanged(text: bytes) -> bytes:
    return text.translate(bytes.maketrans(b"./", b"/."))


def _exchanged_text(text: str) -> str:
    return _exchanged(text.encode()).decode()


def _exchanged_word(word: Token) -> Token:
    if isinstance(word, Stem):
        return Stem(_exchanged(word.text))
    return _exchanged(word) if isinstance(word, bytes) else word


def _untranslatable(pattern: Pattern, dialect: str, rule: str) -> PatternError:
    return PatternError(dialect, pattern.text, 0, f"no translation of {pattern.dialect}: {rule}")
