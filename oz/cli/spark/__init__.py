"""`oz spark`: jobs over recorded traffic, run by Spark; one file a command, loaded when it is asked for."""

from __future__ import annotations

import click

from oz.cli.groups import LazyGroup

_HELP = """Archive journals and report on them with Spark.

The jobs read journals as `oz record` writes them. They run on two cores of this machine unless --master names
a cluster: spark://HOST:7077 for a standalone one, yarn or k8s://… as with spark-submit. Needs the extra
ozmq[spark] and Java 17 or newer, which the extra ozmq[spark-java] brings.

\b
Examples:
  oz spark archive recorded lake
  oz spark report recorded --html report.html
  oz spark archive /shared/recorded /shared/lake --master spark://hub:7077 --conf spark.executor.memory=4g
"""

_COMMANDS = ("archive", "report")


@click.group(
    cls=LazyGroup,
    package=__name__,
    names=_COMMANDS,
    help=_HELP,
    short_help="Archive journals and report on them, with Spark.",
)
def spark() -> None:
    """Hold the commands; the text of the help is `_HELP`."""
