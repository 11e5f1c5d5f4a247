"""Receive with a drop-in SUB, with a SUB of pyzmq, and with SUBs of pyzmq and a regex in the loop.

    python benchmarks/dropin.py [--messages N] [--rounds N]

A child process publishes over TCP. The subscribers take turns in each round, so that a busy machine slows all
of them. Each row has the time of a message and the ratios, by the least and the median of the rounds. `wall`
includes the time of the publisher. `thread` is the processor time of the receiving thread. `regex` is the
package of that name, which oz uses, and `re` is Python's module.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import re
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import zmq
import zmq.asyncio

import oz
import oz.asyncio

PATTERN = "time.*.east"
PAYLOAD = b"x" * 100
END = b"time.end.east"
Subjects = Callable[[int], Iterator[bytes]]


def repeated(count: int) -> Iterator[bytes]:
    """Return a hundred matching subjects in turn."""
    subjects = [b"time.c%d.east" % number for number in range(100)]
    return (subjects[number % 100] for number in range(count))


def distinct(count: int) -> Iterator[bytes]:
    """Return subjects that match and never come again."""
    return (b"time.c%d.east" % number for number in range(count))


def rare(count: int) -> Iterator[bytes]:
    """Return subjects of which one in a hundred matches."""
    subjects = [b"time.c%d.%s" % (number, b"east" if number == 0 else b"west") for number in range(100)]
    return (subjects[number % 100] for number in range(count))


def publish(pipe: Any, subjects: Subjects, count: int, is_single: bool) -> None:
    """Publish to one subscriber, in a process of its own."""
    with zmq.Context() as context, context.socket(zmq.XPUB) as pub:
        pub.sndhwm = 0
        pipe.send(pub.bind_to_random_port("tcp://127.0.0.1"))
        pub.recv()
        messages = list(subjects(count))
        if is_single:
            for subject in messages:
                pub.send(subject)
        else:
            for subject in messages:
                pub.send(subject, zmq.SNDMORE)
                pub.send(PAYLOAD)
        pub.send(END, 0 if is_single else zmq.SNDMORE)
        if not is_single:
            pub.send(PAYLOAD)
        pipe.recv()


def make_plain(context: Any) -> Any:
    sub = context.socket(zmq.SUB)
    sub.subscribe(b"time.")
    return sub


def make_drop_in(context: Any) -> Any:
    kind = oz.asyncio.SubSocket if isinstance(context, zmq.asyncio.Context) else oz.SubSocket
    sub = context.socket(zmq.SUB, socket_class=kind)
    sub.subscribe(PATTERN, dialect="nats")
    return sub


def read_multipart(sub: Any, matches: Any) -> None:
    while (frames := sub.recv_multipart())[0] != END:
        if matches is not None:
            matches(frames[0].decode())


def read_frames(sub: Any, matches: Any) -> None:
    while (subject := sub.recv()) != END:
        if matches is not None:
            matches(subject.decode())
        sub.recv()
    sub.recv()


def read_objects(sub: Any, matches: Any) -> None:
    while (subject := sub.recv(copy=False).bytes) != END:
        if matches is not None:
            matches(subject.decode())


def read_text(sub: Any, matches: Any) -> None:
    end = END.decode()
    while (subject := sub.recv_string()) != end:
        if matches is not None:
            matches(subject)


def read_single(sub: Any, matches: Any) -> None:
    while (subject := sub.recv()) != END:
        if matches is not None:
            matches(subject.decode())


async def read_asyncio(sub: Any, matches: Any) -> None:
    while (frames := await sub.recv_multipart())[0] != END:
        if matches is not None:
            matches(frames[0].decode())


ROWS: dict[str, tuple[Callable[..., Any], Subjects, bool]] = {
    "recv_multipart, 100 subjects": (read_multipart, repeated, False),
    "recv_multipart, all subjects differ": (read_multipart, distinct, False),
    "recv_multipart, 1% match": (read_multipart, rare, False),
    "recv twice, 100 subjects": (read_frames, repeated, False),
    "recv twice, 1% match": (read_frames, rare, False),
    "recv of one frame, 100 subjects": (read_single, repeated, True),
    "recv of one frame, all subjects differ": (read_single, distinct, True),
    "recv of one frame, 1% match": (read_single, rare, True),
    "recv(copy=False) of one frame, 100 subjects": (read_objects, repeated, True),
    "recv_string of one frame, 100 subjects": (read_text, repeated, True),
    "await recv_multipart, 100 subjects": (read_asyncio, repeated, False),
}

EXPRESSION = oz.compile(PATTERN).regex

KINDS: dict[str, tuple[Callable[[Any], Any], Callable[[str], Any] | None]] = {
    "plain": (make_plain, None),
    "regex": (make_plain, EXPRESSION.fullmatch),
    "re": (make_plain, re.compile(EXPRESSION.pattern).fullmatch),
    "oz": (make_drop_in, None),
}


def measure(row: str, kind: str, count: int) -> tuple[float, float]:
    """Return seconds of wall time and of the receiving thread for one run."""
    read, subjects, is_single = ROWS[row]
    make, matches = KINDS[kind]
    pipe, other = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(
        target=publish, args=(other, subjects, count, is_single)
    )
    process.start()
    is_asyncio = read is read_asyncio

    def run(context: Any) -> tuple[float, float, Any]:
        sub = make(context)
        sub.rcvhwm = 0
        sub.connect(f"tcp://127.0.0.1:{pipe.recv()}")
        while not sub.get(zmq.EVENTS) & zmq.POLLIN:
            time.sleep(0.001)
        return time.perf_counter(), time.thread_time(), sub

    async def run_loop() -> tuple[float, float]:
        with zmq.asyncio.Context() as context:
            wall, thread, sub = run(context)
            await read(sub, matches)
            found = time.perf_counter() - wall, time.thread_time() - thread
            sub.close(0)
            return found

    try:
        if is_asyncio:
            return asyncio.run(run_loop())
        with zmq.Context() as context:
            wall, thread, sub = run(context)
            read(sub, matches)
            found = time.perf_counter() - wall, time.thread_time() - thread
            sub.close(0)
            return found
    finally:
        pipe.send(None)
        process.join()


def main() -> None:
    """Print a row for each way to receive."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("rows", nargs="*", choices=[[], *ROWS])
    options = parser.parse_args()
    print(f"compiled: {oz.__compiled__}, load {os.getloadavg()[0]:.1f}, {options.messages} messages")
    for row in options.rows or ROWS:
        count = options.messages // 5 if ROWS[row][0] is read_asyncio else options.messages
        times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
        for _ in range(options.rounds):
            for kind, found in times.items():
                found.append(measure(row, kind, count))
        print(row)
        for at, clock in enumerate(("wall", "thread")):
            for summary, name in ((min, "least"), (statistics.median, "median")):
                each = {
                    kind: summary([one[at] for one in found]) / count * 1e6 for kind, found in times.items()
                }
                prices = ", ".join(f"{kind} {price:.2f}" for kind, price in each.items())
                ratios = ", ".join(
                    f"{price / each['oz']:.2f} of {kind}" for kind, price in each.items() if kind != "oz"
                )
                print(f"  {clock:6} {name:6} µs: {prices};  oz is {ratios}", flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
