"""`oz demo` as data: subscribers in several dialects, a publisher process, and what each subscriber got."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import zmq

import oz
from oz.demo import flights
from oz.demo.process import END, DemoFailed, PublisherProcess, publisher_process
from oz.transport.option_checks import Filtering

SPECS = (
    "flight.*.LAX.>",
    "rv:flight.JFK.*.*",
    "redis:flight.[EL]*.BOS.*",
    r"regex:^flight\.(JFK|LGA)\.(ORD|MDW)\..*",
    "flight.EWR.ORD.UA",
)
"""What the demo subscribes to."""

SILENCE = 10.0
"""Seconds without a single message after which the publisher is given up."""

_TURN = 500
_POLL_MS = 100

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Result:
    """The messages that one subscriber got.

    Attributes:
        pattern: the text of its pattern.
        dialect: the dialect of that.
        prefixes: what it subscribed to in ZeroMQ's own terms.
        received: messages that crossed the wire to it.
        delivered: those of them that matched.
        expected: how many of the flights match, counted without any socket.
        rate: messages a second that it took from the wire and tried its pattern on.
        spark: how many of the flights match in Spark; None where nobody asked.
    """

    pattern: str
    dialect: str
    prefixes: tuple[str, ...]
    received: int
    delivered: int
    expected: int
    rate: float
    spark: int | None = None

    @property
    def lost(self) -> int:
        """Messages that should have been delivered and were not."""
        return self.expected - self.delivered


def run(
    specs: Sequence[str] = SPECS,
    progress: Progress | None = None,
    command: Sequence[str] | None = None,
    filtering: Filtering = "prefix",
) -> list[Result]:
    """Run the demo.

    Args:
        specs: the patterns, one subscriber each.
        progress: called now and then with the messages delivered so far and those expected in all.
        command: the publisher program, if not `oz.demo.process`.
        filtering: who filters; see `oz.Subscriber`.

    Raises:
        DemoFailed: the publisher process died or fell silent.
    """
    patterns = [oz.parse(spec) for spec in specs]
    started = command or (sys.executable, "-m", "oz.demo.process", str(len(patterns)))
    with publisher_process(started) as publisher:
        expected = count_matches(patterns)
        listeners = [_Listener(pattern, publisher.endpoint, filtering) for pattern in patterns]
        try:
            _listen(listeners, publisher, sum(expected), progress or (lambda _done, _total: None))
        finally:
            for listener in listeners:
                listener.subscriber.close()
    return [listener.result(count) for listener, count in zip(listeners, expected, strict=True)]


def count_matches(patterns: Sequence[oz.Pattern]) -> list[int]:
    """Count the flights that each pattern matches, straight from the data."""
    subjects = Counter(subject for subject, _ in flights.load())
    return [
        sum(count for subject, count in subjects.items() if pattern.matches(subject)) for pattern in patterns
    ]


class _Listener:
    """One subscriber and what it has counted."""

    def __init__(self, pattern: oz.Pattern, endpoint: str, filtering: Filtering) -> None:
        self.pattern = pattern
        self.delivered = 0
        self.began = self.ended = 0.0
        self.subscriber = oz.Subscriber(connect=endpoint, codec="msgpack", filtering=filtering)
        self.subscriber.subscribe(pattern)
        # Last: the publisher takes this for "I have subscribed to everything".
        self.subscriber.subscribe(END)

    def take_some(self) -> int:
        """Take what is there, within limits so that the others have their turn; return how much it was."""
        for taken in range(_TURN):
            try:
                message = self.subscriber.receive(timeout=0)
            except oz.Timeout:
                return taken
            self.began = self.began or time.perf_counter()
            if message.subject == END:
                self.ended = time.perf_counter()
                return taken + 1
            self.delivered += 1
        return _TURN

    def result(self, expected: int) -> Result:
        """Sum up; the end marker is no message of the demo's."""
        received = self.subscriber.stats.received - 1
        return Result(
            pattern=str(self.pattern.text),
            dialect=self.pattern.dialect,
            prefixes=tuple(prefix.decode(errors="backslashreplace") for prefix in self.pattern.prefixes),
            received=received,
            delivered=self.delivered,
            expected=expected,
            rate=received / max(self.ended - self.began, 1e-9),
        )


def _listen(
    listeners: Sequence[_Listener], publisher: PublisherProcess, total: int, progress: Progress
) -> None:
    poller = zmq.Poller()
    for listener in listeners:
        poller.register(listener.subscriber, zmq.POLLIN)
    heard = time.monotonic()
    while pending := [listener for listener in listeners if not listener.ended]:
        if sum(listener.take_some() for listener in pending):
            heard = time.monotonic()
            progress(sum(listener.delivered for listener in listeners), total)
            continue
        publisher.check()
        if time.monotonic() - heard > SILENCE:
            raise DemoFailed(f"nothing came from the publisher for {SILENCE:g} s")
        poller.poll(_POLL_MS)
