"""The engine of a node's subscriber: it receives, and runs plain handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import zmq

from oz.logs import peer_logger
from oz.protocol.messages import Message
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.security.publish_access import PublishAccess
from oz.transport.attachments import Attachments
from oz.transport.backend import backend_of
from oz.transport.frames import FrameReader, frame_reader
from oz.transport.guard import Guard
from oz.transport.peer_keys import KeyedReader, PeerKeys
from oz.transport.subscriber.declarations import Declarer
from oz.transport.subscriber.receive_path import ReceivePath

_log = peer_logger("oz.subscriber")


class SubscriberEngine:
    """Receives for one subscriber, and runs its handlers.

    Attributes:
        socket: the socket that it works on.
        declarer: what asks publishers for messages.
        decoder: what takes batches apart.
        take: the `take` of its `ReceivePath`, by the shortest way.
        waiting: messages that were unpacked and are still to be given.
        monotonic: the clock that its deadlines are of.
    """

    __slots__ = ("_receive_path", "declarer", "decoder", "monotonic", "socket", "take", "waiting")

    def __init__(
        self, socket: zmq.Socket[Any], guard: Guard, decoder: BatchDecoder, attachments: Attachments
    ) -> None:
        """Put together what a subscriber has.

        Args:
            socket: a SUB.
            guard: its guard.
            decoder: without subscriptions.
            attachments: its endpoints, and its keys.
        """
        self.socket = socket
        backend = backend_of(socket)
        self.monotonic = backend.monotonic
        self.decoder = decoder
        self.declarer = Declarer(socket, guard, decoder.streams)
        reader = reader_for(socket, decoder, attachments)
        self._receive_path = ReceivePath(guard, backend, reader, decoder, self.declarer)
        self.take = self._receive_path.shortest()
        self.waiting = decoder.waiting

    def end_connections(self, end: Callable[[], object]) -> None:
        """End connections; what ZeroMQ has announced is taken first: see `ReceivePath.take_announced`.

        Args:
            end: ends them.

        Raises:
            zmq.ZMQError: the socket is closed, or what `end` raises.
        """
        message = None
        try:
            # Nobody may poll in between.
            with self.declarer.guard:
                message = self._receive_path.take_announced(self.socket)
                end()
        finally:
            if message is not None:
                self.dispatch(message)

    def dispatch(self, message: Message) -> None:
        """Run the handlers, which are plain functions."""
        route = message.route
        if route.is_counted:
            _count(message)
        for subscription in route.subscriptions:
            # A handler before this one may have ended this subscription.
            if subscription.active or subscription.wants(message):
                try:
                    subscription.handler(message)
                except Exception:
                    self.decoder.stats.failed += 1
                    _log.exception("the handler of %r raised", subscription)

    def cancel(self, subscription: Subscribed) -> None:
        """End a subscription, and drop what is here for nobody else."""
        self.declarer.end(subscription)
        self.decoder.retain(lambda message: any(one.active for one in message.subscriptions))

    def end_with_rest(self, subscription: Subscribed) -> None:
        """Deliver what has come for a subscription, and what stands before that; then end it."""
        while self.waiting:
            self.dispatch(self.waiting.popleft())
        if subscription.active:
            subscription.left = 0
            self.cancel(subscription)


def reader_for(socket: zmq.Socket[Any], decoder: BatchDecoder, attachments: Attachments) -> FrameReader:
    """Make what reads the messages of a subscriber; with keys, the decoder asks who may publish what.

    Args:
        socket: a SUB.
        decoder: takes the messages in.
        attachments: its endpoints, and its keys.
    """
    credentials = attachments.credentials
    if credentials is None:
        return frame_reader(socket)
    decoder.access = PublishAccess(credentials.rights, decoder.stats)
    backend = backend_of(socket)
    return KeyedReader(PeerKeys(attachments, backend), decoder.access, backend)


def _count(message: Message) -> None:
    """Count a message for subscriptions that end after so many."""
    for subscription in message.subscriptions:
        if subscription.left is not None and subscription.active:
            subscription.count(message)
