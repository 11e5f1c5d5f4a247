"""The frames of a model socket, and its most common error, in place of pyzmq's."""

from __future__ import annotations

import errno

import zmq

_SOURCE = int(zmq.SRCFD)


class Again(zmq.Again):
    """Stands for what pyzmq raises, which asks libzmq for the text of its error each time."""

    errno = errno.EAGAIN
    strerror = "Resource temporarily unavailable"

    def __init__(self) -> None:
        """Say no more than that."""


class ModelFrame:
    """A frame that was received, as `recv(copy=False)` gives it.

    Attributes:
        bytes: what is in it.
        more: whether another frame of the message follows.
    """

    __slots__ = ("_key", "_source", "bytes", "more")

    def __init__(self, data: bytes, more: bool, source: int | None, key: str = "") -> None:
        """Put it together.

        Args:
            data: what is in it.
            more: whether another frame of the message follows.
            source: the number of the connection that it came by.
            key: the public key of who sent it; empty where the sockets have none.
        """
        self.bytes = data
        self.more = more
        self._source = source
        self._key = key

    def get(self, option: int | str) -> int | str:
        """Return by what it came: SRCFD is the number of a connection, and all is called one host.

        Raises:
            zmq.ZMQError: nobody knows, or it is another property.
        """
        if option == "User-Id" and self._key:
            return self._key
        if self._source is None or option not in (_SOURCE, "Peer-Address"):
            raise zmq.ZMQError(zmq.EINVAL)
        return self._source if option == _SOURCE else "127.0.0.1"
