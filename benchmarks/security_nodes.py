"""Nodes with keys, and clients of nats-py, as programs that `security` measures: they talk, and they join."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import rivals
from running import Figures, processor_seconds
from sides import LOOPBACK, PAYLOAD, SUBJECTS, Securing, Tally

import oz
from oz.transport.certificates import new_key_pair, write_certificates, write_public

IN_ONE = 10
"""Nodes of one process, whose threads wait for each other; docs/decisions/046-patience-with-a-crowd.md."""

JOINED_AFTER = 300
"""Seconds in which all must have joined."""

_numbers = itertools.count()


def publish(pipe: Connection, count: int, directory: Path, securing: Securing) -> None:
    """Publish by a node."""
    turn = len(SUBJECTS)
    options: dict[str, Any] = {"bind": LOOPBACK, "codec": None, "on_full": "block"}
    place = oz.NodeOptions(directory=directory / "a")
    with oz.Node("feed", security=securing(), options=place, **options) as node:
        pipe.send(node.endpoint)
        node.wait_for_subscribers(SUBJECTS[0], timeout=60)
        pipe.recv()
        for number in range(count):
            node.publish(SUBJECTS[number % turn], PAYLOAD)
        pipe.recv()


def subscribe(
    endpoint: str, begin: Callable[[], object], directory: Path, count: int, securing: Securing
) -> tuple[int, float, float]:
    """Take so many messages by a handler of a node."""
    tally, is_all = Tally(), threading.Event()

    def take(message: oz.Message) -> None:
        tally.count(message)
        if tally.got == count:
            is_all.set()

    place = oz.NodeOptions(directory=directory / "b")
    with oz.Node("desk", connect=endpoint, codec=None, security=securing(), options=place) as node:
        node.wait_ready("feed", timeout=60)
        node.subscribe(
            "md.*.*", handler=take, overflow="drop_newest", delivery=oz.Delivery(max_pending=count)
        )
        node.wait_ready(timeout=60)
        begin()
        is_all.wait(60)
        return tally.stop()


# joining -------------------------------------------------------------------------------------------------


def make_keys(directory: Path, count: int) -> None:
    """Write certificates for so many nodes, which trust each other."""
    trusted = directory / "bus-trusted"
    trusted.mkdir()
    for number in range(count):
        pair = new_key_pair()
        write_certificates(directory / "bus", f"n{number}", pair)
        write_public(trusted, f"n{number}", pair.public)


def join(count: int, directory: Path, is_keyed: bool) -> Figures:
    """Have so many nodes join by the first of them, until each has a link to each."""
    turn = next(_numbers)
    given = [(number, count, directory, is_keyed, turn) for number in range(0, count, IN_ONE)]
    return _join(_join_nodes, given, count)


def join_nats(count: int, address: str, certificate: str, server: Callable[[], float]) -> Figures:
    """Have so many clients of nats-py connect and subscribe, until the server has answered each."""
    given = [
        (min(IN_ONE, count - number), address, certificate, number) for number in range(0, count, IN_ONE)
    ]
    return _join(_join_clients, given, count, server)


def _join(
    program: Callable[..., None],
    given: Sequence[tuple[Any, ...]],
    count: int,
    server: Callable[[], float] = float,
) -> Figures:
    """Run programs that join at once; give milliseconds of processor, and how many a second have joined."""
    pipes = [multiprocessing.Pipe() for _ in given]
    processes = [
        multiprocessing.Process(target=program, args=(theirs, *one), daemon=True)
        for (_, theirs), one in zip(pipes, given, strict=True)
    ]
    for process in processes:
        process.start()
    ours = [one for one, _ in pipes]
    endpoint, *_ = [one.recv() for one in ours]
    before, began = server(), time.monotonic()
    for one in ours:
        one.send(endpoint)
    used = sum(one.recv() for one in ours)
    seconds = time.monotonic() - began
    used += server() - before
    for one in ours:
        one.send("end")
    for process in processes:
        process.join()
    return Figures(count / seconds, 1e3 * used / count, [])


def _join_nodes(
    pipe: Connection, number: int, count: int, directory: Path, is_keyed: bool, turn: int
) -> None:
    """Begin up to ten nodes, the first of all of which the others join by, and say what they have used."""
    numbers = range(number, min(number + IN_ONE, count))
    keys, trusted = directory / "bus", directory / "bus-trusted"
    with contextlib.ExitStack() as stack:

        def begin(one: int, peers: Sequence[str]) -> oz.Node:
            security = oz.Security(keys / f"n{one}.key_secret", trusted=trusted) if is_keyed else None
            place = oz.NodeOptions(directory=directory / f"j{turn}-{one}", threads=1)
            node = oz.Node(f"n{one}", bind=LOOPBACK, connect=peers, security=security, options=place)
            return stack.enter_context(node)

        used = processor_seconds()
        nodes = [] if number else [begin(0, [])]
        pipe.send(nodes[0].endpoint if nodes else "")
        endpoint = pipe.recv()
        nodes += [begin(one, [endpoint]) for one in numbers if one]
        for node in nodes:
            node.wait_ready(count=count - 1, timeout=JOINED_AFTER)
        pipe.send(processor_seconds() - used)
        pipe.recv()


def _join_clients(pipe: Connection, count: int, address: str, certificate: str, number: int) -> None:
    """Connect clients of nats-py, and say what they have used."""

    async def join_all() -> None:
        pipe.send("")
        pipe.recv()
        used, clients = processor_seconds(), []
        for one in range(count):
            clients.append(client := await rivals.nats_client(address, certificate))
            await client.subscribe(f"md.{number + one}.>")
            await client.flush()
        pipe.send(processor_seconds() - used)
        pipe.recv()
        for client in clients:
            await client.close()

    asyncio.run(join_all())
