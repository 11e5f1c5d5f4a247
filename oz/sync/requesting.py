"""Requests of a blocking node, and the wait for answers."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from oz.errors import Timeout
from oz.message import Message
from oz.protocol.node.requests import Failures
from oz.transport.node.node import NodeBase
from oz.transport.option_checks import check_count

_LONG = 0.5
"""Seconds of waiting at a time, so that a node that is closed is noticed."""


class Requesting(NodeBase):
    """The part of a node that makes requests."""

    def _lend(self) -> AbstractContextManager[None]:
        """Let another thread of the pool take the place of a handler that waits."""
        raise NotImplementedError

    def _wait(self, what_is_missing: Callable[[], str | None], timeout: float | None) -> None:
        """Wait until nothing is missing."""
        raise NotImplementedError

    def request(
        self,
        subject: str | bytes,
        payload: Any = b"",
        timeout: float | None = 1.0,
        *,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
    ) -> Message:
        """Ask, and give the first answer.

        Args:
            subject: as of `publish`.
            payload: what the codec encodes.
            timeout: seconds to wait; None waits for ever.
            headers: go with the request.
            key: what sticky queue groups go by.

        Raises:
            NoResponders: nobody on the bus has a subscription for the subject; known at once.
            ReplyError: a handler raised, and had not answered; known at once.
            Timeout: nobody has answered in that time.
            SubjectError, WouldBlock, ClosedError, OwnershipError: as `publish`.
        """
        return next(
            iter(self.request_many(subject, payload, timeout=timeout, limit=1, headers=headers, key=key))
        )

    def request_many(
        self,
        subject: str | bytes,
        payload: Any = b"",
        timeout: float | None = 1.0,
        *,
        limit: int | None = None,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
    ) -> Iterator[Message]:
        """Ask, and give the answers as they come, until the time is over or there are so many.

        That a handler raised counts as its answer, and is told when all others have come.

        Args:
            subject: as of `publish`.
            payload: what the codec encodes.
            timeout: seconds from now on; None waits for ever.
            limit: answers to wait for, at least 1; None takes all that come in that time.
            headers: go with the request.
            key: what sticky queue groups go by.

        Raises:
            ValueError, TypeError: `limit` is no such number.
            NoResponders, ReplyError, Timeout: as `request`; Timeout only when nobody has answered at all.
            SubjectError, WouldBlock, ClosedError, OwnershipError: as `publish`.
        """
        if limit is not None:
            check_count("limit", limit, 1, 2**63)
        ends = None if timeout is None else time.monotonic() + timeout
        self._await_responders(subject, timeout)
        replies: SimpleQueue[Message] = SimpleQueue()
        inbox = self._requests.begin(replies.put, partial(_empty, replies))
        self._stats.requests += 1
        try:
            publisher: Any = self._publisher_for(subject)
            refused = publisher.send_request(subject, payload, headers, key, inbox)
            if refused is not None:
                for pause in publisher._try_again(subject, refused):
                    time.sleep(pause)
        except BaseException:
            self._requests.end(inbox)
            raise
        answers = self._replies(subject, inbox, replies, ends, limit)
        # Nobody may ever ask for the first one, and what has not begun has no end either.
        weakref.finalize(answers, self._requests.end, inbox).atexit = False
        return answers

    def _replies(
        self, subject: Any, inbox: str, replies: SimpleQueue[Message], ends: float | None, limit: int | None
    ) -> Iterator[Message]:
        count = 0
        failures = Failures(subject)
        began = time.monotonic()
        try:
            while limit is None or count < limit:
                left = None if ends is None else ends - time.monotonic()
                try:
                    with self._lend():
                        reply = replies.get(timeout=_LONG if left is None else max(0.0, min(left, _LONG)))
                except Empty:
                    self._check_open()
                    if left is None or left > _LONG:
                        continue
                    if not count:
                        waited = time.monotonic() - began
                        raise Timeout(f"no answer to {subject!r} in {waited:.3g} s") from None
                    break
                count += 1
                if not failures.take(reply):
                    yield reply
            failures.check()
        finally:
            self._requests.end(inbox)

    def _await_responders(self, subject: Any, timeout: float | None) -> None:
        if self._publisher_for(subject).interest(subject):
            return
        with suppress(Timeout):
            # Those who have just been heard of may have a subscription.
            self._wait(lambda: None if self._has_responders(subject) is not None else "peers", timeout)
        if not self._publisher_for(subject).interest(subject):
            raise self._no_responders(subject)


def _empty(replies: SimpleQueue[Message]) -> int:
    """Take out what is there; tell how much it was."""
    count = 0
    with suppress(Empty):
        while True:
            replies.get_nowait()
            count += 1
    return count
