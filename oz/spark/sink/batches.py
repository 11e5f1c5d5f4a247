"""Batches of a streaming query through `foreachBatch`: in output modes that Spark refuses to Python sinks."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from oz.errors import OptionError
from oz.spark.sink.settings import read_settings

_QUERY = "sql.streaming.queryId"


def publish_batches(endpoint: str | None = None, **options: object) -> Callable[[DataFrame, int], None]:
    """Return what `foreachBatch` calls to publish each batch: once, as `format("oz")` does.

    Spark refuses the output mode `update` to every sink written in Python. `foreachBatch` takes it:
    `counts.writeStream.outputMode("update").foreachBatch(publish_batches("tcp://hub:5555"))`.

    Args:
        endpoint: where to connect to, several with commas; or give the option `bind`.
        options: further ones of the sink, see docs/spark-sink.md. `staging` is needed on a cluster; `run`
            tells two functions of the same query apart.

    Raises:
        OptionError: an option is missing, unknown or wrong.
    """
    settings = {name: str(value) for name, value in options.items()}
    if endpoint is not None:
        settings["endpoint"] = endpoint
    if "batch" in settings:
        raise OptionError("batch", settings["batch"], "it is the number that Spark gives each batch")
    read_settings(settings, is_streaming=False)

    def publish(rows: DataFrame, batch: int) -> None:
        query = rows.sparkSession.sparkContext.getLocalProperty(_QUERY)
        run = f"{settings.get('run', '')} {query}"
        rows.write.format("oz").mode("append").options(**{**settings, "run": run, "batch": str(batch)}).save()

    return publish
