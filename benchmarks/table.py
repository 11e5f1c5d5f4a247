"""The table of benchmarks: oz beside pyzmq, C, nats-py and zenoh, in interleaved rounds.

    python benchmarks/table.py [--rounds 5] [--scale 1] [--json FILE] [--page] [NAME ...]

Every side runs once in each round, so that all meet the same machine. Publisher and subscribers are
processes of their own, free on the same cores, over tcp on the loopback; payloads of 100 bytes and 1,000
subjects. The settings of all sides lose nothing (see `rivals`). A missing message ends the
program. The faster a side, the more messages it gets, so that all run for about a second.

- `W1`: one to one, everything matches. `W2`: a leading wildcard, 1 of 100 messages matches. `W4`: one to
  four. `W5`: 10,000 patterns with a handler each, 1 to 3 of which match.
- `prefix`: oz on both sides with `filtering="prefix"`.
- Round trips of sockets. Requests of nodes, one after the other and 32 in flight; see `asking`.

`--page` measures the curves too, writes benchmarks/measured.json, and calls `draw`, which writes the plots and the
tables of docs/performance.md. With NAMEs only these sides and their rivals are measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import asking
import curves
import machine
import plain_sides
import rivals
import rows
import sides
import zmq
from running import Figures, flow, percentiles, round_trip
from sides import ALL, MANY, MANY_MATCHES, ONE_IN_100, Work

import oz
from oz.compiled import COMPILED
from oz.transport.certificates import new_key_pair, write_certificates, write_public

MEASURED = Path(__file__).with_name("measured.json")

# Its pattern does not match the last message, which another subscription is for.
_HANDLED = Work(ALL.subjects, ALL.patterns, "end")

IN_FLIGHT = 32

Side = Callable[[], Figures]


def turns(count: float) -> int:
    """Return a number of messages near this, a multiple of the number of subjects."""
    return max(1, round(count / 1000)) * 1000


def start_by(method: str) -> None:
    """Say how processes are started: "spawn" has an interpreter begin anew, which takes a while."""
    multiprocessing.set_start_method(method, force=True)


def in_python(side: Side) -> Figures:
    """Run a side of oz without its compiled part."""
    before = os.environ.get(COMPILED)
    os.environ[COMPILED] = "0"
    start_by("spawn")
    try:
        return side()
    finally:
        start_by("forkserver")
        del os.environ[COMPILED]
        if before is not None:
            os.environ[COMPILED] = before


def oz_sides(count: int) -> dict[str, Side]:
    """Name the sides of oz that only send and receive.

    Args:
        count: messages that pyzmq gets in a run.
    """

    def one(work: Work, times: float, subscriber: Side, subscribers: int = 1, **options: object) -> Side:
        publisher = partial(sides.publisher, work=work, subscribers=subscribers)
        return partial(flow, publisher, [subscriber] * subscribers, turns(times * count), **options)

    iteration = partial(sides.subscriber, patterns=ALL.patterns, end=ALL.end)
    rare = partial(sides.subscriber, patterns=ONE_IN_100.patterns, end=ONE_IN_100.end)
    batches = partial(sides.batches, work=ALL)
    return {
        "W1 handler": one(_HANDLED, 4, partial(sides.handlers, work=_HANDLED)),
        "W1 iteration": one(ALL, 4, iteration),
        "W1 batches": one(ALL, 5, batches),
        "W1 in Python": partial(in_python, one(_HANDLED, 2, partial(sides.handlers, work=_HANDLED))),
        "W2": one(ONE_IN_100, 12, rare, matches=1 / 100, published=True),
        "W4": one(ALL, 1.2, iteration, 4),
        "W4 batches": one(ALL, 1.5, batches, 4),
        "prefix": one(ALL, 1.5, partial(iteration, filtering="prefix")),
        "W5": one(MANY, 1, partial(sides.handlers, work=MANY), matches=MANY_MATCHES / len(MANY.subjects)),
        "W1 asyncio": partial(
            flow,
            partial(sides.async_publisher, work=ALL),
            [partial(sides.async_subscriber, work=ALL)],
            turns(2 * count),
        ),
        "round trip": partial(round_trip, sides.echo, sides.ping, count // 12),
    }


def pyzmq_sides(count: int) -> dict[str, Side]:
    """Name the sides of pyzmq alone."""
    publisher = partial(plain_sides.publisher, work=ALL)
    rare = partial(plain_sides.filter, suffix=b".s7", end=ONE_IN_100.end)
    return {
        "pyzmq": partial(flow, publisher, [plain_sides.subscriber], turns(count)),
        "pyzmq W2": partial(
            flow,
            partial(plain_sides.publisher, work=ONE_IN_100),
            [rare],
            turns(count),
            matches=1 / 100,
            published=True,
        ),
        "pyzmq W4": partial(
            flow, partial(publisher, subscribers=4), [plain_sides.subscriber] * 4, turns(count / 2)
        ),
        "pyzmq asyncio": partial(
            flow,
            partial(plain_sides.async_publisher, work=ALL),
            [plain_sides.async_subscriber],
            turns(count / 5),
        ),
        "pyzmq round trip": partial(round_trip, plain_sides.echo, plain_sides.ping, count // 12),
    }


def c_sides(count: int, program: str) -> dict[str, Side]:
    """Name the sides in C. `program` is the path of the compiled program."""

    def one(times: float, subscribers: int) -> Side:
        publisher = partial(rivals.c_publisher, program=program, subscribers=subscribers)
        subscriber = partial(rivals.c_subscriber, program=program)
        return partial(flow, publisher, [subscriber] * subscribers, turns(times * count))

    echo, ping = (partial(item, program=program) for item in (rivals.c_echo, rivals.c_ping))
    return {
        "C": one(8, 1),
        "C W4": one(2.5, 4),
        "C round trip": partial(round_trip, echo, ping, count // 12),
    }


def nats_sides(count: int, address: str, server: Callable[[], float]) -> dict[str, Side]:
    """Name the sides of nats-py; `server` gives the processor seconds of its server."""

    def one(work: Work, times: float, matches: float) -> Side:
        expected = round(turns(times * count) * matches)
        return partial(
            flow,
            partial(rivals.nats_publisher, work=work, address=address),
            [partial(rivals.nats_subscriber, work=work, expected=expected)],
            turns(times * count),
            matches=matches,
            server=server,
        )

    return {"nats-py W1": one(ALL, 0.4, 1), "nats-py W5": one(MANY, 0.2, MANY_MATCHES / len(MANY.subjects))}


def zenoh_sides(count: int) -> dict[str, Side]:
    """Name the sides of zenoh."""
    publisher, subscriber = (
        partial(item, work=ALL) for item in (rivals.zenoh_publisher, rivals.zenoh_subscriber)
    )
    return {"zenoh W1": partial(flow, publisher, [subscriber], turns(count))}


def secured(directory: Path, name: str) -> oz.Security:
    """Return the security of one side."""
    return oz.Security(directory / "keys" / f"{name}.key_secret", trusted=directory / "trusted")


def keyed_sides(count: int, directory: Path) -> dict[str, Side]:
    """Name the sides with keys, whose certificates are written into a directory."""
    (directory / "trusted").mkdir()
    for name in ("feed", "desk"):
        pair = new_key_pair()
        write_certificates(directory / "keys", name, pair)
        write_public(directory / "trusted", name, pair.public)
    publisher = partial(sides.publisher, work=_HANDLED, securing=partial(secured, directory, "feed"))
    subscriber = partial(sides.handlers, work=_HANDLED, securing=partial(secured, directory, "desk"))
    return {"W1 keys": partial(flow, publisher, [subscriber], turns(4 * count))}


def request(side: asking.Side, count: int, in_flight: int) -> Figures:
    """Send a number of requests."""
    asked, used = asking.measure(side, count, in_flight)
    number = len(asked.times)
    return Figures(number / asked.seconds, 1e6 * used / number, percentiles(asked.times))


def request_sides(count: int, left_out: dict[str, str]) -> dict[str, Side]:
    """Name the sides that ask and answer."""
    found: dict[str, Side] = {}
    for name, side in asking.SIDES.items():
        if side.needs not in left_out:
            found[name] = partial(request, side, count, 1)
            found[f"{name} {IN_FLIGHT}"] = partial(request, side, 4 * count, IN_FLIGHT)
    return found


@contextlib.contextmanager
def all_sides(scale: float) -> Iterator[dict[str, Side]]:
    """Return all sides whose library is installed; their servers run meanwhile."""
    count, left_out = turns(250_000 * scale), rivals.missing()
    found = oz_sides(count) | pyzmq_sides(count) | request_sides(max(100, int(1_000 * scale)), left_out)
    if not oz.__compiled__:
        del found["W1 in Python"]
    with contextlib.ExitStack() as stack:
        if zmq.has("curve"):
            found |= keyed_sides(count, Path(stack.enter_context(tempfile.TemporaryDirectory())))
        if "C" not in left_out:
            found |= c_sides(count, stack.enter_context(rivals.c_program()))
        if "nats" not in left_out:
            found |= nats_sides(count, *stack.enter_context(rivals.nats_server()))
        if "zenoh" not in left_out:
            found |= zenoh_sides(count)
        yield found


def shown_only(names: Sequence[str]) -> set[str]:
    """Return the sides of all rows, or of the rows with sides of these names."""
    chosen = [row for row in rows.ROWS if not names or row.ours in names]
    return {side for row in chosen for side in (row.ours, row.rival, row.c) if side}


def measure(sides_of: dict[str, Side], rounds: int) -> dict[str, list[dict[str, object]]]:
    """Run all sides in turn, once in each round."""
    found: dict[str, list[dict[str, object]]] = {}
    for turn in range(rounds):
        # The other way round each time: what runs before something else is not always the same.
        for name in list(sides_of)[:: -1 if turn % 2 else 1]:
            began = time.monotonic()
            figures = sides_of[name]()
            found.setdefault(name, []).append(figures._asdict())
            told = f"{name}, {figures.rate:,.0f}/s, {time.monotonic() - began:.1f} s"
            print(f"round {turn + 1} of {rounds}: {told}", file=sys.stderr, flush=True)
    return found


def as_lines(result: dict[str, object]) -> str:
    """Return JSON with a line for each run."""
    text = json.dumps(result, indent=1)
    # Only the two outer levels keep their lines.
    return re.sub(r"\n {4,}|\n {3}(?=[\]}])", "", text) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="sides of oz, by default all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1, help="of what is sent in a run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write what was measured")
    parser.add_argument("--page", action="store_true", help="write docs/performance.md and its plots anew")
    options = parser.parse_args(arguments)
    # The server of processes has imported all of this once.
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    start_by("forkserver")
    before = os.getloadavg()[0]
    with all_sides(options.scale) as found:
        wanted = shown_only(options.names)
        measured = measure({name: side for name, side in found.items() if name in wanted}, options.rounds)
    result = {
        "machine": machine.name(),
        "versions": machine.versions() | rivals.versions(),
        "missing": rivals.missing(),
        "compiled": oz.__compiled__,
        "rounds": options.rounds,
        "sides": measured,
        "curves": curves.measure(options.scale, options.rounds) if options.page else {},
        "load": [before, os.getloadavg()[0]],
    }
    print(rows.as_text(result))
    for path in (options.json, MEASURED if options.page else None):
        if path is not None:
            path.write_text(as_lines(result))
    if options.page:
        import draw

        draw.main([])


if __name__ == "__main__":
    main()
