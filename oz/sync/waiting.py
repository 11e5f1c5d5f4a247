"""The waiting of blocking subscribers."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

import zmq

from oz.message import Message
from oz.protocol.subscriber import subscriptions
from oz.transport.subscriber.draining import Steps, T
from oz.transport.subscriber.engine import SubscriberEngine
from oz.transport.subscriber.receiver import LONGEST

Handler = Callable[[Message], None]


class Subscription(subscriptions.Subscription):
    """One call of `subscribe`: its patterns and its handler, until it is undone.

    Attributes:
        patterns: the compiled patterns.
        handler: what is called with each message, or None when messages are received.
        active: False once it has been undone; nothing is delivered for it any more.
        left: messages after which it ends, or None; 0 once it has had its last.
    """

    __slots__ = ()

    def drain(self, timeout: float = 1.0) -> bool:
        """End it, and lose nothing: ask for no more, and deliver what was on its way.

        Publishers that filter answer that they send no more for it. A plain one does not answer: what is
        here counts. Handlers are called; what is to be received still is. Of a queue group the other members
        get what is published from then on.

        Args:
            timeout: seconds for all of it; what has come by then is still handled.

        Returns:
            Whether nothing is missing: every publisher has answered, and a node's handlers have returned.
            True also for one that has ended before.

        Raises:
            ClosedError, OwnershipError: as `oz.Subscriber.receive`.
        """
        return bool(super().drain(timeout))


class BlockingWaiter:
    """Waits for the socket of one subscriber in the thread that calls, where its handlers run too."""

    __slots__ = ("_engine",)

    def __init__(self, engine: SubscriberEngine) -> None:
        """Wait for a subscriber's socket.

        Args:
            engine: the subscriber's.
        """
        self._engine = engine

    def run(self, steps: Steps[T]) -> T:
        """Run steps to their end, and give what they return.

        Raises:
            ClosedError: the subscriber is closed.
            OwnershipError: another thread is using it, or it was made before a fork.
        """
        engine = self._engine
        engine.check_open()
        try:
            while True:
                step = next(steps)
                if isinstance(step, float):
                    self.wait(step)
                elif engine.dispatch(step):
                    engine.ready.append(step)
        except StopIteration as ended:
            value: T = ended.value
            return value
        except zmq.ZMQError:
            engine.check_open()
            raise

    def wait(self, seconds: float) -> None:
        """Wait so long at most until something can be read, or is due.

        Raises:
            ClosedError, OwnershipError: as `run`.
        """
        engine = self._engine
        engine.check_open()
        try:
            with engine.declarer.guard:
                self.poll(ceil(1000 * min(seconds, engine.declarer.seconds_left(), LONGEST)), zmq.POLLIN)
        except zmq.ZMQError:
            # A signal handler may have closed it meanwhile.
            engine.check_open()
            raise

    def poll(self, timeout: int, flags: int) -> Any:
        """Wait for events, as `zmq.Socket.poll` does."""
        return zmq.Socket.poll(self._engine.socket, timeout, flags)
