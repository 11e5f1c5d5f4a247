"""Functions of sockets, clocks and random bytes that the engines of links call.

The context of an engine decides: a `zmq.Context` has the functions of pyzmq's backend. A context of `oz.testing`
has model sockets on a virtual clock in its attribute `runtime`, so that the same engines run without libzmq.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import zmq

from oz.transport.libzmq import option_reader
from oz.transport.polling import Poll

_NOBLOCK, _RCVMORE = int(zmq.NOBLOCK), int(zmq.RCVMORE)


class Runtime(NamedTuple):
    """Functions that an engine calls. The first argument of `get`, `send` and `recv` is the socket.

    Attributes:
        get: returns an option of a socket.
        send: sends a frame.
        recv: receives a frame.
        clock: returns seconds that never go back.
        busy_clock: clock for tasks that yield to the event loop after some time. A virtual clock stops while
            code runs, so on a virtual network this clock counts its calls.
        time_ns: returns nanoseconds since 1970.
        random_bytes: returns a number of random bytes.
        create_poll: returns the descriptors of a subscriber.
        processor_clock: returns seconds of processor time of the thread. A virtual clock has none.
    """

    get: Callable[..., Any]
    send: Callable[..., Any]
    recv: Callable[..., Any]
    clock: Callable[[], float]
    busy_clock: Callable[[], float]
    time_ns: Callable[[], int]
    random_bytes: Callable[[int], bytes]
    create_poll: Callable[[], Poll]
    processor_clock: Callable[[], float] = float


REAL = Runtime(
    # The methods of `zmq.Socket` construct enums, which costs 1.5 µs a call.
    get=zmq.backend.Socket.get,
    send=zmq.backend.Socket.send,
    recv=zmq.backend.Socket.recv,
    clock=time.monotonic,
    busy_clock=time.monotonic,
    time_ns=time.time_ns,
    random_bytes=os.urandom,
    create_poll=Poll,
    processor_clock=time.thread_time,
)


def runtime_of(context: Any) -> Runtime:
    """Return the functions for the sockets of a context.

    Raises:
        TypeError: the argument is not a context.
    """
    if isinstance(context, zmq.Context):
        return REAL
    found = getattr(context, "runtime", None)
    if isinstance(found, Runtime):
        return found
    raise TypeError(f"context is a zmq.Context, not {type(context).__name__}")


def message_reader(socket: zmq.Socket[bytes], runtime: Runtime) -> Callable[[zmq.Socket[bytes]], list[bytes]]:
    """Return a function that returns the frames of the next message of a socket, and raises `zmq.Again` without one.

    An exception of a signal handler drops the message, and leaves no frame of it in the socket.
    """
    recv, has_more = runtime.recv, option_reader(socket, _RCVMORE, runtime.get)

    def read(socket: zmq.Socket[bytes]) -> list[bytes]:
        frames = []
        try:
            frames.append(recv(socket, _NOBLOCK))
            while has_more(socket):
                frames.append(recv(socket, _NOBLOCK))
        except zmq.Again:
            raise
        except BaseException:
            with suppress(zmq.ZMQError):
                while has_more(socket):
                    recv(socket, _NOBLOCK)
            raise
        return frames

    return read
