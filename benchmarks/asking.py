"""Requests of oz beside REQ and REP, nats-py through its server, and queryables of zenoh, for table.py.

Requester, responder and server are separate processes. The sides run in turn, with one request and with several
requests in flight. The processor time counts all processes.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import rivals
import zmq

import oz
import oz.asyncio

PAYLOAD = b"x" * 100
SUBJECT = "ask.me"
TIMEOUT = 60.0
WARM = 200


class Asked(NamedTuple):
    """Seconds of each request, and of all requests together."""

    times: list[float]
    seconds: float


# asking in threads, and in tasks ---------------------------------------------------------------------------


def in_threads(ask: Callable[[], object], count: int, in_flight: int) -> Asked:
    """Send a number of requests, with a thread for each request in flight."""
    times: list[float] = []

    def run() -> None:
        for _ in range(count // in_flight):
            began = time.perf_counter()
            ask()
            times.append(time.perf_counter() - began)

    threads = [threading.Thread(target=run) for _ in range(in_flight)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Asked(times, time.perf_counter() - began)


async def in_tasks(ask: Callable[[], Awaitable[object]], count: int, in_flight: int) -> Asked:
    """Do the same in tasks of one loop."""
    times: list[float] = []

    async def run() -> None:
        for _ in range(count // in_flight):
            began = time.perf_counter()
            await ask()
            times.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(run() for _ in range(in_flight)))
    return Asked(times, time.perf_counter() - began)


def measure_threads(pipe: Connection, ask: Callable[[], object], count: int, in_flight: int) -> None:
    """Send requests after a message in the pipe, and send the times back."""
    in_threads(ask, WARM, 1)
    pipe.send("ready")
    pipe.recv()
    used = time.process_time()
    asked = in_threads(ask, count, in_flight)
    pipe.send((asked, time.process_time() - used))


async def measure_tasks(
    pipe: Connection, ask: Callable[[], Awaitable[object]], count: int, in_flight: int
) -> None:
    """Do the same in a loop."""
    await in_tasks(ask, WARM, 1)
    pipe.send("ready")
    pipe.recv()
    used = time.process_time()
    asked = await in_tasks(ask, count, in_flight)
    pipe.send((asked, time.process_time() - used))


def report(pipe: Connection) -> None:
    """Print the processor time of this process for each line of stdin, until the end."""
    while pipe.recv() != "end":
        pipe.send(time.process_time())


# REQ and REP ---------------------------------------------------------------------------------------------


def answer_plainly(pipe: Connection, place: str) -> None:
    """Answer on a REP socket."""
    with zmq.Context() as context, context.socket(zmq.REP) as rep:
        rep.bind(f"ipc://{place}/rep")
        threading.Thread(target=report, args=(pipe,), daemon=True).start()
        pipe.send("ready")
        while True:
            rep.send(rep.recv())


def ask_plainly(pipe: Connection, place: str, count: int, in_flight: int) -> None:
    """Ask by REQ sockets, one for each thread."""
    mine = threading.local()
    with zmq.Context() as context:

        def ask() -> None:
            if not hasattr(mine, "req"):
                mine.req = context.socket(zmq.REQ)
                mine.req.connect(f"ipc://{place}/rep")
            mine.req.send(PAYLOAD)
            mine.req.recv()

        measure_threads(pipe, ask, count, in_flight)
        context.destroy(linger=0)


# oz ------------------------------------------------------------------------------------------------------


def _echo(message: oz.Message) -> Any:
    return message.payload


async def _echo_async(message: oz.Message) -> Any:
    return message.payload


def _options(place: str) -> oz.NodeOptions:
    return oz.NodeOptions(directory=f"{place}/s")


def answer(pipe: Connection, place: str, *, inline: bool = False) -> None:
    """Answer as a node."""
    with oz.Node("answers", options=_options(place)) as node:
        node.subscribe(SUBJECT, handler=_echo, delivery=oz.Delivery(inline=inline))
        pipe.send("ready")
        report(pipe)


def answer_inline(pipe: Connection, place: str) -> None:
    """Answer as a node, on its own thread."""
    answer(pipe, place, inline=True)


def ask(pipe: Connection, place: str, count: int, in_flight: int) -> None:
    """Ask as a node."""
    with oz.Node("asks", options=_options(place)) as node:
        node.wait_ready("answers", subscriber=SUBJECT, timeout=TIMEOUT)
        measure_threads(pipe, lambda: node.request(SUBJECT, PAYLOAD, timeout=TIMEOUT), count, in_flight)


def answer_in_loop(pipe: Connection, place: str, *, inline: bool = False) -> None:
    """Answer as a node of asyncio."""

    async def main() -> None:
        async with oz.asyncio.Node("answers", options=_options(place)) as node:
            handler = _echo if inline else _echo_async
            node.subscribe(SUBJECT, handler=handler, delivery=oz.Delivery(inline=inline))
            pipe.send("ready")
            await asyncio.to_thread(report, pipe)

    asyncio.run(main())


def answer_in_loop_inline(pipe: Connection, place: str) -> None:
    """Answer as a node of asyncio, in no task."""
    answer_in_loop(pipe, place, inline=True)


def ask_in_loop(pipe: Connection, place: str, count: int, in_flight: int) -> None:
    """Ask as a node of asyncio."""

    async def main() -> None:
        async with oz.asyncio.Node("asks", options=_options(place)) as node:
            await node.wait_ready("answers", subscriber=SUBJECT, timeout=TIMEOUT)
            await measure_tasks(
                pipe, lambda: node.request(SUBJECT, PAYLOAD, timeout=TIMEOUT), count, in_flight
            )

    asyncio.run(main())


# nats-py -------------------------------------------------------------------------------------------------


def answer_by_nats(pipe: Connection, place: str) -> None:
    """Run the server and answer beside it. The processor time of the server counts."""
    import nats

    with rivals.nats_server() as (address, spent):
        Path(place, "nats").write_text(address)

        def report_both() -> None:
            while pipe.recv() != "end":
                pipe.send(time.process_time() + spent())

        async def main() -> None:
            async def echo(message: Any) -> None:
                await message.respond(message.data)

            client = await nats.connect(address)
            await client.subscribe(SUBJECT, cb=echo)
            await client.flush()
            pipe.send("ready")
            await asyncio.to_thread(report_both)
            await client.close()

        asyncio.run(main())


def ask_by_nats(pipe: Connection, place: str, count: int, in_flight: int) -> None:
    """Ask by nats-py."""
    import nats

    async def main() -> None:
        client = await nats.connect(Path(place, "nats").read_text())
        await measure_tasks(pipe, lambda: client.request(SUBJECT, PAYLOAD, timeout=TIMEOUT), count, in_flight)
        await client.close()

    asyncio.run(main())


# zenoh ---------------------------------------------------------------------------------------------------


def answer_by_zenoh(pipe: Connection, place: str) -> None:
    """Answer as a queryable."""
    endpoint = rivals.free_endpoint()
    Path(place, "zenoh").write_text(endpoint)
    with rivals.zenoh_session(listen=endpoint) as session:
        session.declare_queryable("ask/me", lambda query: query.reply("ask/me", query.payload))
        pipe.send("ready")
        report(pipe)


def ask_by_zenoh(pipe: Connection, place: str, count: int, in_flight: int) -> None:
    """Ask by `get`."""
    with rivals.zenoh_session(connect=Path(place, "zenoh").read_text()) as session:

        def ask() -> bool:
            return any(True for _ in session.get("ask/me", payload=PAYLOAD, timeout=TIMEOUT))

        ends = time.monotonic() + TIMEOUT
        while not ask():
            if time.monotonic() > ends:
                raise TimeoutError("zenoh finds no queryable")
        measure_threads(pipe, ask, count, in_flight)


# all of them ---------------------------------------------------------------------------------------------


class Side(NamedTuple):
    """One way to ask and to answer, each run in a process of its own."""

    answers: Callable[[Connection, str], None]
    asks: Callable[[Connection, str, int, int], None]
    needs: str = ""


SIDES = {
    "REQ, REP": Side(answer_plainly, ask_plainly),
    "oz": Side(answer, ask),
    "oz, inline": Side(answer_inline, ask),
    "oz.asyncio": Side(answer_in_loop, ask_in_loop),
    "oz.asyncio, inline": Side(answer_in_loop_inline, ask_in_loop),
    "nats-py": Side(answer_by_nats, ask_by_nats, "nats"),
    "zenoh": Side(answer_by_zenoh, ask_by_zenoh, "zenoh"),
}


@contextmanager
def answering(side: Side, place: str) -> Iterator[Connection]:
    """Run a responder."""
    mine, its = multiprocessing.Pipe()
    process = multiprocessing.Process(target=side.answers, args=(its, place))
    process.start()
    mine.recv()
    try:
        yield mine
    finally:
        mine.send("end")
        process.join(5)
        process.terminate()
        process.join()


def measure(side: Side, count: int, in_flight: int) -> tuple[Asked, float]:
    """Send a number of requests; return their times and the processor seconds of all processes."""
    with tempfile.TemporaryDirectory(prefix="oz-", dir="/tmp") as place, answering(side, place) as answers:
        mine, its = multiprocessing.Pipe()
        process = multiprocessing.Process(target=side.asks, args=(its, place, count, in_flight))
        process.start()
        mine.recv()
        answers.send("?")
        before = answers.recv()
        mine.send("go")
        asked, used = mine.recv()
        answers.send("?")
        used += answers.recv() - before
        process.join()
    return asked, used
