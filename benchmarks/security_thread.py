"""What keys and permissions cost in one thread, which other programs disturb least: µs a message of W1.

    python benchmarks/security_thread.py [--rounds 700]

A publisher publishes 1,000 messages, and when all have arrived a subscriber in the same thread takes them, by
a handler for each. Only the processor time of the thread counts: encryption is done by threads of ZeroMQ.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import machine
from sides import ALL, LOOPBACK, Tally

import oz
from security import KINDS, make_keys, secured

ARRIVED = 0.01
"""Seconds in which the messages of a round arrive."""


def begin(stack: ExitStack, kind: str, directory: Path) -> tuple[oz.Publisher, oz.Subscriber]:
    """Make a publisher and a subscriber that are ready."""
    security = partial(secured, kind, directory=directory)
    pub = stack.enter_context(oz.Publisher(LOOPBACK, security=security(name="feed")))
    sub = stack.enter_context(
        oz.Subscriber(pub.endpoint, filtering="publisher", security=security(name="desk"))
    )
    sub.subscribe("md.*.*", handler=Tally().count)
    sub.subscribe("end")
    sub.wait_ready(timeout=60)
    return pub, sub


def turn(pub: oz.Publisher, sub: oz.Subscriber) -> float:
    """Return the microseconds of processor for each message of one round."""
    began = time.thread_time()
    for subject in ALL.subjects:
        pub.publish(subject, ALL.payload)
    pub.publish("end")
    pub.flush()
    used = time.thread_time() - began
    time.sleep(ARRIVED)
    began = time.thread_time()
    sub.receive(timeout=60)
    return 1e6 * (used + time.thread_time() - began) / len(ALL.subjects)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=700)
    rounds = parser.parse_args().rounds
    print(machine.describe())
    with tempfile.TemporaryDirectory(prefix="oz-", dir="/tmp") as name, ExitStack() as stack:
        make_keys(Path(name))
        pairs = {kind: begin(stack, kind, Path(name)) for kind in KINDS}
        taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for number in range(rounds):
            for kind in list(KINDS)[:: -1 if number % 2 else 1]:
                taken[kind].append(turn(*pairs[kind]))
    for kind, values in taken.items():
        print(f"  {kind:20} fastest {min(values):.3f}, median {statistics.median(values):.3f}")
    print(machine.describe())


if __name__ == "__main__":
    main()
