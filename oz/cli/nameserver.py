"""`oz nameserver`: run a name server."""

from __future__ import annotations

import logging

import click

import oz
from oz.cli.options import endpoints_option, security_option
from oz.cli.serving import open_and_serve, service_options
from oz.configuration import resolve_limits

DEFAULT_NAMESERVER = "tcp://127.0.0.1:5756"

_HELP = f"""Run a name server, which introduces the nodes of a bus to each other.

Nodes connect to the name server with --connect. The name server does not forward messages, and stores nothing. Nodes
keep their peers while the name server is down. After a restart at the same endpoint, every node connects again within
some seconds. If there are several name servers, give all their endpoints to the nodes. The name servers need no
connection to each other. One name server serves any number of buses, and nodes of different buses do not find each
other.

Without --bind it binds {DEFAULT_NAMESERVER}, for nodes on this host only. The command prints one line when it is
ready. At Ctrl-C or SIGTERM it prints its counts and exits 0.

\b
Examples:
  oz nameserver
  oz nameserver --bind 'tcp://*:5756' --name ns1 --verbose
"""


@click.command(help=_HELP, short_help="Run a name server for the nodes of a bus.")
@endpoints_option("--bind", f"The endpoint for nodes; may be repeated.  [default: {DEFAULT_NAMESERVER}]")
@endpoints_option("--connect", "Another name server, whose nodes it also reports; may be repeated.")
@click.option("--bus", metavar="NAME", help="Serve only this bus.  [default: all buses]")
@click.option("--name", metavar="NAME", help="The name of the name server.  [default: this host's name]")
@security_option
@click.option("-v", "--verbose", is_flag=True, help="Print a line for each node that joins or leaves.")
@service_options
@click.pass_context
def nameserver(
    ctx: click.Context,
    /,
    bind: list[str],
    connect: list[str],
    bus: str | None,
    name: str | None,
    security: oz.Security | None,
    verbose: bool,
) -> None:
    """Run a name server; `_HELP` is the text of `--help`."""
    from oz.services.name_server import NameServer

    open_and_serve(
        ctx,
        lambda: NameServer(
            bind or [DEFAULT_NAMESERVER],
            name=name,
            bus=bus,
            connect=connect,
            limits=resolve_limits(),
            security=security,
        ),
        lambda server: ", ".join(f"bound to {endpoint}" for endpoint in server.endpoints),
        lambda server: (
            f"{server.stats.joined} nodes joined, {server.stats.left} left and {server.stats.lost} were lost; "
            f"{len(server.nodes)} are up"
        ),
        level=logging.INFO if verbose else logging.WARNING,
    )
