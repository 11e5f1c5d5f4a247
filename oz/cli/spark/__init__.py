"""`oz spark`: archives of journals, and reports about recorded messages."""

from __future__ import annotations

import click

from oz.cli.groups import LazyGroup

_HELP = """Archive journals and report on them with Spark.

The commands read journals that `oz record` writes. Without --master they run on two cores of this machine. --master
may name a cluster, such as spark://HOST:7077. The commands need the extra ozmq[spark] and Java 17 or newer. The extra
ozmq[spark-java] includes a Java.

\b
Examples:
  oz spark archive recorded archive
  oz spark report recorded --html report.html
  oz spark archive /shared/recorded /shared/archive --master spark://hub:7077 --conf spark.executor.memory=4g
"""


@click.group(
    cls=LazyGroup,
    package=__name__,
    sections={"Commands": ("archive", "report")},
    help=_HELP,
    short_help="Archive journals and report on them, with Spark.",
)
def spark() -> None:
    """Run a command of the group."""
