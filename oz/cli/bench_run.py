"""Measurement of `oz bench`: this process publishes, and each subscriber is a process of its own.

Half of the time goes to lone messages, which carry the time of their publication. In the other half, the
publisher publishes as fast as possible, and adds a timed message every `PROBE_INTERVAL` seconds. The age of
a timed message is its latency, because all processes of a machine have one monotonic clock. The payload of
`END` is the number of messages of the phase that match.
"""

from __future__ import annotations

import json
import math
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from typing import Any, Literal

import oz

PATTERN, CONTROLS = "bench.*.hit", "control.*"
BEGIN, PROBE, END = "control.begin", "control.probe", "control.end"
PHASES = ("lone", "loaded")

QUEUE_BYTES = 16 * 1024 * 1024  # bound of each queue: it limits memory and the latency under load
PROBE_INTERVAL = 0.001  # seconds
CHUNK = 64  # messages between two readings of the clock
START_TIMEOUT, FULL_TIMEOUT, END_TIMEOUT = 20.0, 5.0, 30.0  # seconds


class BenchError(oz.OzError):
    """A measurement failed."""


@dataclass(frozen=True)
class BenchPlan:
    """Load and subscribers of one measurement; `match` is the fraction of subjects that match the pattern."""

    filtering: Literal["prefix", "publisher"]
    size: int = 100
    subjects: int = 1000
    match: float = 1.0
    subscribers: int = 1
    seconds: float = 2.0

    @property
    def matching_subjects(self) -> int:
        """The number of subjects that match the pattern."""
        return round(self.subjects * self.match)

    @property
    def high_water_mark(self) -> int:
        """Messages in each queue at most."""
        return max(4, QUEUE_BYTES // (self.size + 64))

    def make_subjects(self) -> list[str]:
        """Return the subjects, with the matching ones spread evenly."""
        hits, total = self.matching_subjects, self.subjects
        return [
            f"bench.{place}.{'hit' if (place + 1) * hits // total > place * hits // total else 'miss'}"
            for place in range(total)
        ]


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return the percentiles and the maximum of latencies, in microseconds; empty without samples."""
    if not seconds:
        return {}
    ranked = sorted(seconds)
    found = {
        f"p{percent:g}_us": ranked[max(0, math.ceil(len(ranked) * percent / 100) - 1)]
        for percent in (50, 90, 99, 99.9)
    }
    return {name: round(value * 1e6, 1) for name, value in {**found, "max_us": ranked[-1]}.items()}


def measure(plan: BenchPlan) -> dict[str, Any]:
    """Measure one kind of filtering on the loopback, and return the result that `--json` writes.

    Raises:
        BenchError: a subscriber did not start, read nothing for FULL_TIMEOUT seconds, or failed.
    """
    limit = plan.high_water_mark
    with oz.Publisher(
        "tcp://127.0.0.1:*",
        on_full="block",
        options=oz.Options(send_timeout=FULL_TIMEOUT, high_water_mark=limit),
    ) as publisher:
        assert publisher.endpoint is not None
        with _subscribers(plan, publisher.endpoint) as processes:
            try:
                _await_subscribers(publisher, plan.subscribers, processes)
                _publish_lone(publisher, plan)
                published, seconds = _publish_loaded(publisher, plan)
            except oz.WouldBlock:
                raise BenchError(f"a subscriber read nothing for {FULL_TIMEOUT:g} s") from None
            publisher.flush()
            reports = [_report(process) for process in processes]
    loaded = [report["loaded"] for report in reports]
    delivered = sum(report["delivered"] for report in loaded)
    rates = {
        "published": published / seconds,
        "delivered": sum(report["delivered"] / report["seconds"] for report in loaded if report["seconds"]),
    }
    return {
        "filtering": plan.filtering,
        "published": published,
        "delivered": delivered,
        "received": sum(report["received"] for report in loaded),
        "lost": sum(report["matching"] - report["delivered"] for report in loaded),
        **{f"{name}_per_second": round(rate, 1) for name, rate in rates.items()},
        **{f"{name}_mb_per_second": round(rate * plan.size / 1e6, 3) for name, rate in rates.items()},
        **{
            f"latency_{phase}": percentiles(
                [item for report in reports for item in report[phase]["latencies"]]
            )
            for phase in PHASES
        },
    }


@contextmanager
def _subscribers(plan: BenchPlan, endpoint: str) -> Iterator[list[subprocess.Popen[str]]]:
    argument = json.dumps({"plan": asdict(plan), "endpoint": endpoint})
    processes: list[subprocess.Popen[str]] = []
    try:
        for _ in range(plan.subscribers):
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", __name__, argument],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    # Ctrl-C is for the parent, which ends its subscribers.
                    start_new_session=True,
                )
            )
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _await_subscribers(
    publisher: oz.Publisher, count: int, processes: Sequence[subprocess.Popen[str]]
) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        try:
            # Each subscribes to the controls last.
            return publisher.wait_for_subscribers(END, count=count, timeout=0.1)
        except oz.Timeout:
            for process in processes:
                if process.poll() is not None:
                    _report(process)
            if time.monotonic() >= deadline:
                raise BenchError(f"a subscriber did not start within {START_TIMEOUT:g} s") from None


def _report(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    assert process.stderr is not None
    if not select.select([process.stdout], [], [], END_TIMEOUT)[0]:
        raise BenchError(f"a subscriber did not end within {END_TIMEOUT:g} s")
    line = process.stdout.readline()
    if not line:
        error = (process.stderr.read().strip().splitlines() or ["no error message"])[-1]
        raise BenchError(f"a subscriber process ended with status {process.wait()}: {error}")
    report: dict[str, Any] = json.loads(line)
    return report


def _now(size: int) -> bytes:
    return repr(time.monotonic()).encode().ljust(size)


def _publish_lone(publisher: oz.Publisher, plan: BenchPlan) -> None:
    publisher.publish(BEGIN, b"")
    deadline = time.monotonic() + plan.seconds / 2
    while time.monotonic() < deadline:
        publisher.publish(PROBE, _now(plan.size))
        publisher.flush()
        time.sleep(PROBE_INTERVAL)
    publisher.publish(END, b"0")


def _publish_loaded(publisher: oz.Publisher, plan: BenchPlan) -> tuple[int, float]:
    """Publish as fast as possible; return the number of messages and the seconds."""
    names, payload, publish = plan.make_subjects(), bytes(plan.size), publisher.publish
    subjects = cycle(names)
    publisher.publish(BEGIN, b"")
    count, began = 0, time.monotonic()
    probe_at = now = began
    while now - began < plan.seconds / 2:
        for subject in islice(subjects, CHUNK):
            publish(subject, payload)
        count += CHUNK
        now = time.monotonic()
        if now >= probe_at:
            probe_at = now + PROBE_INTERVAL
            publish(PROBE, _now(plan.size))
    rounds, rest = divmod(count, len(names))
    hits = [name.endswith(".hit") for name in names]
    publisher.publish(END, b"%d" % (rounds * sum(hits) + sum(hits[:rest])))
    return count, now - began


def _receive_phase(subscriber: oz.Subscriber, earlier: int) -> dict[str, Any]:
    """Receive the messages of one phase, and return the counts and latencies.

    Args:
        subscriber: of both phases.
        earlier: messages of the earlier phase. They all match.
    """
    delivered, controls, latencies = 0, 0, []
    began = time.monotonic()
    for message in subscriber:
        if message.subject[0] != "c":
            delivered += 1
            continue
        controls += 1
        if message.subject == PROBE:
            latencies.append(time.monotonic() - float(message.payload))
        elif message.subject == BEGIN:
            began = time.monotonic()
        elif message.subject == END:
            break
    return {
        "delivered": delivered,
        "matching": int(message.payload),
        "controls": controls,
        "received": subscriber.stats.received - earlier - controls,
        "seconds": time.monotonic() - began,
        "latencies": latencies,
    }


def _subscribe(argument: str) -> None:
    """Run one subscriber process: receive all phases and write the report to stdout."""

    def end_with_parent() -> None:
        os.read(0, 1)
        os._exit(0)

    threading.Thread(target=end_with_parent, daemon=True).start()
    given = json.loads(argument)
    plan = BenchPlan(**given["plan"])
    with oz.Subscriber(
        given["endpoint"],
        filtering=plan.filtering,
        options=oz.Options(high_water_mark=plan.high_water_mark),
    ) as subscriber:
        subscriber.subscribe(PATTERN)
        subscriber.subscribe(CONTROLS)
        lone = _receive_phase(subscriber, 0)
        loaded = _receive_phase(subscriber, lone["controls"])
    print(json.dumps({"lone": lone, "loaded": loaded}), flush=True)


if __name__ == "__main__":
    _subscribe(sys.argv[1])
