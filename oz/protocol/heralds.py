"""Heralds: the pattern by which a node tells every publisher that it connects to who it is.

Subscriptions are the only thing that flows upstream, so that is where it stands: docs/decisions/028. The
subscription ends when the connection does, so a herald that stands is a link that is up.
"""

from __future__ import annotations

import base64
import binascii

from oz.errors import ProtocolError
from oz.protocol.distinguished import DistinguishedIndex
from oz.protocol.outgoing import OutStream
from oz.protocol.routing import Router
from oz.subjects.index import PatternIndex
from oz.subjects.pattern import Pattern, compile
from oz.wire.naming import Announcement, pack_announcement, unpack_announcement

PREFIX = "_OZ.PEER."
_PREFIX = PREFIX.encode()


def to_text(announcement: Announcement) -> str:
    """Write an announcement as one token of a subject."""
    return base64.urlsafe_b64encode(pack_announcement(announcement)).rstrip(b"=").decode()


def from_text(token: str) -> Announcement:
    """Read what `to_text` wrote.

    Raises:
        ProtocolError: it is something else.
    """
    try:
        packed = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except (binascii.Error, ValueError) as error:
        raise ProtocolError(f"an announcement is not base64: {error}") from None
    return unpack_announcement(packed)


def herald(announcement: Announcement) -> Pattern:
    """Make the herald of a node."""
    return compile(PREFIX + to_text(announcement), "nats")


class NodeRouter(Router):
    """The interests at a publisher of a node: it knows heralds, and wildcards pass by subjects with `_`."""

    __slots__ = ("_heralds",)

    def __init__(self, origin: bytes, stats: object) -> None:
        """Start without any."""
        super().__init__(origin, stats)  # type: ignore[arg-type]
        self._heralds: dict[OutStream, dict[Pattern, Announcement]] = {}

    @staticmethod
    def _make_index() -> PatternIndex:
        return DistinguishedIndex(cache_size=0)

    def _want(self, stream: OutStream, pattern: Pattern) -> None:
        super()._want(stream, pattern)
        if pattern.prefix.startswith(_PREFIX) and pattern.is_literal:
            try:
                announced = from_text(str(pattern.text)[len(PREFIX) :])
            except ProtocolError:
                self.stats.malformed += 1
            else:
                self._heralds.setdefault(stream, {})[pattern] = announced

    def _drop(self, stream: OutStream, pattern: Pattern) -> None:
        super()._drop(stream, pattern)
        if stream in self._heralds:
            self._heralds[stream].pop(pattern, None)
            if not self._heralds[stream]:
                del self._heralds[stream]

    def standing(self) -> tuple[list[Announcement], set[bytes]]:
        """Give the nodes that are connected, and the uuids of those whose connection was cut."""
        linked: list[Announcement] = []
        cut: set[bytes] = set()
        for stream, heralds in self._heralds.items():
            for announced in heralds.values():
                if stream.vanished_at is None and stream.listeners:
                    linked.append(announced)
                else:
                    cut.add(announced.uuid)
        return linked, cut
