"""The directory by which nodes of one host find each other: it holds a socket of each."""

from __future__ import annotations

import hashlib
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import zmq

from oz.configuration import private_directory

LONGEST_PATH = int(zmq.IPC_PATH_MAX_LEN) or 107
"""Bytes of the path of a Unix socket: 107 on Linux (unix(7)), 103 on macOS."""

_SUFFIX = ".sock"


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


class LocalDirectory:
    """The sockets of one bus in that directory.

    Attributes:
        path: that of this node's own socket.
    """

    __slots__ = ("_begins", "_directory", "path")

    def __init__(self, directory: Path, bus: str, uuid: bytes, host: bytes) -> None:
        """Name this node's own.

        Args:
            directory: it is there, and nobody else may write to it.
            bus: the bus; those of others are passed over.
            uuid: of the node.
            host: what `host_id` gives; nodes of others, which may share the directory, are passed over too.

        Raises:
            ValueError: the path would be too long for a socket.
        """
        self._directory = directory
        self._begins = f"{hashlib.blake2b(host + bus.encode(), digest_size=6).hexdigest()}-"
        self.path = directory / f"{self._begins}{uuid.hex()[:16]}{_SUFFIX}"
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


def meet_in_directory(directory: Path, bus: str, uuid: bytes) -> tuple[MeetingPlace, bytes]:
    """Make the place where nodes of this host meet; give it, and what this host is known by.

    Args:
        directory: where; it is made if it is not there.
        bus: their bus.
        uuid: of the node that asks.

    Raises:
        ConfigurationError: the directory cannot be used.
        ValueError: its path would be too long for a socket.
    """
    found = private_directory(directory)
    host = host_id(found)
    return LocalDirectory(found, bus, uuid, host), host
