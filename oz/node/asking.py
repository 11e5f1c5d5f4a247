"""Request methods of `oz.Node`, and functions that the request methods of `oz.asyncio.Node` use too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Self, cast

from oz.errors import OwnershipError, ReplyError
from oz.message import Message
from oz.node.engine import Engine
from oz.node.requests import Request
from oz.numbers import check_count, check_wait
from oz.transport.steps import Steps
from oz.transport.waiting import Waiters, notify_all, wait_in_thread

if TYPE_CHECKING:
    from oz.node.threads import ThreadPool

_MAX_COUNT = 2**31


def check_request(timeout: Any, retries: int = 0, limit: int | None = None) -> None:
    """Check the arguments of a request.

    Raises:
        ConfigurationError, TypeError, ValueError: an argument has a wrong type or value.
    """
    check_wait("timeout", timeout)
    check_count("retries", retries, 0, _MAX_COUNT)
    if limit is not None:
        check_count("limit", limit, 1, _MAX_COUNT)


def result_of(request: Request) -> Message:
    """Return the only reply of an ended request.

    Raises:
        ReplyError: the handler of the responder raised an exception.
        OzError: the request has failed.
    """
    if request.error is not None:
        raise request.error
    reply = request.replies.popleft()
    if isinstance(reply, ReplyError):
        raise reply
    found: Message = reply
    return found


class ManyReplies:
    """Replies of several responders. The first error reply is kept, and raised after all other replies."""

    def __init__(self, node: Engine, message: Any, timeout: float | None, limit: int | None) -> None:
        self._exchange = node.exchange
        self._news: Waiters = {}
        self._failure: ReplyError | None = None
        self._request: Request | None = None
        self._request = self._exchange.begin(
            message, partial(notify_all, self._news), timeout=timeout, limit=limit, is_many=True
        )

    def _next(self) -> Steps[Message | None]:
        request, exchange = self._request, self._exchange
        assert request is not None
        while True:
            has_ended = request.has_ended
            while request.replies:
                reply = request.replies.popleft()
                if not isinstance(reply, ReplyError):
                    found: Message = reply
                    return found
                self._failure = self._failure or reply
            if has_ended:
                self._raise_failure(request)
                return None
            yield None if request.deadline == inf else request.deadline
            if exchange.seconds_left(request) == 0:
                exchange.expire()

    def _raise_failure(self, request: Request) -> None:
        """Raise the error of the request, or the first error reply. A second call raises nothing."""
        error = request.error or self._failure
        request.error = self._failure = None
        if error is not None:
            raise error

    def close(self) -> None:
        """Receive no more replies."""
        if self._request is not None:
            self._exchange.cancel(self._request)

    def __del__(self) -> None:
        """Cancel the request. Python calls this method when the program has dropped the iterator."""
        if self._request is not None:
            self._exchange.forget(self._request)


class Replies(ManyReplies):
    """Iterator over the replies of `oz.Node.request_many`."""

    def __init__(self, node: Engine, message: Any, timeout: float | None, limit: int | None) -> None:
        super().__init__(node, message, timeout, limit)
        self._pool = cast("ThreadPool", node.pool)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        """Wait for the next reply.

        Raises:
            StopIteration: `limit` replies were returned, or the timeout has passed.
            ReplyError: a handler of a responder raised an exception. All other replies are returned before this error.
            OzError: the request has failed.
        """
        with self._pool.lend():
            found = wait_in_thread(self._news, self._next())
        if found is None:
            raise StopIteration
        return found


class ThreadRequesting:
    """Request methods of `oz.Node`."""

    _node: Engine

    def request(
        self,
        subject: str | bytes,
        payload: Any = b"",
        *,
        timeout: float | None = 1.0,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
        retries: int = 0,
    ) -> Message:
        """Send a request, and return its first reply.

        A request goes to each subscription that matches the subject, and to one member of each queue group. A
        handler replies with its return value or with `Message.reply`. If a handler raises an exception and no other
        node can reply, `request` raises `ReplyError`.

        Args:
            subject: full subject.
            payload: bytes, or a value for the codec.
            timeout: seconds for all attempts together; None waits for ever.
            headers: names and values that are sent with the request, as in `publish`.
            key: text or bytes by which sticky queue groups pick the member; default: the subject.
            retries: maximum number of retries. If the group member that has the request is lost, the request is sent
                to another member. More than one member may then handle the request.

        Raises:
            NoResponders: no node subscribes to the subject.
            PermissionDenied: the permissions of this node, or of each responder, deny the request.
            PeerLost: the group member that has the request, or each node that has it, is lost or has closed.
            ReplyError: the handler of the responder raised an exception.
            Timeout: no reply came within `timeout`.
            WouldBlock: the queue for each node that subscribes is full, or 65,536 requests of this node have not ended.
            OwnershipError: the caller is an inline handler, or the child of a fork.
            SubjectError, TypeError, ValueError, ClosedError: the same reasons as in `publish`.
        """
        check_request(timeout, retries)
        node = self._node
        exchange = node.exchange
        if exchange.attending == threading.get_ident():
            raise OwnershipError(
                "an inline handler cannot wait for a reply, which its own thread would read: leave inline=True out"
            )
        message = node.publisher.prepare(subject, payload, headers, key, action="request")
        waiter = threading.Lock()
        waiter.acquire()
        request = exchange.begin(message, waiter.release, timeout=timeout, retries=retries)
        try:
            pool = cast("ThreadPool", node.pool)
            if pool.is_worker():
                with pool.lend():
                    self._wait(request, waiter)
            else:
                self._wait(request, waiter)
        finally:
            if not request.has_ended:
                exchange.cancel(request)
        return result_of(request)

    def _wait(self, request: Request, waiter: threading.Lock) -> None:
        exchange = self._node.exchange
        while not request.has_ended:
            seconds = exchange.seconds_left(request)
            if seconds is None:
                waiter.acquire()
            elif not waiter.acquire(timeout=seconds):
                exchange.expire()

    def request_many(
        self,
        subject: str | bytes,
        payload: Any = b"",
        *,
        timeout: float | None = 1.0,
        limit: int | None = None,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
    ) -> Iterator[Message]:
        """Send a request to all nodes that subscribe to the subject, and return their replies as they arrive.

        One member of each queue group receives the request.

        Args:
            subject: full subject.
            payload: bytes, or a value for the codec.
            timeout: seconds after which the iterator ends; None waits for `limit` replies.
            limit: number of replies after which the iterator ends; None for no limit.
            headers: names and values that are sent with the request, as in `publish`.
            key: text or bytes by which sticky queue groups pick the member; default: the subject.

        Raises:
            NoResponders: no node subscribes to the subject.
            PermissionDenied: the permissions of this node, or of each responder, deny the request.
            PeerLost: all nodes that have the request are lost, and no node has replied.
            ReplyError: a handler of a responder raised an exception. The error is raised after all other replies.
            WouldBlock, OwnershipError: the same reasons as in `request`.
            SubjectError, TypeError, ValueError, ClosedError: the same reasons as in `publish`.
        """
        check_request(timeout, limit=limit)
        node = self._node
        if node.exchange.attending == threading.get_ident():
            raise OwnershipError("an inline handler cannot wait for replies: leave inline=True out")
        return Replies(
            node, node.publisher.prepare(subject, payload, headers, key, action="request"), timeout, limit
        )
