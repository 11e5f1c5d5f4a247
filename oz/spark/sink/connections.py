"""The connections of a publisher: whether those that were there at the start of a batch stay to its end.

Who leaves in the middle and comes back is counted as often as before, and lacks what was published meanwhile.
"""

from __future__ import annotations

from types import TracebackType

import zmq
from zmq.utils.monitor import parse_monitor_message

from oz.sync.publisher import Publisher

_BEGIN = zmq.EVENT_CONNECTED | zmq.EVENT_ACCEPTED


class ConnectionsByDescriptor:
    """Follows the connections of a publisher, by their file descriptors."""

    def __init__(self, publisher: Publisher) -> None:
        """Begin; what was there before is known only when it ends."""
        self._monitor = publisher.get_monitor_socket(_BEGIN | zmq.EVENT_DISCONNECTED)
        self._open: set[int] = set()
        self._staying: set[int] = set()
        self._left = 0

    def begin(self) -> None:
        """Take those that are there now for those that are to stay."""
        self._take_in()
        self._staying, self._left = set(self._open), 0

    def may_still_be(self, wanted: int) -> bool:
        """Tell whether so many may have been there all the time; False is certain."""
        self._take_in()
        # Of other transports than tcp and ipc nothing is told.
        return not self._left or len(self._staying) >= wanted

    def _take_in(self) -> None:
        while self._monitor.poll(0):
            told = parse_monitor_message(self._monitor.recv_multipart())
            descriptor = told["value"]
            if told["event"] & _BEGIN:
                self._open.add(descriptor)
                continue
            is_new = descriptor in self._open and descriptor not in self._staying
            self._left += not is_new
            self._open.discard(descriptor)
            self._staying.discard(descriptor)

    def __enter__(self) -> ConnectionsByDescriptor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._monitor.close()
