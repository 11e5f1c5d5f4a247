"""Requests of blocking callers: each waits for its answers in the thread that asks."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, suppress
from typing import Any

from oz.errors import Timeout
from oz.protocol.messages import Message
from oz.protocol.node.request_client import RequestClient, RequestSteps
from oz.protocol.node.requests import Request
from oz.sync.answer_line import Waiter
from oz.sync.waiting import InterruptionCheck
from oz.transport.node.subscriptions import Missing


class ThreadRequester:
    """Asks, and waits for the answers in the thread that asks."""

    __slots__ = ("_check_may_wait", "_client", "_lend", "_make_waiter", "_wait")

    def __init__(
        self,
        client: RequestClient,
        wait: Callable[[Missing, float | None], None],
        lend: Callable[[], AbstractContextManager[None]],
        check_may_wait: Callable[[], None],
        make_waiter: Callable[[], Waiter],
    ) -> None:
        """Start with nothing asked.

        Args:
            client: decides.
            wait: waits until nothing is missing, and raises `Timeout` after so many seconds.
            lend: lets another thread of the pool take the place of a handler that waits.
            check_may_wait: refuses the thread that answers come by, and whoever that may wait for.
            make_waiter: makes what waits for answers.
        """
        self._client = client
        self._wait = wait
        self._lend = lend
        self._check_may_wait = check_may_wait
        self._make_waiter = make_waiter

    def ask(
        self,
        subject: str | bytes,
        payload: Any,
        timeout: float | None,
        headers: dict[str, Any] | None,
        key: str | bytes | None,
    ) -> Message:
        """Send a request, and give its first answer; see `oz.Node.request`."""
        self._check_may_wait()
        waiter, check = self._make_waiter(), InterruptionCheck()
        request = Request(subject, timeout, 1, time.monotonic(), waiter.tell)
        ends = request.next_deadline()
        try:
            steps = self._client.begin(request, subject, payload, headers, key)
            if steps is not None:
                self._go_through(steps, timeout)
            while True:
                # Before the first look: no answer can have come yet, or it has told.
                self._await(waiter, ends, check)
                answer = request.next_answer(time.monotonic())
                if answer is not None:
                    return answer
        finally:
            self._client.end_and_go(request.inbox)

    def ask_many(
        self,
        subject: str | bytes,
        payload: Any,
        timeout: float | None,
        limit: int | None,
        headers: dict[str, Any] | None,
        key: str | bytes | None,
    ) -> Iterator[Message]:
        """Send a request, and give its answers as they come; see `oz.Node.request_many`."""
        self._check_may_wait()
        waiter = self._make_waiter()
        request = Request(subject, timeout, limit, time.monotonic(), waiter.tell)
        try:
            steps = self._client.begin(request, subject, payload, headers, key)
            if steps is not None:
                self._go_through(steps, timeout)
        except BaseException:
            self._client.end(request.inbox)
            raise
        answers = self._answers(request, waiter)
        # Nobody may ever ask for the first one, and what has not begun has no end either.
        weakref.finalize(answers, self._client.end, request.inbox).atexit = False
        return answers

    def _go_through(self, steps: RequestSteps, timeout: float | None) -> None:
        """Take the steps to a request."""
        with closing(steps):
            for step in steps:
                if callable(step):
                    with suppress(Timeout):
                        self._wait(step, timeout)
                else:
                    time.sleep(step)

    def _answers(self, request: Request, waiter: Waiter) -> Iterator[Message]:
        check = InterruptionCheck()
        try:
            while True:
                answer = request.next_answer(time.monotonic())
                if answer is not None:
                    yield answer
                elif request.is_over:
                    return
                else:
                    self._await(waiter, request.next_deadline(), check)
        finally:
            self._client.end(request.inbox)

    def _await(self, waiter: Waiter, ends: float | None, check: InterruptionCheck) -> None:
        """Wait until an answer may have come, or until a time of the monotonic clock."""
        left = None if ends is None else min(max(0.0, ends - time.monotonic()), threading.TIMEOUT_MAX)
        with self._lend():
            waiter.wait(check.bound(left))
