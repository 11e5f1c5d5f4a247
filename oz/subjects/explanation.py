"""Facts about a pattern, for `oz explain` and the explorer."""

from __future__ import annotations

from oz.errors import PatternTimeout, SubjectError
from oz.subjects.pattern import Pattern


def regex_text(pattern: Pattern) -> str:
    """Return the text of the regex. Each byte of a regex of bytes becomes one character."""
    text = pattern.regex.pattern
    return text if isinstance(text, str) else text.decode("latin-1")


def is_delivered(pattern: Pattern, subject: bytes) -> bool:
    """Return whether a subscriber with a pattern delivers a message. A match that fails or times out drops it."""
    try:
        return pattern.matches(subject)
    except (SubjectError, PatternTimeout):
        return False
