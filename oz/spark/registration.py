"""`format("oz")`: what Spark knows it by, and making it known to a session."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from oz.errors import OptionError, OzError
from oz.spark.source.batch import FilteringReader, JournalReader
from oz.spark.source.journal import found_at
from oz.spark.source.options import Options, from_the_root, read_options
from oz.spark.source.rows import Malformed, ddl

_TAKES_FILTERS = "pyspark.sql.worker.data_source_pushdown_filters"

_SHARED = (
    "this PySpark gives all queries of a load what it planned with the filter of one of them, so that they "
    "would lack rows. Say what you want with subject, startingTime, startingOffset and the other options, "
    "which leave out as much"
)

_OPTION = "option."
_MARK = "options of this table: "
_FIRST = "`offset` BIGINT NOT NULL"
# PySpark 4.3 hands the options of a table over when it is made, and keeps none: whoever reads it gets its
# columns. So they stand in the comment of the first one.

_NO_OPTIONS = (
    "give the directory of a journal. Spark keeps no options of a table that is made with columns: leave the "
    "columns out, as in CREATE TABLE t USING oz OPTIONS (journal '/data/recorded')"
)


class OzDataSource(DataSource):  # type: ignore[misc]
    """Journals and the bus as a source, the bus as a sink; `oz.spark.register` makes it known to Spark."""

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
        of_table = options_of_table(self.options)
        options = self._options(self.options if of_table is None else of_table)
        if not options.endpoints:
            for each in options.each():
                found_at(each.journal)  # for an error now, and not when the rows are asked for
        malformed = Malformed(options.mode, options.corrupt)
        columns = ddl(
            options.payload,
            options.payload_schema,
            options.headers,
            malformed,
            names_journal=bool(options.journals),
        )
        return columns if of_table is None else with_options(columns, of_table)

    def reader(self, schema: StructType) -> JournalReader:
        """Make the reader of a batch; errors are those of `JournalReader`."""
        options = self._options_with(schema)
        made = FilteringReader if options.pushes and _is_asked_for_filters() else JournalReader
        return made(options, schema)

    def streamReader(self, schema: StructType) -> Any:
        """Make the reader of a stream; what is wrong it raises when it is first asked."""
        from oz.spark.source.stream import JournalStreamReader, RefusedStreamReader

        try:
            return JournalStreamReader(self._options_with(schema), schema)
        except OzError as error:
            return RefusedStreamReader(error)

    def _options_with(self, schema: StructType) -> Options:
        """Read the options; of a table those that its columns carry, which a query may change WITH others."""
        given = {**options_in(schema), **self.options}
        if not given:
            raise OptionError("journal", None, _NO_OPTIONS)
        return self._options(given)

    def _options(self, given: Mapping[str, str]) -> Options:
        # Once: the name of a private journal must be the same for all that Spark makes of this.
        if self._read is None:
            self._read = replace(read_options(given), tasks=self.tasks)
            if self._read.pushes and not self._keeps_filters_apart():
                raise OptionError("pushFilters", "true", _SHARED)
        return self._read

    def _keeps_filters_apart(self) -> bool:
        """Tell whether this PySpark plans each filter of a load apart; it does where it pushes limits."""
        return "pushLimit" in vars(DataSourceReader)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """Make the writer of a DataFrame; errors are those of the sink."""
        from oz.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """Make the writer of a streaming query; errors are those of the sink."""
        from oz.spark.sink import stream_writer

        return stream_writer(self.options, schema)


def _is_asked_for_filters() -> bool:
    """Tell whether Spark is about to hand over filters, which it does in a program of its own."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _TAKES_FILTERS in sys.modules or (main is not None and main.name == _TAKES_FILTERS)


def register(spark: SparkSession) -> None:
    """Make `format("oz")` known to a session; `oz.spark.session` does so by itself.

    Args:
        spark: any session. Its executors need oz too.
    """
    # A session of Spark Connect has no context to ask.
    tasks = spark.sparkContext.defaultParallelism if isinstance(spark, SparkSession) else 1
    spark.dataSource.register(type(OzDataSource.__name__, (OzDataSource,), {"tasks": tasks}))


def options_of_table(given: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a table that is being made; None where it is a load or a view.

    Args:
        given: what Spark hands over: of a table also its owner, its properties, and the options once more.

    Raises:
        OptionError: the table is to have a place of its own.
    """
    if "provider" not in given:
        return None
    if "location" in given:
        rule = "rows are where the journal is: give its directory as the option journal"
        raise OptionError("location", given["location"], rule)
    found = {name.removeprefix(_OPTION): text for name, text in given.items() if name.startswith(_OPTION)}
    # It may be read from another directory than that in which it is made.
    return {name: from_the_root(text) if name.lower() == "journal" else text for name, text in found.items()}


def with_options(columns: str, options: Mapping[str, str]) -> str:
    """Write options into the comment of the first column.

    Args:
        columns: as DDL, as `rows.ddl` writes them.
        options: the table's.
    """
    # No quote and no backslash, whatever is in them: Spark's parser reads those as it is set to.
    return columns.replace(_FIRST, f"{_FIRST} COMMENT '{_MARK}{urlencode(options, safe='/.>:, ')}'", 1)


def options_in(schema: StructType) -> dict[str, str]:
    """Return the options that stand in a comment; none where it is no table's."""
    for column in schema:
        comment = (column.metadata or {}).get("comment", "")
        if comment.startswith(_MARK):
            return dict(parse_qsl(comment.removeprefix(_MARK), keep_blank_values=True))
    return {}
