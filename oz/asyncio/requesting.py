"""The requests of a node for asyncio: tasks wait for answers here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import closing, suppress
from typing import Any

from oz.asyncio.waiting import TaskNews
from oz.errors import Timeout
from oz.message import Message
from oz.protocol.node.requests import Missing, Request, RequestClient


class TaskRequester:
    """Asks, and waits for the answers in the task that asks."""

    __slots__ = ("_check_loop", "_client", "_monotonic", "_wait")

    def __init__(
        self,
        client: RequestClient,
        wait: Callable[[Missing, float | None], Awaitable[None]],
        check_loop: Callable[[], None],
        monotonic: Callable[[], float],
    ) -> None:
        """Start with nothing asked.

        Args:
            client: decides.
            wait: waits until nothing is missing, and raises `Timeout` after so many seconds.
            check_loop: refuses another loop than the node's: what comes would never be told there.
            monotonic: the clock.
        """
        self._client = client
        self._monotonic = monotonic
        self._wait = wait
        self._check_loop = check_loop

    async def ask(
        self,
        subject: str | bytes,
        payload: Any,
        timeout: float | None,
        limit: int | None,
        headers: dict[str, Any] | None,
        key: str | bytes | None,
    ) -> AsyncGenerator[Message, None]:
        """Send a request, and give its answers as they come; see `oz.Node.request_many`."""
        self._check_loop()
        news = TaskNews()
        request = Request(subject, timeout, limit, self._monotonic(), news.tell)
        try:
            with closing(self._client.begin(request, subject, payload, headers, key)) as steps:
                for step in steps:
                    if not callable(step):
                        await asyncio.sleep(step)
                        continue
                    with suppress(Timeout):
                        await self._wait(step, timeout)
            while True:
                answer = request.next_answer(now := self._monotonic())
                if answer is not None:
                    yield answer
                elif request.is_over:
                    return
                else:
                    ends = request.next_deadline()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(None if ends is None else ends - now):
                            await news.wait()
        finally:
            self._client.end(request.inbox)
