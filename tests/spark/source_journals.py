"""Journals to read with Spark, and queries that end by themselves."""

from oz.journal import Writer
from support.waiting import until

SEGMENT = 20_000  # bytes: some hundreds of records


def fill(directory, groups, **options):
    """Write groups of records, each one append; gives the end offset."""
    end = 0
    # As while it is written.
    as_written = {"segment_bytes": SEGMENT, "sync": "never", "seal_on_close": False}
    with Writer(directory, **{**as_written, **options}) as writer:
        for group in groups:
            end = writer.append(group)
    return end


def numbered(count, first=0, subject="n.{}"):
    return [(subject.format(number % 7), b"%d" % number) for number in range(first, first + count)]


def loaded(spark, directory, **options):
    return spark.read.format("oz").option("journal", str(directory)).options(**options).load()


def streamed(spark, directory, **options):
    return spark.readStream.format("oz").option("journal", str(directory)).options(**options).load()


def run_to_the_end(frame, directory, timeout=400):
    """Read what is there into Parquet under a directory; the query when it is over."""
    writing = frame.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
    query = writing.trigger(availableNow=True).start(str(directory / "rows"))
    assert query.awaitTermination(timeout)
    return query


def begun(writing):
    """Start a query that goes on; it when its first progress is there."""
    query = writing.start()
    until(lambda: query.lastProgress or query.exception(), 400)
    if query.exception():
        raise query.exception()
    return query


def rows_of(spark, directory, *columns):
    return spark.read.parquet(str(directory / "rows")).select(*columns).collect()
