"""What keys and permissions cost: processor time of publisher and subscriber for each message, one to one.

    python benchmarks/security.py [--messages 300000] [--rounds 5] [--size 100] [--nodes 60] [--only nodes]

Without keys, with CURVE and one trusted key on each side, and with a file of permissions on both sides, in
turn, so that all meet the same machine. Each process is new. `join` is the time from making a subscriber to
the answer of its publisher, of 20 subscribers one after the other.

Between two nodes the same is measured. And so many nodes with a key each, in one process, join a bus by one
of them, over TCP: seconds, and processor seconds, until each has a link to each.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import statistics
import tempfile
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import machine

import oz
from oz.transport.certificates import new_key_pair, write_certificates, write_public

KINDS = ("plain", "keys", "permissions")
FILTERINGS = ("publisher", "prefix")
_JOINS = 20


def make_keys(directory: Path) -> None:
    """Write two certificates, which trust each other, and permissions for both."""
    pairs = {name: new_key_pair() for name in ("feed", "desk")}
    (directory / "trusted").mkdir()
    for name, pair in pairs.items():
        write_certificates(directory / "keys", name, pair)
        write_public(directory / "trusted", name, pair.public)
    lines = (
        "[users.feed]",
        f"key = '{pairs['feed'].public}'",
        "publish = { allow = ['md.>'], deny = ['orders.secret.>'] }",
        "[users.desk]",
        f"key = '{pairs['desk'].public}'",
        "subscribe = { allow = ['md.>'], deny = ['orders.>'] }",
    )
    (directory / "permissions.toml").write_text("\n".join(lines))


def security(kind: str, name: str, directory: Path) -> oz.Security | None:
    """Make the security of one side."""
    if kind == "plain":
        return None
    permissions = directory / "permissions.toml" if kind == "permissions" else None
    return oz.Security(
        directory / "keys" / f"{name}.key_secret", trusted=directory / "trusted", permissions=permissions
    )


def publish(pipe: Connection, kind: str, directory: Path, count: int, size: int) -> None:
    """Publish so many messages, waiting for room; tells the endpoint, and the processor seconds."""
    subjects, payload = [f"md.{number}" for number in range(1_000)], b"x" * size
    given = security(kind, "feed", directory)
    with oz.Publisher("tcp://127.0.0.1:*", on_full="block", security=given) as pub:
        pipe.send(pub.endpoint)
        pipe.recv()
        used = time.process_time()
        for number in range(count):
            pub.publish(subjects[number % 1_000], payload)
        pub.flush()
        pipe.recv()
        pipe.send(time.process_time() - used)


def measure(kind: str, filtering: str, directory: Path, count: int, size: int) -> tuple[float, float]:
    """Return the microseconds of both processors for each message, and milliseconds to join."""
    ours, theirs = multiprocessing.Pipe()
    publisher = multiprocessing.Process(target=publish, args=(theirs, kind, directory, count, size))
    publisher.start()
    endpoint, given = ours.recv(), security(kind, "desk", directory)
    joins = []
    if filtering == "publisher":
        for _ in range(_JOINS):
            began = time.perf_counter()
            with oz.Subscriber(endpoint, filtering="publisher", security=given) as joining:
                joining.subscribe("md.*")
                joining.wait_ready(60)
                joins.append(1000 * (time.perf_counter() - began))
    with oz.Subscriber(endpoint, filtering=filtering, security=given) as sub:
        sub.subscribe("md.*")
        if filtering == "publisher":
            sub.wait_ready(60)
        time.sleep(0.5)  # a plain publisher says nothing when it knows of a subscriber
        ours.send("begin")
        used, got = time.process_time(), 0
        while got < count:
            got += len(sub.receive_many(timeout=60))
        used = time.process_time() - used
        ours.send("end")
        both = used + ours.recv()
    publisher.join()
    return 1e6 * both / count, statistics.median(joins) if joins else 0.0


def publish_by_node(pipe: Connection, kind: str, directory: Path, count: int, size: int) -> None:
    """Publish so many messages by a node; tells the endpoint, and the processor seconds."""
    subjects, payload = [f"md.{number}" for number in range(1_000)], b"x" * size
    options: dict[str, Any] = {"bind": "tcp://127.0.0.1:*", "codec": None, "on_full": "block"}
    with oz.Node(
        "feed", directory=directory / "a", security=security(kind, "feed", directory), **options
    ) as node:
        pipe.send(node.endpoint)
        pipe.recv()
        used = time.process_time()
        for number in range(count):
            node.publish(subjects[number % 1_000], payload)
        pipe.recv()
        pipe.send(time.process_time() - used)


def measure_nodes(kind: str, directory: Path, count: int, size: int) -> float:
    """Return the microseconds of both processors for each message between two nodes."""
    ours, theirs = multiprocessing.Pipe()
    publisher = multiprocessing.Process(target=publish_by_node, args=(theirs, kind, directory, count, size))
    publisher.start()
    endpoint, got, is_all = ours.recv(), 0, threading.Event()

    def take(_: oz.Message) -> None:
        nonlocal got
        got += 1
        if got == count:
            is_all.set()

    options: dict[str, Any] = {"peers": endpoint, "codec": None, "directory": directory / "b"}
    with oz.Node("desk", security=security(kind, "desk", directory), **options) as node:
        node.wait_for_peers("feed", 60)
        node.subscribe("md.*", handler=take, overflow="drop_newest", max_pending=count)
        node.wait_ready(60)
        used = time.process_time()
        ours.send("begin")
        assert is_all.wait(120), f"only {got} of {count} came"
        used = time.process_time() - used
        ours.send("end")
        both = used + ours.recv()
    publisher.join()
    return 1e6 * both / count


def join(is_keyed: bool, directory: Path, count: int) -> tuple[float, float]:
    """Return the seconds, and the processor seconds, in which so many nodes join a bus."""
    keys, trusted = directory / f"bus-{count}", directory / f"bus-{count}-trusted"
    if is_keyed and not trusted.exists():
        trusted.mkdir()
        for number in range(count):
            pair = new_key_pair()
            write_certificates(keys, f"n{number}", pair)
            write_public(trusted, f"n{number}", pair.public)
    given = [
        oz.Security(keys / f"n{number}.key_secret", trusted=trusted) if is_keyed else None
        for number in range(count)
    ]
    began, used = time.perf_counter(), time.process_time()
    with contextlib.ExitStack() as stack:
        nodes: list[oz.Node] = []
        for number in range(count):
            options: dict[str, Any] = {"bind": "tcp://127.0.0.1:*", "directory": directory / f"d{number}"}
            if nodes:
                options["peers"] = nodes[0].endpoint
            node = oz.Node(f"n{number}", security=given[number], threads=1, **options)
            nodes.append(stack.enter_context(node))
        for one in nodes:
            one.wait_for_peers(count - 1, 300)
        return time.perf_counter() - began, time.process_time() - used


def print_nodes(directory: Path, count: int, size: int, rounds: int, nodes: int) -> None:
    """Print what keys cost nodes."""
    taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind in KINDS:
            taken[kind].append(measure_nodes(kind, directory, count, size))
    print("nodes: processor µs a message, beside plain")
    for kind in KINDS:
        ratios = [one / other for one, other in zip(taken[kind], taken["plain"], strict=True)]
        print(f"  {kind:12} {machine.spread(taken[kind])}  {machine.spread(ratios)}")
    for _ in range(rounds if nodes else 0):
        for is_keyed in (False, True):
            seconds, used = join(is_keyed, directory, nodes)
            print(f"  {nodes} nodes {'with' if is_keyed else 'without'} keys joined: {seconds:.1f} s, "
                  f"{used:.1f} s of processor", flush=True)  # fmt: skip


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=60)
    parser.add_argument("--only", choices=["nodes"])
    given = parser.parse_args()
    print(machine.describe())
    with tempfile.TemporaryDirectory(prefix="oz-", dir="/tmp") as name:
        make_keys(Path(name))
        print_nodes(Path(name), given.messages, given.size, given.rounds, given.nodes)
        for filtering in () if given.only else FILTERINGS:
            taken: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
            for _ in range(given.rounds):
                for kind in KINDS:
                    taken[kind].append(measure(kind, filtering, Path(name), given.messages, given.size))
            plain = [one for one, _ in taken["plain"]]
            print(f"{filtering}: processor µs a message, beside plain, ms to join")
            for kind in KINDS:
                costs = [one for one, _ in taken[kind]]
                ratios = [one / other for one, other in zip(costs, plain, strict=True)]
                joins = machine.spread([join for _, join in taken[kind]])
                print(f"  {kind:12} {machine.spread(costs)}  {machine.spread(ratios)}  {joins}")
    print(machine.describe())


if __name__ == "__main__":
    main()
