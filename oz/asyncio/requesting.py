"""Requests of a node for asyncio, and the wait for answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any

from oz.errors import Timeout
from oz.message import Message
from oz.protocol.node.requests import Failures
from oz.transport.node.node import NodeBase
from oz.transport.option_checks import check_count


class Requesting(NodeBase):
    """The part of a node that makes requests."""

    async def _wait(self, what_is_missing: Callable[[], str | None], timeout: float | None) -> None:
        """Wait until nothing is missing."""
        raise NotImplementedError

    def _check_loop(self) -> None:
        """Refuse another loop than the node's: what comes would never be told there."""
        raise NotImplementedError

    async def request(
        self,
        subject: str | bytes,
        payload: Any = b"",
        timeout: float | None = 1.0,
        *,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
    ) -> Message:
        """Ask, and give the first answer; see `oz.Node.request`."""
        replies = self.request_many(subject, payload, timeout=timeout, limit=1, headers=headers, key=key)
        try:
            return await anext(replies)
        finally:
            await replies.aclose()

    async def request_many(
        self,
        subject: str | bytes,
        payload: Any = b"",
        timeout: float | None = 1.0,
        *,
        limit: int | None = None,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
    ) -> AsyncGenerator[Message, None]:
        """Ask, and give the answers as they come; see `oz.Node.request_many`. For `async for`."""
        if limit is not None:
            check_count("limit", limit, 1, 2**63)
        ends = None if timeout is None else time.monotonic() + timeout
        await self._await_responders(subject, timeout)
        self._check_loop()
        replies: asyncio.Queue[Message] = asyncio.Queue()
        inbox = self._requests.begin(replies.put_nowait, replies.qsize)
        self._stats.requests += 1
        count, failures = 0, Failures(subject)
        try:
            publisher: Any = self._publisher_for(subject)
            refused = publisher.send_request(subject, payload, headers, key, inbox)
            if refused is not None:
                for pause in publisher._try_again(subject, refused):
                    await asyncio.sleep(pause)
            while limit is None or count < limit:
                try:
                    async with asyncio.timeout(None if ends is None else max(0.0, ends - time.monotonic())):
                        reply = await replies.get()
                except TimeoutError:
                    if not count:
                        raise Timeout(f"no answer to {subject!r} in {timeout:.3g} s") from None
                    break
                count += 1
                if not failures.take(reply):
                    yield reply
            failures.check()
        finally:
            self._requests.end(inbox)

    async def _await_responders(self, subject: Any, timeout: float | None) -> None:
        if self._publisher_for(subject).interest(subject):
            return
        with suppress(Timeout):
            await self._wait(lambda: None if self._has_responders(subject) is not None else "peers", timeout)
        if not self._publisher_for(subject).interest(subject):
            raise self._no_responders(subject)
