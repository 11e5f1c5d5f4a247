"""Facts about a pattern, for `oz explain` and the explorer."""

from __future__ import annotations

from oz.errors import PatternTimeout, SubjectError
from oz.subjects.pattern import Pattern


def regex_text(pattern: Pattern) -> str:
    """Return the text of a pattern's regex. If the regex is `bytes`, each byte becomes one character."""
    text = pattern.regex.pattern
    return text if isinstance(text, str) else text.decode("latin-1")


def is_delivered(pattern: Pattern, subject: bytes) -> bool:
    """Return whether a subscriber with this pattern delivers messages with this subject.

    A match that times out or fails drops the message.
    """
    try:
        return pattern.matches(subject)
    except (SubjectError, PatternTimeout):
        return False
