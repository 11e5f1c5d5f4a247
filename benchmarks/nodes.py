"""How quickly a mesh of nodes is ready, what it costs while nothing happens, and how long a request takes.

    python benchmarks/nodes.py [--nodes 5 20] [--seconds 10] [--requests 2000]

Each node is a process of its own, and so is the name server. Ready is when every node can speak with
every other both ways, counted from the moment at which all processes have imported oz and are told to
join. Idle is the processor time of a node, a second. Requests go from one process to another, one after
the other; beside them are round trips of REQ and REP, pyzmq's own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from multiprocessing.connection import Connection

import machine
import zmq

import oz
from oz.services.nameserver import NameServer


def serve_names(pipe: Connection) -> None:
    """Be the name server."""
    with NameServer("tcp://127.0.0.1:*") as server:
        pipe.send(server.endpoint)
        server.run(lambda: server.stop() if pipe.poll() else None)


def be_a_node(pipe: Connection, nameserver: str, directory: str, others: int) -> None:
    """Join when told to; say when all are there, and what a second of idleness cost."""
    pipe.send("imported")
    pipe.recv()
    with oz.Node(nameserver=nameserver, directory=directory, join_timeout=60) as node:
        node.subscribe("ask.me", handler=lambda one: one.reply(one.payload), group="answering")
        node.wait_for_peers(others, timeout=60)
        node.wait_ready(timeout=60)
        pipe.send(time.monotonic())
        seconds = pipe.recv()
        before, began = time.process_time(), time.monotonic()
        time.sleep(seconds)
        pipe.send((time.process_time() - before) / (time.monotonic() - began))
        pipe.recv()


def mesh(count: int, seconds: float, requests: int) -> None:
    """Measure one mesh."""
    with tempfile.TemporaryDirectory(prefix="oz-", dir="/tmp") as directory:
        names, theirs = multiprocessing.Pipe()
        server = multiprocessing.Process(target=serve_names, args=(theirs,), daemon=True)
        server.start()
        endpoint = names.recv()
        pipes = []
        for _ in range(count):
            mine, its = multiprocessing.Pipe()
            arguments = (its, endpoint, f"{directory}/s", count - 1)
            multiprocessing.Process(target=be_a_node, args=arguments, daemon=True).start()
            pipes.append(mine)
        for pipe in pipes:
            pipe.recv()
        began = time.monotonic()
        for pipe in pipes:
            pipe.send("join")
        ready = max(pipe.recv() for pipe in pipes) - began
        for pipe in pipes:
            pipe.send(seconds)
        idle = [pipe.recv() for pipe in pipes]
        print(
            f"{count} nodes: ready after {ready:.2f} s; idle {1000 * statistics.median(idle):.1f} ms/s each "
            f"({1000 * min(idle):.1f} to {1000 * max(idle):.1f})",
            flush=True,
        )
        if requests:
            ask(endpoint, f"{directory}/s", requests)
        for pipe in pipes:
            pipe.send("end")
        names.send("end")
        server.join(10)


def ask(nameserver: str, directory: str, requests: int) -> None:
    """Measure requests beside round trips of pyzmq, in turn."""
    mine, its = multiprocessing.Pipe()
    multiprocessing.Process(target=answer_plainly, args=(its,), daemon=True).start()
    with oz.Node(nameserver=nameserver, directory=directory) as node, zmq.Context() as context:
        node.wait_ready(timeout=60)
        with context.socket(zmq.REQ) as plain:
            plain.connect(mine.recv())
            ours: list[float] = []
            theirs: list[float] = []
            for _ in range(requests):
                began = time.perf_counter()
                node.request("ask.me", b"x", timeout=10)
                ours.append(time.perf_counter() - began)
                began = time.perf_counter()
                plain.send(b"x")
                plain.recv()
                theirs.append(time.perf_counter() - began)
            plain.send(b"end")
            plain.recv()
    cut = [1e6 * statistics.quantiles(one, n=100)[at] for at in (49, 98) for one in (ours, theirs)]
    print(
        f"a request: median {cut[0]:.0f} µs beside {cut[1]:.0f} µs of REQ and REP, "
        f"99th percentile {cut[2]:.0f} µs beside {cut[3]:.0f} µs",
        flush=True,
    )


def answer_plainly(pipe: Connection) -> None:
    """Answer on a REP socket."""
    with zmq.Context() as context, context.socket(zmq.REP) as socket:
        socket.bind("tcp://127.0.0.1:*")
        pipe.send(socket.getsockopt_string(zmq.LAST_ENDPOINT))
        payload = b""
        while payload != b"end":
            payload = socket.recv()
            socket.send(payload)


def main(arguments: list[str] | None = None) -> None:
    """Measure meshes of some sizes."""
    multiprocessing.set_start_method("spawn", force=True)
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--nodes", type=int, nargs="+", default=[5, 20])
    options.add_argument("--seconds", type=float, default=10.0, help="of idleness")
    options.add_argument("--requests", type=int, default=2_000)
    chosen = options.parse_args(arguments)
    print(machine.describe(), flush=True)
    for place, count in enumerate(chosen.nodes):
        mesh(count, chosen.seconds, 0 if place else chosen.requests)
    print(machine.describe())


if __name__ == "__main__":
    main()
