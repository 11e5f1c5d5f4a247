"""Check for free file descriptors before a socket is opened. If none is free, libzmq aborts the process."""

from __future__ import annotations

import errno
import os
from io import FileIO

import zmq

from oz.system import has_free_descriptors

_USED_UP = (errno.EMFILE, errno.ENFILE)

CONTEXT = 10
"""Number of descriptors that the first socket of a context needs. Two are for each of libzmq's two threads, one is for
the end of the context, one is for the socket, and four are spare. Source: ctx.cpp and epoll.cpp of libzmq 4.3.5."""

_ENDPOINT = 6
"""Number of descriptors that a bind or connect needs: one for the address lookup, one for the socket, two that wake a
thread of oz, and two spare. Source: ip_resolver.cpp of libzmq 4.3.5."""

_SPARE = 32
"""Number of descriptors that a node leaves free for incoming connections. If `accept` of an `ipc://` listener fails,
libzmq 4.3.5 aborts the process."""

NODE = 24
"""Number of descriptors that a node needs for its context, its sockets, its endpoints, and the pair of sockets that
wakes its thread."""


def need_for_node() -> None:
    """Raise an error if fewer than `NODE + _SPARE` descriptors are free.

    Raises:
        zmq.ZMQError: too few descriptors are free; see `need`.
    """
    need(NODE + _SPARE, "a node")


def need_for_peer(endpoint: str) -> None:
    """Raise an error if fewer than `_ENDPOINT + _SPARE` descriptors are free for a connection of a node.

    Raises:
        zmq.ZMQError: too few descriptors are free; see `need`.
    """
    if not endpoint.startswith("inproc:"):
        need(_ENDPOINT + _SPARE, f"connecting to {endpoint}")


def need_for_endpoint(endpoint: str) -> None:
    """Raise an error if fewer than `_ENDPOINT` descriptors are free for a bind or connect.

    Raises:
        zmq.ZMQError: too few descriptors are free; see `need`.
    """
    if not endpoint.startswith("inproc:"):
        need(_ENDPOINT, f"binding or connecting to {endpoint}")


def need(count: int, purpose: str) -> None:
    """Raise an error if fewer than `count` file descriptors are free.

    The check reserves no descriptors: another thread may open them before the caller does.

    Args:
        count: number of descriptors.
        purpose: action that needs the descriptors, for the error message.

    Raises:
        zmq.ZMQError: fewer than `count` descriptors are free; `errno` is `EMFILE`.
    """
    _check(count, purpose)


def _check(count: int, purpose: str) -> None:
    if has_free_descriptors(count):
        return
    # A signal handler may raise an exception before a new descriptor is in the list. Garbage collection closes a FileIO
    # object, but not a plain descriptor from `os.open`.
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
