"""Messages of one frame: the subject, a delimiter, and the payload behind it."""

from __future__ import annotations

from oz.message import Message
from oz.protocol.receiver import Receiver
from oz.protocol.subscriptions import SubscriptionTable
from oz.wire.codec import Codec


class SplittingReceiver(Receiver):
    """Takes messages whose first frame holds subject and payload, as many ZeroMQ applications send them."""

    __slots__ = ("_delimiter",)

    def __init__(self, delimiter: bytes, codec: Codec | None = None) -> None:
        """Start without subscriptions.

        Args:
            delimiter: what ends the subject; the first one counts.
            codec: decodes the payload.
        """
        super().__init__(codec, SubscriptionTable(delimiter))
        self._delimiter = delimiter

    def accept(self, frames: list[bytes], time_ns: int) -> Message | None:
        """Take one message in; see `Receiver.accept`. Without a delimiter it is malformed."""
        subject, delimiter, payload = frames[0].partition(self._delimiter)
        route = self._routes.get(subject)
        if route is None or not route.is_clear or not delimiter or self._decode is not None:
            return self._accept_slowly(subject, delimiter, payload, frames, time_ns)
        stats = self.stats
        stats.received += 1
        stats.delivered += 1
        return Message(route.subject, payload, frames, route, time_ns)

    def _accept_slowly(
        self, subject: bytes, delimiter: bytes, payload: bytes, frames: list[bytes], time_ns: int
    ) -> Message | None:
        """Take in what is not the common case: a new subject, a codec, or something to count."""
        if not delimiter:
            self.stats.received += 1
            self.stats.malformed += 1
            self._warn_once("delimiter", "a message has no delimiter %r and is skipped", self._delimiter)
            return None
        message = super().accept([subject, payload], time_ns)
        if message is not None:
            message.frames = frames
        return message
