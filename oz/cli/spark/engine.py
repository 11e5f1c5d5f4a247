"""The Spark session of a command: the options `--master` and `--conf`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:  # pyspark is an extra
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[2]"

_F = TypeVar("_F", bound=Callable[..., Any])


def engine_options(command: _F) -> _F:
    """Add `--master` and `--conf` to a command, which passes them to `engine`."""
    master = click.option(
        "--master",
        metavar="URL",
        help="The master of Spark: local[N], spark://HOST:PORT, yarn, k8s://….  "
        f"[default: the master of spark-submit, or {DEFAULT_MASTER}]",
    )
    conf = click.option(
        "--conf",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_settings,
        help="A setting of Spark, such as spark.executor.memory=4g; repeatable.",
    )
    return master(conf(command))


def _settings(_ctx: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    for text in texts:
        if "=" not in text or not text.startswith("spark."):
            raise click.BadParameter(f"{text!r} is not a setting of Spark; write spark.executor.memory=4g")
    return dict(text.split("=", 1) for text in texts)


@contextmanager
def engine(master: str | None, conf: dict[str, str]) -> Iterator[SparkSession]:
    """Start a Spark session for one command, and stop it afterwards.

    Raises:
        MissingDependency: the extra `ozmq[spark]` is not installed, or Java is missing or too old.
    """
    from oz.spark.session import has_engine, session

    spark = session(DEFAULT_MASTER if master is None and not has_engine() else master, **conf)
    try:
        yield spark
    finally:
        spark.stop()
