"""Measurement of `oz bench`: this process publishes, and a second process subscribes.

A measurement has two phases of equal length. In the first phase, the publisher publishes only *probes*: single messages
that contain the time of their publication. In the second phase, it publishes as fast as possible, and adds a probe
every `PROBE_INTERVAL` seconds. The subscriber computes the latency of a probe as its age, because all processes of a
machine have the same monotonic clock. A message with the subject `END` ends a phase. Its payload is the number of
published messages that match.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any

import oz
from oz.demo.child import Child, ChildError, child_process, end_with_parent

PATTERN, CONTROLS = "bench.*.hit", "control.*"
BEGIN, PROBE, END = "control.begin", "control.probe", "control.end"

SUBJECTS = 1000
QUEUE_BYTES = 16 * 1024 * 1024
"""Maximum size of each queue. It limits the memory and the latency under load."""
PROBE_INTERVAL = 0.001  # seconds
CHUNK = 64  # number of messages between two reads of the clock
START_TIMEOUT, FULL_TIMEOUT = 20.0, 5.0  # seconds


def measure(filtering: str, size: int, match: float, seconds: float) -> dict[str, Any]:
    """Measure one kind of filtering on the loopback, and return the result that `--json` writes.

    Args:
        filtering: "prefix" or "publisher".
        size: size of a payload in bytes.
        match: fraction of the subjects that match, from 1 / SUBJECTS to 1.
        seconds: duration of both phases together, in seconds.

    Raises:
        ChildError: the subscriber process did not start, received no message for FULL_TIMEOUT seconds, or failed.
    """
    limit = max(4, QUEUE_BYTES // (size + 64))  # messages
    command = [sys.executable, "-m", __name__]
    options = oz.Options(send_timeout=FULL_TIMEOUT, high_water_mark=limit)
    with (
        oz.Publisher("tcp://127.0.0.1:*", on_full="block", options=options) as publisher,
        child_process("subscriber", [*command, str(publisher.endpoint), filtering, str(limit)]) as process,
    ):
        try:
            _await_subscriber(publisher, process)
            _publish_lone(publisher, size, seconds / 2)
            published, took = _publish_loaded(publisher, size, _make_subjects(match), seconds / 2)
        except oz.WouldBlock:
            raise ChildError(
                f"the subscriber read nothing for {FULL_TIMEOUT:g} s: give a smaller --size, or end other programs"
            ) from None
        publisher.flush()
        lone, loaded = json.loads(process.read_line())
    return {
        "filtering": filtering,
        "published": published,
        "delivered": loaded["delivered"],
        "received": loaded["received"],
        "lost": loaded["matching"] - loaded["delivered"],
        "published_per_second": round(published / took, 1),
        "delivered_per_second": round(loaded["delivered"] / loaded["seconds"], 1),
        "latency_lone": percentiles(lone["latencies"]),
        "latency_loaded": percentiles(loaded["latencies"]),
    }


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return the percentiles and the maximum of latencies, in microseconds; an empty dict without latencies."""
    if not seconds:
        return {}
    ranked = sorted(seconds)
    places = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "max_us": 1.0}
    return {
        name: round(1e6 * ranked[min(int(len(ranked) * share), len(ranked) - 1)], 1)
        for name, share in places.items()
    }


def _make_subjects(match: float) -> list[str]:
    hits = round(SUBJECTS * match)
    return [
        f"bench.{place}.{'hit' if (place + 1) * hits // SUBJECTS > place * hits // SUBJECTS else 'miss'}"
        for place in range(SUBJECTS)
    ]


def _await_subscriber(publisher: oz.Publisher, process: Child) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        try:
            # `END` matches the last subscription of the subscriber, so that all subscriptions have arrived.
            return publisher.wait_for_subscribers(END, timeout=0.1)
        except oz.Timeout:
            process.is_done()
            if time.monotonic() >= deadline:
                raise ChildError(
                    f"the subscriber did not start within {START_TIMEOUT:g} s: the machine is too busy; end other "
                    "programs"
                ) from None


def _now(size: int) -> bytes:
    return repr(time.monotonic()).encode().ljust(size)


def _publish_lone(publisher: oz.Publisher, size: int, seconds: float) -> None:
    publisher.publish(BEGIN, b"")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        publisher.publish(PROBE, _now(size))
        publisher.flush()
        time.sleep(PROBE_INTERVAL)
    publisher.publish(END, b"0")


def _publish_loaded(
    publisher: oz.Publisher, size: int, names: Sequence[str], seconds: float
) -> tuple[int, float]:
    payload, publish, subjects = bytes(size), publisher.publish, cycle(names)
    publisher.publish(BEGIN, b"")
    count, began = 0, time.monotonic()
    probe_at = now = began
    while now - began < seconds:
        for subject in islice(subjects, CHUNK):
            publish(subject, payload)
        count += CHUNK
        now = time.monotonic()
        if now >= probe_at:
            probe_at = now + PROBE_INTERVAL
            publish(PROBE, _now(size))
    rounds, rest = divmod(count, len(names))
    hits = [name.endswith(".hit") for name in names]
    publisher.publish(END, b"%d" % (rounds * sum(hits) + sum(hits[:rest])))
    return count, now - began


def _receive_phase(subscriber: oz.Subscriber, earlier: int) -> dict[str, Any]:
    """Receive the messages of one phase, and return the counts and latencies.

    Args:
        subscriber: subscriber that receives both phases.
        earlier: number of messages that the earlier phase has received; 0 in the first phase.
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


def _subscribe(endpoint: str, filtering: Any, limit: str) -> None:
    """Run the subscriber process: receive both phases, and write the results to stdout."""
    end_with_parent()
    options = oz.Options(high_water_mark=int(limit))
    with oz.Subscriber(endpoint, filtering=filtering, options=options) as subscriber:
        subscriber.subscribe(PATTERN)
        subscriber.subscribe(CONTROLS)
        lone = _receive_phase(subscriber, 0)
        loaded = _receive_phase(subscriber, lone["controls"])
    print(json.dumps([lone, loaded]), flush=True)


if __name__ == "__main__":
    _subscribe(*sys.argv[1:])
