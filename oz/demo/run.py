"""`oz demo` as data: a publisher process, subscribers in several dialects, what each got, and Spark's counts.

The publisher process does not outlive the demo for long; it is this module, run as a program.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path

import zmq

import oz
from oz.demo import flights
from oz.errors import OzError
from oz.options import Filtering
from oz.system import sigint_blocked

_END_TIME = 5.0
"""Seconds that the publisher process may take to end before it is killed."""


class DemoFailed(OzError):
    """The demo's publisher process died, or fell silent."""


class PublisherProcess:
    """A started publisher process.

    Attributes:
        endpoint: where it is bound.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.endpoint = self._first_line().strip()

    def is_done(self) -> bool:
        """Tell whether the process has ended well.

        Raises:
            DemoFailed: it has ended badly.
        """
        if self._process.poll():
            raise DemoFailed(self._last_words())
        return self._process.returncode is not None

    def _first_line(self) -> str:
        # However long it takes on a busy machine: as long as it lives, it works towards that line.
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
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
                # It ends with this process, however that ends.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        yield PublisherProcess(process)
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
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()


END = "demo.end"
"""Subject of the message after the last flight."""


def replay(subscribers: int) -> None:
    """Publish every flight and then `END`.

    It waits for `subscribers` subscribers without a timeout, also while they are full: they are in the parent
    process, whose end ends this process.
    """
    messages = flights.load()
    with oz.Publisher(bind="tcp://127.0.0.1:*", codec="msgpack", on_full="block") as publisher:
        print(publisher.endpoint, flush=True)
        # A subscriber subscribes to END last, so that its other subscriptions have arrived too.
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
"""Patterns of the demo."""

SILENCE = 10.0
"""Seconds without a single message after which a publisher that has begun, or has ended, is given up."""

_TURN = 500
_POLL_MS = 100

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class PatternResult:
    """The messages that one subscriber got.

    Attributes:
        pattern: the text of its pattern.
        dialect: the dialect of that.
        prefixes: its subscriptions in ZeroMQ.
        received: messages that crossed the wire to it.
        delivered: those of them that matched.
        expected: how many of the flights match, counted without any socket.
        rate: messages a second that it took from the wire and tried its pattern on.
        spark: flights that match in Spark; None without Spark.
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
) -> list[PatternResult]:
    """Run the demo.

    Args:
        specs: the patterns, one subscriber each.
        progress: called now and then with the messages delivered so far and those expected in all.
        command: the publisher program, if not `oz.demo.run`.
        filtering: who filters; see `oz.Subscriber`.

    Raises:
        DemoFailed: the publisher process died or fell silent.
    """
    patterns = [oz.compile(spec) for spec in specs]
    started = command or (sys.executable, "-m", "oz.demo.run", str(len(patterns)))
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
    subjects = Counter(flights.subjects())
    return [
        sum(count for subject, count in subjects.items() if pattern.matches(subject)) for pattern in patterns
    ]


class _Listener:
    """One subscriber and its counts."""

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

    def result(self, expected: int) -> PatternResult:
        """Sum up; the end marker is no message of the demo's."""
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


def _listen(
    listeners: Sequence[_Listener], publisher: PublisherProcess, total: int, progress: Progress
) -> None:
    poller = zmq.Poller()
    for listener in listeners:
        poller.register(listener.subscriber.fileno(), zmq.POLLIN)
    heard = inf
    while pending := [listener for listener in listeners if not listener.ended]:
        if sum(listener.take_some() for listener in pending):
            heard = time.monotonic()
            progress(sum(listener.delivered for listener in listeners), total)
            continue
        if publisher.is_done():
            heard = min(heard, time.monotonic())
        if time.monotonic() - heard > SILENCE:
            raise DemoFailed(f"nothing came from the publisher for {SILENCE:g} s")
        poller.poll(_POLL_MS)


def require_spark() -> None:
    """Check for the extra and for Java, before anything else is done.

    Raises:
        SparkMissing: the extra `ozmq[spark]` is not installed.
        JavaMissing: there is no Java, or it is too old.
    """
    from oz.spark.session import require_java

    require_java()


def count_in_spark(specs: Sequence[str]) -> list[int]:
    """Write the flights as Parquet, sorted by subject, and count what each pattern matches.

    Args:
        specs: the patterns.

    Raises:
        SparkMissing: the extra `ozmq[spark]` is not installed.
        JavaMissing: there is no Java, or it is too old.
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


def _end_with_parent() -> None:
    """End this process when the demo that started it does: nothing else comes by its input."""

    def wait() -> None:
        # Not by sys.stdin: an interpreter that ends meanwhile waits for its lock, and aborts.
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    _end_with_parent()
    replay(int(sys.argv[1]))
