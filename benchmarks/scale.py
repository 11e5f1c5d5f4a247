"""How many peers one bus holds: rates, joining, the storm after a restart, memory and descriptors.

    python benchmarks/scale.py [fan-out] [fan-in] [nodes] [patterns] [--scale 1.0]

- `fan-out`: one publisher to 1,000 subscribers in 8 processes, all of whom want everything.
- `fan-in`: 1,000 publishers in 8 processes to one subscriber.
- `nodes`: meshes of nodes in 8 processes, who meet in a directory, of 25, 50, 100 and 200.
- `patterns`: 100,000 patterns of 200 subscribers in 8 processes, one of which matches a message.

Joining counts from the moment at which all processes have imported oz and are told to begin, until everybody
says to be ready. The storm is the time from the start of a new publisher at the old endpoint until all
subscribers are ready again and have its first message. Memory is what the resident set of a process grew by,
for each peer; so are descriptors. `--scale 0.1` makes a tenth of everything.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import multiprocessing
import os
import resource
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import machine
import zmq

import oz
import oz.asyncio

PROCESSES = 8
PATIENCE = 180.0
"""Seconds after which what is waited for does not come any more."""

_spawn = multiprocessing.get_context("spawn")


class Worker:
    """A program in a process of its own, and the pipe to it."""

    def __init__(self, program: Callable[..., Any], *arguments: Any) -> None:
        self._pipe, theirs = _spawn.Pipe()
        self._process = _spawn.Process(target=program, args=(theirs, *arguments), daemon=True)
        self._process.start()
        theirs.close()

    def take(self) -> Any:
        """Wait for what it tells."""
        with contextlib.suppress(EOFError):
            if self._pipe.poll(PATIENCE):
                return self._pipe.recv()
        raise SystemExit("a program died, or what it waits for does not come")

    def tell(self, what: Any) -> None:
        """Tell it something."""
        self._pipe.send(what)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.join()


@contextlib.contextmanager
def workers(program: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> Iterator[list[Worker]]:
    """Start processes of one program, one for each tuple of arguments, and end them all."""
    started = [Worker(program, *one) for one in arguments]
    try:
        for worker in started:
            worker.take()
        yield started
    finally:
        for worker in started:
            worker.kill()


def shares(count: int) -> list[int]:
    """Share peers out among processes."""
    most = min(PROCESSES, count)
    return [count // most + (place < count % most) for place in range(most)]


class Growth:
    """What the process grows by, in memory and descriptors."""

    def __init__(self) -> None:
        self._began = self._now()

    @staticmethod
    def _now() -> tuple[int, int]:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize(), len(os.listdir("/proc/self/fd"))

    def since(self, peers: int) -> tuple[float, float]:
        """Return the bytes and descriptors that it grew by, for each of so many peers."""
        memory, descriptors = self._now()
        return (memory - self._began[0]) / peers, (descriptors - self._began[1]) / peers


def free_endpoint() -> str:
    """Return an endpoint that nobody is bound to, for a publisher that is to come back there."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{one.getsockname()[1]}"


def subscribe(pipe: Connection, endpoint: str, patterns: list[list[str]]) -> None:
    """Be subscribers of one process, one for each list of patterns."""
    asyncio.run(_subscribe(pipe, endpoint, patterns))


async def _subscribe(pipe: Connection, endpoint: str, patterns: list[list[str]]) -> None:
    pipe.send("imported")
    hear = asyncio.get_running_loop().run_in_executor
    await hear(None, pipe.recv)
    growth = Growth()
    subscribers = [oz.asyncio.Subscriber(filtering="publisher") for _ in patterns]
    for one, wanted in zip(subscribers, patterns, strict=True):
        one.subscribe(wanted)
        one.connect(endpoint)
    firsts = [asyncio.Event() for _ in subscribers]
    counts = [0]

    async def count(one: Any, first: asyncio.Event) -> None:
        async for message in one:
            if message.subject == "first":
                first.set()
            else:
                counts[0] += 1

    tasks = [asyncio.create_task(count(one, first)) for one, first in zip(subscribers, firsts, strict=True)]
    for one in subscribers:
        await one.wait_ready(timeout=PATIENCE)
    pipe.send((time.monotonic(), growth.since(len(subscribers))))
    # Once for each publisher that is started: the first message, then so many.
    while (expected := await hear(None, pipe.recv)) is not None:
        for first in firsts:
            await first.wait()
            first.clear()
        pipe.send(time.monotonic())
        while counts[0] < expected:
            await asyncio.sleep(0.005)
        pipe.send((time.monotonic(), counts[0], sum(one.stats.lost for one in subscribers)))
        counts[0] = 0
    for task in tasks:
        task.cancel()


def publish(pipe: Connection, endpoint: str, subscribers: int, subjects: list[str]) -> None:
    """Be the one publisher; say what each subscriber cost, then publish as many messages as asked for."""
    growth = Growth()
    with oz.Publisher(endpoint, on_full="block") as publisher:
        pipe.send(publisher.endpoint)
        publisher.wait_for_subscribers(count=subscribers, timeout=PATIENCE)
        pipe.send((time.monotonic(), growth.since(subscribers)))
        pipe.recv()
        publisher.publish("first", b"")
        publisher.flush()
        count = pipe.recv()
        began, used = time.monotonic(), time.process_time()
        for number in range(count):
            publisher.publish(subjects[number % len(subjects)], b"x" * 100)
        publisher.flush()
        pipe.send((began, time.monotonic() - began, time.process_time() - used))
        pipe.recv()


def fan_out(scale: float) -> None:
    """Measure one publisher to many subscribers, who want everything."""
    count = max(8, round(1_000 * scale))
    lists = [[["first", "md.>"]] * share for share in shares(count)]
    messages = 2_000_000 // count
    _one_publisher("fan-out", lists, ["md.a"], messages, [messages * len(part) for part in lists])


def many_patterns(scale: float) -> None:
    """Measure many patterns, of which one matches a message."""
    subscribers, each, messages = max(8, round(200 * scale)), 500, 500_000
    numbers = iter(range(subscribers * each))
    lists = [
        [["first", *(f"md.*.t{n // 100}.{n}" for n in itertools.islice(numbers, each))] for _ in range(share)]
        for share in shares(subscribers)
    ]
    chosen = [(7_919 * n) % (subscribers * each) for n in range(10_000)]
    owners = Counter(n // each for n in chosen)
    ends = list(itertools.accumulate(map(len, lists)))
    expected = [
        messages // len(chosen) * sum(owners[one] for one in range(end - len(part), end))
        for part, end in zip(lists, ends, strict=True)
    ]
    _one_publisher("patterns", lists, [f"md.x.t{n // 100}.{n}" for n in chosen], messages, expected)


def _one_publisher(
    name: str, lists: list[list[list[str]]], subjects: list[str], messages: int, expected: list[int]
) -> None:
    endpoint, subscribers = free_endpoint(), sum(map(len, lists))
    patterns = sum(len(one) for part in lists for one in part)
    print(
        f"{name}: {subscribers:,} subscribers with {patterns:,} patterns in {len(lists)} processes",
        flush=True,
    )
    with workers(subscribe, [(endpoint, part) for part in lists]) as sinks:
        for place, what in enumerate(("joined", "after a restart")):
            publisher = Worker(publish, endpoint, subscribers, subjects)
            publisher.take()
            began = time.monotonic()
            if not place:
                for sink in sinks:
                    sink.tell("begin")
            there_at, (memory, descriptors) = publisher.take()
            if not place:
                answers = [sink.take() for sink in sinks]
                cost = [max(one) for one in zip(*(grown for _, grown in answers), strict=True)]
                print(
                    f"  all ready in {max(at for at, _ in answers) - began:.2f} s; the publisher takes "
                    f"{memory / 1024:.1f} KiB and {descriptors:.2f} descriptors a subscriber, a subscriber "
                    f"{cost[0] / 1024:.0f} KiB and {cost[1]:.1f} descriptors",
                    flush=True,
                )
            for sink, count in zip(sinks, expected, strict=True):
                sink.tell(count)
            publisher.tell("all are there")
            first = max(sink.take() for sink in sinks) - began
            publisher.tell(messages)
            started, took, used = publisher.take()
            ends = [sink.take() for sink in sinks]
            seconds = max(at for at, _, _ in ends) - started
            total, lost = sum(count for _, count, _ in ends), sum(count for _, _, count in ends)
            print(
                f"  {what}: subscribed in {there_at - began:.2f} s, first message at all in {first:.2f} s; "
                f"{messages / took:,.0f} published and {total / seconds:,.0f} delivered a second, "
                f"{1e6 * used / messages:.1f} µs of the publisher a message, {lost} lost",
                flush=True,
            )
            publisher.kill()


# publishers ----------------------------------------------------------------------------------------------


def publish_many(pipe: Connection, publishers: int) -> None:
    """Be many publishers of one process, each on a port of its own."""
    pipe.send("imported")
    pipe.recv()
    growth = Growth()
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 100_000)
    made = [oz.Publisher("tcp://127.0.0.1:*", on_full="block", context=context) for _ in range(publishers)]
    pipe.send([one.endpoint for one in made])
    pipe.recv()
    pipe.send(growth.since(publishers))
    count = pipe.recv()
    for number in range(count):
        for one in made:
            one.publish("md.a", b"x" * 100)
        if number % 50 == 49:
            for one in made:
                one.flush()
    for one in made:
        one.flush()
    pipe.send("sent")
    pipe.recv()


def fan_in(scale: float) -> None:
    """Measure many publishers to one subscriber."""
    count = max(8, round(1_000 * scale))
    each = 500
    with workers(publish_many, [(share,) for share in shares(count)]) as sources:
        for source in sources:
            source.tell("begin")
        endpoints = [one for source in sources for one in source.take()]
        growth = Growth()
        with oz.Subscriber(filtering="publisher") as subscriber:
            began = time.monotonic()
            subscriber.subscribe("md.>")
            for endpoint in endpoints:
                subscriber.connect(endpoint)
            subscriber.wait_ready(timeout=PATIENCE)
            ready = time.monotonic() - began
            memory, descriptors = growth.since(count)
            for source in sources:
                source.tell("ready")
            grown = [source.take() for source in sources]
            for source in sources:
                source.tell(each)
            began, used, left = time.monotonic(), time.process_time(), each * count
            while left:
                left -= len(subscriber.receive_many(10_000, timeout=PATIENCE))
            seconds, used = time.monotonic() - began, time.process_time() - used
            print(
                f"fan-in: {count:,} publishers: ready in {ready:.2f} s; "
                f"{each * count / seconds:,.0f} received a second, "
                f"{1e6 * used / each / count:.2f} µs of the subscriber a message, "
                f"{subscriber.stats.lost} lost\n"
                f"  the subscriber takes {memory / 1024:.1f} KiB and {descriptors:.2f} descriptors "
                f"a publisher, a publisher {max(one[0] for one in grown) / 1024:.0f} KiB and "
                f"{max(one[1] for one in grown):.1f} descriptors",
                flush=True,
            )


# nodes ---------------------------------------------------------------------------------------------------


def be_nodes(pipe: Connection, directory: str, count: int, others: int) -> None:
    """Be nodes of one process."""
    asyncio.run(_be_nodes(pipe, directory, count, others))


async def _be_nodes(pipe: Connection, directory: str, count: int, others: int) -> None:
    pipe.send("imported")
    hear = asyncio.get_running_loop().run_in_executor
    await hear(None, pipe.recv)
    growth = Growth()
    options = oz.NodeOptions(directory=directory)
    nodes = [oz.asyncio.Node(options=options) for _ in range(count)]
    got = [0]

    async def heard(_: Any) -> None:
        got[0] += 1

    try:
        for node in nodes:
            node.subscribe("md.>", handler=heard)
        for node in nodes:
            await node.wait_ready(count=others, timeout=PATIENCE)
    except oz.OzError as error:
        pipe.send(f"{type(error).__name__}: {error}"[:300])
        return
    pipe.send((time.monotonic(), growth.since(count)))
    seconds = await hear(None, pipe.recv)
    before, began = time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    pipe.send((time.process_time() - before) / (time.monotonic() - began) / count)
    await hear(None, pipe.recv)


def nodes(scale: float) -> None:
    """Measure meshes of nodes, until one fails."""
    for count in (25, 50, 100, 200):
        count = max(8, round(count * scale))
        with tempfile.TemporaryDirectory(prefix="oz-", dir="/tmp") as directory:
            arguments = [(f"{directory}/s", share, count - 1) for share in shares(count)]
            with workers(be_nodes, arguments) as started:
                began = time.monotonic()
                for worker in started:
                    worker.tell("join")
                answers = [worker.take() for worker in started]
                failed = [one for one in answers if isinstance(one, str)]
                if failed:
                    print(f"nodes: {count} did not join within {PATIENCE:g} s: {failed[0]}", flush=True)
                    return
                ready = max(at for at, _ in answers) - began
                for worker in started:
                    worker.tell(10.0)
                idle = [worker.take() for worker in started]
                print(
                    f"nodes: {count} joined in {ready:.2f} s; "
                    f"idle {1000 * sum(idle) / len(idle):.1f} ms/s each; "
                    f"a node takes {max(one[0] for _, one in answers) / 1024:.0f} KiB and "
                    f"{max(one[1] for _, one in answers):.0f} descriptors",
                    flush=True,
                )


SCENES = {"fan-out": fan_out, "fan-in": fan_in, "nodes": nodes, "patterns": many_patterns}


def main(arguments: list[str] | None = None) -> None:
    """Measure the scenes that are named, or all."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("scenes", nargs="*", choices=[[], *SCENES], help="default all")
    options.add_argument("--scale", type=float, default=1.0, help="of the peers")
    chosen = options.parse_args(arguments)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    print(f"{machine.describe()}; {limit:,} descriptors a process", flush=True)
    for name in chosen.scenes or SCENES:
        SCENES[name](chosen.scale)
    print(machine.describe())


if __name__ == "__main__":
    main()
