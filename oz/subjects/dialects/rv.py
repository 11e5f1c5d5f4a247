"""TIBCO Rendezvous subjects, as its Adapter SDK describes them.

Source: TIBCO Adapter SDK, chapter 8, "Subject Names"; TIBCO Rendezvous Concepts.
"""

from __future__ import annotations

from oz.errors import PatternError, SubjectError
from oz.subjects.dialects.base import Token
from oz.subjects.dialects.tokens import SEPARATOR, TokenDialect

# The source says "characters", of a time when one was one byte. A subject travels, so its bytes count; a
# pattern does not, so its characters do (docs/decisions/003-rv-limits.md).
MAX_SUBJECT = 255
MAX_ELEMENT = 252
FREE_RESERVED = frozenset({"_INBOX", "_LOCAL"})


class Rv(TokenDialect):
    """Matches as nats; a misplaced wildcard is an error, or a literal in lenient mode."""

    name = "rv"

    def check_pattern_text(self, text: str) -> None:
        """Refuse what is longer than Rendezvous allows."""
        self._check_lengths(text, text, PatternError)

    def parse(self, text: str, *, lenient: bool = False) -> tuple[Token, ...]:
        """Split a pattern; lenient: a misplaced wildcard makes all of it one specific subject name.

        Source: TIBCO Adapter SDK, table 37: "interprets this as a specific subject name".
        """
        if lenient and _misplaced(text):
            self.check_tokens(text, PatternError)
            return tuple(part.encode() for part in text.split(SEPARATOR))
        return super().parse(text)

    def partial(self, token: str, position: int, text: str) -> Token:
        """Refuse a wildcard inside a longer element."""
        at = position + next(index for index, char in enumerate(token) if char in "*>")
        rule = f"{text[at]!r} must stand for a whole element; give lenient=True to take it literally"
        raise PatternError(self.name, text, at, rule)

    def check_subject(self, subject: str | bytes) -> None:
        """Refuse empty elements, too long ones, and reserved names that are not free."""
        assert isinstance(subject, str)
        self._check_lengths(subject, subject.encode(), SubjectError)
        self.check_tokens(subject)
        first = subject.split(SEPARATOR, 1)[0]
        if first.startswith("_") and first not in FREE_RESERVED:
            rule = "subjects that begin with '_' are not for applications, but _INBOX and _LOCAL"
            raise SubjectError(self.name, subject, 0, rule)

    def subject_advice(self, subject: str | bytes) -> str | None:
        """Warn of a wildcard in a subject, which Rendezvous sends and calls unexpected behavior."""
        assert isinstance(subject, str)
        if any(part in ("*", ">") for part in subject.split(SEPARATOR)):
            return f"rv subject {subject!r} holds a wildcard; it is sent as an ordinary subject"
        return None

    def _check_lengths(
        self, text: str, counted: str | bytes, error: type[PatternError | SubjectError]
    ) -> None:
        unit = "characters" if isinstance(counted, str) else "bytes"
        if len(counted) > MAX_SUBJECT:
            rule = f"{len(counted)} {unit}; at most {MAX_SUBJECT} are allowed"
            raise error(self.name, text, _position_of(counted, MAX_SUBJECT), rule)
        elements = counted.split(SEPARATOR) if isinstance(counted, str) else counted.split(SEPARATOR.encode())
        for number, element in enumerate(elements):
            if len(element) > MAX_ELEMENT:
                rule = f"an element of {len(element)} {unit}; at most {MAX_ELEMENT} are allowed"
                position = sum(len(part) + 1 for part in text.split(SEPARATOR)[:number])
                raise error(self.name, text, position, rule)


def _position_of(counted: str | bytes, index: int) -> int:
    """Return the index of the character that has an index in a text or in its UTF-8."""
    return index if isinstance(counted, str) else len(counted[:index].decode("utf-8", "ignore"))


def _misplaced(text: str) -> bool:
    """Tell whether a wildcard stands where it is none."""
    *early, last = text.split(SEPARATOR)
    partial = any(len(part) > 1 and ("*" in part or ">" in part) for part in (*early, last))
    return partial or ">" in early
