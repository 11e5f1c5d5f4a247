"""The requests of a blocking node: its threads wait for answers here."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, suppress
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX
from time import monotonic, sleep
from typing import Any

from oz.errors import Timeout
from oz.message import Message
from oz.protocol.node.requests import Missing, Request, RequestClient


class ThreadRequester:
    """Asks, and waits for the answers in the thread that asks."""

    __slots__ = ("_client", "_lend", "_wait")

    def __init__(
        self,
        client: RequestClient,
        wait: Callable[[Missing, float | None], None],
        lend: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Start with nothing asked.

        Args:
            client: decides.
            wait: waits until nothing is missing, and raises `Timeout` after so many seconds.
            lend: lets another thread of the pool take the place of a handler that waits.
        """
        self._client = client
        self._wait = wait
        self._lend = lend

    def ask(
        self,
        subject: str | bytes,
        payload: Any,
        timeout: float | None,
        limit: int | None,
        headers: dict[str, Any] | None,
        key: str | bytes | None,
    ) -> Iterator[Message]:
        """Send a request, and give its answers as they come; see `oz.Node.request_many`."""
        news: SimpleQueue[None] = SimpleQueue()
        request = Request(subject, timeout, limit, monotonic(), lambda: news.put(None))
        with closing(self._client.begin(request, subject, payload, headers, key)) as steps:
            for step in steps:
                if not callable(step):
                    sleep(step)
                    continue
                with suppress(Timeout):
                    self._wait(step, timeout)
        answers = self._answers(request, news)
        # Nobody may ever ask for the first one, and what has not begun has no end either.
        weakref.finalize(answers, self._client.end, request.inbox).atexit = False
        return answers

    def _answers(self, request: Request, news: SimpleQueue[None]) -> Iterator[Message]:
        try:
            while True:
                answer = request.next_answer(now := monotonic())
                if answer is not None:
                    yield answer
                elif request.is_over:
                    return
                else:
                    ends = request.next_deadline()
                    with self._lend(), suppress(Empty):
                        news.get(timeout=None if ends is None else min(ends - now, TIMEOUT_MAX))
        finally:
            self._client.end(request.inbox)
