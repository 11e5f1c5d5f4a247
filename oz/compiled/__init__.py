"""Compiled part of oz: C code for the most common cases of sending and receiving messages.

Each C function has a *twin*: a Python function with the same result, which also handles all other cases. If no C
compiler is available, oz is installed without the compiled part and is slower. See decision 068 in docs/decisions.

The environment variable `OZ_COMPILED` selects how oz uses the compiled part. With `1` (the default), oz uses the
compiled part if it is installed. With `0`, oz does not use the compiled part. With `require`, the import of oz fails if
the compiled part is not installed.
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
        """Set the libzmq functions that the C code calls.

        Args:
            functions: memory addresses of the functions in `LIBZMQ`, in the library that pyzmq has loaded.
            closed: descriptor of the attribute that shows whether a pyzmq socket is closed.
            again: class of the error to raise if no message can be read.
        """

    def FrameReader(self, *, recv: Callable[..., bytes], socket: int) -> Callable[[Any, int], list[bytes]]:
        """Return a function that reads all frames of a message.

        Args:
            recv: function of pyzmq that reads a frame if the C call of libzmq fails.
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
            twin: Python method that handles all cases that the C method does not handle.
            recv: method `zmq.Socket.recv`.
            wait_for_next: method `SubSocket._wait_for_next`.
            monotonic: function `time.monotonic`.
            nothing_read: classes of errors that are raised only if no frame was read.
            reading: class of the attribute `_reading` of the sockets.
        """

    # links: oz.publisher and oz.subscriber

    def scan(self, frame: bytes, at: int, count: int, /) -> Any | None:
        """Check a body without extras, and return an object that contains its subjects and payloads.

        The method `flat` of the result returns the same list as `oz.wire.links.decode_body`. For a malformed body, or a
        body with extras, return None.

        Args:
            frame: frame that contains the body.
            at: index of the body's first byte in the frame.
            count: number of messages according to the head.
        """

    def Subjects(self) -> Any:
        """Return an empty cache of routes by subject. C code searches this cache before the dict of all routes."""

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
        """Create the messages of a body.

        Args:
            columns: result of `scan`.
            cache: cache that `Subjects` has returned, in front of `routes`.
            routes: dict of known routes by subject. A route contains the queues that receive the messages.
            find: function that returns the route of a subject that is not in `routes`. It is called with routes,
                stream, subject and None.
            stream: number of the stream to which the messages belong.
            kind: class of the messages.
            arrival: object with the fields that all messages of the body share, for example the id of the publisher.
        """

    def make_plain(
        self, batch: Any, routes: dict[bytes, Any], find: Callable[[bytes], Any], arrival: Any, /
    ) -> tuple[list[Any], Any, int] | None:
        """Create the messages of plain publishers whose subjects match a pattern.

        Args:
            batch: list of messages, each a list of frames.
            routes: dict of known routes by subject.
            find: function that returns the route of a subject that is not in `routes`.
            arrival: object with the fields that all messages share.

        Returns:
            The messages, the queue that receives all of them (None if they have different queues), and the number of
            messages that match no pattern. None instead of all this if a message does not have two frames.
        """

    def RawSocket(self, *, socket: Any, address: int, raise_error: Callable[[int], NoReturn]) -> Any:
        """Return an object that calls libzmq for a socket. Its methods do not wait, and run no signal handlers.

        - `has_input()` returns whether a message can be read.
        - `send_pair(first, second)` sends a message of two frames and returns 0, EAGAIN or EHOSTUNREACH. The
          second frame may be a `SharedFrame`.
        - `read(limit, frames)` reads at most `limit` messages, and returns the first `frames` frames of each message.

        Args:
            socket: socket of pyzmq.
            address: memory address of the libzmq socket.
            raise_error: function that raises the error with a given error number. It is called for all other errors.
        """

    def SharedFrame(self, first: bytes, second: bytes, /) -> Any:
        """Join two byte strings into a libzmq frame that several messages can share. `len()` is the size in bytes."""

    def put_messages(self, messages: list[Any], start: int, /) -> int:
        """Append messages to the queues of their routes, from index `start` on.

        Returns:
            Index of the first message that was not appended, because its queues need the Python twin. If all messages
            were appended, the number of messages.
        """

    def pack_body(self, flat: Any, /) -> bytes | None:
        """Return the BODY frame of messages without extras; None if a message has extras."""

    def pack_waiting(self, waiting: list[Any], limit: int, size: int, /) -> tuple[Any, int, bytes] | None:
        """Pack all waiting messages into one body. Return the recipients, the number of messages, and the BODY frame.

        Return None if the messages have different recipients, if a message has extras, or if one body is too small.

        Args:
            waiting: list `waiting` of a `Batcher`.
            limit: maximum number of messages in a body.
            size: the body must have fewer bytes than this number.
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
        """Return an object with the values that `PublishMethod` reads. A publisher stores it in its slot `_outbox`."""

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
        """Set the classes of `oz.publisher` that the C code needs to send a lone message."""

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
            twin: Python iterator. It is used when the sockets must be read, and for gaps and handled messages.
            items: deque with the messages of the queue.
            work: queues with messages for handlers. If there are any, the twin is used.
            in_hand: received messages that are not acknowledged yet. If there are any, the twin is used.
            engine: engine of the subscriber. Its slot `attend_at` is the time at which the sockets must be read.
            alone: function that waits for a lone message for a short time; None for the queue of a subscription.
            chunk: number of messages that are returned before the clock is read again.
        """

    def know_lone_links(
        self, engine: type, lone: type, link: type, place: type, clock: type, stats: type, arrival: type, /
    ) -> None:
        """Set the classes of `oz.subscriber` that the C code needs to receive a lone message."""

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
        """Return a function that waits for a lone message for a short time. It returns None if no message arrived.

        Args:
            twin: Python function. It is used if the engine's slot `lone` is None, and in all uncommon cases.
            waits: `ThreadWaits` object of the subscriber.
            engine: engine of the subscriber.
            followers: collection of the other waiting threads.
            items: deque with the messages of the subscriber's queue.
            work: queues with messages for handlers. If there are any, the twin is used.
            in_hand: received messages that are not acknowledged yet. If there are any, the twin is used.
            reading: lock that a thread holds while it reads the sockets.
            lock: lock for all uses of the sockets.
            poll: object whose attribute `is_polling` is set during a wait.
            clock: `ListeningClock` of the subscriber.
            stats: counters of the subscriber.
            wake_up: file descriptor that ends a wait when it becomes readable.
        """

    def call_handlers(self, work: Any, limit: int, failed: Callable[..., Any], counts: list[int], /) -> bool:
        """Call the handlers of plain messages.

        Args:
            work: queues with messages for handlers.
            limit: maximum number of handler calls.
            failed: function called with inbox and message if a handler has raised.
            counts: list with one number, which the function sets to the number of handler calls, even if it raises.

        Returns:
            False if the next item in `work` is not a plain message, so that the caller must use the Python twin.
        """


def _load() -> tuple[Hot | None, str]:
    """Return the compiled part, or None and the reason.

    Raises:
        ImportError: `OZ_COMPILED` is "require" and the compiled part cannot be loaded, or it has a wrong value.
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
"""`HOT` is the compiled part, or None. `WHY_NOT` is the reason why `HOT` is None."""
