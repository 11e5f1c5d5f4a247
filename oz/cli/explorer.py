"""`oz explorer`: a page in the browser that shows the bus live."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import click

import oz
from oz.cli.joining import joined, joining_options, print_ready
from oz.cli.options import parse_all, separator_option
from oz.cli.output import print_status, print_stderr
from oz.cli.rights import check_subscribed, of_applications
from oz.cli.waiting import await_signal

DEFAULT_ADDRESS = "127.0.0.1:8460"

_HELP = f"""Serve a page that shows the bus live: subjects, payloads, nodes and queue groups.

The command joins the bus as a node, and subscribes to --pattern. Publishers never wait for this subscription. The page
has a tree of the subjects with rates, the last payload of a subject, a box that explains a pattern while you type it,
and a graph of the nodes with pending messages and losses. The page loads nothing from other hosts.

The explorer keeps at most 100,000 subjects, measures rates once a second, and shows the busiest 50 entries of a branch.
The page shows how many subjects and entries are left out.

The page has no login. Every user who can connect to --listen can read all messages that this node may read. Therefore
listen on an address that other hosts can reach only in a network that you trust. Requests of other sites are rejected.

\b
Examples:
  oz explorer
  oz explorer --bus trading --pattern 'md.>' --pattern 'order.>'
  oz explorer --allow-publish
  ssh -L 8460:{DEFAULT_ADDRESS} HOST oz explorer
"""


@click.command(help=_HELP, short_help="Show the bus live in the browser.")
@click.option("--listen", default=DEFAULT_ADDRESS, metavar="HOST:PORT", show_default=True,
              help="Address of the page.")  # fmt: skip
@click.option("--pattern", "patterns", multiple=True, default=[">"], metavar="PATTERN",
              help="Subjects to show; may be repeated.  [default: >]")  # fmt: skip
@separator_option("two levels of the tree")
@click.option("--allow-publish", is_flag=True, help="Show a form that publishes.")
@click.option("--host-name", "names", multiple=True, metavar="NAME",
              help="Another name of this host in URLs; may be repeated.")  # fmt: skip
@joining_options
@click.pass_context
def explorer(
    ctx: click.Context,
    /,
    listen: str,
    patterns: tuple[str, ...],
    separator: str,
    allow_publish: bool,
    names: tuple[str, ...],
    **joining: Any,
) -> None:
    """Serve the page; `_HELP` is the text of `--help`."""
    # Imported here, because the import fails if the extra `explorer` is not installed.
    from oz.explorer.access import is_local
    from oz.explorer.server import Server
    from oz.explorer.view import BusView

    # A denied pattern is rejected before the command binds or waits.
    compiled = parse_all(patterns, "nats")
    check_subscribed(joining["security"], of_applications(compiled), is_routed=True)
    with await_signal() as wait, joined(ctx, joining, codec=None, node_options={"echo": False}) as node:
        try:
            view = BusView(node, compiled, separator)
            server = Server(view, listen, publish=node.publish if allow_publish else None, names=names)
        except oz.ConfigurationError as error:
            raise click.UsageError(f"--listen {listen}: {error.rule}") from None
        with closing(server):
            print_ready(ctx, node)
            if not is_local(listen):
                print_stderr(ctx, f"warning: {listen} has no login: whoever reaches it reads the bus")
            print_status(ctx, f"explorer at {server.url}")
            wait()
