"""How quickly a mesh of nodes is ready, and what it costs while nothing happens.

    python benchmarks/nodes.py [--nodes 5 20] [--seconds 10]

Each node is a process of its own, and so is the name server. Ready is when every node can speak with
every other both ways, counted from the moment at which all processes have imported oz and are told to
join. Idle is the processor time of a node, a second.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from multiprocessing.connection import Connection

import machine
from oz.services.nameserver import NameServer

import oz


def serve_names(pipe: Connection) -> None:
    """Be the name server."""
    with NameServer("tcp://127.0.0.1:*") as server:
        pipe.send(server.endpoint)
        server.run(lambda: server.stop() if pipe.poll() else None)


def run_node(pipe: Connection, server: str, directory: str, others: int) -> None:
    """Join on request. Send the time at which all peers are up, then the cost of a second of idleness."""
    pipe.send("imported")
    pipe.recv()
    with oz.Node(connect=server, options=oz.NodeOptions(directory=directory)) as node:
        node.subscribe("ask.me", handler=lambda one: one.payload, group="answering")
        node.wait_ready(count=others, timeout=60)
        pipe.send(time.monotonic())
        seconds = pipe.recv()
        before, began = time.process_time(), time.monotonic()
        time.sleep(seconds)
        pipe.send((time.process_time() - before) / (time.monotonic() - began))
        pipe.recv()


def mesh(count: int, seconds: float) -> None:
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
            multiprocessing.Process(target=run_node, args=arguments, daemon=True).start()
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
        for pipe in pipes:
            pipe.send("end")
        names.send("end")
        server.join(10)


def main(arguments: list[str] | None = None) -> None:
    """Measure meshes of some sizes."""
    multiprocessing.set_start_method("spawn", force=True)
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--nodes", type=int, nargs="*", default=[5, 20])
    options.add_argument("--seconds", type=float, default=10.0, help="of idleness")
    chosen = options.parse_args(arguments)
    print(machine.describe(), flush=True)
    for count in chosen.nodes:
        mesh(count, chosen.seconds)
    print(machine.describe())


if __name__ == "__main__":
    main()
