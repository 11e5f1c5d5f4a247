"""The messages of nodes and name servers to each other: versioned MessagePack; see docs/wire.md.

Each message is one frame. The announcement of a node is the same bytes in all of them, and in its presence
announcement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from typing import Any, NamedTuple, TypeVar

import msgpack

from oz.errors import ProtocolError
from oz.wire.announcement import (
    VERSION,
    Announcement,
    after_version,
    as_protocol_error,
    check_int,
    check_text,
    check_uuid,
    from_values,
    pack_announcement,
    pack_array,
    shown,
    to_values,
    unpack_announcement,
    unpack_array,
)

__all__ = [
    "Alive",
    "Announce",
    "Announcement",
    "Ask",
    "Goodbye",
    "Joined",
    "Left",
    "Lost",
    "Reply",
    "Request",
    "Roster",
    "Welcome",
    "pack",
    "pack_announcement",
    "pack_rosters",
    "unpack_announcement",
    "unpack_reply",
    "unpack_request",
]

MAX_REQUEST = 8_192
"""Bytes of a message from a node; the longest announcement has some 5,500."""

MAX_ROSTER = 128
"""Announcements in one message; a longer roster comes in several."""

ROSTER_SIZE = 4_000
"""Bytes of announcements in one message, unless one alone has more: so a queue is bounded by its messages."""

MAX_REPLY = 1 << 20
"""Bytes of a message from a name server."""

MAX_SECONDS = 3_600.0
"""What a name server may ask for between two beacons, and before it counts a node as lost."""

_MAX_COUNT = 2**32 - 1

# what is said --------------------------------------------------------------------------------------------


class Announce(NamedTuple):
    """A node to a name server: this is who I am. It is its beacon too.

    Attributes:
        announcement: of the node.
        has_heard: whether it has heard itself from this name server. If not, it wants to.
    """

    announcement: Announcement
    has_heard: bool


class Goodbye(NamedTuple):
    """A node to a name server: I leave."""

    uuid: bytes


class Ask(NamedTuple):
    """Anybody to a name server: who is there? The asker joins nothing.

    Attributes:
        bus: on which bus; None: on any.
    """

    bus: str | None = None


class Welcome(NamedTuple):
    """A name server to a new node: this is who I am. A roster follows.

    Attributes:
        server_id: 16 bytes, of this life of the name server.
        server_name: what it calls itself.
        beacon: seconds between two announcements of a node that has heard itself.
        expiry: seconds of silence after which a node counts as lost, and a name server as gone.
    """

    server_id: bytes
    server_name: str
    beacon: float
    expiry: float


class Roster(NamedTuple):
    """A name server to one node: those who are there; the whole, or a part of it.

    Attributes:
        announcements: at most 128.
        first: how many came in the parts before.
        total: how many there are in all parts.
    """

    announcements: tuple[Announcement, ...]
    first: int
    total: int

    @property
    def is_last(self) -> bool:
        """Whether no part follows."""
        return self.first + len(self.announcements) >= self.total


class Joined(NamedTuple):
    """A name server to all nodes of a bus: this one is there, or has changed. It is told too."""

    announcement: Announcement


class Left(NamedTuple):
    """A name server to all other nodes of a bus: this one said goodbye."""

    uuid: bytes


class Lost(NamedTuple):
    """A name server to all other nodes of a bus: this one is not heard any more."""

    uuid: bytes


class Alive(NamedTuple):
    """A name server to one node: your beacon came."""


Request = Announce | Goodbye | Ask
"""What a name server is told."""

Reply = Welcome | Roster | Joined | Left | Lost | Alive
"""What a name server says."""

# packing -------------------------------------------------------------------------------------------------

_ANNOUNCE, _GOODBYE, _ASK = 1, 2, 3
_WELCOME, _ROSTER, _JOINED, _LEFT, _LOST, _ALIVE = 11, 12, 13, 14, 15, 16

_KINDS: dict[type[Request | Reply], int] = {
    Announce: _ANNOUNCE,
    Goodbye: _GOODBYE,
    Ask: _ASK,
    Welcome: _WELCOME,
    Joined: _JOINED,
    Left: _LEFT,
    Lost: _LOST,
    Alive: _ALIVE,
}


def pack(message: Request | Reply) -> bytes:
    """Pack a message."""
    if isinstance(message, Roster):
        packed = [pack_announcement(one) for one in message.announcements]
        return _pack_roster(packed, message.first, message.total)
    values = [to_values(one) if isinstance(one, Announcement) else one for one in message]
    return pack_array((VERSION, _KINDS[type(message)], *values))


def pack_rosters(packed: Sequence[bytes]) -> Iterator[bytes]:
    """Pack a roster in as many messages as it takes, at least one.

    Args:
        packed: what `pack_announcement` gave, of each.
    """
    first = size = 0
    for at, one in enumerate(packed):
        if at - first == MAX_ROSTER or (at > first and size + len(one) > ROSTER_SIZE):
            yield _pack_roster(packed[first:at], first, len(packed))
            first, size = at, 0
        size += len(one)
    yield _pack_roster(packed[first:], first, len(packed))


def _pack_roster(packed: Sequence[bytes], first: int, total: int) -> bytes:
    # The last byte is an array of nothing, for which the array of these stands instead.
    head = pack_array((VERSION, _ROSTER, first, total, ()))[:-1]
    count = msgpack.Packer().pack_array_header(len(packed))
    return b"".join((head, count, *packed))


# reading -------------------------------------------------------------------------------------------------

_Value = TypeVar("_Value")


def unpack_request(frame: bytes) -> Request:
    """Read what a name server was told.

    Raises:
        ProtocolError: the bytes are no such message, or of a version that is not known here.
    """
    return as_protocol_error(lambda: _read(frame, MAX_REQUEST, _REQUESTS))


def unpack_reply(frame: bytes) -> Reply:
    """Read what a name server says.

    Raises:
        ProtocolError: the bytes are no such message, or of a version that is not known here.
    """
    return as_protocol_error(lambda: _read(frame, MAX_REPLY, _REPLIES))


def _read(frame: bytes, most: int, kinds: dict[int, tuple[int, Callable[..., _Value]]]) -> _Value:
    kind, *values = unpack_array(frame, most) or (None,)
    if type(kind) is not int or kind not in kinds:
        raise ProtocolError(f"a discovery message of kind {shown(kind)}, which nobody says here")
    count, make = kinds[kind]
    if len(values) < count:
        raise ProtocolError(
            f"a discovery message of kind {kind} with {len(values)} values instead of {count}"
        )
    # Further values are passed over.
    return make(*values[:count])


def _check_seconds(seconds: Any) -> None:
    if type(seconds) not in (int, float) or not isfinite(seconds) or not 0 < seconds <= MAX_SECONDS:
        raise ValueError(f"above 0 and at most {MAX_SECONDS:g} seconds are allowed, not {shown(seconds)}")


def _announce(array: Any, has_heard: Any) -> Announce:
    if type(has_heard) is not bool:
        raise ProtocolError(f"whether a node has heard itself is true or false, not {shown(has_heard)}")
    return Announce(from_values(after_version(array)), has_heard)


def _ask(bus: Any) -> Ask:
    if bus is not None:
        check_text("the name of a bus", bus, least=1)
    return Ask(bus)


def _welcome(server_id: Any, server_name: Any, beacon: Any, expiry: Any) -> Welcome:
    check_uuid(server_id)
    check_text("the name of a name server", server_name)
    _check_seconds(beacon)
    _check_seconds(expiry)
    return Welcome(server_id, server_name, beacon, expiry)


def _roster(first: Any, total: Any, arrays: Any) -> Roster:
    check_int("the place in a roster", first, _MAX_COUNT)
    check_int("the length of a roster", total, _MAX_COUNT)
    if type(arrays) is not list or len(arrays) > MAX_ROSTER:
        raise ProtocolError(f"a roster is an array of at most {MAX_ROSTER} announcements")
    if first + len(arrays) > total or not (arrays or first == total):
        raise ProtocolError(f"a roster of {total}, of which {len(arrays)} come after the first {first}")
    return Roster(tuple(from_values(after_version(one)) for one in arrays), first, total)


def _joined(array: Any) -> Joined:
    return Joined(from_values(after_version(array)))


def _uuid(uuid: Any) -> bytes:
    check_uuid(uuid)
    return bytes(uuid)


_REQUESTS: dict[int, tuple[int, Callable[..., Request]]] = {
    _ANNOUNCE: (2, _announce),
    _GOODBYE: (1, lambda uuid: Goodbye(_uuid(uuid))),
    _ASK: (1, _ask),
}
_REPLIES: dict[int, tuple[int, Callable[..., Reply]]] = {
    _WELCOME: (4, _welcome),
    _ROSTER: (3, _roster),
    _JOINED: (1, _joined),
    _LEFT: (1, lambda uuid: Left(_uuid(uuid))),
    _LOST: (1, lambda uuid: Lost(_uuid(uuid))),
    _ALIVE: (0, Alive),
}
