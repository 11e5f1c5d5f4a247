"""Translation of patterns to other dialects. A translation states how its meaning differs from the original."""

from __future__ import annotations

from dataclasses import dataclass

from oz.errors import PatternError, Undecidable
from oz.subjects import relations
from oz.subjects.automata import find_difference, find_text
from oz.subjects.dialects import find, globs
from oz.subjects.dialects.base import Dialect, Form, Stem, Token, Wild
from oz.subjects.pattern import Pattern, compile
from oz.subjects.regexes import regex_text

_Subject = str | None


@dataclass(frozen=True, slots=True)
class Translation:
    """Translation of a pattern to another dialect.

    Attributes:
        pattern: translated pattern.
        also_matches: shortest subject that only the translation matches; None if there is no such subject.
        misses: shortest subject that only the original matches; None if there is no such subject.
        undecided: reason why oz cannot compare the two patterns; None if the comparison succeeded.
    """

    pattern: Pattern
    also_matches: str | None = None
    misses: str | None = None
    undecided: str | None = None

    @property
    def relation(self) -> str:
        """Relation of the translation to the original: `exact`, `wider`, `narrower`, `overlapping` or `undecided`.

        `overlapping` means that each of the two patterns matches subjects that the other pattern does not match.
        """
        if self.undecided is not None:
            return "undecided"
        if self.also_matches is None:
            return "exact" if self.misses is None else "narrower"
        return "wider" if self.misses is None else "overlapping"

    @property
    def exact(self) -> bool:
        """Whether the original and the translation match the same subjects."""
        return self.relation == "exact"

    @property
    def counterexample(self) -> str | None:
        """Subject that only one of the two patterns matches; None if they match the same subjects."""
        return self.misses if self.misses is not None else self.also_matches


def translate(pattern: Pattern, dialect: str, *, exchange: bool = False) -> Translation:
    """Return the nearest pattern of another dialect.

    Args:
        pattern: pattern to translate.
        dialect: name of the other dialect, one of `oz.DIALECTS`.
        exchange: whether `.` becomes `/` and `/` becomes `.` in subjects, so that `a/b` of mqtt becomes `a.b` of nats.

    Raises:
        PatternError: the dialect has no similar pattern.
        ConfigurationError: no dialect has this name.
    """
    rules = find(dialect)
    try:
        written = _write(pattern, rules, exchange)
    except UnicodeDecodeError:
        raise _untranslatable(pattern, dialect, f"a pattern of {dialect} matches only UTF-8") from None
    try:
        misses, also = _differences(pattern, written, exchange)
    except Undecidable as error:
        return Translation(written, undecided=str(error))
    return Translation(written, also, misses)


def _differences(pattern: Pattern, written: Pattern, exchange: bool) -> tuple[_Subject, _Subject]:
    if not exchange:
        return relations.counterexample(written, pattern), relations.counterexample(pattern, written)
    before, after = (
        relations.automaton_of(pattern).with_swapped_bytes(*b"./"),
        relations.automaton_of(written),
    )
    misses, also = find_text(find_difference, before, after), find_text(find_difference, after, before)
    # As in relations.py, `matches` of both patterns must confirm the results of the automata.
    for found, matched, missed in ((misses, pattern, written), (also, written, pattern)):
        if found is not None and (
            not relations.matches_subject(
                matched, _exchange_separators(found) if matched is pattern else found
            )
            or relations.matches_subject(missed, _exchange_separators(found) if missed is pattern else found)
        ):
            raise Undecidable(
                f"{pattern!r} and {written!r} match {found!r} in another way than their automata"
            )
    return _readable(misses), _readable(also)


def _readable(found: bytes | None) -> _Subject:
    return None if found is None else relations.subject_text(found)


def _write(pattern: Pattern, rules: Dialect, exchange: bool) -> Pattern:
    """Return the translation. Raise UnicodeDecodeError if it would have bytes that are not UTF-8 in a text dialect."""
    if pattern._compiled.literal is not None:
        return _write_literal(
            _exchange_separators(pattern._compiled.literal) if exchange else pattern._compiled.literal, rules
        )
    if rules.name == pattern.dialect and not exchange:
        return pattern
    if rules.form is Form.PREFIX:
        return compile(_exchange_separators(pattern.prefix) if exchange else pattern.prefix, rules.name)
    if find(pattern.dialect).form is Form.REGEX or rules.form is Form.LITERAL:
        raise _untranslatable(pattern, rules.name, "it has wildcards that this dialect cannot express")
    if rules.form is Form.WORDS:
        return _write_words(pattern, rules, exchange)
    if exchange:
        raise _untranslatable(pattern, rules.name, "this dialect has no separator to exchange")
    if rules.form is Form.REGEX:
        return compile(regex_text(pattern._expression()), rules.name)
    return _write_glob(pattern, rules)


def _write_literal(text: bytes, rules: Dialect) -> Pattern:
    written = compile(rules.literal_text(text), rules.name, lenient=True)
    if written._compiled.literal != text and rules.form is not Form.PREFIX:
        raise PatternError(rules.name, text, 0, "this dialect cannot match only this text")
    return written


def _write_glob(pattern: Pattern, rules: Dialect) -> Pattern:
    assert isinstance(rules, globs.GlobDialect)
    words = pattern._compiled.tokens if pattern._compiled.tokens is not None else pattern._compiled.words
    # The pattern is a prefix or a glob. The text of a glob is the same in all dialects of globs.
    if words is None:
        text = pattern.text if isinstance(pattern.text, bytes) else pattern.text.encode()
        return compile(globs.escape_glob(text) + b"*" if pattern._dialect.is_prefix else text, rules.name)
    may_be_empty = pattern._compiled.tokens is None or rules.question is globs.Glob.MAYBE
    separator = find(pattern.dialect).separator or ""
    return compile(globs.glob_of_words(words, separator, may_be_empty=may_be_empty), rules.name)


def _write_words(pattern: Pattern, rules: Dialect, exchange: bool) -> Pattern:
    separator = rules.separator or ""
    words = _words_of(pattern, _exchange_text(separator) if exchange else separator, rules)
    if exchange:
        words = [_exchange_word(word) for word in words]
    written = compile(rules.words_text(words), rules.name)
    kept = written._compiled.tokens if written._compiled.tokens is not None else written._compiled.words
    if [word for word in words if isinstance(word, bytes)] != [
        word for word in kept or () if isinstance(word, bytes)
    ]:
        raise _untranslatable(pattern, rules.name, f"a literal token would be a wildcard of {rules.name}")
    return written


def _words_of(pattern: Pattern, separator: str, rules: Dialect) -> list[Token]:
    """Return the tokens of a pattern.

    Raise PatternError if its dialect splits subjects at another text than `separator`.
    """
    words = pattern._compiled.tokens if pattern._compiled.tokens is not None else pattern._compiled.words
    if words is None:
        return _words_of_glob(pattern, separator.encode())
    own = find(pattern.dialect).separator
    if own != separator:
        rule = f"{pattern.dialect} splits subjects at {own!r}, and {rules.name} at {rules.separator!r}"
        hint = (
            "give exchange=True (--exchange)" if rules.separator != own else "leave out exchange (--exchange)"
        )
        raise _untranslatable(pattern, rules.name, f"{rule}: {hint}")
    return list(words)


def _words_of_glob(pattern: Pattern, separator: bytes) -> list[Token]:
    """Split a glob at its literal separators. A part with a wildcard becomes a wildcard for one token, or a `Stem`."""
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
    # A star at the end matches any number of tokens.
    return [*words[:-1], Wild.REST] if parts[-1] == [globs.Glob.STAR] else words


def _word_of_glob(part: list[globs.Element]) -> Token:
    literal = part[:-1] if part[-1:] == [globs.Glob.STAR] else part
    text = b"".join(bytes(each) for each in literal if isinstance(each, frozenset) and len(each) == 1)
    if len(text) < len(literal) or part == [globs.Glob.STAR]:
        return Wild.ONE
    return text if literal is part else Stem(text)


def _exchange_separators(text: bytes) -> bytes:
    return text.translate(bytes.maketrans(b"./", b"/."))


def _exchange_text(text: str) -> str:
    return _exchange_separators(text.encode()).decode()


def _exchange_word(word: Token) -> Token:
    if isinstance(word, Stem):
        return Stem(_exchange_separators(word.text))
    return _exchange_separators(word) if isinstance(word, bytes) else word


def _untranslatable(pattern: Pattern, dialect: str, rule: str) -> PatternError:
    return PatternError(dialect, pattern.text, 0, f"no translation of {pattern.dialect}: {rule}")
