"""The requests of one node that wait for replies, and the inbox that the replies come to.

Nothing here waits. A `Request` says when its next answer may come: threads and tasks know how to wait.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable
from functools import partial
from hmac import compare_digest
from itertools import count
from typing import Any
from weakref import ref

from oz.errors import ClosedError, ReplyError, Timeout
from oz.escaping import printable
from oz.numbers import check_wait
from oz.protocol.messages import Message
from oz.protocol.node.reserved_subjects import INBOX
from oz.security.permissions import Permissions
from oz.wire.codec import Failure

SECRET_SIZE, SECRET_DIGITS = 16, 39
"""Random bytes of each inbox, and the decimal digits that they are written in."""

_DRAWN = 32
"""Secrets that are drawn at once: to ask the system for each costs as much as all else of an inbox."""

_IS_INBOX = re.compile(r"_INBOX\.[0-9a-f]{32}\.[0-9]{1,60}").fullmatch

MOST_NOTES = 10
"""Further errors that are told with the first one."""


class Request:
    """One request: the answers that have come, those that are still to come, and when it is over.

    One thread or task takes answers out, and any thread puts replies in.

    Attributes:
        inbox: what its replies come to; `Requests.begin` gives it.
        is_over: whether no answer is to come any more.
    """

    __slots__ = ("__weakref__", "_asked_at", "_count", "_ends", "_is_closed", "_limit", "_raised", "_replied",
                 "_replies", "_subject", "_timeout", "_wake", "inbox", "is_over")  # fmt: skip

    def __init__(
        self, subject: Any, timeout: float | None, limit: int | None, now: float, wake: Callable[[], Any]
    ) -> None:
        """Start with no answer.

        Args:
            subject: where it goes to.
            timeout: seconds from `now`; None is for ever.
            limit: the answers that it wants; None is as many as come.
            now: monotonic seconds.
            wake: wakes whoever waits for the next answer, from any thread.

        Raises:
            TypeError: the timeout is no number.
            ValueError: it is nan, which no time ever comes to: it would hold up those of others.
        """
        check_wait("timeout", timeout)
        self.inbox = ""
        self.is_over = False
        self._subject = subject
        self._timeout = timeout
        self._asked_at = now
        self._replied: dict[str, int] | None = None
        self._ends = None if timeout is None else now + timeout
        self._limit = limit
        self._wake = wake
        self._count = 0
        self._is_closed = False
        self._replies: deque[Message] = deque()
        self._raised: list[ReplyError] = []

    def next_deadline(self) -> float | None:
        """Return when `next_answer` has to be asked again, without any news; None is never."""
        return self._ends

    @property
    def is_for_one(self) -> bool:
        """Whether it wants one answer, so that the asking task goes on with that."""
        return self._limit == 1

    def admits(self, key: str, permissions: Permissions, now: float) -> bool:
        """Tell whether the holder of a key may give one more reply, and count it.

        Args:
            key: the public key that the reply comes from.
            permissions: what is allowed to whom.
            now: monotonic seconds.
        """
        subject = self._subject if isinstance(self._subject, bytes) else str(self._subject).encode()
        if self._replied is None:
            self._replied = {}
        count = self._replied.get(key, 0)
        if not permissions.may_reply(permissions.user_of(key), subject, count, now - self._asked_at):
            return False
        self._replied[key] = count + 1
        return True

    def put(self, reply: Message) -> None:
        """Take a reply in."""
        self._replies.append(reply)
        self._wake()

    def close(self) -> None:
        """End with what has come: the node is closed."""
        self._is_closed = True
        self._wake()

    def clear(self) -> int:
        """Forget the replies that nobody has read; give how many they were."""
        number = 0
        try:
            while True:
                self._replies.popleft()
                number += 1
        except IndexError:
            return number

    def next_answer(self, now: float) -> Message | None:
        """Return the next answer; None: there is none yet, or it is over.

        Raises:
            Timeout: the time is over, and nobody has answered at all.
            ReplyError: it is over, and handlers raised: the first, with notes of the others.
            ClosedError: the node is closed, and there is none.
        """
        while self._replies and self._count != self._limit:
            reply = self._replies.popleft()
            self._count += 1
            if type(reply.payload) is not Failure:
                return reply
            self._raised.append(self._error_of(reply.payload))
        if self._count == self._limit:
            self._end()
        elif self._ends is not None and now >= self._ends:
            if not self._count:
                raise Timeout(f"no answer to {self._subject!r} in {self._timeout:.3g} s")
            self._end()
        elif self._is_closed:
            raise ClosedError("the node was closed while it waited for answers")
        return None

    def _end(self) -> None:
        self.is_over = True
        if not self._raised:
            return
        first, *others = self._raised
        for other in others[:MOST_NOTES]:
            first.add_note(str(other))
        if len(others) > MOST_NOTES:
            first.add_note(f"and {len(others) - MOST_NOTES} more")
        raise first

    def _error_of(self, failure: Failure) -> ReplyError:
        kind, text, node = failure
        subject = self._subject
        subject = subject.decode("utf-8", "replace") if isinstance(subject, bytes) else str(subject)
        return ReplyError(
            printable(f"the handler of {node} raised {kind} at {subject!r}: {text}"),
            subject=subject, kind=kind, text=text, node=node,
        )  # fmt: skip


def _nobody() -> None:
    """Stand for a request that does not wait."""


class Requests:
    """The requests of a node: each has an inbox of its own below the node's, which its replies come to.

    An inbox is the number of the request, and behind it a secret that only those know who got the request.
    Whoever asks holds its request: of one that a signal handler cut short before its end nothing stays here.

    Attributes:
        prefix: what all its inboxes begin with.
        late: replies that came when nobody waited for them any more.
        answered: the numbers of those that have their one answer and have not ended: who asked is about to go
            on, and perhaps to ask again.
    """

    __slots__ = (
        "_is_closed",
        "_numbers",
        "_random_bytes",
        "_refused",
        "_secrets",
        "_waiting",
        "answered",
        "late",
        "prefix",
    )

    def __init__(
        self,
        uuid: bytes,
        random_bytes: Callable[[int], bytes] = os.urandom,
        refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Start with none.

        Args:
            uuid: of the node.
            random_bytes: gives so many, that nobody can guess.
            refused: is told, in words, of a reply by somebody who did not get the request.
        """
        self.prefix = f"{INBOX}{uuid.hex()}."
        self.late = 0
        self._numbers = count(1)
        self._random_bytes = random_bytes
        self._secrets: list[str] = []
        self._refused = refused
        self._waiting: dict[str, ref[Request]] = {}
        self.answered: set[str] = set()
        self._is_closed = False

    def __len__(self) -> int:
        """Count those that wait."""
        return len(self._waiting)

    @property
    def pattern(self) -> str:
        """Pattern of the subscription to all inboxes of the node, in the nats dialect."""
        return f"{self.prefix}>"

    def begin(self, request: Request) -> str:
        """Begin to wait; gives the subject to answer on."""
        try:
            secret = self._secrets.pop()
        except IndexError:
            secret = self._draw()
        number = f"{self.prefix}{next(self._numbers)}"
        request.inbox = inbox = number + secret
        self._waiting[number] = ref(request, partial(self._forget, number))
        if self._is_closed:
            # Looked at last: `close` may not have seen this one.
            request.close()
        return inbox

    def _draw(self) -> str:
        """Draw secrets for some requests; give one. What other threads draw meanwhile is as good."""
        drawn = self._random_bytes(_DRAWN * SECRET_SIZE)
        first, *others = (
            f"{int.from_bytes(drawn[at : at + SECRET_SIZE], 'big'):0{SECRET_DIGITS}d}"
            for at in range(0, len(drawn), SECRET_SIZE)
        )
        self._secrets += others
        return first

    def waiting_in(self, inbox: str) -> Request | None:
        """Return the request whose replies come to an inbox, if it is one of this node and any waits."""
        return self._waiting.get(inbox[:-SECRET_DIGITS], _nobody)()

    def end(self, inbox: str) -> None:
        """Stop waiting: what was not read, and what still comes, is late.

        Args:
            inbox: what `begin` gave.
        """
        number = inbox[:-SECRET_DIGITS]
        # First: should a signal handler raise behind it, the rest is done when the request is gone.
        self.answered.discard(number)
        ended = self._waiting.pop(number, _nobody)()
        # Its answer may have come in between.
        self.answered.discard(number)
        if ended is not None:
            self._count_late(ended.clear())

    def close(self) -> None:
        """Wake all who wait for answers, since none will come."""
        self._is_closed = True
        for one in list(self._waiting.values()):
            if (request := one()) is not None:
                request.close()

    def take(self, message: Message) -> None:
        """Hand a reply to the request that waits for it."""
        inbox = message.subject
        number = inbox[:-SECRET_DIGITS]
        waiting = self._waiting.get(number, _nobody)()
        if waiting is not None and not (inbox.isascii() and compare_digest(waiting.inbox, inbox)):
            self._refused("a reply came to an inbox that nobody was told of")
            return
        if waiting is None:
            self._count_late(1)
            return
        if waiting.is_for_one:
            self.answered.add(number)
        waiting.put(message)
        if number not in self._waiting:
            # Another thread has ended it meanwhile, and may have counted before this one came.
            self.answered.discard(number)
            self._count_late(waiting.clear())

    def _forget(self, number: str, _: object) -> None:
        """Forget a request that is gone and was not ended."""
        self._waiting.pop(number, None)
        self.answered.discard(number)

    def _count_late(self, count: int) -> None:
        # In one step, with no call in between: threads do it at the same time.
        self.late += count


def is_inbox(subject: str) -> bool:
    """Tell whether a subject is the inbox of some node."""
    return _IS_INBOX(subject) is not None


def owner(inbox: str | bytes) -> bytes | None:
    """Return the uuid of the node whose inbox it is; None when the subject is no inbox of a node."""
    text = inbox.decode("utf-8", "replace") if isinstance(inbox, bytes) else inbox
    return bytes.fromhex(text.split(".")[1]) if _IS_INBOX(text) else None
