"""What keys and permissions cost: processor time of publisher and subscriber for each message, one to one.

    python benchmarks/security.py [--messages 300000] [--rounds 5] [--size 100]

Without keys, with CURVE and one trusted key on each side, and with a file of permissions on both sides, in
turn, so that all meet the same machine. Each process is new. `join` is the time from making a subscriber to
the answer of its publisher, of 20 subscribers one after the other.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

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


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=100)
    given = parser.parse_args()
    print(machine.describe())
    with tempfile.TemporaryDirectory() as name:
        make_keys(Path(name))
        for filtering in FILTERINGS:
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
