"""Requests in a loop: the task that asks waits for its answers, and all such tasks share one timer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, closing, suppress
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Any

from oz.asyncio.waiting import SHORTEST
from oz.errors import Timeout
from oz.protocol.messages import Message
from oz.protocol.node.request_client import RequestClient, RequestSteps
from oz.protocol.node.requests import Request
from oz.transport.node.subscriptions import Missing

_MOST_OVER = 64
"""Requests that have ended and are still in line, from which on the line is tidied."""


class AnswerNews:
    """Wakes the one task that waits for the answers to a request.

    Attributes:
        waiter: what the task awaits; done with the first news since it was made.
        is_over: the request has ended.
    """

    __slots__ = ("_loop", "is_over", "waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start without news.

        Args:
            loop: of the task.
        """
        self._loop = loop
        self.waiter: asyncio.Future[None] = loop.create_future()
        self.is_over = False

    def tell(self) -> None:
        """Have the task look, now or as soon as it waits."""
        loop = self._loop
        if asyncio._get_running_loop() is loop:
            self._wake()
        elif not loop.is_closed():
            # A thread, or what was closed in another loop than that which waits.
            loop.call_soon_threadsafe(self._wake)

    def renew(self) -> None:
        """Wait for further news from now on; in the task, before it awaits anything after a look."""
        self.waiter = self._loop.create_future()

    def _wake(self) -> None:
        if not self.waiter.done():
            self.waiter.set_result(None)


class Deadlines:
    """Tells those who wait in one loop when their time is over, by one timer for all of them.

    A timer for each would cost more than what else a request does in a loop, and nearly all are cancelled.
    """

    __slots__ = ("_at", "_count", "_line", "_monotonic", "_most", "_numbers", "_timer")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """Begin with nobody.

        Args:
            monotonic: the clock that times are of.
        """
        self._monotonic = monotonic
        self._line: list[tuple[float, int, AnswerNews]] = []
        self._numbers = count()
        self._count, self._most = 0, _MOST_OVER
        self._at = inf
        self._timer: asyncio.TimerHandle | None = None

    def add(self, at: float, news: AnswerNews) -> None:
        """Tell news at a time; in the loop of its task.

        Args:
            at: monotonic seconds.
            news: to be told, unless it is over by then.
        """
        self._count += 1
        if len(self._line) >= self._most:
            self._tidy()
        heappush(self._line, (at, next(self._numbers), news))
        if at < self._at:
            self._set(at)

    def end(self, news: AnswerNews) -> None:
        """Tell news that were added nothing more. With the last of all the timer goes."""
        news.is_over = True
        self._count -= 1
        if not self._count:
            self._line.clear()
            self._stop()

    def _tidy(self) -> None:
        """Leave out what is over, so that what was asked with much time does not fill the line."""
        self._line = [one for one in self._line if not one[2].is_over]
        heapify(self._line)
        self._most = 2 * len(self._line) + _MOST_OVER

    def _set(self, at: float) -> None:
        self._stop()
        self._at = at
        left = max(SHORTEST, at - self._monotonic())
        self._timer = asyncio.get_running_loop().call_later(left, self._tick)

    def _stop(self) -> None:
        self._at = inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer, self._at = None, inf
        line, now = self._line, self._monotonic()
        while line and (line[0][0] <= now or line[0][2].is_over):
            heappop(line)[2].tell()
        if line:
            self._set(line[0][0])


class TaskRequester:
    """Asks, and waits for the answers in the task that asks."""

    __slots__ = ("_check_loop", "_client", "_deadlines", "_lend", "_monotonic", "_wait")

    def __init__(
        self,
        client: RequestClient,
        wait: Callable[[Missing, float | None], Awaitable[None]],
        lend: Callable[[], AbstractContextManager[None]],
        check_loop: Callable[[], asyncio.AbstractEventLoop],
        monotonic: Callable[[], float],
    ) -> None:
        """Start with nothing asked.

        Args:
            client: decides.
            wait: waits until nothing is missing, and raises `Timeout` after so many seconds.
            lend: lets another task of the pool take the place of a handler that waits.
            check_loop: gives the loop that runs, and refuses another one than the node's: what comes would
                never be told there.
            monotonic: the clock.
        """
        self._client = client
        self._monotonic = monotonic
        self._wait = wait
        self._lend = lend
        self._check_loop = check_loop
        self._deadlines = Deadlines(monotonic)

    async def ask(
        self,
        subject: str | bytes,
        payload: Any,
        timeout: float | None,
        headers: dict[str, Any] | None,
        key: str | bytes | None,
    ) -> Message:
        """Send a request, and give its first answer; see `oz.Node.request`."""
        request, news, steps = self._begin(subject, payload, timeout, 1, headers, key)
        try:
            if steps is not None:
                await self._go_through(steps, timeout)
            while True:
                # Before the first look: no answer can have come yet, or it has told.
                with self._lend():
                    await news.waiter
                if (answer := request.next_answer(self._monotonic())) is not None:
                    return answer
                news.renew()
        finally:
            self._end(request, news)

    async def ask_many(
        self,
        subject: str | bytes,
        payload: Any,
        timeout: float | None,
        limit: int | None,
        headers: dict[str, Any] | None,
        key: str | bytes | None,
    ) -> AsyncGenerator[Message, None]:
        """Send a request, and give its answers as they come; see `oz.Node.request_many`."""
        request, news, steps = self._begin(subject, payload, timeout, limit, headers, key)
        try:
            if steps is not None:
                await self._go_through(steps, timeout)
            while True:
                answer = request.next_answer(self._monotonic())
                if answer is not None:
                    yield answer
                elif request.is_over:
                    return
                else:
                    with self._lend():
                        await news.waiter
                    news.renew()
        finally:
            self._end(request, news)

    def _begin(
        self,
        subject: str | bytes,
        payload: Any,
        timeout: float | None,
        limit: int | None,
        headers: dict[str, Any] | None,
        key: str | bytes | None,
    ) -> tuple[Request, AnswerNews, RequestSteps | None]:
        """Send a request, or return the steps that it takes before."""
        news = AnswerNews(self._check_loop())
        request = Request(subject, timeout, limit, self._monotonic(), news.tell)
        steps = self._client.begin(request, subject, payload, headers, key)
        if (ends := request.next_deadline()) is not None:
            self._deadlines.add(ends, news)
        return request, news, steps

    def _end(self, request: Request, news: AnswerNews) -> None:
        """Wait for nothing more."""
        self._client.end(request.inbox)
        if request.next_deadline() is not None:
            self._deadlines.end(news)

    async def _go_through(self, steps: RequestSteps, timeout: float | None) -> None:
        """Take the steps to a request."""
        with closing(steps):
            for step in steps:
                if callable(step):
                    with suppress(Timeout):
                        await self._wait(step, timeout)
                else:
                    await asyncio.sleep(step)
