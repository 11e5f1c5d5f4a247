"""Demo that `oz demo` runs: a publisher in a child process, and subscribers that count messages.

The patterns of the subscribers have several dialects. The child process runs this module as a program. When the demo
ends, the child process ends too.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

import zmq

import oz
from oz.demo import flights
from oz.demo.child import Child, ChildError, child_process, end_with_parent
from oz.options import Filtering

END = "demo.end"
"""Subject of the message after the last flight."""


def replay(subscribers: int) -> None:
    """Publish every flight and then `END`.

    The function first waits until `subscribers` subscribers are connected. It also waits while a subscriber is full.
    These waits need no timeout: the subscribers run in the parent process, and this process ends with its parent.
    """
    messages = flights.load()
    with oz.Publisher(bind="tcp://127.0.0.1:*", codec="msgpack", on_full="block") as publisher:
        print(publisher.endpoint, flush=True)
        # Each subscriber subscribes to END last. When this subscription arrives, its pattern has already arrived.
        publisher.wait_for_subscribers(END, count=subscribers, timeout=None)
        publisher.publish_many(messages)
        publisher.publish(END, None)
        publisher.close(timeout=None)


SPECS = (
    "flight.*.LAX.>",
    "rv:flight.JFK.*.*",
    "redis:flight.[EL]*.BOS.*",
    r"regex:^flight\.(JFK|LGA)\.(ORD|MDW)\..*",
    "flight.EWR.ORD.UA",
)
"""Patterns of the demo. The text before the colon is the dialect. Without a colon, the dialect is "nats"."""

SILENCE_TIMEOUT = 10.0
"""The demo fails if no message arrives for this number of seconds after the last message.

If no message has arrived at all, the seconds count from the end of the publisher process.
"""

_TURN = 500
_POLL_MS = 100

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class PatternResult:
    """Counts of one subscriber.

    Attributes:
        pattern: text of the pattern.
        dialect: dialect of the pattern.
        prefixes: prefixes with which ZeroMQ filters messages.
        received: number of messages that the subscriber received.
        delivered: number of received messages that the pattern matches.
        expected: number of flights in the data that the pattern matches.
        rate: number of received messages a second.
        spark: number of flights that the pattern matches in Spark; None without Spark.
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
        """Number of messages that match but were not delivered."""
        return self.expected - self.delivered


def run(
    specs: Sequence[str] = SPECS,
    progress: Progress | None = None,
    command: Sequence[str] | None = None,
    filtering: Filtering = "prefix",
) -> list[PatternResult]:
    """Run the demo.

    Args:
        specs: patterns; each pattern gets a subscriber.
        progress: function that is called with the number of delivered messages and the number of expected messages.
        command: command line of another publisher program, for tests.
        filtering: argument `filtering` of each `oz.Subscriber`.

    Raises:
        ChildError: the publisher process has ended, or sends nothing.
    """
    patterns = [oz.compile(spec) for spec in specs]
    started = command or (sys.executable, "-m", "oz.demo.run", str(len(patterns)))
    with child_process("publisher", started) as publisher:
        endpoint = publisher.read_line()
        expected = count_matches(patterns)
        listeners = [_Listener(pattern, endpoint, filtering) for pattern in patterns]
        try:
            _receive_all(listeners, publisher, sum(expected), progress or (lambda _done, _total: None))
        finally:
            for listener in listeners:
                listener.subscriber.close()
    return [listener.result(count) for listener, count in zip(listeners, expected, strict=True)]


def count_matches(patterns: Sequence[oz.Pattern]) -> list[int]:
    """Return the number of flights in the data that each pattern matches."""
    subjects = Counter(flights.subjects())
    return [
        sum(count for subject, count in subjects.items() if pattern.matches(subject)) for pattern in patterns
    ]


class _Listener:
    """Subscriber with a count of its delivered messages."""

    def __init__(self, pattern: oz.Pattern, endpoint: str, filtering: Filtering) -> None:
        self.pattern = pattern
        self.delivered = 0
        self.began = self.ended = 0.0
        self.subscriber = oz.Subscriber(connect=endpoint, codec="msgpack", filtering=filtering)
        self.subscriber.subscribe(pattern)
        # END is subscribed last, because the publisher starts when all subscribers have this subscription.
        self.subscriber.subscribe(END)

    def receive_waiting(self) -> int:
        """Receive at most `_TURN` waiting messages, so that all subscribers receive in turn; return their number."""
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

    def result(self, expected: int) -> PatternResult:
        """Return the counts without the message `END`."""
        received = self.subscriber.stats.received - 1
        return PatternResult(
            pattern=str(self.pattern.text),
            dialect=self.pattern.dialect,
            prefixes=tuple(prefix.decode(errors="backslashreplace") for prefix in self.pattern.prefixes),
            received=received,
            delivered=self.delivered,
            expected=expected,
            rate=received / max(self.ended - self.began, 1e-9),
        )


def _receive_all(listeners: Sequence[_Listener], publisher: Child, total: int, progress: Progress) -> None:
    poller = zmq.Poller()
    for listener in listeners:
        poller.register(listener.subscriber.fileno(), zmq.POLLIN)
    last_message = inf
    while pending := [listener for listener in listeners if not listener.ended]:
        if sum(listener.receive_waiting() for listener in pending):
            last_message = time.monotonic()
            progress(sum(listener.delivered for listener in listeners), total)
            continue
        if publisher.is_done():
            last_message = min(last_message, time.monotonic())
        if time.monotonic() - last_message > SILENCE_TIMEOUT:
            raise ChildError(
                f"no message from the publisher for {SILENCE_TIMEOUT:g} s; the machine may be too busy"
            )
        poller.poll(_POLL_MS)


def require_spark() -> None:
    """Check that PySpark and Java are installed.

    Raises:
        MissingDependency: the extra `ozmq[spark]` is not installed, or Java is missing or too old.
    """
    from oz.spark.session import require_java

    require_java()


def count_in_spark(specs: Sequence[str]) -> list[int]:
    """Return the number of flights that each pattern matches in Spark.

    The function writes the flights to Parquet files, sorted by subject. Then Spark reads these files.

    Args:
        specs: patterns of the subjects.

    Raises:
        MissingDependency: the extra `ozmq[spark]` is not installed, or Java is missing or too old.
    """
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    import oz.spark

    was_active = SparkSession.getActiveSession() is not None
    spark = oz.spark.session()
    try:
        with tempfile.TemporaryDirectory(prefix="oz-demo-") as directory:
            archive = str(Path(directory, "flights"))
            traffic = pa.Table.from_pylist(
                [{"subject": subject, **payload} for subject, payload in flights.load()]
            )
            spark.createDataFrame(traffic).sort("subject").write.parquet(archive)
            counts = [F.count_if(oz.spark.matches("subject", spec)) for spec in specs]
            return list(spark.read.parquet(archive).select(*counts).first() or ())
    finally:
        if not was_active:
            spark.stop()


if __name__ == "__main__":
    end_with_parent()
    replay(int(sys.argv[1]))
