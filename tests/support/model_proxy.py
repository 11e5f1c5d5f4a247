"""A model of a proxy between an XSUB and an XPUB socket, as `zmq.proxy` runs one."""

from __future__ import annotations

import zmq

from oz.testing.sockets import Socket

_BURST = 1000
_NOBLOCK = int(zmq.NOBLOCK)


class ModelProxy:
    """Passes messages on from the front to the back, and subscriptions from the back to the front.

    A plain XPUB at the back tells the first subscription to a topic and the end of the last: publishers see
    no others. Set XPUB_VERBOSE or XPUB_VERBOSER on it for a verbose proxy.
    """

    def __init__(self, front: Socket, back: Socket) -> None:
        """Begin to pass on.

        Args:
            front: an XSUB, which publishers connect to.
            back: an XPUB, which subscribers connect to.
        """
        self._front, self._back = front, back
        self._network = front.network
        self._is_due = False
        front.notify = back.notify = self._notified
        self._notified()

    def stop(self) -> None:
        """Pass nothing on any more; the sockets stay as they are."""
        self._front.notify = self._back.notify = None

    def _notified(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._network.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due = False
        if self._front.notify is None or self._front.closed or self._back.closed:
            return
        self._pass(self._back, self._front)
        self._pass(self._front, self._back)
        # A send may have made either take notice of more.
        if self._front.has_in() or self._back.has_in():
            self._notified()

    def _pass(self, source: Socket, target: Socket) -> None:
        """Pass on a burst of messages."""
        for _ in range(_BURST):
            if not source.has_in():
                return
            target.send_multipart(source.recv_multipart(_NOBLOCK))
