"""A subscriber in a thread of the test, with the events that it received in order."""

import struct
import threading
from contextlib import closing

from oz.errors import ClosedError, Timeout
from support.shells import SHELLS, Blocking
from support.waiting import DEADLINE

HEAD = struct.Struct(">IQ")
"""Payload: the run of the publisher, and the number of the message."""

CALL_SECONDS = 0.05


class Collector:
    """Subscriber that receives in a thread of its own.

    Attributes:
        events: ("m", run, number) of messages, ("g", count, reason) of gaps.
        jobs: numbers of the messages that the handler of a group received.
        errors: that ended the thread.
    """

    def __init__(self, kind, endpoints, *, group=None, patterns=0, **arguments):
        """Start.

        Args:
            kind: "sync" or "asyncio".
            endpoints: to connect to.
            group: of a second subscription with a handler, or None.
            patterns: more patterns. A publisher needs time to apply them, and serves the first ones meanwhile.
            arguments: of the subscriber.
        """
        self._patterns = [f"pattern.{at}.*" for at in range(patterns)]
        self._kind, self._endpoints, self._group, self._arguments = kind, endpoints, group, arguments
        self.events, self.jobs, self.errors = [], [], []
        self._ends = threading.Event()
        self._starts = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._starts.wait(DEADLINE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()
        assert not self.errors, self.errors

    def _run(self):
        try:
            self._collect()
        except Exception as error:
            self.errors.append(error)
            self._starts.set()

    def _receive(self):
        self._on_message(self.subscriber.raw.receive(timeout=CALL_SECONDS))

    async def _receive_in_loop(self):
        # So that a gap is in its place among the events.
        self._on_message(await self.subscriber.raw.receive(timeout=CALL_SECONDS))

    def _collect(self):
        shell = SHELLS[self._kind]()
        made = shell.call(shell.module.Subscriber, self._endpoints, on_gap=self._on_gap, **self._arguments)
        self.subscriber = Blocking(shell, made)
        receive = self._receive if self._kind == "sync" else self._receive_in_loop
        with closing(self.subscriber):
            self.subscriber.subscribe("t.*")
            if self._patterns:
                self.subscriber.subscribe(self._patterns)
            if self._group is not None:
                self.subscriber.subscribe("t.*", self._on_job, group=self._group, ack="handled")
            self._starts.set()
            while not self._ends.is_set():
                try:
                    shell.call(receive)
                except Timeout:
                    pass
                except ClosedError:
                    return

    def _on_message(self, message):
        run, number = HEAD.unpack_from(message.payload)
        self.events.append(("m", run, number))

    def _on_job(self, message):
        self.jobs.append(HEAD.unpack_from(message.payload))

    def _on_gap(self, gap):
        self.events.append(("g", gap.count, gap.reason))

    @property
    def modes(self):
        return [publisher.mode for publisher in self.subscriber.publishers]

    @property
    def has_plain(self):
        """Return whether a plain connection is open, which `modes` does not show before its handshake."""
        return any(place.plain is not None for place in list(self.subscriber._engine.places.values()))

    def has(self, run, number):
        """Return whether a message has arrived."""
        return ("m", run, number) in self.events
