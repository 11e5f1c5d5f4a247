"""TIBCO Rendezvous subjects, as described in the TIBCO Adapter SDK.

Sources: TIBCO Adapter SDK, chapter 8, "Subject Names"; TIBCO Rendezvous Concepts.
"""

from __future__ import annotations

from oz.errors import PatternError, SubjectError
from oz.subjects.dialects.base import Token
from oz.subjects.dialects.tokens import SEPARATOR, TokenDialect

# The sources state these limits in characters, and at that time a character was one byte. For a subject, which is sent,
# the limits count bytes. For a pattern, they count characters (docs/decisions/035-rulings-of-the-dialects.md).
MAX_SUBJECT = 255
MAX_ELEMENT = 252
FREE_RESERVED = frozenset({"_INBOX", "_LOCAL"})


class Rv(TokenDialect):
    """Rendezvous dialect, with the wildcards of nats.

    A misplaced wildcard is an error, or a literal if `lenient` is True.
    """

    name = "rv"

    def check_pattern_text(self, text: str) -> None:
        """Check the lengths of the pattern and its elements."""
        self._check_lengths(text, text, PatternError)

    def parse(self, text: str, *, lenient: bool = False) -> tuple[Token, ...]:
        """Return the tokens of a pattern. If `lenient` is True, a misplaced wildcard makes all tokens literal.

        Source: TIBCO Adapter SDK, table 37: "interprets this as a specific subject name".
        """
        if lenient and _misplaced(text):
            self.check_tokens(text, PatternError)
            return tuple(part.encode() for part in text.split(SEPARATOR))
        return super().parse(text)

    def partial(self, token: str, position: int, text: str) -> Token:
        """Raise PatternError: a wildcard must be a whole element."""
        at = position + next(index for index, char in enumerate(token) if char in "*>")
        rule = f"{text[at]!r} must be a whole element; give lenient=True for a literal"
        raise PatternError(self.name, text, at, rule)

    def check_subject(self, subject: str | bytes) -> None:
        """Refuse empty elements, long elements, and reserved names."""
        assert isinstance(subject, str)
        self._check_lengths(subject, subject.encode(), SubjectError)
        self.check_tokens(subject)
        first = subject.split(SEPARATOR, 1)[0]
        if first.startswith("_") and first not in FREE_RESERVED:
            rule = "subjects that begin with '_' are reserved, except _INBOX and _LOCAL"
            raise SubjectError(self.name, subject, 0, rule)

    def subject_advice(self, subject: str | bytes) -> str | None:
        """Return a warning for a subject with a wildcard. Rendezvous allows it, but warns of "unexpected behavior"."""
        assert isinstance(subject, str)
        if any(part in ("*", ">") for part in subject.split(SEPARATOR)):
            return f"rv subject {subject!r} contains a wildcard; it is sent as an ordinary subject"
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
    """Convert an index in `counted` to an index in the text. `counted` is the text or its UTF-8."""
    return index if isinstance(counted, str) else len(counted[:index].decode("utf-8", "ignore"))


def _misplaced(text: str) -> bool:
    *early, last = text.split(SEPARATOR)
    partial = any(len(part) > 1 and ("*" in part or ">" in part) for part in (*early, last))
    return partial or ">" in early
