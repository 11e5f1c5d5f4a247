"""Tables of Spark's catalog that a journal fills: `CREATE TABLE … USING oz OPTIONS (…)`.

PySpark 4.3 hands the options over when a table is made, and keeps none of them: whoever reads the table gets
its columns, and no option. So the options stand in the comment of the first column.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode

from pyspark.sql.types import StructType

from oz.errors import OptionError

_OPTION = "option."
_MARK = "options of this table: "
_FIRST = "`offset` BIGINT NOT NULL"


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
    return {name.removeprefix(_OPTION): text for name, text in given.items() if name.startswith(_OPTION)}


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
