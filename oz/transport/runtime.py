"""Functions for sockets, clocks and random bytes that publishers and subscribers call.

The context decides which functions are called. A `zmq.Context` means the functions of pyzmq's backend. A context of
`oz.testing` has an attribute `runtime` with functions for model sockets and a virtual clock, so that publishers and
subscribers run without libzmq.
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
    """Functions that publishers and subscribers call. The first argument of `get`, `send` and `recv` is the socket.

    Attributes:
        get: function that returns an option of a socket.
        send: function that sends a frame.
        recv: function that receives a frame.
        clock: function that returns the time in seconds. The time never goes back.
        busy_clock: clock in seconds. A task uses it to measure the time since its last yield to the event loop. On a
            virtual network, time stops while code runs. There, each call of this clock advances its time.
        time_ns: function that returns the nanoseconds since 1970.
        random_bytes: function that returns random bytes. Its argument is the number of bytes.
        create_poll: function that creates the `Poll` of a subscriber.
        processor_clock: function that returns the processor time of the thread in seconds. On a virtual network it
            returns 0.
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
    """Return a function that reads the frames of a socket's next message, or raises `zmq.Again` without a message.

    If a signal handler raises during the read, the whole message is dropped, and no frame of it stays in the socket.
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
