"""Checks of a run, and a matcher of patterns for the checks."""

from __future__ import annotations

from functools import cache


@cache
def matches(text, subject):
    """Return whether a pattern matches a subject, independent of `oz.compile`: the nats dialect only."""
    tokens, parts = text.split("."), subject.split(".")
    for place, token in enumerate(tokens):
        if token == ">":
            return len(parts) > place
        if place >= len(parts) or token not in ("*", parts[place]):
            return False
    return len(tokens) == len(parts)


class Violation(AssertionError):
    """Broken promise of a run.

    Attributes:
        kind: the text without names and numbers.
    """

    def __init__(self, text, kind):
        super().__init__(text)
        self.kind = kind


def check(condition, text, *values):
    if not condition:
        fail(text, *values)


def fail(text, *values):
    raise Violation(text.format(*values), text)
