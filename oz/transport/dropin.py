"""Drop-in use: warnings and refusals where pyzmq's meaning and oz's differ."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from typing import Any

from oz.errors import PatternError, SubjectWarning
from oz.protocol.subscriber.receiver import Receiver
from oz.subjects.dialects import find
from oz.subjects.pattern import Pattern, compile_with_default

_MOST_LITERALS = 100
"""Literals that are watched; each is compared with each message that is refused before the first is not."""


def callers_level() -> int:
    """Count the frames up to the code that called oz, so that a warning names its line."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("oz.", "zmq.")):
        level, frame = level + 1, frame.f_back
    return level


def refuse_green(context: Any) -> None:
    """Refuse a context of gevent.

    Raises:
        TypeError: it is one.
    """
    if any(one.__module__.startswith("zmq.green") for one in type(context).__mro__):
        raise TypeError(
            "zmq.green does not go with oz, which waits in C: it would hold up every greenlet. Give a "
            "zmq.Context, and use the socket in a thread of its own (gevent's threadpool), or use oz.asyncio"
        )


def has_wildcard(text: str, dialect: str, *, warns: bool) -> bool:
    """Tell whether a text that may be a prefix is a pattern with a wildcard.

    Args:
        text: as it was given to `setsockopt_string`.
        dialect: the socket's.
        warns: whether to warn of a text that has a wildcard but is no pattern: it is a prefix then.
    """
    try:
        return not compile_with_default(text, None, dialect).is_literal
    except PatternError as error:
        if warns and not set(find(dialect).wildcards).isdisjoint(text):
            warnings.warn(
                f"{text!r} has a wildcard and is no pattern, so it is a literal prefix: {error}. "
                f"Give bytes if that is meant, {text.encode(errors='surrogateescape')!r}",
                SubjectWarning,
                stacklevel=callers_level(),
            )
        return False


def check_conflated(patterns: Iterable[Pattern], *, is_routed: bool, is_split: bool) -> None:
    """Refuse patterns from which CONFLATE would lose what they want.

    Args:
        patterns: to subscribe to.
        is_routed: whether filtering is publisher-side.
        is_split: whether subject and payload are one frame, so that a literal is exact on the wire.

    Raises:
        ValueError: there is one.
    """
    if is_routed:
        raise ValueError(
            "CONFLATE would keep one batch of all that publishers send; subscribe with overflow='conflate', "
            "which keeps the newest message of each subject"
        )
    for pattern in patterns:
        if not pattern.is_prefix and not (is_split and pattern.is_literal):
            raise ValueError(
                f"CONFLATE keeps one message of all that the prefix of {pattern.text!r} lets through, so one "
                "that the pattern refuses would push out one that it wants. Subscribe with "
                "overflow='conflate' and Subscriber(…, filtering=\"publisher\"), which keeps the newest "
                "of each subject, or to bytes, which are a plain prefix"
            )


class PrefixWarnings:
    """Warns once when a literal may have been meant as a prefix, as pyzmq takes it.

    That is when a message comes that begins as the literal does and is another subject, before any was
    delivered.
    """

    __slots__ = ("_literals", "_receiver")

    def __init__(self, receiver: Receiver) -> None:
        """Start without literals."""
        self._receiver = receiver
        self._literals: dict[str, str] = {}

    def add(self, pattern: Pattern) -> None:
        """Watch a literal that was given as text."""
        literal = pattern.literal
        if literal and not pattern.is_prefix and len(self._literals) < _MOST_LITERALS:
            self._literals[literal.decode(errors="surrogateescape")] = pattern.dialect
            self._receiver.refusals.on_refused = self.look

    def look(self, subject: str) -> None:
        """Look at the subject of a message that was refused.

        Raises:
            SubjectWarning: where warnings are errors; no message is lost by it but the one that was refused.
        """
        if self._receiver.stats.delivered:
            self._receiver.refusals.on_refused = None
            return
        meant = next((one for one in self._literals if subject.startswith(one)), None)
        if meant is None:
            return
        self._receiver.refusals.on_refused = None
        shown = repr(subject) if len(subject) <= 80 else f"{subject[:80]!r}…"
        warnings.warn(
            f"a message with the subject {shown} was refused: {meant!r} is one subject in the dialect "
            f"{self._literals[meant]}, and not a prefix as in pyzmq. If a prefix is meant, "
            f"use {meant.encode(errors='surrogateescape')!r} or dialect='zmq'",
            SubjectWarning,
            stacklevel=callers_level(),
        )
