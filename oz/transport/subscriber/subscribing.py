"""The subscriptions of one subscriber's socket: what `subscribe` checks, makes and undoes."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from oz.errors import PatternError
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.subjects.pattern import Pattern, compile

AnySubscription = TypeVar("AnySubscription", bound=Subscribed)

EVERYTHING = compile(b"", "zmq")


from oz.subscriber.checks import compile_asked  # noqa: E402


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
