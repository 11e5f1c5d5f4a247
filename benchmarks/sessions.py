"""One publisher with many subscribers: time to join, deliveries, and processor time of idle links.

python benchmarks/sessions.py [--subscribers 1000] [--processes 8] [--messages 300] [--idle 10]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import time
from multiprocessing.connection import Connection

import machine

import oz
import oz.asyncio

PATIENCE = 180.0  # seconds


def subscribe(pipe: Connection, endpoint: str, count: int, messages: int) -> None:
    """Join with subscribers, receive the messages, and return the processor time of an idle while."""
    asyncio.run(_subscribe(pipe, endpoint, count, messages))


async def _subscribe(pipe: Connection, endpoint: str, count: int, messages: int) -> None:
    subscribers = [oz.asyncio.Subscriber(endpoint, filtering="publisher") for _ in range(count)]
    pipe.send("started")
    await asyncio.to_thread(pipe.recv)
    for item in subscribers:
        item.subscribe("a.*")
    await asyncio.gather(*(item.wait_ready(timeout=PATIENCE) for item in subscribers))
    pipe.send("ready")
    idle = await asyncio.to_thread(pipe.recv)

    async def wait(subscriber: oz.asyncio.Subscriber, seconds: float) -> None:
        try:
            await subscriber.receive(timeout=seconds)
        except oz.Timeout:
            return

    used = time.process_time()
    await asyncio.gather(*(wait(item, idle) for item in subscribers))
    pipe.send(time.process_time() - used)

    async def receive(subscriber: oz.asyncio.Subscriber) -> int:
        found = 0
        while found < messages:
            found += len(await subscriber.receive_many(timeout=PATIENCE))
        return subscriber.stats.lost

    pipe.send(sum(await asyncio.gather(*(receive(item) for item in subscribers))))
    for item in subscribers:
        await item.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--subscribers", type=int, default=1_000)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--messages", type=int, default=300)
    parser.add_argument("--idle", type=float, default=10.0, metavar="SECONDS")
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    print(machine.describe())
    with oz.Publisher("tcp://127.0.0.1:*", on_full="block") as publisher:
        share, pipes = given.subscribers // given.processes, []
        for _ in range(given.processes):
            ours, theirs = context.Pipe()
            arguments = (theirs, publisher.endpoint, share, given.messages)
            context.Process(target=subscribe, args=arguments, daemon=True).start()
            pipes.append(ours)

        def ask(value: object) -> list[object]:
            for pipe in pipes:
                pipe.send(value)
            return [pipe.recv() for pipe in pipes]

        for pipe in pipes:
            pipe.recv()
        began = time.perf_counter()
        ask("join")
        print(f"{share * given.processes:,} subscribers joined in {time.perf_counter() - began:.2f} s")
        used = time.process_time()
        theirs_used = sum(map(float, ask(given.idle)))
        shares = [100 * seconds / given.idle for seconds in (time.process_time() - used, theirs_used)]
        print(f"idle: {shares[0]:.2f}% of a core for the publisher, {shares[1]:.2f}% for all subscribers")
        began, used = time.perf_counter(), time.process_time()
        for number in range(given.messages):
            publisher.publish(f"a.{number % 100}", b"x" * 64)
        publisher.flush()
        lost = sum(int(pipe.recv()) for pipe in pipes)
        seconds, used = time.perf_counter() - began, time.process_time() - used
        deliveries = given.messages * share * given.processes
        print(
            f"{deliveries / seconds:,.0f} deliveries/s, {1e6 * used / given.messages:.0f} µs of the publisher's"
        )
        print(f"processor for each message, {lost} lost")


if __name__ == "__main__":
    main()
