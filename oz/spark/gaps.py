"""Missing messages, counted by the numbers that their publishers gave them."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.window import Window

SPREAD = 1024
"""Over so many partitions go the rows without a number, which have nothing to be sorted for."""


def gaps(sequence: Column | str, origin: Column | str, *, order: Column | str | None = None) -> Column:
    """Count the messages of each publisher that are missing right before each row.

    Use it in `select` or `withColumn`, before anything filters by subject: what a filter leaves out is
    missing too. A publisher that was started again is another origin. The numbers of one origin begin anew
    when another recorder goes on with the journal, or when the publisher had forgotten the recorder: say
    `order="offset"` where that may be.

    Args:
        sequence: the publisher's numbers.
        origin: the publisher.
        order: what to sort each publisher's rows by. None: by their numbers, so that a message which arrived
            late, or twice, is none that is missing. With `"offset"` rows stand as they were recorded, and a
            number that is not above the one before begins a new count.

    Returns:
        A bigint: 0 where none is missing; null for the first of an origin, for the first of a new count, and
        where there is no number or no origin.
    """
    number, publisher = _column(sequence).cast("long"), _column(origin)
    place = number if order is None else _column(order)
    is_numbered = number.isNotNull() & publisher.isNotNull()
    # Else all that is plain ZeroMQ would be sorted by one task.
    apart = F.when(~is_numbered, F.pmod(F.hash(place), F.lit(SPREAD)))
    before = F.lag(number).over(Window.partitionBy(publisher, is_numbered, apart).orderBy(place))
    step = number - before - 1
    missing = F.greatest(step, F.lit(0)) if order is None else F.when(step >= 0, step)
    return F.when(is_numbered & before.isNotNull(), missing)


def _column(column: Column | str) -> Column:
    return F.col(column) if isinstance(column, str) else column
