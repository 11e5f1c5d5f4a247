"""`oz metrics`: metrics of all nodes of a bus for Prometheus."""

from __future__ import annotations

from typing import Any

import click

import oz
from oz.cli.joining import joined, joining_options, print_ready
from oz.cli.options import Number
from oz.cli.output import print_status, write_line
from oz.cli.waiting import await_signal
from oz.metrics import Server
from oz.node.metrics import GAUGE, Family, exposition, families
from oz.node.observation import take_sample

DEFAULT_ADDRESS = "127.0.0.1:9464"

_HELP = f"""Serve the metrics of all nodes of the bus to Prometheus.

The command joins the bus as a node. At each GET of /metrics it requests the statistics of all nodes, and returns them
in the text format of Prometheus. GET of /healthz returns 200 while the node of this command works. The other nodes need
no option.

Without --listen the command prints the metrics once and exits.

\b
Examples:
  oz metrics | grep oz_link_pending
  oz metrics --listen {DEFAULT_ADDRESS}
"""


@click.command(help=_HELP, short_help="Serve the metrics of all nodes to Prometheus.")
@click.option(
    "--listen", metavar="HOST:PORT", help="Serve at this address until Ctrl-C. [default: print once]"
)
@click.option("-t", "--timeout", type=Number(0.1, 60), default=1.0, metavar="SECONDS",
              help="Time for the nodes to answer.  [default: 1]")  # fmt: skip
@joining_options
@click.pass_context
def metrics(ctx: click.Context, /, listen: str | None, timeout: float, **joining: Any) -> None:
    """Serve or print the metrics; `_HELP` is the text of `--help`."""
    with await_signal() as wait, joined(ctx, joining, node_options={"echo": False}) as node:

        def collect() -> str:
            return bus_metrics(node, timeout)

        if listen is None:
            print_ready(ctx, node, timeout)
            write_line(collect().rstrip("\n"))
            return
        try:
            server = Server(listen, collect, node.is_healthy)
        except oz.ConfigurationError as error:
            raise click.UsageError(f"--listen {listen}: {error.rule}") from None
        with server:
            print_ready(ctx, node, timeout)
            print_status(ctx, f"metrics at http://{server.address}/metrics")
            wait()


def bus_metrics(node: oz.Node, timeout: float) -> str:
    """Return the metrics of all peers of a node as text, including the number of peers that did not answer."""
    sample = take_sample(node, timeout)
    text, missing = "Peers that did not answer in time.", len(sample.unanswered)
    own = Family("oz_nodes_unanswered", GAUGE, text, {(("bus", node.bus),): missing})
    return exposition([own, *families(sample.snapshots)])
