"""Check for free file descriptors before a socket is opened: libzmq aborts the process if none is free."""

from __future__ import annotations

import errno
import os
from io import FileIO

import zmq

from oz.system import has_free_descriptors

_USED_UP = (errno.EMFILE, errno.ENFILE)

CONTEXT = 10
"""Number of descriptors that the first socket of a context needs. Each of libzmq's two threads needs two descriptors.
The end of the context needs one, and the socket needs one. Four are spare. Source: ctx.cpp and epoll.cpp of libzmq
4.3.5."""

_ENDPOINT = 6
"""Number of descriptors that a bind or connect needs: one for the address lookup, one for the socket, two that wake a
thread of oz, and two spare. Source: ip_resolver.cpp of libzmq 4.3.5."""

_SPARE = 32
"""Number of descriptors that a node leaves free for incoming connections: an `ipc://` listener of libzmq 4.3.5 aborts
the process if `accept` fails."""

NODE = 24
"""Number of descriptors that a node needs for its context, sockets, endpoints, and the pair that wakes its thread."""


def need_for_node() -> None:
    """Raise an error unless a node can be opened and `_SPARE` descriptors stay free.

    Raises:
        zmq.ZMQError: too few descriptors are free; see `need`.
    """
    need(NODE + _SPARE, "a node")


def need_for_peer(endpoint: str) -> None:
    """Raise an error unless a node can connect to a peer and `_SPARE` descriptors stay free.

    Raises:
        zmq.ZMQError: too few descriptors are free; see `need`.
    """
    if not endpoint.startswith("inproc:"):
        need(_ENDPOINT + _SPARE, f"connecting to {endpoint}")


def need_for_endpoint(endpoint: str) -> None:
    """Raise an error unless enough descriptors are free to bind or connect an endpoint.

    Raises:
        zmq.ZMQError: too few descriptors are free; see `need`.
    """
    if not endpoint.startswith("inproc:"):
        need(_ENDPOINT, f"binding or connecting to {endpoint}")


def need(count: int, purpose: str) -> None:
    """Raise an error unless `count` file descriptors are free.

    The check is no reservation: another thread or libzmq may open descriptors before the caller does.

    Args:
        count: number of descriptors.
        purpose: purpose of the descriptors, for the error message.

    Raises:
        zmq.ZMQError: fewer than `count` descriptors are free; `errno` is `EMFILE`.
    """
    _check(count, purpose)


def _check(count: int, purpose: str) -> None:
    if has_free_descriptors(count):
        return
    # Objects, and not numbers: they are closed even if a signal handler raises in the middle.
    held: list[FileIO] = []
    try:
        while len(held) < count:
            held.append(FileIO(os.devnull))
    except OSError as error:
        if error.errno in _USED_UP:
            raise zmq.ZMQError(
                errno.EMFILE,
                f"too many open files: {purpose} takes {count} file descriptors, and there are {len(held)}; "
                "close something, or raise the limit (ulimit -n)",
            ) from None
        raise
    finally:
        for stream in held:
            stream.close()
