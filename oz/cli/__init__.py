"""The command `oz`: one file a command; `main` is the group that they belong to."""

import click

from oz.cli.bench import bench
from oz.cli.config import config
from oz.cli.demo import demo
from oz.cli.doctor import doctor
from oz.cli.exits import EXIT_CODES, TidyGroup
from oz.cli.explain import explain
from oz.cli.forwarder import forwarder
from oz.cli.gateway import gateway
from oz.cli.journal import journal
from oz.cli.match import match
from oz.cli.multicast import multicast
from oz.cli.nameserver import nameserver
from oz.cli.peers import peers
from oz.cli.pub import pub
from oz.cli.record import record
from oz.cli.replay import replay
from oz.cli.reply import reply
from oz.cli.request import request
from oz.cli.spark import spark
from oz.cli.sub import sub
from oz.cli.translate import translate
from oz.version import VERSION

_HELP = """Wildcard subjects for ZeroMQ, without a broker.

A pattern may name its dialect before a colon, as in 'rv:Foo.*'; otherwise it is read in the dialect of
--dialect. Quote patterns: the shell expands * and ? and takes > for a redirection.

\b
Try it, in two terminals:
  oz sub 'time.*.east'
  oz pub time.new.east 12:00
"""


def _show_version(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    if not asked:
        return
    click.echo(f"oz {VERSION}")
    ctx.exit()


@click.group(cls=TidyGroup, help=_HELP, epilog=EXIT_CODES, context_settings={"max_content_width": 110})
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


for _command in (
    demo,
    bench,
    pub,
    sub,
    explain,
    match,
    translate,
    record,
    replay,
    journal,
    spark,
    doctor,
    config,
    multicast,
    gateway,
    nameserver,
    peers,
    request,
    reply,
    forwarder,
):
    main.add_command(_command)

__all__ = ["main"]
