"""Request methods of `oz.asyncio.Node`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Self

from oz.message import Message
from oz.node.asking import ManyReplies, check_request, result_of
from oz.node.engine import Engine
from oz.publisher.loop import LoopAttendance


class AsyncReplies(ManyReplies):
    """Iterator over the replies of `oz.asyncio.Node.request_many`."""

    def __init__(
        self,
        node: Engine,
        attendance: LoopAttendance,
        message: Any,
        timeout: float | None,
        limit: int | None,
    ) -> None:
        super().__init__(node, message, timeout, limit)
        self._attendance = attendance

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """Wait for the next reply.

        Raises:
            StopAsyncIteration: `limit` replies were returned, or the timeout has passed.
            ReplyError: a handler of a responder raised an exception. All other replies are returned before this error.
            OzError: the request has failed.
        """
        found = await self._attendance.wait(self._next(), self._news)
        if found is None:
            raise StopAsyncIteration
        return found


class LoopRequesting:
    """Request methods of `oz.asyncio.Node`."""

    _node: Engine
    _attendance: LoopAttendance

    async def request(
        self,
        subject: str | bytes,
        payload: Any = b"",
        *,
        timeout: float | None = 1.0,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
        retries: int = 0,
    ) -> Message:
        """Send a request, and return its first reply; see `oz.Node.request`.

        Args:
            subject: full subject.
            payload: bytes, or a value for the codec.
            timeout: seconds for all attempts together; None waits for ever.
            headers: names and values that are sent with the request, as in `publish`.
            key: text or bytes by which sticky queue groups pick the member; default: the subject.
            retries: maximum number of retries. If the group member that has the request is lost, the request is sent
                to another member.

        Raises:
            NoResponders, PermissionDenied, PeerLost, ReplyError, Timeout, WouldBlock: the same reasons as in
                `oz.Node.request`.
            SubjectError, TypeError, ValueError, ClosedError, OwnershipError: the same reasons as in `publish`.
        """
        check_request(timeout, retries)
        self._attendance.start()
        node = self._node
        exchange = node.exchange
        message = node.publisher.prepare(subject, payload, headers, key, action="request")
        waiter = asyncio.get_running_loop().create_future()

        def notify() -> None:
            if not waiter.done():
                waiter.set_result(None)

        request = exchange.begin(message, notify, timeout=timeout, retries=retries)
        try:
            await waiter
        finally:
            if not request.has_ended:
                exchange.cancel(request)
        return result_of(request)

    def request_many(
        self,
        subject: str | bytes,
        payload: Any = b"",
        *,
        timeout: float | None = 1.0,
        limit: int | None = None,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
    ) -> AsyncIterator[Message]:
        """Send a request to all nodes that subscribe to the subject; see `oz.Node.request_many`.

        Args:
            subject: full subject.
            payload: bytes, or a value for the codec.
            timeout: seconds after which the iterator ends; None waits for `limit` replies.
            limit: number of replies after which the iterator ends; None for no limit.
            headers: names and values that are sent with the request, as in `publish`.
            key: text or bytes by which sticky queue groups pick the member; default: the subject.

        Raises:
            NoResponders, PermissionDenied, PeerLost, ReplyError, WouldBlock: the same reasons as in
                `oz.Node.request_many`.
            SubjectError, TypeError, ValueError, ClosedError, OwnershipError: the same reasons as in `publish`.
        """
        check_request(timeout, limit=limit)
        self._attendance.check_loop()
        node = self._node
        message = node.publisher.prepare(subject, payload, headers, key, action="request")
        return AsyncReplies(node, self._attendance, message, timeout, limit)
