"""`format("oz")`: what Spark knows it by, and making it known to a session."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from oz.errors import OptionError
from oz.spark.source.batch import JournalReader
from oz.spark.source.journal import found_at
from oz.spark.source.options import Options, read_options
from oz.spark.source.rows import Malformed, ddl

_NO_TABLES = (
    "PySpark 4.3 does not keep the options of a table. Create a view: "
    "CREATE TEMPORARY VIEW recorded USING oz OPTIONS (journal '/data/recorded')"
)


class OzDataSource(DataSource):  # type: ignore[misc]
    """Spark data source `oz`: journals as source, the bus as sink. `oz.spark.register` registers it."""

    tasks = 1
    """How many tasks the session runs at once, if that is known: `register` makes a class that says it."""

    _read: Options | None = None

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "oz"

    def schema(self) -> str:
        """The columns of the source, as DDL.

        Raises:
            JournalError: there is no journal, it is damaged, or of another version.
            OptionError, PatternError: an option makes no sense.
        """
        if "provider" in self.options:  # Spark adds it for CREATE TABLE only
            raise OptionError("provider", self.options["provider"], _NO_TABLES)
        options = self._options()
        for each in options.each():
            found_at(each.journal)  # for an error now, and not when the rows are asked for
        malformed = Malformed(options.mode, options.corrupt)
        return ddl(
            options.payload,
            options.payload_schema,
            options.headers,
            malformed,
            names_journal=bool(options.journals),
        )

    def reader(self, schema: StructType) -> JournalReader:
        """Make the reader of a batch; errors are those of `JournalReader`."""
        return JournalReader(self._options(), schema)

    def streamReader(self, schema: StructType) -> Any:
        """Return the reader of a stream; errors are those of `JournalStreamReader`."""
        from oz.spark.source.stream import JournalStreamReader

        return JournalStreamReader(self._options(), schema)

    def _options(self) -> Options:
        # Read once, so that a glob and a relative time have the meaning that they had at load().
        if self._read is None:
            self._read = replace(read_options(self.options), tasks=self.tasks)
        return self._read

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """Make the writer of a DataFrame; errors are those of the sink."""
        from oz.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """Make the writer of a streaming query; errors are those of the sink."""
        from oz.spark.sink import stream_writer

        return stream_writer(self.options, schema)


def register(spark: SparkSession) -> None:
    """Make `format("oz")` known to a session; `oz.spark.session` does so by itself.

    Args:
        spark: any session. Its executors need oz too.
    """
    # A session of Spark Connect has no context to ask.
    tasks = spark.sparkContext.defaultParallelism if isinstance(spark, SparkSession) else 1
    spark.dataSource.register(type(OzDataSource.__name__, (OzDataSource,), {"tasks": tasks}))
