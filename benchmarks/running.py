"""Runs programs in processes of their own, and counts the processor time of all of them.

A publisher and a subscriber are called as `sides` says. Each process counts its own processor time,
ZeroMQ's threads and programs that it starts included, from the moment at which all are ready.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import resource
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

PATIENCE = 90  # seconds, after which a message is lost

PAIRS = 4
"""Pairs of processes in a run of round trips, because pairs differ by a third in their first hundreds."""

SHOWN = (1, 5, 10, 25, 50, 75, 90, 95, 98, 99, 99.5, 99.9)
"""The percentiles that are kept of times."""


class Void(Exception):
    """A message is missing, or a program died: the comparison says nothing."""


class Figures(NamedTuple):
    """Results of one run.

    Attributes:
        rate: messages a second.
        processor: microseconds of processor for each message, in all processes.
        times: microseconds of a round trip at each of the percentiles `SHOWN`; none for a flow.
    """

    rate: float
    processor: float
    times: list[float]


def processor_seconds() -> float:
    """Return what this process has used, and the programs that it has started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(action.ru_utime + action.ru_stime for action in used)


def percentiles(seconds: Sequence[float]) -> list[float]:
    """Return the microseconds at each of the percentiles `SHOWN`."""
    cuts = statistics.quantiles(seconds, n=1000, method="inclusive")
    return [round(1e6 * cuts[round(10 * item) - 1], 2) for item in SHOWN]


class _Line:
    """The pipe of a publisher, which counts its processor time from the word that all are ready."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.since = processor_seconds()

    def send(self, what: object) -> None:
        self._pipe.send(what)

    def recv(self) -> Any:
        word = self._pipe.recv()
        if word == "go":
            self.since = processor_seconds()
        return word


def _publish(pipe: Connection, publisher: Callable[..., None], count: int) -> None:
    line = _Line(pipe)
    publisher(line, count)
    pipe.send(processor_seconds() - line.since)


def _subscribe(pipe: Connection, subscriber: Callable[..., Any], endpoint: Any) -> None:
    since = 0.0

    def begin() -> None:
        nonlocal since
        pipe.send("ready")
        since = processor_seconds()

    result = subscriber(endpoint, begin)
    pipe.send((result, processor_seconds() - since))


class _Process:
    """A program in a process of its own, and the pipe to it."""

    def __init__(self, program: Callable[..., Any], *arguments: Any) -> None:
        self._ours, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=program, args=(theirs, *arguments), daemon=True)
        self._process.start()
        theirs.close()

    def take(self) -> Any:
        """Wait for a value from the process."""
        with contextlib.suppress(EOFError):
            if self._ours.poll(PATIENCE):
                return self._ours.recv()
        raise Void("a program died, or a message that it waits for is lost")

    def take_float(self) -> float:
        """Wait for a number."""
        while not isinstance(told := self.take(), float):
            pass
        return told

    def tell(self, word: str) -> None:
        """Write a line to the process, if it still reads."""
        with contextlib.suppress(OSError):
            self._ours.send(word)

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._process.join(PATIENCE)
        self._process.kill()
        self._process.join()


def _together(
    publisher: Callable[..., None], subscribers: Sequence[Callable[..., Any]], count: int
) -> tuple[list[Any], float]:
    """Run a publisher and its subscribers; give what each of these gives, and the processor seconds."""
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(_Process(_publish, publisher, count))
        endpoint = source.take()
        sinks = [stack.enter_context(_Process(_subscribe, each, endpoint)) for each in subscribers]
        for sink in sinks:
            sink.take()
        source.tell("go")
        results = [sink.take() for sink in sinks]
        source.tell("done")
        spent = source.take_float() + sum(seconds for _, seconds in results)
        return [result for result, _ in results], spent


def flow(
    publisher: Callable[..., None],
    subscribers: Sequence[Callable[..., Any]],
    count: int,
    *,
    matches: float = 1,
    published: bool = False,
    server: Callable[[], float] = float,
) -> Figures:
    """Run a publisher and its subscribers.

    Args:
        publisher, subscribers: of `sides` or `rivals`.
        count: messages to publish.
        matches: how often each subscriber gets a message, on average.
        published: whether the rate counts published messages. Otherwise it counts deliveries.
        server: gives the processor seconds of a server so far.
    """
    before = server()
    results, spent = _together(publisher, subscribers, count)
    spent += server() - before
    expected = round(count * matches)
    for got, *_ in results:
        if got != expected:
            raise Void(f"a subscriber got {got:,} of {expected:,} messages")
    longest = max(seconds for _, seconds, *_ in results)
    counted = count if published else expected * len(results)
    return Figures(counted / longest, 1e6 * spent / count, [])


def round_trip(echo: Callable[..., None], ping: Callable[..., list[float]], count: int) -> Figures:
    """Run pairs of programs, with an echo in each pair, and time the round trips of all pairs."""
    times, spent = [], 0.0
    for _ in range(PAIRS):
        (found,), seconds = _together(echo, [partial(ping, count=count // PAIRS)], count // PAIRS)
        times += found
        spent += seconds
    return Figures(len(times) / sum(times), 1e6 * spent / len(times), percentiles(times))
