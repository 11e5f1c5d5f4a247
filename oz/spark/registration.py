"""The data source of `format("oz")`, and its registration in a Spark session."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from oz.errors import SinkError
from oz.spark.options import option_error
from oz.spark.rows import RowFormat
from oz.spark.source_options import SourceOptions, read_source_options

_NO_TABLES = (
    "PySpark 4.3 does not keep the options of a table. Create a view: "
    "CREATE TEMPORARY VIEW recorded USING oz OPTIONS (journal '/data/recorded')"
)


class OzDataSource(DataSource):  # type: ignore[misc]
    """Data source `oz`. It reads records from journals, and publishes rows as messages."""

    parallelism = 1
    """Number of tasks that the session runs at once. `register` sets it in a subclass for the session."""

    _parsed: SourceOptions | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "oz"

    def schema(self) -> str:
        """Return the columns of the source as DDL.

        Raises:
            JournalError: a directory contains no journal.
            ConfigurationError, PatternError: an option is wrong.
        """
        if "provider" in self.options:  # Spark adds this option for CREATE TABLE only.
            raise option_error("provider", self.options["provider"], _NO_TABLES)
        options = self._source_options()
        options.check_journals()
        return RowFormat(options.rows).ddl

    def reader(self, schema: StructType) -> Any:
        """Return the reader for `spark.read`. The errors are those of `JournalReader`."""
        from oz.spark.source import JournalReader

        return JournalReader(self._source_options(), schema)

    def streamReader(self, schema: StructType) -> Any:
        """Return the reader for `spark.readStream`. The errors are those of `JournalStreamReader`."""
        from oz.spark.source import JournalStreamReader

        return JournalStreamReader(self._source_options(), schema)

    def _source_options(self) -> SourceOptions:
        # The options are parsed only at the first call, so that a glob and a relative time keep their first value.
        if self._parsed is None:
            self._parsed = read_source_options(self.options, self.parallelism)
        return self._parsed

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """Return the writer of a DataFrame. The errors are those of `oz.spark.sink.sink_task`."""
        from oz.spark.sink import SinkWriter, sink_task

        if overwrite:
            raise SinkError('messages cannot be overwritten: write with mode("append")')
        return SinkWriter(sink_task(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """Return the writer of a streaming query. The errors are those of `oz.spark.sink.sink_task`."""
        from oz.spark.sink import SinkStreamWriter, sink_task

        return SinkStreamWriter(sink_task(self.options, schema))


def register(spark: SparkSession) -> None:
    """Register `format("oz")` in a session. `oz.spark.session` has already registered it in its sessions.

    Args:
        spark: a Spark session. Its executors must be able to import oz.
    """
    # A session of Spark Connect has no SparkContext.
    parallelism = spark.sparkContext.defaultParallelism if isinstance(spark, SparkSession) else 1
    spark.dataSource.register(type(OzDataSource.__name__, (OzDataSource,), {"parallelism": parallelism}))
