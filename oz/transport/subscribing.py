"""What sync and asyncio subscribers share: all but the waiting."""

from __future__ import annotations

import logging
import weakref
from collections import deque
from collections.abc import Iterable
from typing import Any

import zmq

from oz.errors import PatternError
from oz.message import Message
from oz.protocol.intake import Intake
from oz.protocol.splitting import SplittingIntake
from oz.protocol.stats import SubscriberStats
from oz.protocol.subscriptions import Handler, Subscription
from oz.subjects.pattern import DEFAULT_DIALECT, Pattern, compile
from oz.transport.frames import frame_reader
from oz.transport.guard import Guard
from oz.transport.inlet import Inlet
from oz.transport.socket import BaseSocket, check_delimiter
from oz.wire.codec import Codec, find_codec

_log = logging.getLogger("oz.subscriber")

EVERYTHING = compile(b"", "zmq")

_NOBLOCK = int(zmq.NOBLOCK)


class SubscriberBase(BaseSocket):
    """A SUB socket that knows patterns. `oz.Subscriber` and `oz.asyncio.Subscriber` add the waiting."""

    _kind = zmq.SUB
    _accepted_kinds = (zmq.SUB,)
    _intake: Intake
    _inlet: Inlet
    _ready: deque[Message]
    _rest: deque[bytes]

    def __init__(
        self,
        connect: Any = None,
        bind: Any = None,
        *,
        dialect: str = DEFAULT_DIALECT,
        context: zmq.Context[Any] | None = None,
        codec: str | Codec | None = None,
        delimiter: bytes | None = None,
        high_water_mark: int | None = None,
    ) -> None:
        r"""Make a subscriber.

        Args:
            connect: an endpoint to connect to, or a list of them.
            bind: an endpoint to bind to, or a list of them.
            dialect: the dialect of patterns that are given as `str`; one of `oz.DIALECTS`.
            context: the ZeroMQ context to share; without it the subscriber has one of its own.
            codec: `"msgpack"`, or an object with `encode` and `decode`; without it payloads are bytes.
            delimiter: for messages of one frame: what stands between subject and payload, such as
                `b" "` or `b"\\0"`. Without it the subject is a frame of its own.
            high_water_mark: messages that may wait here for each publisher; 0 is no limit. Default
                100,000, or what ZeroMQ has when the context is yours.

        Raises:
            ValueError: no such dialect, codec or endpoint, or an empty delimiter.
            TransportUnavailable: this libzmq lacks the transport of an endpoint.
            zmq.ZMQError: an endpoint cannot be bound or connected to.
        """
        if isinstance(connect, zmq.Context):
            # pyzmq's own way to make a socket: (context, type).
            context, kind, connect, bind = connect, bind, None, None
        else:
            kind = None
        found, ends = find_codec(codec), check_delimiter(delimiter)
        self._create(context, kind, dialect, Guard(waits=False))
        self._intake = Intake(found) if ends is None else SplittingIntake(ends, found)
        self._inlet = Inlet(self._guard, frame_reader(self), self._intake)
        self._ready = deque()
        self._rest = deque()
        with self._closed_on_failure():
            self._set_high_water_mark(high_water_mark)
            self.set(zmq.SNDHWM, 0)
            self._attach(bind, connect)

    # subscribing -----------------------------------------------------------------------------------------

    def subscribe(  # type: ignore[override]
        self,
        pattern: str | bytes | Pattern | Iterable[str | bytes | Pattern],
        *,
        dialect: str | None = None,
        handler: Handler | None = None,
    ) -> Subscription:
        """Ask for the messages whose subject matches.

        Args:
            pattern: `str` is a pattern of the socket's dialect, `bytes` a plain ZeroMQ prefix; or a
                `Pattern`, or one compiled by `re` or `regex`, or a list of all these. The empty string
                is ZeroMQ's own for everything, in every dialect.
            dialect: the dialect of this pattern, if it is another than the socket's.
            handler: is called with each message; without it messages are had by `receive` or iteration.

        Returns:
            The subscription, which can be undone.

        Raises:
            PatternError: the dialect does not allow the pattern.
            TypeError: the handler cannot be called, or is `async` and the socket is not.
            ValueError: an empty list of patterns.
            ClosedError: the subscriber is closed.
        """
        self._check_open()
        if handler is not None:
            self._check_handler(handler)
        patterns = self._compile(pattern, dialect or self.dialect)
        if not patterns:
            raise ValueError("no pattern at all: a subscription to an empty list would never get a message")
        # A message knows its subscriptions: one that is kept must not keep the socket.
        cancel = weakref.WeakMethod(self._cancel)
        subscription = Subscription(patterns, handler, lambda one: (method := cancel()) and method(one))
        with self._guard:
            for prefix in self._intake.table.add(subscription):
                super().set(zmq.SUBSCRIBE, prefix)
        return subscription

    def unsubscribe(self, topic: str | bytes | Pattern | Subscription | Iterable[Any]) -> None:
        """Undo the newest subscription to a pattern, as ZeroMQ does; without one nothing happens.

        Args:
            topic: what was given to `subscribe`, or what it returned.

        Raises:
            PatternError: the dialect does not allow the pattern.
        """
        if isinstance(topic, Subscription):
            topic.unsubscribe()
            return
        found = self._intake.table.find(tuple(dict.fromkeys(self._compile(topic, self.dialect))))
        if found is not None:
            found.unsubscribe()

    def _check_handler(self, handler: Any) -> None:
        if not callable(handler):
            raise TypeError(f"a handler is called with each message; {handler!r} cannot be called")

    def _cancel(self, subscription: Subscription) -> None:
        with self._guard:
            for prefix in self._intake.table.remove(subscription):
                if not self.closed:
                    super().set(zmq.UNSUBSCRIBE, prefix)
        kept = [message for message in self._ready if self._still_wanted(message)]
        self._ready.clear()
        self._ready.extend(kept)

    @staticmethod
    def _still_wanted(message: Message) -> bool:
        return any(one.active and one.handler is None for one in message.subscriptions)

    def _compile(self, pattern: Any, dialect: str) -> list[Pattern]:
        if isinstance(pattern, (bytes, bytearray, memoryview)):
            return [compile(bytes(pattern), "zmq")]
        if isinstance(pattern, Iterable) and not isinstance(pattern, str):
            return [one for part in pattern for one in self._compile(part, dialect)]
        if pattern == "":
            return [EVERYTHING]
        try:
            return [compile(pattern, dialect)]
        except PatternError as error:
            if isinstance(pattern, str):
                error.add_note(
                    f"For a plain ZeroMQ prefix give bytes: {pattern.encode('utf-8', 'replace')!r}"
                )
            raise

    # the pyzmq surface -----------------------------------------------------------------------------------

    def set(self, option: int, optval: Any) -> None:
        """Set a socket option; SUBSCRIBE and UNSUBSCRIBE go through `subscribe` and `unsubscribe`."""
        if option == zmq.SUBSCRIBE:
            self.subscribe(optval)
        elif option == zmq.UNSUBSCRIBE:
            self.unsubscribe(optval)
        else:
            # A SUB forwards only SNDHWM subscriptions in a burst and silently drops the rest: no limit
            # there, also when set_hwm sets both marks.
            super().set(option, 0 if option == zmq.SNDHWM else optval)
            if option == zmq.RCVTIMEO:
                self._inlet.limit = int(optval)

    setsockopt = set

    def set_string(self, option: int, optval: str, encoding: str = "utf-8") -> None:
        """Set an option to text. For SUBSCRIBE: a text with wildcards is a pattern, any other a prefix."""
        if (
            option in (zmq.SUBSCRIBE, zmq.UNSUBSCRIBE)
            and isinstance(optval, str)
            and self._has_wildcard(optval)
        ):
            self.set(option, optval)
        else:
            super().set_string(option, optval, encoding)

    setsockopt_string = setsockopt_unicode = set_string

    def _has_wildcard(self, text: str) -> bool:
        try:
            return not compile(text, self.dialect).is_literal
        except PatternError:
            return False

    def get(self, option: int) -> Any:
        """Get a socket option; RCVMORE speaks of the frames that `recv` has left of a message."""
        if option == zmq.RCVMORE:
            return int(bool(self._rest))
        value: Any = super().get(option)
        if option == zmq.EVENTS and (self._rest or self._ready):
            return value | zmq.POLLIN
        return value

    getsockopt = get

    @property
    def stats(self) -> SubscriberStats:
        """What became of the messages so far; see `SubscriberStats`."""
        return self._intake.stats

    # receiving -------------------------------------------------------------------------------------------

    def _log_failure(self, subscription: Subscription) -> None:
        """Report that a handler raised; the message still goes to everybody else."""
        self.stats.failed += 1
        _log.exception("the handler of %r raised", subscription)
