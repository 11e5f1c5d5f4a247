"""TIBCO Rendezvous subjects, as its Adapter SDK describes them.

Source: TIBCO Adapter SDK, chapter 8, "Subject Names"; TIBCO Rendezvous Concepts.
"""

from __future__ import annotations

from oz.errors import PatternError, SubjectError
from oz.subjects.dialects.base import Token
from oz.subjects.dialects.tokens import SEPARATOR, TokenDialect

# The sources say "characters", of a time when one was one byte; the wire format counts bytes.
MAX_SUBJECT = 255
MAX_ELEMENT = 252
FREE_DISTINGUISHED = frozenset({"_INBOX", "_LOCAL"})


class Rv(TokenDialect):
    """Matches as nats; a misplaced wildcard is an error, or a literal in lenient mode."""

    name = "rv"

    def check_pattern_text(self, text: str) -> None:
        """Refuse what is longer than Rendezvous allows."""
        self._check_lengths(text, PatternError)

    def partial(self, token: str, position: int, text: str, lenient: bool) -> Token:
        """Refuse a wildcard inside a longer element; lenient: a literal, as Rendezvous reads it."""
        if lenient:
            return token.encode()
        at = position + next(index for index, char in enumerate(token) if char in "*>")
        rule = f"{text[at]!r} must stand for a whole element; give lenient=True to take it literally"
        raise PatternError(self.name, text, at, rule)

    def early_rest(self, position: int, text: str, lenient: bool) -> Token:
        """Refuse a `>` that is not last; lenient: a literal."""
        if lenient:
            return b">"
        return super().early_rest(position, text, lenient)

    def check_subject(self, subject: str | bytes) -> None:
        """Refuse empty elements, too long ones, and distinguished names that are not free."""
        assert isinstance(subject, str)
        self._check_lengths(subject, SubjectError)
        self.check_tokens(subject)
        first = subject.split(SEPARATOR, 1)[0]
        if first.startswith("_") and first not in FREE_DISTINGUISHED:
            rule = "subjects that begin with '_' are not for applications, but _INBOX and _LOCAL"
            raise SubjectError(self.name, subject, 0, rule)

    def subject_advice(self, subject: str | bytes) -> str | None:
        """Warn of a wildcard in a subject, which Rendezvous sends and calls unexpected behavior."""
        assert isinstance(subject, str)
        if any(part in ("*", ">") for part in subject.split(SEPARATOR)):
            return f"rv subject {subject!r} holds a wildcard; it is sent as an ordinary subject"
        return None

    def _check_lengths(self, text: str, error: type[PatternError | SubjectError]) -> None:
        size = len(text.encode())
        if size > MAX_SUBJECT:
            raise error(self.name, text, MAX_SUBJECT, f"{size} bytes; at most {MAX_SUBJECT} are allowed")
        position = 0
        for part in text.split(SEPARATOR):
            size = len(part.encode())
            if size > MAX_ELEMENT:
                rule = f"an element of {size} bytes; at most {MAX_ELEMENT} are allowed"
                raise error(self.name, text, position, rule)
            position += len(part) + 1
