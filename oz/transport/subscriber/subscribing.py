"""The subscriptions of one subscriber's socket: what `subscribe` checks, makes and undoes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from oz.errors import PatternError, SubjectWarning
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.subjects.advice import foreign_wildcard, misspelled_dialect, said_of_foreign
from oz.subjects.pattern import Pattern, compile, compile_with_default
from oz.transport.dropin import callers_level

AnySubscription = TypeVar("AnySubscription", bound=Subscribed)

EVERYTHING = compile(b"", "zmq")


def compile_asked(pattern: Any, dialect: str | None, default: str) -> Pattern:
    """Compile a pattern of `subscribe`. Warn of a misspelled dialect, and of a wildcard of another dialect.

    Args:
        pattern: the pattern.
        dialect: its dialect, if the caller gives one.
        default: the dialect of the socket; see `compile_with_default`.

    Raises:
        PatternError: the dialect does not allow it.
        TypeError: it is no pattern.
    """
    compiled = compile_with_default(pattern, dialect, default)
    is_plain_text = isinstance(pattern, str) and pattern == compiled.text
    if is_plain_text and dialect is None and default != "zmq" and (advice := misspelled_dialect(pattern)):
        warnings.warn(advice, SubjectWarning, stacklevel=callers_level())
    found = foreign_wildcard(compiled) if is_plain_text else None
    if found is not None:
        wildcard, owners = found
        text = (
            f"pattern {pattern!r}: {said_of_foreign(wildcard, owners)}: give dialect={owners[0]!r}, or "
            f"oz.compile({pattern!r}) if you mean the character"
        )
        warnings.warn(text, SubjectWarning, stacklevel=callers_level())
    return compiled


def compile_all(pattern: Any, dialect: str | None, default: str) -> list[Pattern]:
    """Compile what is given to `Subscriber.subscribe`: a pattern, a prefix, or a list of them.

    Args:
        pattern: text is a pattern, bytes a plain prefix; the empty text is everything.
        dialect: the dialect of text, if the caller gives one.
        default: the dialect of the socket; see `compile_with_default`.

    Raises:
        PatternError: the dialect does not allow it.
        TypeError: it is no pattern.
    """
    if isinstance(pattern, (bytes, bytearray, memoryview)):
        return [compile(bytes(pattern), "zmq")]
    if isinstance(pattern, Iterable) and not isinstance(pattern, str):
        return [one for part in pattern for one in compile_all(part, dialect, default)]
    if pattern == "":
        return [EVERYTHING]
    try:
        return [compile_asked(pattern, dialect, default)]
    except PatternError as error:
        if isinstance(pattern, str):
            error.add_note(f"For a plain ZeroMQ prefix give bytes: {pattern.encode('utf-8', 'replace')!r}")
        raise


def refuse_async(handler: object, instead: str) -> None:
    """Refuse what nobody would await, be it a function or an object that is called like one.

    Raises:
        TypeError: it is async; names what to use instead.
    """
    if iscoroutinefunction(handler) or iscoroutinefunction(type(handler).__call__):
        raise TypeError(f"{handler!r} is async, and nobody awaits it here; use {instead}")
