"""The relay for code in C that sends by a publisher's handle: it leads to the publisher's thread.

`zmq_proxy` and the like take the handle of the socket that the user holds. That is a PUB of which oz uses
nothing but this end of a pipe inside the process.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import zmq

from oz.transport.subscriber.receiver import FrameReader, frame_reader

_EVENTS, _POLLIN, _NOBLOCK = int(zmq.EVENTS), int(zmq.POLLIN), int(zmq.NOBLOCK)

_MARK = 1_000
MOST_HELD = 2 * _MARK + 1
"""Messages that wait here at most: more than that have the code in C wait, as nothing tells it of a loss."""


class Relay:
    """The receiving end. The caller holds the publisher's guard.

    Attributes:
        descriptor: readable when something may have come; it tells only once.
        first: the frames of the message that is to go next; `has_some` has it taken in.
    """

    __slots__ = ("_incoming", "_read", "descriptor", "first")

    def __init__(self, front: zmq.Socket[Any]) -> None:
        """Listen to a PUB socket, which this thread may use now.

        Raises:
            zmq.ZMQError: there are too many sockets.
        """
        endpoint = f"inproc://oz-publisher-{os.urandom(16).hex()}"
        # By the unbound methods: those of a publisher lead elsewhere.
        back = zmq.backend.Socket
        # Otherwise it drops in silence what there is no room for.
        back.set(front, zmq.XPUB_NODROP, 1)
        back.set(front, zmq.SNDHWM, _MARK)
        # What has been sent before it closes is passed on; the end of the pipe drops it in any case.
        back.set(front, zmq.LINGER, -1)
        self._incoming = incoming = zmq.Socket(front.context, zmq.SUB)
        try:
            incoming.set(zmq.RCVHWM, _MARK)
            incoming.set(zmq.LINGER, 0)
            incoming.set(zmq.SUBSCRIBE, b"")
            back.bind(front, endpoint)
            incoming.connect(endpoint)
        except BaseException:
            incoming.close(0)
            raise
        # It learns of the subscription now, and not in the middle of what is sent first.
        zmq.backend.Socket.get(front, _EVENTS)
        self._read: FrameReader = frame_reader(incoming)
        self.descriptor = int(incoming.get(zmq.FD))
        self.first: list[bytes] = []

    def has_some(self) -> bool:
        """Take in the next message, if there is one; tell whether there is one to go."""
        if not self.first and int(zmq.backend.Socket.get(self._incoming, _EVENTS)) & _POLLIN:
            self.first = self._read(self._incoming, _NOBLOCK)
        return bool(self.first)

    def done(self) -> None:
        """Be done with the first message."""
        self.first = []

    def close(self) -> int:
        """Close; give the number of messages that have not gone."""
        count = 0
        if not self._incoming.closed:
            # A context that was ended under it allows nothing but closing.
            with suppress(zmq.ZMQError):
                while count < MOST_HELD and self.has_some():
                    self.done()
                    count += 1
            self._incoming.close(0)
        return count
