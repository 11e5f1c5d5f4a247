"""Whether file descriptors are left: where libzmq finds none it ends the process, without an error."""

from __future__ import annotations

import errno
import os

import zmq

from oz.system import most_descriptors
from oz.transport.descriptor_watch import WATCH, count_used, headroom
from oz.transport.guard import apart

_USED_UP = (errno.EMFILE, errno.ENFILE)

CONTEXT = 10
"""Those that the first socket of a context takes: two for each of libzmq's two threads, one for the end of
the context, one for the socket, and some to spare. Source: ctx.cpp and epoll.cpp of libzmq 4.3.5."""

_ENDPOINT = 6
"""Those that binding or connecting takes: one to look the address up, one to listen or connect with, two that
wake a thread of oz, and some to spare. Source: ip_resolver.cpp."""

NODE = 24
"""Those that a node takes: its context, its sockets, what they bind, and the pair that wakes its thread."""


def need_for_node() -> None:
    """Refuse to open a node where nothing would be left for those who come to it.

    Raises:
        zmq.ZMQError: as `need`.
    """
    limit = most_descriptors()
    need(NODE + (0 if limit is None else headroom(limit) // 2), "a node")


def need_for_peer(endpoint: str) -> None:
    """Refuse to call a peer where nothing would be left for those who come: `ipc://` ends the process then.

    Raises:
        zmq.ZMQError: half of what is kept free is in use, or will be; its `errno` is `EMFILE`.
    """
    limit = most_descriptors()
    if limit is None or endpoint.startswith("inproc:"):
        return
    with WATCH.underway as underway:
        used = count_used(limit)
        least = _ENDPOINT + underway.pending(used) + headroom(limit) // 2
        if limit - used < least:
            raise _used_up(f"connecting to {endpoint}", least, limit - used)
        underway.add(used)


def need_for_endpoint(endpoint: str) -> None:
    """Refuse to bind or connect when file descriptors are used up.

    Raises:
        zmq.ZMQError: as `need`.
    """
    if not endpoint.startswith("inproc:"):
        need(_ENDPOINT, f"binding or connecting to {endpoint}")


def need(count: int, purpose: str) -> None:
    """Refuse to begin what would run out of file descriptors.

    It is no promise: other threads, and libzmq's own, may take what was left.

    Args:
        count: how many have to be left.
        purpose: what for, for the error.

    Raises:
        zmq.ZMQError: there are fewer; its `errno` is `EMFILE`.
    """
    # A signal handler that raises would leave some of them open.
    apart(_try, count, purpose)


def _try(count: int, purpose: str) -> None:
    held: list[int] = []
    try:
        while len(held) < count:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno in _USED_UP:
            raise _used_up(purpose, count, len(held)) from None
    finally:
        for one in held:
            os.close(one)


def _used_up(purpose: str, count: int, left: int) -> zmq.ZMQError:
    WATCH.refused += 1
    return zmq.ZMQError(
        errno.EMFILE,
        f"too many open files: {purpose} takes {count} file descriptors, and there are {left}; "
        "close something, or raise the limit (ulimit -n)",
    )
