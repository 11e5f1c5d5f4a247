"""`oz nameserver`: nodes of a bus find each other through it."""

from __future__ import annotations

import logging

import click
import zmq

import oz
from oz.cli.options import endpoints_option, security_option
from oz.cli.output import log_in_lines, say
from oz.cli.stop_signals import stop_on_signals
from oz.configuration import resolve_limits
from oz.system import raise_descriptors

DEFAULT_NAMESERVER = "tcp://127.0.0.1:5756"

_HELP = f"""Run a name server, through which the nodes of a bus find each other.

Messages do not pass it, and it keeps nothing. Start it again, and within a second or two every node has
announced itself anew. Meanwhile nodes go on with the peers that they have. Several of them need not know of
each other: give nodes all their endpoints. One serves any number of buses; nodes of different buses never
hear of each other.

Without --bind it is at {DEFAULT_NAMESERVER}, for nodes on this host only. It prints one line when it is
ready, ends with Ctrl-C or SIGTERM, says what it did, and exits 0.

\b
Examples:
  oz nameserver
  oz nameserver --bind 'tcp://*:5756' --name ns1 --verbose
"""


@click.command(help=_HELP, short_help="Nodes of a bus find each other through it.")
@endpoints_option(
    "--bind", f"The endpoint where nodes find it; may be repeated.  [default: {DEFAULT_NAMESERVER}]"
)
@click.option("--name", metavar="NAME", help="The name that it gives itself.  [default: this host's name]")
@security_option
@click.option("-v", "--verbose", is_flag=True, help="Say who comes and goes.")
@click.pass_context
def nameserver(
    ctx: click.Context, /, bind: list[str], name: str | None, security: oz.Security | None, verbose: bool
) -> None:
    """Run it; the text of the help is `_HELP`."""
    from oz.services.nameserver import NameServer

    raise_descriptors()
    limits = resolve_limits()
    try:
        made = NameServer(bind or [DEFAULT_NAMESERVER], name=name, limits=limits, security=security)
    except zmq.ZMQError:
        # An endpoint in use is not wrong usage.
        raise
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    level = logging.INFO if verbose else logging.WARNING
    with log_in_lines(ctx, level=level), made as running, stop_on_signals(running.stop):
        say(ctx, f"ready, {', '.join(f'bound to {one}' for one in running.endpoints)}")
        running.run()
        stats = running.stats
        say(
            ctx,
            f"{stats.joined} nodes joined, {stats.left} left and {stats.lost} were lost; "
            f"{len(running.nodes)} are there",
        )
