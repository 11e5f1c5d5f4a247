"""`oz forwarder`: joins publishers and subscribers, or buses, that do not reach each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from oz.cli.exits import say
from oz.cli.log_lines import log_in_lines
from oz.cli.options import endpoints_option
from oz.cli.signals import ended_by_signals

if TYPE_CHECKING:
    from oz.services.proxy import Proxy

_HELP = """Pass messages on between publishers and subscribers that do not reach each other.

Publishers connect to --frontend, subscribers to --backend, over tcp or ipc; --connect is for publishers that
bind, and for the backends of other forwarders. It is a plain ZeroMQ proxy: subscriptions pass to the
publishers, oz's own with their patterns, and publishers send what somebody behind it wants.

It prints one line when it is ready. It ends with Ctrl-C or SIGTERM, says what it passed on, and exits 0.

\b
Examples:
  oz forwarder --frontend 'tcp://*:5601' --backend 'tcp://*:5602'
  oz forwarder --connect tcp://feed:5550 --backend 'tcp://*:5602'
"""


@click.command(help=_HELP, short_help="Joins what does not reach each other.")
@endpoints_option("--frontend", "Where publishers connect to; may be repeated.")
@endpoints_option("--backend", "Where subscribers connect to; may be repeated.")
@endpoints_option("--connect", "A publisher that binds; may be repeated.")
@click.pass_context
def forwarder(ctx: click.Context, /, frontend: list[str], backend: list[str], connect: list[str]) -> None:
    """Pass on; the text of the help is `_HELP`."""
    # It starts a thread, which the other commands have no use for.
    from oz.services.proxy import Proxy

    try:
        made = Proxy(frontend=frontend, backend=backend, connect=connect)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with log_in_lines(ctx), made as running, ended_by_signals(running.stop):
        say(ctx, f"ready, {_where(running, connect)}")
        running.run()
        stats = running.stats
        say(
            ctx,
            f"{stats.messages} messages and batches of {stats.size} bytes came, {stats.sent} of them for "
            f"somebody; {stats.subscriptions} subscriptions and ends of them went to publishers",
        )


def _where(running: Proxy, connect: list[str]) -> str:
    ways = [f"publishers at {one}" for one in running.frontends]
    ways += [f"connected to {one}" for one in connect]
    return ", ".join([*ways, *(f"subscribers at {one}" for one in running.backends)])
