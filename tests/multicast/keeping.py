"""A subscriber whose receivers of libpgm go on when it gives them up, so that what that costs can be told.

Two receivers of libpgm on one host lose the same packets and differ all the same, by when each asks for them:
one may be stuck where the other is repaired, and nothing outside libpgm decides that. So a subscriber is not
compared with a plain socket beside it, but with the one that it began with.
"""

import threading
import time

import zmq

from multicast.raw import SETTLES, is_all, messages
from oz.errors import ProtocolError
from oz.multicast.group import configure
from oz.multicast.listening import Listener


class Kept:
    """One receiver of libpgm: it hands on what it gets while somebody takes it, and counts that for good."""

    def __init__(self, listener, number):
        self.address = f"inproc://kept-{number}"
        self.seen, self.came_at = {}, time.monotonic()
        context = listener.socket.context
        self._front = context.socket(zmq.XPUB)
        self._front.setsockopt(zmq.SNDHWM, 0)
        self._front.bind(self.address)
        self._receiver = context.socket(zmq.SUB)
        configure(self._receiver, listener.options, is_publisher=False)
        self._receiver.setsockopt(zmq.RCVHWM, 0)
        self._receiver.subscribe("")
        self._receiver.connect(listener.endpoint)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        # There is somebody from the first subscription on.
        while not self._ends.is_set() and not self._front.poll(100):
            pass
        while not self._ends.is_set():
            if self._receiver.poll(100):
                frame = self._receiver.recv()
                self._front.send(frame)
                self._count(frame)
        for socket in (self._front, self._receiver):
            socket.close(0)

    def _count(self, frame):
        try:
            for name, number in messages(frame):
                self.came_at = time.monotonic()
                self.seen.setdefault(name, set()).add(number)
        except ProtocolError:
            return

    def rows(self):
        return {
            name: {"delivered": len(numbers), "first": min(numbers)} for name, numbers in self.seen.items()
        }

    def close(self):
        self._ends.set()
        self._thread.join()


class Keeping:
    """Has the listeners of this process listen through receivers that are kept; use it in `with`."""

    def __init__(self):
        self.kept = []
        self._connect, self._reconnect = Listener._connect, Listener._reconnect

    def __enter__(self):
        def reconnect(listener):
            listener.reconnects += 1
            listener.socket.disconnect(self.kept[-1].address)
            self._begin(listener)

        Listener._connect, Listener._reconnect = lambda listener: self._begin(listener), reconnect
        return self

    def _begin(self, listener):
        self.kept.append(Kept(listener, len(self.kept)))
        listener.socket.connect(self.kept[-1].address)

    def first(self, sent):
        """Give what the first receiver got, when it has all that was sent or nothing comes any more."""
        one = self.kept[0]
        while not is_all(one.seen, sent) and time.monotonic() < one.came_at + SETTLES:
            time.sleep(0.1)
        return one.rows()

    def close(self):
        """End the receivers, before the subscriber ends its context with all that is in it."""
        for one in self.kept:
            one.close()

    def __exit__(self, *_):
        Listener._connect, Listener._reconnect = self._connect, self._reconnect
