"""`oz peers`: the nodes of a bus."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from math import inf
from typing import Any

import click

import oz
from oz.cli.exits import NOBODY
from oz.cli.joining import joined, joining_options, print_ready
from oz.cli.options import Number
from oz.cli.output import json_option, plain_table, print_stderr, quiet_option, write_json, write_line
from oz.cli.waiting import listening
from oz.escaping import json_text, printable

_HELP = """Show the nodes of the bus: name, host, process, time since they came up, and endpoints.

The command joins the bus for a moment and shows its peers. With --watch it runs until Ctrl-C, and prints a line for
each node that is up, joins, is silent, leaves or is lost. --json prints a list of objects. With --watch, --json prints
one object in each line, with the field "event".

The exit code is 3 if the bus has no node.

\b
Examples:
  oz peers
  oz peers --connect tcp://192.0.2.7:5756 --bus trading --json | jq -r '.[].name'
  oz peers --watch
"""

_EVENTS = {"peer_up": "up", "peer_silent": "silent", "peer_left": "left", "peer_lost": "lost"}


@click.command(help=_HELP, short_help="Show the nodes of the bus.")
@click.option("--watch", is_flag=True, help="Run until Ctrl-C, and show nodes that join and leave.")
@json_option("Write JSON.")
@click.option("-t", "--timeout", type=Number(0, 3_600), default=2.0, metavar="SECONDS",
              help="Time for nodes to answer.  [default: 2]")  # fmt: skip
@joining_options
@quiet_option
@click.pass_context
def peers(ctx: click.Context, /, watch: bool, as_json: bool, timeout: float, **joining: Any) -> None:
    """Show the peers; `_HELP` is the text of `--help`."""
    if watch:
        _watch(ctx, joining, as_json=as_json)
        return
    with joined(ctx, joining) as node:
        print_ready(ctx, node, timeout)
        bus, found, sources = node.bus, node.peers, node._node.readiness.describe_sources()
    if as_json:
        write_json([_data(item) for item in found])
    elif found:
        write_line(plain_table([("name", "host", "pid", "endpoints"), *map(_row, found)]))
    if not found:
        print_stderr(
            ctx,
            f"no node on bus {printable(bus)}: this command uses {printable(sources)}. --connect names a node or a "
            "name server of other hosts",
        )
        ctx.exit(NOBODY)


def _watch(ctx: click.Context, joining: Mapping[str, Any], *, as_json: bool) -> None:
    events: deque[oz.Event] = deque()

    def add_event(event: oz.Event) -> None:
        events.append(event)
        waiting.bell.ring()

    with listening() as waiting, joined(ctx, joining, on_event=add_event) as node:
        print_ready(ctx, node)
        while True:
            waiting.wait(inf)
            while events:
                event = events.popleft()
                what = _EVENTS.get(event.kind)
                if what is None or event.peer is None:
                    continue
                if as_json:
                    write_line(json_text({"event": what} | _data(event.peer)))
                else:
                    write_line(f"{what:<6}  {'  '.join(_row(event.peer))}")


def _row(peer: oz.Peer) -> tuple[str, ...]:
    where = ", ".join(peer.endpoints) or "-"
    return printable(peer.name), printable(peer.host) or "-", str(peer.pid), printable(where)


def _data(peer: oz.Peer) -> dict[str, Any]:
    return asdict(peer) | {"endpoints": list(peer.endpoints)}
