"""The command `oz`. Each of its commands has a module, which is imported when the command is used."""

import click

from oz.cli.exits import EXIT_CODES
from oz.cli.groups import TidyGroup
from oz.version import VERSION

_HELP = """Wildcard subjects for ZeroMQ, without a broker.

A pattern may begin with the name of its dialect and a colon, as in 'rv:Foo.*'. Otherwise it has the dialect of
--dialect. Quote patterns, because the shell expands * and ?, and redirects output at >.

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
    """Run a command; `_HELP` is the text of `--help`."""


__all__ = ["main"]
