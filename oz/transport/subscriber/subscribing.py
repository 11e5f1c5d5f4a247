"""The subscriptions of one subscriber's socket: what `subscribe` checks, makes and undoes."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable
from inspect import iscoroutinefunction
from typing import Any, Generic, TypeVar

from oz.errors import ClosedError, PatternError, SubjectWarning
from oz.numbers import check_count
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.receiver import SplittingReceiver
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.subjects.advice import foreign_wildcard, misspelled_dialect, said_of_foreign
from oz.subjects.pattern import Pattern, Patterns, compile, compile_with_default
from oz.transport.attachments import Attachments
from oz.transport.dropin import PrefixWarnings, callers_level, check_conflated
from oz.transport.subscriber.draining import SubscriberWaiter, drain_one
from oz.transport.subscriber.engine import SubscriberEngine
from oz.transport.subscriber.options import SubscriberOptions
from oz.wire.keys import DeliveryOptions

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


def _refuse_to_drain(subscription: Subscribed, timeout: float) -> Any:
    raise ClosedError(f"the subscriber of {subscription!r} is gone: nothing can be had of it any more")


class Subscribing(Generic[AnySubscription]):
    """Makes the subscriptions of one socket, which holds it.

    Attributes:
        conflates: the socket keeps only its newest message.
        filtering: how it filters, as its options say.
    """

    __slots__ = (
        "__weakref__",
        "_attachments",
        "_awaits_handlers",
        "_dialect",
        "_engine",
        "_kind",
        "_prefix_warnings",
        "_waiter",
        "conflates",
        "filtering",
    )

    def __init__(
        self,
        engine: SubscriberEngine,
        attachments: Attachments,
        waiter: SubscriberWaiter,
        options: SubscriberOptions,
        dialect: str,
        kind: type[AnySubscription],
        *,
        awaits_handlers: bool,
    ) -> None:
        """Start without subscriptions.

        Args:
            engine: the subscriber's.
            attachments: where publishers are expected.
            waiter: waits for it.
            options: what it was made with.
            dialect: of patterns that are given as `str`.
            kind: of which subscriptions are.
            awaits_handlers: whether handlers may be async.
        """
        self._engine = engine
        self._attachments = attachments
        self._waiter = waiter
        self.filtering = options.filtering
        self._dialect = dialect
        self._kind = kind
        self._awaits_handlers = awaits_handlers
        is_whole = options.is_plain and options.delimiter is None
        self._prefix_warnings = PrefixWarnings(engine.receiver) if is_whole else None
        self.conflates = False

    def subscribe(
        self,
        pattern: Patterns,
        dialect: str | None,
        handler: Any,
        delivery: DeliveryOptions,
        *,
        last_value: bool,
        max_messages: int | None,
    ) -> AnySubscription:
        """Ask for the messages whose subject matches; see `oz.Subscriber.subscribe`.

        Args:
            pattern: one, or a list of them.
            dialect: of it, if it is another than the socket's.
            handler: is called with each message; None for those that are received.
            delivery: the options that publishers are told.
            last_value: whether the newest message of each subject comes first.
            max_messages: after which it ends.

        Raises:
            PatternError, TypeError, ValueError: as there.
        """
        if handler is not None:
            self._check_handler(handler)
        if self._engine.declarer.streams is None and (delivery != DeliveryOptions() or last_value):
            if self.filtering == "multicast":
                raise ValueError("multicast goes to everybody: it has no group, overflow nor last_value")
            raise ValueError('group, overflow and last_value need Subscriber(…, filtering="publisher")')
        if max_messages is not None:
            check_count("max_messages", max_messages, 1, 2**63)
        patterns = compile_all(pattern, dialect, self._dialect)
        if not patterns:
            raise ValueError("no pattern at all: a subscription to an empty list would never get a message")
        if self.conflates:
            self._check_conflated(patterns)
        if isinstance(pattern, str) and dialect is None and self._prefix_warnings is not None:
            self._prefix_warnings.add(patterns[0])
        # A message knows its subscriptions: one that is kept must not keep the socket.
        cancel, drain = weakref.WeakMethod(self._engine.cancel), weakref.WeakMethod(self._drain_one)
        subscription = self._kind(
            patterns,
            handler,
            lambda one: (method := cancel()) and method(one),
            max_messages,
            lambda one, timeout: (drain() or _refuse_to_drain)(one, timeout),
        )
        self._engine.declarer.begin(subscription, delivery, last_value=last_value)
        return subscription

    def _check_handler(self, handler: Any) -> None:
        if not callable(handler):
            raise TypeError(f"a handler is called with each message; {handler!r} cannot be called")
        if not self._awaits_handlers:
            refuse_async(handler, "oz.asyncio.Subscriber")

    def check_conflated(self) -> None:
        """Refuse to keep only the newest message where the patterns that stand do not allow it.

        Raises:
            ValueError: they do not.
        """
        self._check_conflated(self.patterns())

    def _check_conflated(self, patterns: Iterable[Pattern]) -> None:
        check_conflated(
            patterns,
            is_routed=self._engine.declarer.streams is not None,
            is_split=isinstance(self._engine.receiver, SplittingReceiver),
        )

    def _drain_one(self, subscription: Subscribed, timeout: float) -> Any:
        connections = self._attachments.connections
        return self._waiter.run(drain_one(self._engine, subscription, connections, timeout))

    def patterns(self) -> list[Pattern]:
        """Return the patterns of the subscriptions that stand, the oldest first."""
        return [one for each in self._engine.declarer.standing() for one in each.patterns]

    def mark_seen(self, message_ids: Iterable[bytes | tuple[bytes, int]]) -> None:
        """Take messages with these ids for delivered; see `oz.Subscriber.mark_seen`.

        Raises:
            ValueError: without `dedupe`.
        """
        receiver = self._engine.receiver
        if not isinstance(receiver, BatchDecoder) or not receiver.streams.dedupe:
            raise ValueError("this subscriber does not look at ids; make it with dedupe=True")
        receiver.streams.mark_seen(message_ids)

    def unsubscribe(self, topic: Patterns | Subscribed) -> None:
        """Undo the newest subscription to a pattern; see `oz.Subscriber.unsubscribe`.

        Raises:
            PatternError: the dialect does not allow the pattern.
        """
        if isinstance(topic, Subscribed):
            topic.unsubscribe()
            return
        patterns = tuple(dict.fromkeys(compile_all(topic, None, self._dialect)))
        for one in reversed(self._engine.declarer.standing()):
            if one.patterns == patterns:
                one.unsubscribe()
                return
