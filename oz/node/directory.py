"""Directory of one host with a Unix socket for each node of a bus. Nodes of this host find each other by these sockets.

Theory of operation
-------------------
The file name of a socket consists of a hash of host and bus, and the id of the node. The id is in base64 (RFC 4648,
section 5), because the path of a socket must be short. A node reads the directory and passes each socket to its roster,
which dials the socket. Nodes use the directory only to find each other: HELLO and WELCOME then carry all endpoints of a
node. A node with peers reads the directory every `READ_INTERVAL`, a node without peers every `NAME_INTERVAL`.

A process that is killed leaves its socket in the directory. The socket refuses connections, and any node may remove it.
A node does not test a socket to which it has a link. Between bind and listen, a new socket refuses connections too.
Therefore a node removes only sockets that are at least `YOUNG` seconds old. No later node uses the name of a removed
socket, because the name contains the id of the node.

The directory belongs to one user and has mode 0700, because any process that can write to it could add a false node.
Abstract Unix sockets are not used, because they have no owner.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress
from pathlib import Path

import zmq

from oz.configuration import private_directory
from oz.node.roster import NAME_INTERVAL, Effect, Event, Roster
from oz.transport.errors import EndpointError

READ_INTERVAL = 30.0
"""Seconds between two reads of the directory by a node that has peers."""
YOUNG = 2.0
"""Seconds that a socket must exist before another node may remove it."""
LONGEST_PATH = int(zmq.IPC_PATH_MAX_LEN) or 107
"""Maximum length in bytes of the path of a Unix socket: 107 on Linux (unix(7)), 103 on macOS."""

_NAME = re.compile(r"[A-Za-z0-9_-]{22}\.sock")
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_NETWORK = "/proc/self/ns/net"


class Directory:
    """Sockets of the nodes of one bus on this host.

    Attributes:
        endpoint: endpoint of this node's socket. The node binds it.
        prefix: common start of the endpoints of all nodes of the bus in this directory.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        bus: str,
        node: bytes,
        *,
        has_key: bool = False,
        source: str = "argument",
    ) -> None:
        """Create the directory, if necessary.

        Args:
            path: absolute path of the directory.
            bus: name of the bus.
            node: id of this node.
            has_key: whether this node has keys. Nodes with keys and nodes without keys do not find each other.
            source: source of the path, as in `Setting.source`. Errors name this source.

        Raises:
            ConfigurationError: the directory cannot be created, or is not private.
            EndpointError: the path is too long for a socket, or is not UTF-8.
        """
        self._path = private_directory(path, source=source)
        host = host_id(self._path)
        self._begin, self._separate = (_begin(host, bus, is_keyed) for is_keyed in (has_key, not has_key))
        self._own = self._path / f"{self._begin}{urlsafe_b64encode(node).decode().rstrip('=')}.sock"
        own = os.fsencode(self._own)
        if len(own) > LONGEST_PATH:
            raise EndpointError(
                f"{str(self._own)!r} is longer than the {LONGEST_PATH} bytes that the path of a socket may have; "
                "choose a shorter directory="
            )
        try:
            own.decode()
        except UnicodeDecodeError:
            # libzmq accepts only paths in UTF-8.
            raise EndpointError(f"{str(self._own)!a} is not UTF-8: choose another directory=") from None
        self.endpoint = f"ipc://{self._own}"
        self.prefix = f"ipc://{self._path / self._begin}"
        self._read_at = 0.0

    def node_at(self, endpoint: str) -> bytes | None:
        """Return the id of the node that owns the socket at an endpoint; None for an endpoint outside the directory."""
        if not endpoint.startswith(self.prefix):
            return None
        name = endpoint.removeprefix(self.prefix).removesuffix(".sock")
        try:
            return urlsafe_b64decode(f"{name}==")
        except ValueError:
            return None

    def others(self) -> set[str]:
        """Return the endpoints of the other nodes. The processes of some nodes may have ended."""
        names = self._names(self._begin)
        return {f"ipc://{self._path / name}" for name in names if name != self._own.name}

    def nodes(self) -> set[bytes]:
        """Return the ids of the other nodes. The processes of some nodes may have ended."""
        return {node for endpoint in self.others() if (node := self.node_at(endpoint)) is not None}

    def count_separate(self) -> int:
        """Return the number of nodes of this bus on this host that do not find this node because of keys.

        A node with keys and a node without keys do not find each other. Sockets of processes that have ended are
        removed, and do not count.
        """
        names = self._names(self._separate)
        return sum(not self.remove_dead(f"ipc://{self._path / name}") for name in names)

    def _names(self, begin: str) -> list[str]:
        with suppress(OSError):
            names = os.listdir(self._path)
            return [name for name in names if name.startswith(begin) and _NAME.fullmatch(name, len(begin))]
        return []

    def remove_dead(self, endpoint: str) -> bool:
        """Remove a socket if no process listens at it; return whether the socket is gone."""
        path = Path(endpoint.removeprefix("ipc://"))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            # If the backlog of the listener is full, a blocking connect would wait. This one fails with EAGAIN.
            probe.setblocking(False)
            try:
                probe.connect(os.fspath(path))
            except FileNotFoundError:
                return True
            except ConnectionRefusedError:
                return _remove_old(path)
            except OSError:
                return False
        return False

    def read(self, roster: Roster, now: float) -> list[Effect | Event]:
        """Pass the endpoints of all sockets without a link to a roster, and remove sockets of ended processes.

        Args:
            roster: roster of this node.
            now: time in seconds, by the clock of the roster.

        Returns:
            Effects and events from the roster, in order.
        """
        self._read_at = now
        out: list[Effect | Event] = []
        for endpoint in sorted(self.others()):
            if not roster.is_linked(endpoint):
                report = roster.gone if self.remove_dead(endpoint) else roster.found
                out += report(endpoint, now)
        return out

    @property
    def is_missing(self) -> bool:
        """Whether another program has deleted the socket of this node, such as a cleaner of temporary files."""
        return not self._own.exists()

    def next_read(self, roster: Roster) -> float:
        """Return the time of the next `read`."""
        return self._read_at + (READ_INTERVAL if roster.has_peers else NAME_INTERVAL)

    def remove(self) -> None:
        """Remove the socket of this node."""
        with suppress(OSError):
            self._own.unlink(missing_ok=True)


def _begin(host: bytes, bus: str, has_key: bool) -> str:
    """Return the start of the file names of sockets: a hash of the host, the bus, and whether the nodes have keys."""
    parts = (host, bus.encode(), b"keys" if has_key else b"")
    return hashlib.blake2b(b"\0".join(parts), digest_size=6, person=b"oz node").hexdigest() + "-"


def host_id(directory: Path) -> bytes:
    """Return an id of this host: 16 bytes.

    Containers may share a directory. Two containers count as one host only if they also share the network, because
    nodes of one host connect over loopback addresses.
    """
    status = directory.stat()
    parts = [socket.gethostname(), f"{status.st_dev}:{status.st_ino}"]
    with suppress(OSError):
        parts.append(Path(_BOOT_ID).read_text())
    with suppress(OSError):
        parts.append(str(os.stat(_NETWORK).st_ino))
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).digest()


def _remove_old(path: Path) -> bool:
    """Remove a socket that is at least `YOUNG` seconds old; return whether the socket is gone."""
    try:
        if abs(time.time() - path.lstat().st_mtime) < YOUNG:
            return False
        path.unlink()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
