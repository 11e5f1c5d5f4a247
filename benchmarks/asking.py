"""Requests of oz beside REQ and REP, nats-py through its server, and zenoh's queryables: for table.py.

Who asks, who answers and a server are processes of their own. Each is measured in turn, one request after the
other and several in flight, and its processor time counts in all of them.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import zmq

import oz
import oz.asyncio

PAYLOAD = b"x" * 100
SUBJECT = "ask.me"
TIMEOUT = 60.0
WARM = 200


class Asked(NamedTuple):
    """What became of some requests: seconds of each, and of all of them."""

    times: list[float]
    seconds: float


# asking in threads, and in tasks ---------------------------------------------------------------------------


def in_threads(ask: Callable[[], object], count: int, in_flight: int) -> Asked:
    """Ask so many times, in as many threads as requests are in flight."""
    times: list[float] = []

    def run() -> None:
        for _ in range(count // in_flight):
            began = time.perf_counter()
            ask()
            times.append(time.perf_counter() - began)

    threads = [threading.Thread(target=run) for _ in range(in_flight)]
    began = time.perf_counter()
    for one in threads:
        one.start()
    for one in threads:
        one.join()
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
    """Ask when told to, and tell what became of it."""
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
    """Tell the processor time of this process whenever it is asked for, until the end."""
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


def free_port() -> int:
    """Find a port that nobody has."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


async def _nats(place: str) -> Any:
    import nats

    ends = time.monotonic() + TIMEOUT
    while True:
        try:
            return await nats.connect(Path(place, "nats").read_text(), allow_reconnect=False)
        except (OSError, nats.errors.NoServersError):
            if time.monotonic() > ends:
                raise
            await asyncio.sleep(0.05)


def answer_by_nats(pipe: Connection, place: str) -> None:
    """Be the server, and answer beside it; its processor time counts."""
    import psutil

    found = shutil.which("nats-server") or str(Path(sys.executable).with_name("nats-server"))
    port = free_port()
    Path(place, "nats").write_text(f"nats://127.0.0.1:{port}")
    server = subprocess.Popen([found, "-a", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL)

    def report_both() -> None:
        while pipe.recv() != "end":
            spent = psutil.Process(server.pid).cpu_times()
            pipe.send(time.process_time() + spent.user + spent.system)

    async def main() -> None:
        async def echo(message: Any) -> None:
            await message.respond(message.data)

        client = await _nats(place)
        await client.subscribe(SUBJECT, cb=echo)
        await client.flush()
        pipe.send("ready")
        await asyncio.to_thread(report_both)
        await client.close()

    try:
        asyncio.run(main())
    finally:
        server.terminate()
        server.wait()


def ask_by_nats(pipe: Connection, place: str, count: int, in_flight: int) -> None:
    """Ask by nats-py."""

    async def main() -> None:
        client = await _nats(place)
        await measure_tasks(pipe, lambda: client.request(SUBJECT, PAYLOAD, timeout=TIMEOUT), count, in_flight)
        await client.close()

    asyncio.run(main())


# zenoh ---------------------------------------------------------------------------------------------------


def _zenoh(**endpoints: str) -> Any:
    import zenoh

    config = zenoh.Config()
    config.insert_json5("mode", '"peer"')
    config.insert_json5("scouting/multicast/enabled", "false")
    for kind, endpoint in endpoints.items():
        config.insert_json5(f"{kind}/endpoints", json.dumps([endpoint]))
    return zenoh.open(config)


def answer_by_zenoh(pipe: Connection, place: str) -> None:
    """Answer as a queryable."""
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    Path(place, "zenoh").write_text(endpoint)
    with _zenoh(listen=endpoint) as session:
        session.declare_queryable("ask/me", lambda query: query.reply("ask/me", query.payload))
        pipe.send("ready")
        report(pipe)


def ask_by_zenoh(pipe: Connection, place: str, count: int, in_flight: int) -> None:
    """Ask by `get`."""
    with _zenoh(connect=Path(place, "zenoh").read_text()) as session:

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
    """Have somebody answer."""
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
    """Ask so many times; give the processor seconds of all processes too."""
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
