"""The command `oz`: the group `main`, with one module for each command, imported at its use."""

import click

from oz.cli.exits import EXIT_CODES
from oz.cli.groups import TidyGroup
from oz.version import VERSION

_HELP = """Wildcard subjects for ZeroMQ, without a broker.

A pattern may name its dialect before a colon, as in 'rv:Foo.*'; otherwise it is read in the dialect of
--dialect. Quote patterns: the shell expands * and ? and takes > for a redirection.

\b
Try it, in two terminals:
  oz sub 'time.*.east'
  oz pub time.new.east 12:00
"""

_COMMANDS = (
    "demo",
    "bench",
    "pub",
    "sub",
    "explain",
    "match",
    "translate",
    "keys",
    "auth",
    "record",
    "replay",
    "journal",
    "spark",
    "doctor",
    "config",
    "multicast",
    "gateway",
    "nameserver",
    "peers",
    "ping",
    "top",
    "metrics",
    "request",
    "reply",
    "forwarder",
)


def _show_version(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    if not asked:
        return
    click.echo(f"oz {VERSION}")
    ctx.exit()


@click.group(
    cls=TidyGroup,
    package=__name__,
    names=_COMMANDS,
    help=_HELP,
    epilog=EXIT_CODES,
    context_settings={"max_content_width": 110},
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Run a command; the text of `oz --help` is `_HELP`."""


__all__ = ["main"]
