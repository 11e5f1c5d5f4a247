"""The announcement of a node, as bytes: who it is, and where it is heard; docs/wire.md has the layout.

An announcement is the same bytes in messages to and from name servers, and in the presence announcement of
its node.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

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

MAX_ANNOUNCEMENT = 8_192
"""Bytes of an announcement that is read; the longest that can be has some 5,500."""

_MAX_PID = 2**32 - 1
_MAX_TIME = 2**63 - 1

# Nodes connect to what is announced, so nothing else than these must reach libzmq, of which some would end
# the process: a wrong epgm:// does.
_TCP = re.compile(r"tcp://[!-)+-:<-~]+:([0-9]{1,5})")
_IPC = re.compile(r"ipc://[^\x00-\x1f\x7f]+")
_KEY = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Announcement:
    """The announcement of a node: who it is, and where it is heard.

    Attributes:
        uuid: 16 bytes, of this life of the node.
        name: what it calls itself; 1 to 255 bytes, as all texts here are, with no control characters.
        bus: the bus that it is on.
        host: the name of its host, to be shown; may be empty.
        host_id: what is the same for processes of one host only; at most 64 bytes.
        pid: its process.
        endpoints: where peers connect to, `tcp://host:port` each; at most 16.
        local_endpoint: where those of the same host do, `ipc://…`; None when they cannot.
        version: that of its oz; may be empty.
        started_ns: when it began, as `time.time_ns()`.
        key: the public key that it has, 40 characters of Z85; None without one.

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
    local_endpoint: str | None
    version: str
    started_ns: int
    key: str | None = None

    def __hash__(self) -> int:
        """Go by the uuid: others with the same are seldom, and it is asked for whenever one is looked up."""
        return hash(self.uuid)

    def __post_init__(self) -> None:
        """Check it: what is announced reaches every node."""
        check_uuid(self.uuid)
        check_text("the name of a node", self.name, least=1)
        check_text("the name of a bus", self.bus, least=1)
        check_text("the name of a host", self.host)
        check_text("a version", self.version)
        if type(self.host_id) is not bytes or len(self.host_id) > MAX_HOST_ID:
            raise ValueError(f"the id of a host is at most {MAX_HOST_ID} bytes, not {shown(self.host_id)}")
        check_int("a pid", self.pid, _MAX_PID)
        check_int("the start of a node", self.started_ns, _MAX_TIME)
        if type(self.endpoints) is not tuple:
            raise ValueError(f"the endpoints of a node are a tuple, not {shown(self.endpoints)}")
        if len(self.endpoints) > MAX_ENDPOINTS:
            raise ValueError(f"a node has at most {MAX_ENDPOINTS} endpoints, not {len(self.endpoints)}")
        for endpoint in self.endpoints:
            _check_endpoint(endpoint)
        if self.key is not None and not _is_key(self.key):
            raise ValueError(f"a public key is 40 characters of Z85, not {shown(self.key)}")
        if self.local_endpoint is not None:
            check_text("an ipc endpoint", self.local_endpoint)
            if not _IPC.fullmatch(self.local_endpoint):
                raise ValueError(f"{self.local_endpoint!r} is no endpoint like ipc:///run/oz/node")


def shown(value: Any) -> str:
    """Show a value in an error. What nests may nest deeper than `repr` can go."""
    return f"a {type(value).__name__}" if isinstance(value, (list, tuple, dict)) else f"{value!r:.100}"


def check_uuid(uuid: Any) -> None:
    """Refuse what is no uuid, with `ValueError`."""
    if type(uuid) is not bytes or len(uuid) != UUID_SIZE:
        raise ValueError(f"a uuid is {UUID_SIZE} bytes, not {shown(uuid)}")


def check_text(what: str, text: Any, least: int = 0) -> None:
    """Refuse what is no text of `least` bytes or more, with `ValueError`."""
    if type(text) is not str:
        raise ValueError(f"{what} is text, not {shown(text)}")
    if not least <= len(text.encode()) <= MAX_TEXT:
        raise ValueError(f"{what} has {least} to {MAX_TEXT} bytes, not {len(text.encode())}: {shown(text)}")
    if _CONTROLS.search(text):
        raise ValueError(f"{what} has no control characters, as {shown(text)} has")


def check_int(what: str, number: Any, most: int) -> None:
    """Refuse what is no number up to `most`, with `ValueError`."""
    if type(number) is not int or not 0 <= number <= most:
        raise ValueError(f"{what} is a number from 0 to {most}, not {shown(number)}")


def _is_key(value: Any) -> bool:
    return type(value) is str and _KEY.fullmatch(value) is not None


def _check_endpoint(endpoint: Any) -> None:
    check_text("an endpoint", endpoint)
    found = _TCP.fullmatch(endpoint)
    if found is None or not 0 < int(found[1]) < 2**16:
        raise ValueError(
            f"{endpoint!r} is no endpoint like tcp://192.0.2.7:5757, to which others can connect"
        )


# packing -------------------------------------------------------------------------------------------------

_Value = TypeVar("_Value")


def pack_announcement(announcement: Announcement) -> bytes:
    """Pack an announcement, as it stands in messages and in a presence announcement."""
    return pack_array(to_values(announcement))


def unpack_announcement(data: bytes) -> Announcement:
    """Read an announcement.

    Raises:
        ProtocolError: the bytes are none, or of a version that is not known here.
    """
    return as_protocol_error(lambda: from_values(unpack_array(data, MAX_ANNOUNCEMENT)))


def to_values(one: Announcement) -> tuple[Any, ...]:
    """Return the values of an announcement's array; without a key as they were before there were any."""
    return (
        VERSION,
        one.uuid,
        one.name,
        one.bus,
        one.host,
        one.host_id,
        one.pid,
        one.endpoints,
        one.local_endpoint,
        one.version,
        one.started_ns,
        *(() if one.key is None else (one.key,)),
    )


def from_values(values: list[Any]) -> Announcement:
    """Make an announcement of what follows the version in its array.

    Raises:
        ValueError: it means nothing.
    """
    if len(values) < 10:
        raise ProtocolError(f"an announcement with {len(values)} values instead of 10")
    uuid, name, bus, host, host_id, pid, endpoints, local_endpoint, version, started_ns = values[:10]
    # Whoever announces something else there has no key that anybody could call it by.
    key = values[10] if len(values) > 10 and _is_key(values[10]) else None
    where = tuple(endpoints) if type(endpoints) is list else endpoints
    return Announcement(uuid, name, bus, host, host_id, pid, where, local_endpoint, version, started_ns, key)


def pack_array(values: tuple[Any, ...]) -> bytes:
    """Pack an array, which begins with the version."""
    packed: bytes = msgpack.packb(values, use_bin_type=True)
    return packed


def as_protocol_error(read: Callable[[], _Value]) -> _Value:
    """Read, where each `ValueError` says that the bytes mean nothing."""
    try:
        return read()
    except ProtocolError:
        raise
    except ValueError as error:
        raise ProtocolError(f"a discovery message that means nothing: {error}") from None


def unpack_array(data: bytes, most: int) -> list[Any]:
    """Unpack an array; give what follows its version.

    Raises:
        ProtocolError: the bytes are none, more than `most`, or of a version that is not known here.
    """
    if len(data) > most:
        raise ProtocolError(f"a discovery message of {len(data)} bytes; at most {most} are allowed")
    try:
        array = msgpack.unpackb(data, raw=False, strict_map_key=False)
    except Exception as error:
        raise ProtocolError(f"a discovery message is not MessagePack: {type(error).__name__}") from None
    return after_version(array)


def after_version(array: Any) -> list[Any]:
    """Check the version that an array begins with; give what follows it.

    Raises:
        ProtocolError: it is no array, or of a version that is not known here.
    """
    if type(array) is not list or not array:
        raise ProtocolError("a discovery message is no array with a version")
    if type(array[0]) is not int or array[0] != VERSION:
        raise ProtocolError(
            f"a discovery message of version {shown(array[0])}; this oz reads version {VERSION}"
        )
    return array[1:]
