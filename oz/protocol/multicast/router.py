"""The router of multicast: everybody wants everything, as nothing comes back from a subscriber."""

from __future__ import annotations

from typing import NoReturn

from oz.protocol.publisher.plain_interest import NOTHING, Keys
from oz.protocol.publisher.recipients import Recipients
from oz.protocol.publisher.router import Router
from oz.protocol.publisher.stream import OutStream
from oz.protocol.stats import PublisherStats
from oz.wire.keys import DeliveryOptions


class MulticastRouter(Router):
    """The interests of the subscribers of a multicast publisher, in which every subject is wanted.

    Attributes:
        stream: the one there is, which stands for all who listen.
    """

    __slots__ = ("_recipients", "stream")

    def __init__(self, origin: bytes, stats: PublisherStats) -> None:
        """Start; see `Router`."""
        super().__init__(origin, stats)
        self.stream = OutStream(b"", b"", DeliveryOptions(), origin, 0)
        self.streams[b""] = self.stream
        self._recipients = Recipients(is_plain=False, streams=(self.stream,), choices=())

    def learn(self, frame: bytes, now: float) -> Keys:
        """Take in a subscription frame: none comes."""
        return NOTHING

    def find(self, subject: bytes, plain: bytes) -> Recipients:
        """Return the recipients of a subject: all there are."""
        return self._recipients

    def count(self, subject: bytes | None, plain: bytes | None, known: Recipients | None = None) -> NoReturn:
        """Refuse to count.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "a multicast publisher hears nothing from its subscribers, so it cannot count or wait for them; "
            "let them answer on a TCP socket if you must know"
        )
