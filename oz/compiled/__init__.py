"""Compiled part of oz: the common case of the work for each message, in C.

Each function has a twin in Python with the same result. The twin handles all other cases. Without a compiler oz is
installed without this part and is slower: decision 068 in docs/decisions.

The environment variable `OZ_COMPILED` selects it: `1` (the default) uses it if it is installed, `0` does not, and
`require` makes the import of oz fail without it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Protocol, cast

COMPILED = "OZ_COMPILED"
"""Environment variable that selects the compiled part."""

_CHOICES = ("0", "1", "require")


LIBZMQ = (
    "zmq_getsockopt", "zmq_msg_init", "zmq_msg_recv", "zmq_msg_data", "zmq_msg_size",
    "zmq_msg_more", "zmq_msg_close", "zmq_errno", "zmq_send", "zmq_msg_init_size", "zmq_msg_copy", "zmq_msg_send",
)  # fmt: skip
"""Functions of libzmq that the compiled part calls."""


class Hot(Protocol):
    """Functions of the compiled part. None means that the twin must do the work."""

    def know_libzmq(self, functions: tuple[int, ...], closed: object, again: type[Exception]) -> None:
        """Set the libzmq that pyzmq has loaded.

        Args:
            functions: addresses of the functions `LIBZMQ`.
            closed: descriptor of the class of sockets that returns whether a socket is closed.
            again: class of the error for a read without a message.
        """

    def FrameReader(self, *, recv: Callable[..., bytes], socket: int) -> Callable[[Any, int], list[bytes]]:
        """Return a function that reads all frames of a message.

        Args:
            recv: reads a frame if the function of libzmq fails.
            socket: address of the socket of libzmq.
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
        """Return the method `recv` of drop-in sockets, which reads frames by libzmq's own functions.

        Args:
            twin: the method in Python. It is called for all other cases.
            recv: `zmq.Socket.recv`.
            wait_for_next: `SubSocket._wait_for_next`.
            monotonic: the clock.
            nothing_read: errors that are raised before a frame is read.
            reading: class of the attribute `_reading` of the sockets.
        """

    # links: oz.publisher and oz.subscriber

    def scan(self, frame: bytes, at: int, count: int, /) -> Any | None:
        """Return the columns of a body without extras, checked; None for another body.

        `flat()` of the columns has the same result as `decode_body` of oz.wire.links.

        Args:
            frame: with the body.
            at: index of its first byte.
            count: messages.
        """

    def Subjects(self) -> Any:
        """Return an empty cache of routes by subject, in front of a dict of routes."""

    def know_subscriber(
        self, message: type, handled_message: type, route: type, queue: type, inbox: type, /
    ) -> None:
        """Set the classes of oz.subscriber."""

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
            columns: of `scan`.
            cache: of these routes.
            routes: by subject.
            find: called with routes, stream, subject and None for the route of another subject.
            stream: of the messages.
            kind: class of the messages.
            arrival: of the messages.
        """

    def make_plain(
        self, batch: Any, routes: dict[bytes, Any], find: Callable[[bytes], Any], arrival: Any, /
    ) -> tuple[list[Any], Any, int] | None:
        """Return matching messages of plain publishers, their common target, and the number of other messages.

        None if a message has not two frames. The target is None unless all routes have the same target.

        Args:
            batch: frames of each message.
            routes: by subject.
            find: called for the route of another subject.
            arrival: of the messages.
        """

    def RawSocket(self, *, socket: Any, address: int, raise_error: Callable[[int], NoReturn]) -> Any:
        """Return the C access to a socket: methods that do not wait and run no signal handlers.

        - `has_input()` returns whether a message can be read.
        - `send_pair(first, second)` sends a message of two frames and returns 0, EAGAIN or EHOSTUNREACH. The
          second frame may be a `SharedFrame`.
        - `read(limit, frames)` returns the frames of each message that can be read, `frames` frames of each message.

        Args:
            socket: of pyzmq.
            address: of the socket of libzmq.
            raise_error: called with the number of another error.
        """

    def SharedFrame(self, first: bytes, second: bytes, /) -> Any:
        """Return a frame of libzmq with head and body, which several messages share.

        len() returns its bytes.
        """

    def put_messages(self, messages: list[Any], start: int, /) -> int:
        """Append messages to the queues of their routes.

        Returns:
            Index of the first message that the function did not append.
        """

    def pack_body(self, flat: Any, /) -> bytes | None:
        """Return the BODY frame of messages without extras; None for other messages."""

    def pack_waiting(self, waiting: list[Any], limit: int, size: int, /) -> tuple[Any, int, bytes] | None:
        """Return recipients, count and BODY frame of all messages that wait.

        None if they have different recipients or extras, or do not fit one body.

        Args:
            waiting: of a `Batcher`.
            limit: messages of a body at most.
            size: bytes of a body.
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
        """Return the state of a publisher that `PublishMethod` reads. It is in the slot `_outbox` of the publisher."""

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
        """Set the classes of a publisher that sends lone messages."""

    def PublishMethod(self, *, twin: Callable[..., Any], owner: type) -> Any:
        """Return the method `publish` of a class.

        Args:
            twin: the method in Python.
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
            twin: iterator in Python, called when it is time to attend, and for all but plain messages.
            items: of the queue.
            work: the twin is called while it is not empty.
            in_hand: likewise.
            engine: its slot `attend_at` has the time to attend.
            alone: waits shortly for a lone message; None for the queue of a subscription.
            chunk: messages before the clock is read again.
        """

    def know_lone_links(
        self, engine: type, lone: type, link: type, place: type, clock: type, stats: type, arrival: type, /
    ) -> None:
        """Set the classes of a subscriber that receives lone messages."""

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
        """Return a function that waits shortly for a single message; None if the caller must use another wait.

        Args:
            twin: function in Python, called while the slot `lone` of the engine is None, and for other cases.
            waits: its method `pass_on` wakes other threads.
            engine: of the subscriber.
            followers: other threads that wait.
            items: of the queue of the subscriber.
            work: the twin is called while it is not empty.
            in_hand: likewise.
            reading: lock of the thread that reads.
            lock: of the sockets.
            poll: its attribute `is_polling` is set during a wait.
            clock: listening clock.
            stats: counters.
            wake_up: descriptor that ends a wait.
        """

    def call_handlers(self, work: Any, limit: int, failed: Callable[..., Any], counts: list[int], /) -> bool:
        """Call the handlers of plain messages.

        Args:
            work: queues with a message for a handler.
            limit: calls at most.
            failed: called with inbox and message when a handler raised.
            counts: its only element becomes the number of calls, also before an exception.

        Returns:
            Whether the next item of `work`, if there is one, may be plain too.
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
"""The compiled part, or None; and the reason if it is None."""
