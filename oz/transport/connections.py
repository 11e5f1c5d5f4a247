"""Connections of libzmq as the operating system knows them: functions that identify and end a connection."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from typing import NamedTuple

IS_KNOWN = sys.platform in ("linux", "darwin")
"""Whether the system treats a connection as a file, which its descriptor and inode identify."""


class Connection(NamedTuple):
    """Connection by which a frame was received.

    Attributes:
        descriptor: file descriptor of the connection.
        inode: inode of the connection, because the system may reuse the descriptor; None if the connection is closed.
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
    """End a connection; libzmq treats it as closed by the peer. A connection that has ended is ignored."""
    try:
        copy = os.dup(connection.descriptor)
    except OSError:
        return
    # The copy is checked, because the number of the original may belong to another file at any time.
    if inode_of(copy) != connection.inode:
        os.close(copy)
        return
    with socket.socket(fileno=copy) as ours, suppress(OSError):
        ours.shutdown(socket.SHUT_RDWR)
