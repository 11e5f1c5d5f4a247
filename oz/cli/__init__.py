"""The command `oz`: the group `main`. Each command has a module, which is imported when the command is used."""

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

_SECTIONS = {
    "Messages": ("pub", "sub", "request", "reply"),
    "Operation": ("peers", "top", "explorer", "ping", "trace", "metrics"),
    "Patterns": ("explain", "match", "translate"),
    "Recorded messages": ("record", "replay", "journal", "spark"),
    "Services": ("nameserver", "forwarder", "gateway"),
    "Keys and permissions": ("keys", "auth"),
    "This installation": ("demo", "bench", "doctor", "config", "multicast"),
}


@click.group(
    cls=TidyGroup,
    package=__name__,
    sections=_SECTIONS,
    help=_HELP,
    epilog=EXIT_CODES,
    context_settings={"max_content_width": 110},
)
@click.version_option(VERSION, message="oz %(version)s")
def main() -> None:
    """Run a command; the text of `oz --help` is `_HELP`."""


__all__ = ["main"]
