"""A publisher in a process of its own, which does not outlive the demo for long."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import oz
from oz.demo import flights
from oz.errors import OzError
from oz.system import sigint_blocked

START_TIME = 15.0
"""Seconds that a publisher process may take to say where it is bound."""

_END_TIME = 5.0


class DemoFailed(OzError):
    """The demo's publisher process died, or fell silent."""


class PublisherProcess:
    """A started publisher process.

    Attributes:
        endpoint: where it is bound.
    """

    def __init__(self, process: subprocess.Popen[str], deadline: float) -> None:
        self._process = process
        self.endpoint = self._first_line(deadline).strip()

    def check(self) -> None:
        """Raise `DemoFailed` when the process has ended badly; one that is done has ended well."""
        if self._process.poll():
            raise DemoFailed(self._last_words())

    def _first_line(self, deadline: float) -> str:
        out = self._process.stdout
        assert out is not None
        ready, _, _ = select.select([out], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise DemoFailed("the publisher process did not start in time; is this machine very busy?")
        line = out.readline()
        if not line:
            self._process.wait(_END_TIME)
            raise DemoFailed(self._last_words())
        return line

    def _last_words(self) -> str:
        assert self._process.stderr is not None
        lines = self._process.stderr.read().strip().splitlines() or ["it said nothing"]
        return f"the publisher process ended with status {self._process.returncode}: {lines[-1]}"


@contextmanager
def publisher_process(command: Sequence[str]) -> Iterator[PublisherProcess]:
    """Start a program that prints its endpoint, and end it on the way out, whatever happens.

    Raises:
        DemoFailed: it did not start.
    """
    # Ctrl-C waits until the process is known, or it would stay behind. The process inherits that, and so
    # leaves Ctrl-C to us.
    process = None
    try:
        with sigint_blocked():
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        yield PublisherProcess(process, time.monotonic() + START_TIME)
    finally:
        if process is not None:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_END_TIME)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


END = "demo.end"
"""What follows the last flight, so that a subscriber knows that there are no more."""

PATIENCE = 10.0
"""Seconds that subscribers may take to come, to make room, and to fetch what is left."""


def replay(subscribers: int) -> None:
    """Publish every flight and then `END`, once so many subscribers are there.

    Raises:
        Timeout: they did not come.
        WouldBlock: one of them stopped reading.
    """
    messages = flights.load()
    publisher = oz.Publisher(
        bind="tcp://127.0.0.1:*", codec="msgpack", on_full="block", full_timeout=PATIENCE
    )
    with publisher:
        print(publisher.endpoint, flush=True)
        # Each subscribes to END last: whoever is seen there has subscribed to all that it wants.
        publisher.wait_for_subscribers(subscribers, subject=END, timeout=PATIENCE)
        publisher.publish_many(messages)
        publisher.publish(END, None)
        publisher.close(timeout=PATIENCE)


if __name__ == "__main__":
    replay(int(sys.argv[1]))
