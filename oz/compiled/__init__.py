"""Compiled part of oz: C code for the most common cases of sending and receiving messages.

Each C function has a *twin*, a Python function with the same result, which also handles all other cases. Without a C
compiler, oz is installed without the compiled part and is slower; see decision 068 in docs/decisions.

The environment variable `OZ_COMPILED` has one of three values. With `1` (the default), oz uses the compiled part if it
is installed. With `0`, oz does not use the compiled part. With `require`, the import of oz fails without it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Protocol, cast

COMPILED = "OZ_COMPILED"
"""Name of the environment variable that selects the compiled part."""

_CHOICES = ("0", "1", "require")


LIBZMQ = (
    "zmq_getsockopt", "zmq_msg_init", "zmq_msg_recv", "zmq_msg_data", "zmq_msg_size",
    "zmq_msg_more", "zmq_msg_close", "zmq_errno", "zmq_send", "zmq_msg_init_size", "zmq_msg_copy", "zmq_msg_send",
)  # fmt: skip
"""Functions of libzmq that the compiled part calls."""


class Hot(Protocol):
    """Functions of the compiled part. A result None usually means that the caller must use the Python twin."""

    def know_libzmq(self, functions: tuple[int, ...], closed: object, again: type[Exception]) -> None:
        """Set the functions of the libzmq that pyzmq has loaded.

        Args:
            functions: memory addresses of the functions whose names are in `LIBZMQ`.
            closed: attribute descriptor that returns whether a socket of pyzmq is closed.
            again: class of the error that is raised if no message can be read.
        """

    def FrameReader(self, *, recv: Callable[..., bytes], socket: int) -> Callable[[Any, int], list[bytes]]:
        """Return a function that reads all frames of a message.

        Args:
            recv: fallback function; it reads the frame when the C call of libzmq fails.
            socket: memory address of the libzmq socket.
        """

    def Receive(
        self,
        *,
        twin: Callable[..., Any],
        recv: Callable[..., Any],
        wait_for_next: Callable[[Any, int, float, bool], int],
        monotonic: Callable[[], float],
        nothing_read: tuple[type[Exception], ...],
        reading: type,
    ) -> Callable[..., Any]:
        """Return the method `recv` of drop-in sockets, which calls libzmq without pyzmq.

        Args:
            twin: Python method, which is called for all cases that the C method does not handle.
            recv: method `zmq.Socket.recv`.
            wait_for_next: method `SubSocket._wait_for_next`.
            monotonic: clock in seconds, `time.monotonic`.
            nothing_read: classes of errors that are raised before a frame is read.
            reading: class of the sockets' attribute `_reading`.
        """

    # links: oz.publisher and oz.subscriber

    def scan(self, frame: bytes, at: int, count: int, /) -> Any | None:
        """Check a body without extras and return its columns: subjects and payloads. None for another body.

        `flat()` of the columns has the same result as `decode_body` of oz.wire.links.

        Args:
            frame: frame that contains the body.
            at: index of the body's first byte in the frame.
            count: number of messages according to the head.
        """

    def Subjects(self) -> Any:
        """Return an empty cache of routes by subject, which is read before a larger dict of routes."""

    def know_subscriber(
        self, message: type, handled_message: type, route: type, queue: type, inbox: type, /
    ) -> None:
        """Set the classes of oz.subscriber that the C code creates and reads."""

    def make_messages(
        self,
        columns: Any,
        cache: Any,
        routes: dict[bytes, Any],
        find: Callable[..., Any],
        stream: int,
        kind: type,
        arrival: Any,
        /,
    ) -> list[Any]:
        """Return the messages of a body.

        Args:
            columns: result of `scan`.
            cache: result of `Subjects` for `routes`.
            routes: known routes by subject. A route has the queues that receive a subject.
            find: function that returns the route of a subject that is not in `routes`. It is called with routes,
                stream, subject and None.
            stream: number of the stream of the messages.
            kind: class of the messages.
            arrival: object with the fields that all messages of the body share, such as the publisher.
        """

    def make_plain(
        self, batch: Any, routes: dict[bytes, Any], find: Callable[[bytes], Any], arrival: Any, /
    ) -> tuple[list[Any], Any, int] | None:
        """Return messages of plain publishers, their common target queue, and the number of messages that do not match.

        The result is None if a message does not have two frames. The target is None unless all routes have the same
        target.

        Args:
            batch: list of the frames of each message.
            routes: known routes by subject.
            find: function that returns the route of a subject that is not in `routes`.
            arrival: object with the fields that all messages share.
        """

    def RawSocket(self, *, socket: Any, address: int, raise_error: Callable[[int], NoReturn]) -> Any:
        """Return an object that calls libzmq for a socket. Its methods do not wait, and run no signal handlers.

        - `has_input()` returns whether a message can be read.
        - `send_pair(first, second)` sends a message of two frames and returns 0, EAGAIN or EHOSTUNREACH. The
          second frame may be a `SharedFrame`.
        - `read(limit, frames)` returns the first `frames` frames of each message that can be read, for at most `limit`
          messages.

        Args:
            socket: socket of pyzmq.
            address: memory address of the libzmq socket.
            raise_error: function that is called with the number of any other error, and raises it.
        """

    def SharedFrame(self, first: bytes, second: bytes, /) -> Any:
        """Return a libzmq frame with the bytes of `first` and `second`, which several messages can share.

        `len()` returns the number of bytes.
        """

    def put_messages(self, messages: list[Any], start: int, /) -> int:
        """Append messages to the queues of their routes.

        Returns:
            Index of the first message that the function did not append.
        """

    def pack_body(self, flat: Any, /) -> bytes | None:
        """Return the BODY frame of messages without extras; None if a message has extras."""

    def pack_waiting(self, waiting: list[Any], limit: int, size: int, /) -> tuple[Any, int, bytes] | None:
        """Return recipients, number and BODY frame of all messages that wait.

        The result is None if the messages have different recipients, have extras, or do not fit into one body.

        Args:
            waiting: list `waiting` of a `Batcher`.
            limit: maximum number of messages in a body.
            size: size in bytes below which the body must be.
        """

    def Outbox(
        self,
        *,
        quick: dict[Any, Any],
        waiting: list[Any],
        engine: Any,
        batcher: Any,
        lock: Any,
        plain: Any,
        full_length: int,
        max_fast_bytes: int,
        window_bytes: int,
        pending_bytes: int,
        total_bytes: int,
        joined_bytes: int,
        refuses: bool,
    ) -> Any:
        """Return an object with all values that `PublishMethod` needs. The publisher has it in its slot `_outbox`."""

    def know_lone_publisher(
        self,
        engine: type,
        sessions: type,
        batcher: type,
        stream: type,
        session: type,
        listener: type,
        batch: type,
        body: type,
        /,
    ) -> None:
        """Set the publisher's classes that the C code uses to send a single message without a batch."""

    def PublishMethod(self, *, twin: Callable[..., Any], owner: type) -> Any:
        """Return the method `publish` of a class.

        Args:
            twin: Python method `publish`.
            owner: class with the slot `_outbox`.
        """

    def MessageIteration(
        self,
        *,
        twin: Iterator[Any],
        items: Any,
        work: Any,
        in_hand: Any,
        engine: Any,
        alone: Callable[[float | None], Any] | None,
        chunk: int,
    ) -> Iterator[Any]:
        """Return an iterator over the messages of a queue.

        Args:
            twin: Python iterator, which is called when the sockets must be read, and for all but plain messages.
            items: deque with the messages of the queue.
            work: queues that have a message for a handler. While there are any, the twin is called.
            in_hand: messages that are received and not acknowledged. While there are any, the twin is called.
            engine: engine of the subscriber; its slot `attend_at` has the time at which the sockets must be read.
            alone: function that waits shortly for a single message; None for the queue of a subscription.
            chunk: number of messages after which the clock is read again.
        """

    def know_lone_links(
        self, engine: type, lone: type, link: type, place: type, clock: type, stats: type, arrival: type, /
    ) -> None:
        """Set the subscriber's classes that the C code uses to receive a single message without a batch."""

    def LoneReceiver(
        self,
        *,
        twin: Callable[[float | None], Any],
        waits: Any,
        engine: Any,
        followers: Any,
        items: Any,
        work: Any,
        in_hand: Any,
        reading: Any,
        lock: Any,
        poll: Any,
        clock: Any,
        stats: Any,
        wake_up: int,
    ) -> Callable[[float | None], Any]:
        """Return a function that waits shortly for a single message, and returns None if another wait is needed.

        Args:
            twin: Python function, which is called while the engine's slot `lone` is None, and for other cases.
            waits: object whose method `pass_on` wakes other waiting threads.
            engine: engine of the subscriber.
            followers: collection of other threads that wait.
            items: deque with the messages of the subscriber's queue.
            work: queues that have a message for a handler. While there are any, the twin is called.
            in_hand: messages that are received and not acknowledged. While there are any, the twin is called.
            reading: lock that the reading thread holds.
            lock: lock for the sockets.
            poll: object whose attribute `is_polling` is set during a wait.
            clock: clock that counts the time in which the subscriber reads (`ListeningClock`).
            stats: counters of the subscriber.
            wake_up: descriptor that ends a wait when it is readable.
        """

    def call_handlers(self, work: Any, limit: int, failed: Callable[..., Any], counts: list[int], /) -> bool:
        """Call the handlers of plain messages.

        Args:
            work: queues that have a message for a handler.
            limit: maximum number of handler calls.
            failed: function that is called with inbox and message when a handler raised.
            counts: list with one element, which the function sets to the number of calls, even if it raises.

        Returns:
            Whether the queue that is now first in `work`, if there is one, may have a plain message.
        """


def _load() -> tuple[Hot | None, str]:
    """Return the compiled part, or None and the reason.

    Raises:
        ImportError: the compiled part is required and cannot be loaded, or `OZ_COMPILED` has a wrong value.
    """
    choice = os.environ.get(COMPILED) or "1"
    if choice not in _CHOICES:
        raise ImportError(f"{COMPILED} is one of {', '.join(_CHOICES)}, not {choice!r}")
    if choice == "0":
        return None, f"switched off by {COMPILED}=0"
    try:
        return cast(Hot, importlib.import_module("oz.compiled._hot")), ""
    except ModuleNotFoundError:
        reason = "not built: there was no C compiler, or no Python headers, when oz was installed"
    except ImportError as error:
        reason = f"does not load: {error}"
    if choice == "require":
        raise ImportError(f"{COMPILED}=require, but the compiled part of oz is {reason}")
    return None, reason


HOT, WHY_NOT = _load()
"""Compiled part, or None; and the reason why it is None."""
