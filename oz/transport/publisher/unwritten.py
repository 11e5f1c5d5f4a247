"""The part of what was sent that libzmq has not written yet, on connections that are to end.

It keeps that for LINGER, but libzmq 4.3.5 drops it all the same in two cases:

- `unbind`, and `disconnect` where IMMEDIATE is set, tell the session to end before its pipe is told. The
  session reads no more of a pipe that it ends by itself (session_base_t::process_term and pipe_t::read): all
  that waits is gone.
- Whatever ends a connection, its engine takes up to 8 KiB at once (stream_engine_base_t::out_event). Where
  the mark of the end is among that, the session is over as soon as it is read, and what the system has no
  room for is dropped. It has none only when something new comes to an engine that had nothing to write: one
  that waits for room is told when there is much.

So an endpoint is left when all is written. libzmq does not tell that, but Linux tells which descriptors it
wants to write to. And a socket is closed when the threads of libzmq have taken up what came before.
"""

from __future__ import annotations

import socket
from contextlib import closing, suppress
from typing import Any

import zmq

from oz import system
from oz.transport import descriptors
from oz.transport.guard import apart
from oz.transport.publisher.untaken import Untaken

_LONGEST = 1.0
"""Seconds for a thread of libzmq to answer: one that a monitor of the user's holds up never does."""

_DESCRIPTORS = 6
"""Those that asking takes: to listen, to call, what is accepted, two of the socket, and one to spare."""


def is_unwritten(ends: Untaken, context: zmq.Context[Any]) -> bool:
    """Tell whether libzmq has still to write on connections what it was given before, where the system tells.

    Args:
        ends: the connections.
        context: what they are of. Nothing more is sent meanwhile.
    """
    if not (open_ones := ends.open_numbers):
        return False
    take_up(context)
    return not open_ones.isdisjoint(system.awaiting_room())


def take_up(context: zmq.Context[Any]) -> None:
    """Wait until the threads of libzmq have taken up what was sent before, for a second at most."""
    # A signal handler that raises would leave a socket open, and the end of the context waits for it.
    with suppress(OSError, zmq.ZMQError):
        apart(_ask, context)


def _ask(context: zmq.Context[Any]) -> None:
    """Call each thread of libzmq, and wait for its answer. It does one thing after the other."""
    descriptors.need(_DESCRIPTORS, "asking libzmq")
    for number in range(min(64, int(context.get(zmq.IO_THREADS)))):
        with closing(zmq.Socket(context, zmq.PAIR)) as listener:
            listener.set(zmq.LINGER, 0)
            listener.set(zmq.AFFINITY, 1 << number)
            listener.bind("tcp://127.0.0.1:*")
            bound: Any = listener.get(zmq.LAST_ENDPOINT)
            port = int(bound.rstrip(b"\0").rpartition(b":")[2])
            with socket.create_connection(("127.0.0.1", port), _LONGEST) as caller:
                caller.recv(1)
