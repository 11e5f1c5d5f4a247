"""What nodes and name servers say to each other: versioned MessagePack; docs/wire.md has the layout.

Each message is one frame. The announcement of a node is the same bytes in all of them, and in its herald.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple, TypeVar

import msgpack

from oz.errors import ProtocolError

VERSION = 1

UUID_SIZE = 16

MAX_TEXT = 255
"""Bytes of each text, as UTF-8, and of an endpoint."""

MAX_ENDPOINTS = 16
"""Endpoints of one node."""

MAX_HOST_ID = 64
"""Bytes of what tells hosts apart."""

MAX_REQUEST = 8_192
"""Bytes of a message from a node; the longest announcement has some 5,500."""

MAX_ROSTER = 128
"""Announcements in one message; a longer roster comes in several."""

MAX_REPLY = 1 << 20
"""Bytes of a message from a name server."""

MAX_SECONDS = 3_600.0
"""What a name server may ask for between two beacons, and before it counts a node as lost."""

_MAX_PID = 2**32 - 1
_MAX_TIME = 2**63 - 1
_MAX_COUNT = 2**32 - 1

# Nodes connect to what is announced, so nothing else than these must reach libzmq, of which some would end
# the process: a wrong epgm:// does.
_TCP = re.compile(r"tcp://[!-)+-:<-~]+:([0-9]{1,5})")
_IPC = re.compile(r"ipc://[^\x00-\x1f\x7f]+")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Announcement:
    """Who a node is, and where it is heard.

    Attributes:
        uuid: 16 bytes, of this life of the node.
        name: what it calls itself; 1 to 255 bytes, as all texts here are, with no control characters.
        bus: the bus that it is on.
        host: the name of its host, to be shown; may be empty.
        host_id: what is the same for processes of one host only; at most 64 bytes.
        pid: its process.
        endpoints: where peers connect to, `tcp://host:port` each; at most 16.
        near: where those of the same host do, `ipc://…`; None when they cannot.
        version: that of its oz; may be empty.
        started_ns: when it began, as `time.time_ns()`.

    Raises:
        ValueError: one of them is out of bounds; says which.
    """

    uuid: bytes
    name: str
    bus: str
    host: str
    host_id: bytes
    pid: int
    endpoints: tuple[str, ...]
    near: str | None
    version: str
    started_ns: int

    def __post_init__(self) -> None:
        """Check it: what is announced reaches every node."""
        _check_uuid(self.uuid)
        _check_text("the name of a node", self.name, least=1)
        _check_text("the name of a bus", self.bus, least=1)
        _check_text("the name of a host", self.host)
        _check_text("a version", self.version)
        if type(self.host_id) is not bytes or len(self.host_id) > MAX_HOST_ID:
            raise ValueError(f"the id of a host is at most {MAX_HOST_ID} bytes, not {_shown(self.host_id)}")
        _check_int("a pid", self.pid, _MAX_PID)
        _check_int("the start of a node", self.started_ns, _MAX_TIME)
        if type(self.endpoints) is not tuple:
            raise ValueError(f"the endpoints of a node are a tuple, not {_shown(self.endpoints)}")
        if len(self.endpoints) > MAX_ENDPOINTS:
            raise ValueError(f"a node has at most {MAX_ENDPOINTS} endpoints, not {len(self.endpoints)}")
        for endpoint in self.endpoints:
            _check_endpoint(endpoint)
        if self.near is not None:
            _check_text("an ipc endpoint", self.near)
            if not _IPC.fullmatch(self.near):
                raise ValueError(f"{self.near!r} is no endpoint like ipc:///run/oz/node")


def _shown(value: Any) -> str:
    """Show a value in an error. What nests may nest deeper than `repr` can go."""
    return f"a {type(value).__name__}" if isinstance(value, (list, tuple, dict)) else f"{value!r:.100}"


def _check_uuid(uuid: Any) -> None:
    if type(uuid) is not bytes or len(uuid) != UUID_SIZE:
        raise ValueError(f"a uuid is {UUID_SIZE} bytes, not {_shown(uuid)}")


def _check_text(what: str, text: Any, least: int = 0) -> None:
    if type(text) is not str:
        raise ValueError(f"{what} is text, not {_shown(text)}")
    if not least <= len(text.encode()) <= MAX_TEXT:
        raise ValueError(f"{what} has {least} to {MAX_TEXT} bytes, not {len(text.encode())}: {_shown(text)}")
    if _CONTROLS.search(text):
        raise ValueError(f"{what} has no control characters, as {_shown(text)} has")


def _check_int(what: str, number: Any, most: int) -> None:
    if type(number) is not int or not 0 <= number <= most:
        raise ValueError(f"{what} is a number from 0 to {most}, not {_shown(number)}")


def _check_seconds(seconds: Any) -> None:
    if type(seconds) not in (int, float) or not isfinite(seconds) or not 0 < seconds <= MAX_SECONDS:
        raise ValueError(f"above 0 and at most {MAX_SECONDS:g} seconds are allowed, not {_shown(seconds)}")


def _check_endpoint(endpoint: Any) -> None:
    _check_text("an endpoint", endpoint)
    found = _TCP.fullmatch(endpoint)
    if found is None or not 0 < int(found[1]) < 2**16:
        raise ValueError(
            f"{endpoint!r} is no endpoint like tcp://192.0.2.7:5757, to which others can connect"
        )


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
    """Anybody to a name server: who is there? Whoever asks joins nothing.

    Attributes:
        bus: on which bus; None: on any.
    """

    bus: str | None = None


class Welcome(NamedTuple):
    """A name server to whoever is new to it: this is who I am. A roster follows.

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


def pack_announcement(announcement: Announcement) -> bytes:
    """Pack an announcement, as it stands in messages and in a herald."""
    return _pack(_fields(announcement))


def pack(message: Request | Reply) -> bytes:
    """Pack a message."""
    if isinstance(message, Roster):
        packed = [pack_announcement(one) for one in message.announcements]
        return _pack_roster(packed, message.first, message.total)
    values = [_fields(one) if isinstance(one, Announcement) else one for one in message]
    return _pack((VERSION, _KINDS[type(message)], *values))


def pack_rosters(packed: Sequence[bytes]) -> Iterator[bytes]:
    """Pack a roster in as many messages as it takes, at least one.

    Args:
        packed: what `pack_announcement` gave, of each.
    """
    for first in range(0, len(packed) or 1, MAX_ROSTER):
        yield _pack_roster(packed[first : first + MAX_ROSTER], first, len(packed))


def _pack_roster(packed: Sequence[bytes], first: int, total: int) -> bytes:
    # The last byte is an array of nothing, for which the array of these stands instead.
    head = _pack((VERSION, _ROSTER, first, total, ()))[:-1]
    count = msgpack.Packer().pack_array_header(len(packed))
    return b"".join((head, count, *packed))


def _pack(values: tuple[Any, ...]) -> bytes:
    packed: bytes = msgpack.packb(values, use_bin_type=True)
    return packed


def _fields(one: Announcement) -> tuple[Any, ...]:
    return (
        VERSION,
        one.uuid,
        one.name,
        one.bus,
        one.host,
        one.host_id,
        one.pid,
        one.endpoints,
        one.near,
        one.version,
        one.started_ns,
    )


# unpacking -----------------------------------------------------------------------------------------------

_Told = TypeVar("_Told")


def unpack_announcement(data: bytes) -> Announcement:
    """Read an announcement.

    Raises:
        ProtocolError: the bytes are none, or of a version that is not known here.
    """
    return _told(lambda: _announcement(_unpack(data, MAX_REQUEST)))


def unpack_request(frame: bytes) -> Request:
    """Read what a name server was told.

    Raises:
        ProtocolError: the bytes are no such message, or of a version that is not known here.
    """
    return _told(lambda: _read(frame, MAX_REQUEST, _REQUESTS))


def unpack_reply(frame: bytes) -> Reply:
    """Read what a name server says.

    Raises:
        ProtocolError: the bytes are no such message, or of a version that is not known here.
    """
    return _told(lambda: _read(frame, MAX_REPLY, _REPLIES))


def _told(read: Callable[[], _Told]) -> _Told:
    try:
        return read()
    except ProtocolError:
        raise
    except ValueError as error:
        raise ProtocolError(f"a naming message that means nothing: {error}") from None


def _read(frame: bytes, most: int, kinds: dict[int, tuple[int, Callable[..., _Told]]]) -> _Told:
    kind, *values = _unpack(frame, most) or (None,)
    if type(kind) is not int or kind not in kinds:
        raise ProtocolError(f"a naming message of kind {_shown(kind)}, which nobody says here")
    count, make = kinds[kind]
    if len(values) < count:
        raise ProtocolError(f"a naming message of kind {kind} with {len(values)} values instead of {count}")
    # What a later version 1 adds comes behind.
    return make(*values[:count])


def _unpack(data: bytes, most: int) -> list[Any]:
    """Unpack an array, and check the version that it begins with; give what follows that."""
    if len(data) > most:
        raise ProtocolError(f"a naming message of {len(data)} bytes; at most {most} are allowed")
    try:
        array = msgpack.unpackb(data, raw=False, strict_map_key=False)
    except Exception as error:
        raise ProtocolError(f"a naming message is not MessagePack: {type(error).__name__}") from None
    return _versioned(array)


def _versioned(array: Any) -> list[Any]:
    if type(array) is not list or not array:
        raise ProtocolError("a naming message is no array with a version")
    if type(array[0]) is not int or array[0] != VERSION:
        raise ProtocolError(
            f"a naming message of version {_shown(array[0])}; this oz reads version {VERSION}"
        )
    return array[1:]


def _announcement(values: list[Any]) -> Announcement:
    if len(values) < 10:
        raise ProtocolError(f"an announcement with {len(values)} values instead of 10")
    uuid, name, bus, host, host_id, pid, endpoints, near, version, started_ns = values[:10]
    where = tuple(endpoints) if type(endpoints) is list else endpoints
    return Announcement(uuid, name, bus, host, host_id, pid, where, near, version, started_ns)


def _announce(array: Any, has_heard: Any) -> Announce:
    if type(has_heard) is not bool:
        raise ProtocolError(f"whether a node has heard itself is true or false, not {_shown(has_heard)}")
    return Announce(_announcement(_versioned(array)), has_heard)


def _ask(bus: Any) -> Ask:
    if bus is not None:
        _check_text("the name of a bus", bus, least=1)
    return Ask(bus)


def _welcome(server_id: Any, server_name: Any, beacon: Any, expiry: Any) -> Welcome:
    _check_uuid(server_id)
    _check_text("the name of a name server", server_name)
    _check_seconds(beacon)
    _check_seconds(expiry)
    return Welcome(server_id, server_name, beacon, expiry)


def _roster(first: Any, total: Any, arrays: Any) -> Roster:
    _check_int("the place in a roster", first, _MAX_COUNT)
    _check_int("the length of a roster", total, _MAX_COUNT)
    if type(arrays) is not list or len(arrays) > MAX_ROSTER:
        raise ProtocolError(f"a roster is an array of at most {MAX_ROSTER} announcements")
    if first + len(arrays) > total or not (arrays or first == total):
        raise ProtocolError(f"a roster of {total}, of which {len(arrays)} come after the first {first}")
    return Roster(_announcements(arrays), first, total)


def _announcements(arrays: Iterable[Any]) -> tuple[Announcement, ...]:
    return tuple(_announcement(_versioned(one)) for one in arrays)


def _joined(array: Any) -> Joined:
    return Joined(_announcement(_versioned(array)))


def _uuid(uuid: Any) -> bytes:
    _check_uuid(uuid)
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
