"""What the source makes of a journal to which something has happened, in batches and in streams."""

import logging

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.sql.streaming.datasource import ReadAllAvailable

import oz
from oz.journal import Writer
from oz.spark.source.batch import JournalReader
from oz.spark.source.options import read_options
from oz.spark.source.stream import JournalStreamReader
from spark.source_schema import SCHEMA
from support.journal_damage import ACKNOWLEDGED, CASES, END, OPTIONS, check_prefix, group, make

pytestmark = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.fixture
def made(tmp_path, case):
    logging.getLogger("oz.journal").setLevel(logging.CRITICAL)
    yield make(tmp_path)
    logging.getLogger("oz.journal").setLevel(logging.NOTSET)


def rows_of(reader, shares):
    rows = []
    for share in shares:
        for batch in reader.read(share):
            rows += [(row["offset"], None if row["kind"] else row["payload"]) for row in batch.to_pylist()]
    return rows


def stream(directory, **options):
    return JournalStreamReader(read_options({"journal": str(directory), "gaps": "true", **options}), SCHEMA)


def micro_batch(directory, start, **options):
    """As a query that was started again: where it comes to, and the rows."""
    reader = stream(directory, **options)
    end = reader.latestOffset(start, ReadAllAvailable())
    return end, rows_of(reader, reader.partitions(start, end))


def test_a_batch_has_each_record_or_fails(made, case):
    case.befalls(made)
    found, error = [], None
    try:
        options = read_options({"journal": str(made.directory), "gaps": "true", "subject": "a.>"})
        reader = JournalReader(options, SCHEMA)
        found = rows_of(reader, reader.partitions())
    except oz.JournalError as caught:
        error = caught
    if case.name == "first_sealed_deleted":  # a reader that may pass by what retention removes
        assert found[0][0] == 30
        return
    if error is None:
        check_prefix(found, error, case)
    assert (error is None) == case.reads


def test_a_batch_of_subjects_that_are_only_elsewhere_does_not_pass_by_what_is_missing(made, case):
    case.befalls(made)
    if case.name in ("sealed_deleted", "last_sealed_deleted"):
        options = read_options({"journal": str(made.directory), "subject": "nowhere"})
        reader = JournalReader(options, SCHEMA)
        with pytest.raises(oz.JournalError, match="missing"):
            rows_of(reader, reader.partitions())


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_stream_with_a_checkpoint_misses_none_of_what_is_appended_next(made, case, fails):
    """It had read everything. Then it happens, a writer comes, and the query is started again."""
    start, rows = micro_batch(made.directory, stream(made.directory).initialOffset())
    assert rows == list(ACKNOWLEDGED.items())
    case.befalls(made)
    with Writer(made.directory, **OPTIONS) as writer:
        # More than was lost by a backup: the journal ends behind the checkpoint again.
        writer.append(group(0, 50, "second"))
    new = [payload for _, payload in group(0, 50, "second")]
    if case.is_restored and fails == "true":
        said = (
            r"epoch [0-9a-f]{16}, which this journal does not have.*failOnDataLoss=false goes on at offset 0"
        )
        with pytest.raises(oz.JournalError, match=said):
            micro_batch(made.directory, start, failOnDataLoss=fails)
        return
    end, rows = micro_batch(made.directory, start, failOnDataLoss=fails)
    assert end["offset"] == case.end + 50
    messages = [payload for _, payload in rows if payload is not None]
    assert messages[-50:] == new
    if not case.is_restored:
        assert [offset for offset, _ in rows] == list(range(END, case.end + 50))
    assert micro_batch(made.directory, end, failOnDataLoss="true") == (end, [])


def test_a_stream_says_before_any_writer_comes_that_what_it_has_read_is_gone(made, case):
    start, _ = micro_batch(made.directory, stream(made.directory).initialOffset())
    case.befalls(made)
    if case.is_restored or case.name == "mark_older":
        with pytest.raises(oz.JournalError, match=r"epoch|lost its end"):
            micro_batch(made.directory, start)
