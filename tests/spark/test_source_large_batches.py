"""The source over batches of more than 8,192 records, which partitions and micro-batches cut anywhere."""

from itertools import chain

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.sql import functions as F

from oz.spark.source.batch import JournalReader
from oz.spark.source.options import read_options
from oz.spark.source.stream import JournalStreamReader
from spark.source_journals import loaded
from spark.source_schema import SCHEMA
from support.large_batches import CUTS, END, KINDS, make

MATCHING = [at for at in range(END) if at % KINDS in (2, 5)]
SUBJECTS = "s.2.*\ns.5.*"


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    return make(tmp_path_factory.mktemp("large") / "journal")


def offsets_read(directory, **options):
    """Read the offsets of each partition, without a session."""
    given = {"journal": str(directory), **{name: str(value) for name, value in options.items()}}
    made = JournalReader(read_options(given), SCHEMA)
    return [
        [at for batch in made.read(share) for at in batch.column("offset").to_pylist()]
        for share in made.partitions()
    ]


def test_any_boundary_may_be_where_a_batch_begins_and_ends(large):
    for at, first in enumerate(CUTS):
        for end in CUTS[at + 1 : at + 4]:
            found = offsets_read(large, startingOffset=first, endingOffset=end)
            assert found == [list(range(first, end))]


@pytest.mark.parametrize("rows", [8_191, 8_192, 8_193, 20_000])
def test_partitions_cut_batches_without_loss(large, rows):
    found = offsets_read(large, rowsPerPartition=rows)
    assert list(chain(*found)) == list(range(END))
    assert max(map(len, found)) <= rows
    assert list(chain(*offsets_read(large, rowsPerPartition=rows, subject=SUBJECTS))) == MATCHING


def test_spark_gets_subjects_keys_and_payloads_of_the_same_record(spark, large):
    rows = loaded(spark, large, subject=SUBJECTS, keyHeader="key", numPartitions="7")
    one = "offset % 7"
    agrees = (
        f"subject = concat('s.', {one}, '.x') AND decode(key, 'UTF-8') = concat('k', {one}) "
        "AND decode(payload, 'UTF-8') = string(offset) AND sequence = offset"
    )
    sums = rows.agg(F.count("*"), F.count_distinct("offset"), F.sum("offset"), F.bool_and(F.expr(agrees)))
    [found] = sums.collect()
    assert tuple(found) == (len(MATCHING), len(MATCHING), sum(MATCHING), True)


@pytest.mark.parametrize("rows", [8_191, 8_192, 8_193, 20_000])
def test_micro_batches_cut_batches_without_loss(large, rows):
    given = {"journal": str(large), "subject": SUBJECTS, "maxRowsPerTrigger": str(rows)}
    made = JournalStreamReader(read_options(given), SCHEMA)
    at, found, ends = made.initialOffset(), [], []
    while (end := made.latestOffset(at, made.getDefaultReadLimit())) != at:
        for share in made.partitions(at, end):
            found += [one for batch in made.read(share) for one in batch.column("offset").to_pylist()]
        at = end
        ends.append(end["offset"])
    assert ends == [*range(rows, END, rows), END]
    assert found == MATCHING
