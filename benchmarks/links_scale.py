"""Cost of many subscribers of one publisher on links: joining, idling, absence, death.

    python benchmarks/links_scale.py [fan-out] [absence] [death] [patterns] [--scale 1.0]

- `fan-out`: 1,000 subscribers in 8 processes: time to join, memory of each idle link, and deliveries a second.
- `absence`: the same subscribers do not call `receive` for 30 seconds, while messages come.
- `death`: 50 subscribers with 500 patterns each are killed; the longest call of `publish` afterwards.
- `patterns`: one subscriber joins with 10,000 patterns.

`--scale 0.1` makes a tenth of each number of subscribers.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import resource
import time
from multiprocessing.connection import Connection
from typing import Any

import machine
import psutil

import oz.subscriber.aio
import oz.subscriber.sync
from oz.errors import Timeout
from oz.options import Options
from oz.publisher.sync import Publisher

PROCESSES = 8
SUBSCRIBERS = 1_000
MESSAGES = 300
RATE = 2_000
"""Messages a second during `death`."""
ABSENCE = 30.0
PATIENCE = 120.0
DYING, DYING_PATTERNS, JOINING_PATTERNS = 50, 500, 10_000

_spawn = multiprocessing.get_context("spawn")


class Worker:
    """A process with subscribers, and the pipe to it."""

    def __init__(self, *arguments: Any) -> None:
        self.pipe, other = _spawn.Pipe()
        self.process = _spawn.Process(target=subscribe, args=(other, *arguments), daemon=True)
        self.process.start()
        other.close()

    def answer(self) -> Any:
        """Return the next answer of the process."""
        if not self.pipe.poll(PATIENCE):
            raise SystemExit(f"no answer in {PATIENCE:g} s")
        return self.pipe.recv()

    def ask(self, command: Any) -> Any:
        """Send a command and return its answer."""
        self.pipe.send(command)
        return self.answer()

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.join()


def resident() -> int:
    """Return the bytes of memory of this process."""
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def subscribe(pipe: Connection, endpoint: str, count: int, patterns: int) -> None:
    """Run subscribers. The first command lets them join; each other command is a number of messages to receive."""
    asyncio.run(_subscribe(pipe, endpoint, count, patterns))


async def _subscribe(pipe: Connection, endpoint: str, count: int, patterns: int) -> None:
    loop = asyncio.get_running_loop()
    pipe.send("imported")
    await loop.run_in_executor(None, pipe.recv)
    before, began = resident(), time.perf_counter()
    texts = ["a.*"] + [f"pattern.{number}.*" for number in range(patterns - 1)]
    subscribers = []
    for _ in range(count):
        subscribers.append(oz.subscriber.aio.Subscriber(endpoint))
        subscribers[-1].subscribe(texts)
    await asyncio.gather(*(one.wait_ready(timeout=PATIENCE) for one in subscribers))
    pipe.send((time.perf_counter() - began, (resident() - before) / count))
    while (wanted := await loop.run_in_executor(None, pipe.recv)) is not None:
        numbers = await asyncio.gather(*(receive(one, wanted) for one in subscribers))
        pipe.send((sum(numbers), sum(one.stats.lost for one in subscribers)))


async def receive(subscriber: oz.subscriber.aio.Subscriber, count: int) -> int:
    """Receive messages; return how many came."""
    found = 0
    try:
        while found < count:
            found += len(await subscriber.receive_many(timeout=PATIENCE / 2))
    except Timeout:
        pass
    return found


def joined(publisher: Publisher, count: int, patterns: int = 1, processes: int = PROCESSES) -> list[Worker]:
    """Let subscribers join; print the time and the memory of each link."""
    assert publisher.endpoint is not None
    share = -(-count // processes)
    workers = [Worker(publisher.endpoint, share, patterns) for _ in range(processes)]
    for one in workers:
        one.answer()
    before = resident()
    began = time.perf_counter()
    for one in workers:
        one.pipe.send("join")
    answers = [one.answer() for one in workers]
    seconds = time.perf_counter() - began
    size = (resident() - before) / (share * processes)
    print(
        f"{share * processes} subscribers with {patterns} patterns joined in {seconds:.2f} s; memory of a link: "
        f"{size / 1024:.1f} KB at the publisher, {answers[0][1] / 1024:.1f} KB at the subscriber"
    )
    return workers


def received(workers: list[Worker], published: int) -> None:
    """Let all subscribers receive; print what arrived."""
    began = time.perf_counter()
    for one in workers:
        one.pipe.send(published)
    answers = [one.answer() for one in workers]
    seconds = time.perf_counter() - began
    total, lost = sum(one[0] for one in answers), sum(one[1] for one in answers)
    print(f"{total:,} messages received in {seconds:.2f} s, {lost:,} lost", end="")
    print(f" ({total / seconds:,.0f} deliveries/s)")


def longest(publisher: Publisher, seconds: float, rate: float) -> tuple[str, int]:
    """Publish for a time at a rate; return the longest call of `publish` and the number of messages.

    The call is described by the time that elapsed, and by the processor time of the whole process meanwhile. On a
    busy machine the first says little.
    """
    worst, work, number = 0.0, 0.0, 0
    began = time.perf_counter()
    while (now := time.perf_counter()) - began < seconds:
        if number > (now - began) * rate:
            time.sleep(0.0002)
            continue
        before = time.process_time()
        publisher.publish(f"a.{number % 100}", b"x" * 64)
        work = max(work, time.process_time() - before)
        worst = max(worst, time.perf_counter() - now)
        number += 1
    return f"{worst * 1e3:.1f}/{work * 1e3:.1f} ms", number


def fan_out(scale: float) -> None:
    """1,000 subscribers in 8 processes."""
    with Publisher("tcp://127.0.0.1:*") as publisher:
        workers = joined(publisher, round(SUBSCRIBERS * scale))
        for one in workers:
            one.pipe.send(MESSAGES)
        began = time.perf_counter()
        worst = 0.0
        for number in range(MESSAGES):
            called = time.perf_counter()
            publisher.publish(f"a.{number % 100}", b"x" * 64)
            worst = max(worst, time.perf_counter() - called)
        published = time.perf_counter() - began
        answers = [one.answer() for one in workers]
        total, seconds = sum(one[0] for one in answers), time.perf_counter() - began
        print(
            f"{MESSAGES} messages published in {published:.2f} s, longest publish {worst * 1e3:.1f} ms; "
            f"{total:,} of {MESSAGES * len(publisher.subscribers):,} deliveries in {seconds:.2f} s"
        )
        for one in workers:
            one.kill()


def absence(scale: float) -> None:
    """Subscribers that do not call `receive`."""
    with Publisher("tcp://127.0.0.1:*") as publisher:
        workers = joined(publisher, round(SUBSCRIBERS * scale))
        worst, number = longest(publisher, ABSENCE, 50)
        states = {one.state for one in publisher.subscribers}
        print(
            f"no receive for {ABSENCE:g} s: {number} messages, longest publish {worst}, "
            f"states {states}, {max(one.pending for one in publisher.subscribers)} pending"
        )
        received(workers, number)
        for one in workers:
            one.kill()


def death(scale: float) -> None:
    """50 subscribers with 500 patterns each are killed."""
    for _ in range(3):
        with Publisher("tcp://127.0.0.1:*", options=Options(resume_seconds=2.0)) as publisher:
            count = round(DYING * scale)
            (worker,) = joined(publisher, count, DYING_PATTERNS, processes=1)
            quiet, _ = longest(publisher, 3, RATE)
            worker.kill()
            killed, _ = longest(publisher, 1.5, RATE)
            ended, _ = longest(publisher, 5, RATE)
            left = len(publisher.subscribers)
            print(
                f"longest publish: {quiet} before the kill, {killed} just after it, {ended} while the sessions end "
                f"({left} left)"
            )


def patterns(_: float) -> None:
    """One subscriber with 10,000 patterns."""
    for kind in ("one subscription", "10,000 subscriptions"):
        with Publisher("tcp://127.0.0.1:*") as publisher:
            texts = [f"pattern.{number}.*" for number in range(JOINING_PATTERNS)]
            began = time.perf_counter()
            with oz.subscriber.sync.Subscriber(publisher.endpoint) as subscriber:
                for one in [texts] if kind == "one subscription" else texts:
                    subscriber.subscribe(one)
                called = time.perf_counter() - began
                subscriber.wait_ready(timeout=PATIENCE)
                seconds = time.perf_counter() - began
                print(
                    f"{kind}: {JOINING_PATTERNS:,} patterns joined in {seconds:.2f} s ({called:.2f} s of calls)"
                )


SCENARIOS = {"fan-out": fan_out, "absence": absence, "death": death, "patterns": patterns}


def main() -> None:
    """Run the chosen scenarios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("scenarios", nargs="*", default=[*SCENARIOS])
    parser.add_argument("--scale", type=float, default=1.0)
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(machine.describe())
    for name in arguments.scenarios:
        print(f"{name}:")
        SCENARIOS[name](arguments.scale)


if __name__ == "__main__":
    main()
