"""A subscriber for tests of the sink."""

import threading
import uuid

import oz
from support.waiting import DEADLINE, Thread, until

TASKS = 4  # tasks that can publish at the same time


class Listening:
    """A subscriber that a thread reads.

    Attributes:
        endpoint: the option `endpoint` of a sink.
    """

    def __init__(self, *patterns, endpoint=None, filtering="publisher", dedupe=False):
        # Abstract names, because the kernel refuses a second listener.
        ends = endpoint or [f"ipc://@oz-{uuid.uuid4().hex}" for _ in range(TASKS)]
        self.endpoint = ",".join(ends)
        self.sub = oz.Subscriber(ends, filtering=filtering, options=oz.Options(dedupe=dedupe))
        self.sub.subscribe(list(patterns) or ">")
        self.messages = []
        self._ended, self._may_read = threading.Event(), threading.Event()
        self._may_read.set()
        self._pause_after = None
        self._thread = Thread(self._read)

    def _read(self):
        while True:
            self._may_read.wait()
            try:
                self.messages += self.sub.receive_many(timeout=0.05)
                if self._pause_after is not None and len(self.messages) >= self._pause_after:
                    self._may_read.clear()
            except oz.Timeout:
                if self._ended.is_set():
                    return

    def received(self, count, timeout=5 * DEADLINE):
        """Wait for `count` messages."""
        until(lambda: len(self.messages) >= count, timeout)
        return list(self.messages)

    def pause_after(self, count):
        """Stop reading after `count` messages."""
        self._pause_after = count

    def go_on(self):
        """Read on."""
        self._pause_after = None
        self._may_read.set()

    def close(self):
        """Read the messages that have arrived, then close."""
        self.go_on()
        self._ended.set()
        self._thread.outcome(3 * DEADLINE)
        self.sub.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
