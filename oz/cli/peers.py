"""`oz peers`: who is on the bus."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from math import inf
from typing import Any

import click

import oz
from oz.cli.exits import NOBODY
from oz.cli.joining import configured, joined, joining_options, say_ready
from oz.cli.options import Number
from oz.cli.output import plain_table, say, write_json, write_line
from oz.cli.waiting import listening
from oz.escaping import json_text, printable
from oz.wire.announcement import Announcement

_HELP = """Show the nodes of the bus: name, host, process, age and endpoints.

With name servers, given or configured, it asks them and does not join. A name server knows all nodes one or two
seconds after its start. Without name servers it joins the bus for a moment and shows its peers. --all shows the
nodes of every bus, and needs a name server.

--watch joins and stays until Ctrl-C. It prints a line for each node that is there, comes up, has left or is
lost. --json prints a list of objects; with --watch one object a line, with "event".

It exits 3 without a node.

\b
Examples:
  oz peers
  oz peers --nameserver tcp://192.0.2.7:5756 --bus trading --json | jq -r '.[].name'
  oz peers --watch
"""


@click.command(help=_HELP, short_help="Show the nodes of the bus.")
@click.option("--all", "is_all", is_flag=True, help="The nodes of all buses.")
@click.option("--watch", is_flag=True, help="Stay, and show nodes that come and go.")
@click.option("-j", "--json", "as_json", is_flag=True, help="Write JSON.")
@click.option("-t", "--timeout", type=Number(0, 3_600), default=2.0, metavar="SECONDS",
              help="Time for name servers and nodes to answer.  [default: 2]")  # fmt: skip
@joining_options
@click.pass_context
def peers(
    ctx: click.Context, /, is_all: bool, watch: bool, as_json: bool, timeout: float, **joining: Any
) -> None:
    """Show them; the text of the help is `_HELP`."""
    found = configured(joining)
    if is_all and (watch or not found.nameserver):
        raise click.UsageError("--all: only name servers know other buses, so give --nameserver, no --watch")
    if watch:
        _watch(ctx, joining, as_json=as_json)
        return
    if found.nameserver:
        bus = None if is_all else found.bus
        there = _ask(ctx, found.nameserver, bus, timeout, joining["security"])
    else:
        with joined(ctx, joining) as node:
            say_ready(ctx, node, timeout)
            there = node.peers
    there.sort(key=lambda one: (one.bus, one.name, one.started_ns))
    if as_json:
        write_json([_data(one) for one in there])
    elif there:
        write_line(_table(there, is_all=is_all))
    if not there:
        say(ctx, "no node on any bus" if is_all else f"no node on bus {printable(found.bus)}")
        ctx.exit(NOBODY)


def _ask(
    ctx: click.Context,
    servers: tuple[str, ...],
    bus: str | None,
    timeout: float,
    security: oz.Security | None,
) -> list[Announcement]:
    """Ask all name servers; one that answers is enough."""
    from oz.services import ask

    there: dict[bytes, Announcement] = {}
    silent: list[str] = []
    for server in servers:
        try:
            there |= {one.uuid: one for one in ask(server, bus, timeout=timeout, security=security)}
        except oz.NameserverUnavailable:
            silent.append(server)
    if len(silent) == len(servers):
        raise oz.NameserverUnavailable(servers, timeout)
    for server in silent:
        say(ctx, f"warning: the name server at {server} does not answer")
    return list(there.values())


def _watch(ctx: click.Context, joining: Mapping[str, Any], *, as_json: bool) -> None:
    news: deque[tuple[Announcement, str]] = deque()

    def note(peer: Announcement, what: str) -> None:
        news.append((peer, what))
        waiting.bell.ring()

    with listening() as waiting, joined(ctx, joining, on_peer=note) as node:
        say_ready(ctx, node)
        while True:
            waiting.wait(inf)
            while news:
                peer, what = news.popleft()
                if as_json:
                    write_line(json_text({"event": what} | _data(peer)))
                else:
                    write_line(f"{what:<4}  {'  '.join(_row(peer))}")


def _table(there: list[Announcement], *, is_all: bool) -> str:
    rows = [(printable(one.bus), *_row(one)) if is_all else _row(one) for one in there]
    head = ("name", "host", "pid", "age", "where")
    return plain_table([("bus", *head) if is_all else head, *rows])


def _row(one: Announcement) -> tuple[str, ...]:
    where = ", ".join(_where(one)) or "-"
    return printable(one.name), printable(one.host) or "-", str(one.pid), _ago(_age(one)), printable(where)


def _where(one: Announcement) -> list[str]:
    return [*one.endpoints, *([one.local_endpoint] if one.local_endpoint is not None else [])]


def _data(one: Announcement) -> dict[str, Any]:
    return {
        "name": one.name,
        "bus": one.bus,
        "host": one.host,
        "pid": one.pid,
        "endpoints": list(one.endpoints),
        "local_endpoint": one.local_endpoint,
        "version": one.version,
        "uuid": one.uuid.hex(),
        "started_ns": one.started_ns,
        "age": round(_age(one), 3),
    }


def _age(one: Announcement) -> float:
    # Clocks of hosts differ.
    return max(0.0, (time.time_ns() - one.started_ns) / 1e9)


def _ago(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
