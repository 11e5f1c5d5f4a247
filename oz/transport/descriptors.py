"""Check for free file descriptors before a socket is opened: libzmq aborts the process without them."""

from __future__ import annotations

import errno
import os
from io import FileIO

import zmq

from oz.system import has_free_descriptors

_USED_UP = (errno.EMFILE, errno.ENFILE)

CONTEXT = 10
"""Descriptors of the first socket of a context: two for each of libzmq's two threads, one for the end of
the context, one for the socket, and four spare. Source: ctx.cpp and epoll.cpp of libzmq 4.3.5."""

_ENDPOINT = 6
"""Descriptors of a bind or connect: one for the address lookup, one socket, two that wake a thread of oz, and
two spare. Source: ip_resolver.cpp of libzmq 4.3.5."""

_SPARE = 32
"""Descriptors that a node leaves free for incoming connections: an `ipc://` listener of libzmq 4.3.5 aborts
the process if `accept` fails."""

NODE = 24
"""Descriptors of a node: its context, sockets, endpoints, and the pair that wakes its thread."""


def need_for_node() -> None:
    """Raise an error unless a node can be opened and `_SPARE` descriptors stay free.

    Raises:
        zmq.ZMQError: as `need`.
    """
    need(NODE + _SPARE, "a node")


def need_for_peer(endpoint: str) -> None:
    """Raise an error unless a node can connect to a peer and `_SPARE` descriptors stay free.

    Raises:
        zmq.ZMQError: as `need`.
    """
    if not endpoint.startswith("inproc:"):
        need(_ENDPOINT + _SPARE, f"connecting to {endpoint}")


def need_for_endpoint(endpoint: str) -> None:
    """Raise an error unless an endpoint can be bound or connected.

    Raises:
        zmq.ZMQError: as `need`.
    """
    if not endpoint.startswith("inproc:"):
        need(_ENDPOINT, f"binding or connecting to {endpoint}")


def need(count: int, purpose: str) -> None:
    """Raise unless `count` file descriptors are free.

    The check is no reservation: another thread or libzmq may open descriptors before the caller does.

    Args:
        count: the number of descriptors.
        purpose: purpose of the descriptors, for the error.

    Raises:
        zmq.ZMQError: fewer are free; `errno` is `EMFILE`.
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
