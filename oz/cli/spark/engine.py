"""The place where a job runs: the options `--master` and `--conf` of every `oz spark` command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:  # an extra
    from pyspark.sql import SparkSession
import sys

from oz.cli.output import console, say

DEFAULT_MASTER = "local[2]"
"""Where a job runs when it is not told: on two cores of this machine."""

_F = TypeVar("_F", bound=Callable[..., Any])


def engine_options(command: _F) -> _F:
    """Offer `--master` and `--conf`; the command hands both to `engine`."""
    master = click.option(
        "--master",
        metavar="URL",
        help="Where Spark runs: local[N], spark://HOST:PORT, yarn, k8s://….  "
        f"[default: what spark-submit says, else {DEFAULT_MASTER}]",
    )
    conf = click.option(
        "--conf",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_read_settings,
        help="A setting of Spark, such as spark.executor.memory=4g; may be repeated.",
    )
    return master(conf(command))


def _read_settings(_ctx: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise click.BadParameter(f"{text!r} is no setting: write spark.executor.memory=4g")
        settings[name] = value
    return settings


@contextmanager
def engine(master: str | None, conf: dict[str, str]) -> Iterator[SparkSession]:
    """Open a Spark session for one job, and end it.

    Args:
        master: of `engine_options`.
        conf: of `engine_options`.

    Raises:
        SparkMissing: the extra `ozmq[spark]` is not installed.
        JavaMissing: there is no Java, or it is too old.
    """
    from oz.spark.session import has_engine, session

    if master is None and not has_engine():
        master = DEFAULT_MASTER
    spark = session(master, **conf)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def stages(ctx: click.Context) -> Iterator[Callable[[str], object]]:
    """Show on stderr what comes next: one line that changes on a terminal, else a line each."""
    if not sys.stderr.isatty():
        yield lambda stage: say(ctx, stage)
        return
    with console(stderr=True).status("starting Spark") as status:
        yield status.update
