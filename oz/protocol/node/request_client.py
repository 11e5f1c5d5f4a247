"""The asking side of requests: what each waits for before it is sent, and when those of many share a frame.

Nothing here waits. `RequestClient.begin` gives steps where something is to be waited for first: threads and
tasks know how to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from math import inf
from typing import Any, Protocol

from oz.errors import NoResponders
from oz.protocol.node.requests import Request, Requests
from oz.protocol.node.subscription import NodeStats

_LEAST_SHARED = 8
"""Requests at least that share a frame, where others are about to come: to send one costs as much as ten."""

Missing = Callable[[], str | None]
"""Says what is missing; None when one need not wait any more."""

RequestSteps = Generator[float | Missing, None, None]
"""What a request waits for before it goes on: seconds to pause, or what is missing, until its deadline at
most. Closing them ends the request."""


class Publishing(Protocol):
    """The bus that requests go out by."""

    def interest(self, subject: str | bytes) -> bool:
        """Tell whether anybody has a subscription for a subject."""

    def expect_others(self, most: float = inf) -> None:
        """Hold what is sent next, as others are about to come; where so many wait already they go first."""

    def go(self) -> None:
        """Send what waits for others."""

    def send_request(
        self, subject: Any, payload: Any, headers: dict[str, Any] | None, key: Any, reply_to: str
    ) -> Iterator[float] | None:
        """Publish a message that is to be answered; give the pauses between attempts, if it needs more."""


class RequestClient:
    """Sends the requests of a node, each as soon as it is known that somebody may answer."""

    __slots__ = (
        "_has_responders",
        "_no_responders",
        "_publisher_for",
        "_requests",
        "_shared",
        "_stats",
        "end",
    )

    def __init__(
        self,
        requests: Requests,
        stats: NodeStats,
        publisher_for: Callable[[Any], Publishing],
        has_responders: Callable[[Any], bool | None],
        no_responders: Callable[[Any], NoResponders],
    ) -> None:
        """Start with nothing asked.

        Args:
            requests: those of the node.
            stats: what they are counted in.
            publisher_for: says which publisher a subject goes out by, or refuses it.
            has_responders: tells whether anybody would answer; None when that is not known yet.
            no_responders: makes the error that says so.
        """
        self._requests = requests
        self._stats = stats
        self._publisher_for = publisher_for
        self._has_responders = has_responders
        self._no_responders = no_responders
        self._shared: Publishing | None = None
        self.end = requests.end

    def end_and_go(self, inbox: str) -> None:
        """Stop waiting. With the last that has an answer what the others have asked since goes out."""
        self.end(inbox)
        if self._shared is not None and not self._requests.answered:
            shared, self._shared = self._shared, None
            if shared is not None:
                shared.go()

    def begin(
        self, request: Request, subject: Any, payload: Any, headers: dict[str, Any] | None, key: Any
    ) -> RequestSteps | None:
        """Send a request at once, if it is known that somebody may answer and there is room.

        Returns:
            None when it has gone; otherwise the steps to it, which raise what this does.

        Raises:
            NoResponders: nobody on the bus has a subscription for the subject.
            SubjectError, WouldBlock, ClosedError, OwnershipError: as `Node.publish`.
        """
        inbox = self._requests.begin(request)
        try:
            publisher = self._publisher_for(subject)
            if not publisher.interest(subject):
                return self._begin_later(inbox, subject, payload, headers, key)
            self._stats.requests += 1
            if self._requests.answered:
                # Answers came together, and whoever has one is about to ask again. Half go first: whoever
                # answers those is at work while the others are asked.
                self._shared = publisher
                publisher.expect_others(max(_LEAST_SHARED, len(self._requests) // 2))
            pauses = publisher.send_request(subject, payload, headers, key, inbox)
        except BaseException:
            self.end(inbox)
            raise
        return None if pauses is None else self._try_again(inbox, pauses)

    def _begin_later(
        self, inbox: str, subject: Any, payload: Any, headers: dict[str, Any] | None, key: Any
    ) -> RequestSteps:
        """Send a request when those who have just been heard of, who may answer, have had their say."""
        try:
            yield lambda: None if self._has_responders(subject) is not None else "peers"
            publisher = self._publisher_for(subject)
            if not publisher.interest(subject):
                raise self._no_responders(subject)
            self._stats.requests += 1
            yield from publisher.send_request(subject, payload, headers, key, inbox) or ()
        except BaseException:
            self.end(inbox)
            raise

    def _try_again(self, inbox: str, pauses: Iterator[float]) -> RequestSteps:
        try:
            yield from pauses
        except BaseException:
            self.end(inbox)
            raise
