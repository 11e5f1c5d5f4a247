"""The directory by which nodes of one host find each other: it holds a socket of each."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import zmq

from oz.configuration import private_directory

LONGEST_PATH = int(zmq.IPC_PATH_MAX_LEN) or 107
"""Bytes of the path of a Unix socket: 107 on Linux (unix(7)), 103 on macOS."""

_SUFFIX = ".sock"

_SECURED = b"\0keys"

_SHOWN = 8
"""Characters of a public key in the name of a socket: 51 bits."""


def host_id(directory: Path | None) -> bytes:
    """Return what processes have in common that can reach each other's sockets in a directory.

    It tells network namespaces apart, which stand for hosts: `_LOCAL.` subjects stay within one.

    Args:
        directory: where the sockets are; None when there is no such place.
    """
    parts = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id",):
        with suppress(OSError):
            parts.append(Path(path).read_text())
    with suppress(OSError):
        parts.append(str(os.stat("/proc/self/ns/net").st_ino))
    if directory is not None:
        with suppress(OSError):
            status = directory.stat()
            parts.append(f"{status.st_dev}:{status.st_ino}")
    else:
        parts.append(str(os.getpid()))
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).digest()


class MeetingPlace(Protocol):
    """A place where nodes of one host and bus find each other."""

    @property
    def endpoint(self) -> str:
        """This node's own."""

    @property
    def prefix(self) -> str:
        """The beginning that the endpoints of all nodes share."""

    def others(self) -> set[str]:
        """Return the endpoints of the others, dead ones perhaps among them."""

    def clear(self, endpoint: str) -> bool:
        """Remove an endpoint that nobody listens on any more; tell whether it was one."""

    def remove(self) -> None:
        """Remove this node's own."""


def socket_names(bus: str, uuid: bytes, host: bytes, key: str | None) -> tuple[str, str]:
    """Return what the names of all sockets of a bus begin with, and that of a node's own socket."""
    secured = b"" if key is None else _SECURED
    begins = f"{hashlib.blake2b(host + bus.encode() + secured, digest_size=6).hexdigest()}-"
    # A uuid ends with what is drawn for each node.
    own = uuid.hex()[:16] if key is None else uuid.hex()[-8:] + key[:_SHOWN].encode().hex()
    return begins, f"{begins}{own}{_SUFFIX}"


class LocalDirectory:
    """The sockets of one bus in that directory. Those of nodes with keys have other names than the rest.

    Attributes:
        path: that of this node's own socket.
    """

    __slots__ = ("_begins", "_directory", "path")

    def __init__(self, directory: Path, bus: str, uuid: bytes, host: bytes, key: str | None = None) -> None:
        """Name this node's own.

        Args:
            directory: it is there, and nobody else may write to it.
            bus: the bus; those of others are passed over.
            uuid: of the node.
            host: what `host_id` gives; nodes of others, which may share the directory, are passed over too.
            key: the public key of the node, if it has one: its name tells how that begins.

        Raises:
            ValueError: the path would be too long for a socket.
        """
        self._directory = directory
        self._begins, name = socket_names(bus, uuid, host, key)
        self.path = directory / name
        if len(os.fsencode(self.path)) > LONGEST_PATH:
            raise ValueError(
                f"{str(self.path)!r} is longer than the {LONGEST_PATH} bytes that a socket's path may have; "
                "choose a shorter directory="
            )

    @property
    def endpoint(self) -> str:
        """This node's own."""
        return f"ipc://{self.path}"

    @property
    def prefix(self) -> str:
        """The beginning that the endpoints of all nodes share."""
        return f"ipc://{self._directory / self._begins}"

    def others(self) -> set[str]:
        """Return the endpoints of the others, dead ones perhaps among them."""
        with suppress(OSError):
            return {
                f"ipc://{path}"
                for path in self._directory.iterdir()
                if path.name.startswith(self._begins) and path != self.path
            }
        return set()

    def clear(self, endpoint: str) -> bool:
        """Remove a socket that nobody listens on any more; tell whether it was one."""
        path = Path(endpoint.removeprefix("ipc://"))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(0.1)
            try:
                probe.connect(str(path))
            except (ConnectionRefusedError, FileNotFoundError):
                path.unlink(missing_ok=True)
                return True
            except OSError:
                return False
        return False

    def remove(self) -> None:
        """Remove this node's own."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


class TrustedDirectory:
    """The sockets of those nodes in a directory whose keys are trusted.

    What a name tells is believed for nothing else: whoever has another key than it says is not connected to.
    """

    __slots__ = ("_place", "_report", "_strangers", "_trusted")

    def __init__(
        self, place: MeetingPlace, trusted: Callable[[], Iterable[str]], report: Callable[[str], object]
    ) -> None:
        """Look at a directory.

        Args:
            place: what it has.
            trusted: gives the public keys that are trusted now.
            report: is told, in words, of a socket of somebody else; once of each.
        """
        self._place = place
        self._trusted = trusted
        self._report = report
        self._strangers: set[str] = set()

    def others(self) -> set[str]:
        """Return the endpoints of the others, dead ones perhaps among them."""
        there = self._place.others()
        known = {one for one in there if self.key_of(one) is not None}
        for one in there - known - self._strangers:
            self._report(f"{one} is of a node whose key begins with {_shown(one)!r}, which is not trusted")
        self._strangers = there - known
        return known

    def clear(self, endpoint: str) -> bool:
        """Remove a socket that nobody listens on any more; tell whether it was one."""
        return self._place.clear(endpoint)

    def key_of(self, endpoint: str) -> str | None:
        """Return the trusted key that the name of a socket tells of; None if it is no such."""
        shown = _shown(endpoint)
        return next((one for one in self._trusted() if shown and one[:_SHOWN] == shown), None)


def _shown(endpoint: str) -> str:
    """Return how the key begins of the node that a socket is of; empty where its name does not tell."""
    name = endpoint.removesuffix(_SUFFIX).rpartition("-")[2]
    try:
        return bytes.fromhex(name[8:]).decode()
    except ValueError:
        return ""


def meet_in_directory(
    directory: Path, bus: str, uuid: bytes, key: str | None = None
) -> tuple[MeetingPlace, bytes]:
    """Make the place where nodes of this host meet; give it, and what this host is known by.

    Args:
        directory: where; it is made if it is not there.
        bus: their bus.
        uuid: of the node that asks.
        key: its public key, if it has one.

    Raises:
        ConfigurationError: the directory cannot be used.
        ValueError: its path would be too long for a socket.
    """
    found = private_directory(directory)
    host = host_id(found)
    return LocalDirectory(found, bus, uuid, host, key), host
