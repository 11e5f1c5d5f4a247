"""Functions that identify and end a connection of libzmq by its file descriptor."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from typing import NamedTuple

IS_KNOWN = sys.platform in ("linux", "darwin")
"""Whether the system gives each connection a descriptor and an inode, which together identify the connection."""


class Connection(NamedTuple):
    """Connection on which a frame was received.

    Attributes:
        descriptor: file descriptor of the connection. The system may reuse it after the connection is closed.
        inode: inode of the connection; None if the connection is closed.
        key: public key of the peer; None without CURVE.
    """

    descriptor: int
    inode: int | None
    key: str | None = None


def inode_of(descriptor: int) -> int | None:
    """Return the inode of a descriptor; None if the descriptor is closed."""
    try:
        return os.fstat(descriptor).st_ino
    except OSError:
        return None


def cut(connection: Connection) -> None:
    """End a connection, as if the peer had closed it. If the connection has ended already, do nothing."""
    try:
        copy = os.dup(connection.descriptor)
    except OSError:
        return
    # Check the copy, because the system may give the number of the original to another file at any time.
    if inode_of(copy) != connection.inode:
        os.close(copy)
        return
    with socket.socket(fileno=copy) as ours, suppress(OSError):
        ours.shutdown(socket.SHUT_RDWR)
