"""How a subscriber for asyncio stops asking, for one subscription or for all, and loses nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

from oz.errors import Timeout
from oz.message import Message
from oz.protocol.subscriptions import Subscription
from oz.transport.inlet import RoutedInlet
from oz.transport.subscribing import SubscriberBase

TURN_SECONDS = 0.01
"""Seconds in one turn of the loop for messages that nobody receives: handlers have them, or no pattern wants
them."""

_SLICE = 0.05
"""Seconds of waiting at a time."""


class Draining(SubscriberBase):
    """The part of a subscriber that waits for the answers of publishers."""

    async def receive(self, timeout: float | None = None) -> Message:
        """Wait for the next message that a subscription without a handler wants."""
        raise NotImplementedError

    async def _dispatch(self, message: Message) -> None:
        """Call the handlers."""
        raise NotImplementedError

    async def _wait_for_news(self, seconds: float | None) -> None:
        """Wait until something can be read."""
        raise NotImplementedError

    async def drain(self, timeout: float = 1.0) -> None:
        """Stop asking, and deliver what is there; see `oz.Subscriber.drain`.

        Raises:
            ClosedError, OwnershipError: as there.
        """
        self._check_open()
        deadline = time.monotonic() + timeout
        self._begin_drain()
        await self._unpack_until(self._has_left, deadline)
        await self._take_what_is_here(deadline)
        self._end_drain()

    async def _drain_one(self, subscription: Subscription, timeout: float) -> bool:
        self._check_open()
        if not subscription.active:
            return True
        deadline = time.monotonic() + timeout
        self._begin_part(subscription)
        has_parted = await self._unpack_until(lambda: self._has_parted(subscription), deadline)
        if self._streams is None:
            await self._take_what_is_here(deadline)
        await self._end_with_rest(subscription)
        return has_parted

    async def _unpack_until(self, is_done: Callable[[], bool], deadline: float) -> bool:
        while not is_done():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            await self._unpack_some(min(left, _SLICE))
        return True

    async def _take_what_is_here(self, deadline: float) -> None:
        # A plain publisher may be faster than this, so that there is always one more.
        ends = max(deadline, time.monotonic() + TURN_SECONDS)
        kept: list[Message] = []
        try:
            while time.monotonic() < ends:
                kept.append(await self.receive(0))
        except Timeout:
            pass
        finally:
            self._ready.extendleft(reversed(kept))

    async def _end_with_rest(self, subscription: Subscription) -> None:
        for message in self._rest_of(subscription):
            if message.route.is_listed and self._still_wanted(message):
                # Kept before anything is awaited, as in `receive`.
                self._ready.append(message)
            await self._dispatch(message)
        self._end_part(subscription)

    async def _unpack_some(self, seconds: float) -> None:
        assert isinstance(self._inlet, RoutedInlet)
        self._check_open()
        await self._wait_for_news(seconds)
        self._inlet.unpack(self)
