"""Presence announcements: the pattern that tells every publisher that a node connects to who it is.

Subscriptions are the only thing that flows upstream, so that is where it stands: docs/decisions/028. The
subscription ends when the connection does, so a presence announcement that stands is a link that is up.
"""

from __future__ import annotations

import base64
import binascii
from collections import deque
from collections.abc import Container, Iterable
from contextlib import suppress
from functools import lru_cache

from oz.errors import ProtocolError
from oz.logs import peer_logger
from oz.protocol.bridge import spanning_tree
from oz.protocol.publisher.stream import NAME_SIZE, OutStream
from oz.protocol.stats import PublisherStats
from oz.subjects.pattern import Pattern, compile
from oz.wire.discovery import Announcement, pack_announcement, unpack_announcement
from oz.wire.keys import Declared

_log = peer_logger("oz.node")

PREFIX = "_OZ.PEER."
_PREFIX = PREFIX.encode()
_OFFER = spanning_tree.PREFIX.encode()

MOST_STRANGERS = 1_024
"""Subscribers of another bus that are remembered."""

MOST_REFUSED = 1_000
"""Announcements that were not believed, and of which nobody was told yet."""


_REMEMBERED = 512
"""Announcements that are remembered with their text: each peer tells of all others to each that joins."""


def network_origin(uuid: bytes) -> bytes:
    """Name the publisher of a node that its whole bus hears."""
    return uuid


def local_origin(uuid: bytes) -> bytes:
    """Name the publisher of a node that only its host hears."""
    return uuid[:-1] + bytes((uuid[-1] ^ 1,))


def uuid_of(origin: bytes) -> bytes:
    """Name the node that a publisher is of."""
    return origin[:-1] + bytes((origin[-1] & 0xFE,))


@lru_cache(_REMEMBERED)
def to_text(announcement: Announcement) -> str:
    """Write an announcement as one token of a subject."""
    return base64.urlsafe_b64encode(pack_announcement(announcement)).rstrip(b"=").decode()


@lru_cache(_REMEMBERED)
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


def presence_pattern(announcement: Announcement) -> Pattern:
    """Make the pattern that announces a node's presence."""
    return compile(PREFIX + to_text(announcement), "nats")


class _Owners:
    """The subscriber that each uuid belongs to, by name, and the uuid of each subscriber."""

    __slots__ = ("_names", "_uuids")

    def __init__(self) -> None:
        self._names: dict[bytes, tuple[bytes, int]] = {}
        self._uuids: dict[bytes, bytes] = {}

    def take(self, uuid: bytes, name: bytes) -> bool:
        """Record that a subscriber has a uuid, once more perhaps; tell whether it could be."""
        owner, count = self._names.get(uuid, (name, 0))
        if owner != name or self._uuids.get(name, uuid) != uuid:
            return False
        self._names[uuid] = name, count + 1
        self._uuids[name] = uuid
        return True

    def give_back(self, uuid: bytes) -> bool:
        """Take a uuid back that was given; tell whether it is nobody's now."""
        name, count = self._names.pop(uuid)
        if count > 1:
            self._names[uuid] = name, count - 1
            return False
        del self._uuids[name]
        return True


class Presence:
    """Knows the nodes that are connected to a publisher of a node: it watches the interests.

    A uuid belongs to the subscriber that announced it first, for as long as a stream of that is known, and a
    subscriber announces one uuid. What others announce of it waits until then.
    """

    __slots__ = (
        "_announced", "_bus", "_changes", "_offers", "_owners", "_refused", "_stats", "_strangers",
        "_waiting",
    )  # fmt: skip

    def __init__(self, stats: PublisherStats, bus: str) -> None:
        """Start with nobody.

        Args:
            stats: where to count.
            bus: nodes of another get nothing.
        """
        self._stats = stats
        self._bus = bus
        self._announced: dict[OutStream, dict[Pattern, Announcement]] = {}
        self._offers: dict[OutStream, set[Pattern]] = {}
        self._strangers: dict[bytes, str] = {}
        self._owners = _Owners()
        self._waiting: dict[bytes, dict[tuple[OutStream, Pattern], Announcement]] = {}
        self._refused: deque[str] = deque(maxlen=MOST_REFUSED)
        self._changes: dict[OutStream, dict[Pattern, None]] | None = None

    # what the router tells: see `InterestWatcher` -------------------------------------------------------

    def finds_stranger(self, name: bytes, patterns: Iterable[Declared]) -> bool:
        """Tell whether a subscriber proves to be of another bus by patterns, for the first time."""
        was_known = name in self._strangers
        for pattern in patterns:
            if pattern.text.startswith(_PREFIX):
                self._look_at(name, pattern.text[len(_PREFIX) :].decode("ascii", "replace"))
        return not was_known and name in self._strangers

    def _look_at(self, name: bytes, token: str) -> None:
        """See whether somebody is of another bus."""
        with suppress(ProtocolError):
            announced = from_text(token)
            if announced.bus == self._bus or name in self._strangers:
                return
            _log.warning(
                "%s of bus %r is connected to a node of bus %r, and gets nothing",
                announced.name, announced.bus, self._bus,
            )  # fmt: skip
            while len(self._strangers) >= MOST_STRANGERS:
                del self._strangers[next(iter(self._strangers))]
            self._strangers[name] = announced.bus

    def refusal(self, name: bytes) -> str | None:
        """Say why a subscriber gets nothing; None if it is of this bus, as far as is known."""
        if name not in self._strangers:
            return None
        return f"it is of bus {self._strangers[name]!r}, and this node of {self._bus!r}"

    def added(self, stream: OutStream, pattern: Pattern) -> None:
        """Learn that a stream asked for a pattern, and what that says of who is there."""
        if self._changes is not None:
            self._changes.setdefault(stream, {})[pattern] = None
        if pattern.prefix.startswith(_PREFIX) and pattern.is_literal:
            try:
                announced = from_text(str(pattern.text)[len(PREFIX) :])
            except ProtocolError:
                self._stats.malformed += 1
            else:
                self._announce(stream, pattern, announced)
        elif pattern.prefix.startswith(_OFFER):
            self._offers.setdefault(stream, set()).add(pattern)

    def dropped(self, stream: OutStream, pattern: Pattern) -> None:
        """Learn that a stream asks for a pattern no more."""
        if self._changes is not None:
            self._changes.setdefault(stream, {})[pattern] = None
        if pattern in self._announced.get(stream, ()):
            self._end(stream, pattern)
        elif self._waiting and pattern.prefix.startswith(_PREFIX):
            self._forget_waiting(stream, pattern)
        if stream in self._offers:
            self._offers[stream].discard(pattern)
            if not self._offers[stream]:
                del self._offers[stream]

    def _announce(self, stream: OutStream, pattern: Pattern, announced: Announcement) -> None:
        """Believe who a subscriber says that it is, unless another one is that."""
        if self._owners.take(announced.uuid, stream.name[:NAME_SIZE]):
            self._announced.setdefault(stream, {})[pattern] = announced
            return
        self._waiting.setdefault(announced.uuid, {})[stream, pattern] = announced
        self._refused.append(f"{announced.name} is announced by another subscriber than its own")

    def _end(self, stream: OutStream, pattern: Pattern) -> None:
        """Release a uuid; if that was the last of its owner, it is for those who waited."""
        announced = self._announced[stream].pop(pattern)
        if not self._announced[stream]:
            del self._announced[stream]
        if self._owners.give_back(announced.uuid):
            for (other, its), waiting in self._waiting.pop(announced.uuid, {}).items():
                self._announce(other, its, waiting)

    def _forget_waiting(self, stream: OutStream, pattern: Pattern) -> None:
        with suppress(ProtocolError):
            uuid = from_text(str(pattern.text)[len(PREFIX) :]).uuid
            waiting = self._waiting.get(uuid, {})
            waiting.pop((stream, pattern), None)
            if not waiting:
                self._waiting.pop(uuid, None)

    def take_refused(self) -> list[str]:
        """Return, in words, what was not believed since the last call."""
        refused = list(self._refused)
        self._refused.clear()
        return refused

    def is_presence(self, stream: OutStream) -> bool:
        """Tell whether a stream shows who is connected."""
        return stream in self._announced

    def to_tell(self, streams: Iterable[OutStream]) -> list[OutStream]:
        """Return the streams on which something was sent, and of each node the one with its presence.

        By one record in time a node knows that another speaks, and no proxy between them drops any. Others
        than nodes are told on each stream.
        """
        nodes = {stream.name[:NAME_SIZE] for stream in self._announced}
        return [
            stream
            for stream in streams
            if stream.recorded != stream.sequence
            or stream in self._announced
            or stream.name[:NAME_SIZE] not in nodes
        ]

    # what a node asks ------------------------------------------------------------------------------------

    def take_changes(self) -> dict[OutStream, dict[Pattern, None]]:
        """Return the patterns that may have come or gone since the last call; nothing the first time."""
        changes, self._changes = self._changes or {}, {}
        return changes

    def forwarders(self) -> set[bytes]:
        """Return the uuids of the nodes that pass messages on from other buses."""
        names = {stream.name[:NAME_SIZE] for stream in self._offers}
        return {
            announced.uuid
            for stream, announced_by_pattern in self._announced.items()
            if stream.name[:NAME_SIZE] in names
            for announced in announced_by_pattern.values()
        }

    def names_of(self, uuids: Container[bytes]) -> set[bytes]:
        """Return what the names of the streams of some nodes begin with."""
        return {
            stream.name[:NAME_SIZE]
            for stream, announced_by_pattern in self._announced.items()
            if any(announced.uuid in uuids for announced in announced_by_pattern.values())
        }

    def standing(self) -> tuple[list[Announcement], set[bytes]]:
        """Return the nodes that are connected, and the uuids of those whose connection was cut."""
        linked: list[Announcement] = []
        cut: set[bytes] = set()
        for stream, announced_by_pattern in self._announced.items():
            for announced in announced_by_pattern.values():
                if stream.vanished_at is None and stream.listeners:
                    linked.append(announced)
                else:
                    cut.add(announced.uuid)
        return linked, cut
