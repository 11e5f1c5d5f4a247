"""The source of `format("oz")`: the records of journals as rows, in batch and in streams."""

import importlib.util
import re
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import msgpack
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

import oz
import support
from oz.errors import JournalError
from oz.journal import SCHEMA, Journal, Writer
from oz.spark.source import JournalReader, JournalStreamReader, Range, cut
from oz.spark.source_options import read_source_options
from spark.journals import append_numbers, open_journal, time_of
from support import scripts

ROWS = 300


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A journal with three sealed segments and an active one."""
    directory = tmp_path_factory.mktemp("journals") / "recorded"
    with open_journal(directory, ROWS, sealed=240):
        yield str(directory)


def load(spark, journal, *, schema=None, **options):
    reader = spark.read.format("oz").options(**options)
    return (reader if schema is None else reader.schema(schema)).load(journal)


def offsets(frame):
    return sorted(row.offset for row in frame.select("offset").collect())


def expected(journal, *patterns, **options):
    return Journal(journal).table(list(patterns) or None, columns=["offset"], **options)["offset"].to_pylist()


# batch ----------------------------------------------------------------------------------------------------


def test_rows_have_the_columns_and_values_of_the_journal(spark, recorded):
    frame = load(spark, recorded, gaps="true")
    assert list(frame.columns) == SCHEMA.names
    rows = [tuple(row) for row in frame.orderBy("offset").collect()]
    table = Journal(recorded).table(gaps=True)
    columns = [table[name].to_pylist() for name in SCHEMA.names]
    columns[1] = [column.replace(tzinfo=None) for column in columns[1]]  # the session's time zone is UTC
    assert rows == list(zip(*columns, strict=True))


@pytest.mark.parametrize("patterns", [["rv:a.>", "b.c"], ["regex:^a\\.b"], ["x.y"]])
def test_patterns_select_what_the_journal_selects(spark, recorded, patterns):
    found = offsets(load(spark, recorded, subject="\n".join(patterns)))
    assert found == expected(recorded, *patterns)


@pytest.mark.parametrize(
    ("options", "first", "end"),
    [
        ({"startingOffset": 100, "endingOffset": 250}, 100, 250),
        ({"startingOffset": "earliest", "endingOffset": "latest"}, 0, ROWS),
        ({"startingTime": time_of(50).isoformat(), "endingTime": str(time_of(60).timestamp())}, 50, 60),
        ({"startingTime": "-1h"}, ROWS, ROWS),
        ({"numPartitions": 7}, 0, ROWS),
    ],
)
def test_offsets_and_times_bound_a_batch(spark, recorded, options, first, end):
    frame = load(spark, recorded, gaps="true", **options)
    assert offsets(frame) == list(range(first, end))
    if "numPartitions" in options:
        assert frame.rdd.getNumPartitions() == 7


def test_a_schema_selects_columns(spark, recorded):
    frame = load(spark, recorded, schema="payload BINARY, subject STRING NOT NULL", subject="b.c")
    assert frame.columns == ["payload", "subject"]
    assert {(bytes(row.payload), row.subject) for row in frame.collect()} == {
        (b'{"n": %d}' % at, "b.c") for at in expected(recorded, "b.c")
    }


def test_headers_become_a_map_a_key_and_a_time(spark, recorded):
    frame = load(spark, recorded, headers="map", keyHeader="k", timeHeader="sent", subject="b.c")
    rows = {row.offset: row for row in frame.collect()}
    assert rows[8].headers == {"n": "8", "sent": "8000000000", "k": "key"}
    assert (rows[8].key, rows[8].published.timestamp()) == (bytearray(b"key"), 8.0)
    assert (rows[3].headers, rows[3].key, rows[3].published) == (None, None, None)


PAYLOADS = [b'{"n": 1}', b"{broken", b'{"n": "text"}', b"\xff", b'{"m": 2}']


@pytest.fixture(scope="module")
def malformed(tmp_path_factory):
    directory = tmp_path_factory.mktemp("journals") / "malformed"
    with Writer(directory) as writer:
        writer.append([("j", payload) for payload in PAYLOADS])
        writer.append([("m", msgpack.packb({"n": 1})), ("m", b"\xc1")])
    return str(directory)


def test_permissive_mode_puts_malformed_payloads_into_a_column(spark, malformed):
    frame = load(spark, malformed, subject="j", payload="json", payloadSchema="n INT")
    rows = frame.orderBy("offset").select("payload", "payload_raw").collect()
    good = [None if row.payload is None else row.payload.n for row in rows]
    assert good == [1, None, None, None, None]
    assert [row.payload is None for row in rows] == [False, True, True, True, False]
    assert [row.payload_raw and bytes(row.payload_raw) for row in rows] == [None, *PAYLOADS[1:4], None]


def test_the_other_modes_drop_rows_or_fail(spark, malformed):
    json = {"payload": "json", "payloadSchema": "n INT", "subject": "j"}
    assert offsets(load(spark, malformed, mode="DROPMALFORMED", **json)) == [0, 4]
    with pytest.raises(PySparkException, match="at offset 1 is no json"):
        load(spark, malformed, mode="FAILFAST", **json).collect()
    packed = {"payload": "msgpack", "payloadSchema": "n INT", "subject": "m", "mode": "dropmalformed"}
    assert [row.payload.n for row in load(spark, malformed, **packed).collect()] == [1]
    text = load(spark, malformed, subject="j", payload="string", columnNameOfCorruptRecord="bad")
    assert [bytes(row.bad) for row in text.where("bad IS NOT NULL").collect()] == [b"\xff"]


def test_several_journals_are_read_with_their_names(spark, tmp_path):
    for name in ("one", "two"):
        with Writer(tmp_path / name) as writer:
            append_numbers(writer, 0, 3)
    (tmp_path / "other.txt").touch()
    for path in (f"{tmp_path}/*", f"{tmp_path}/one\n{tmp_path}/two"):
        rows = load(spark, path).collect()
        assert sorted((row.journal, row.offset) for row in rows) == [
            (f"{tmp_path}/{name}", at) for name in ("one", "two") for at in range(3)
        ]


def test_a_temporary_view_takes_options_and_a_table_is_refused(spark, recorded):
    spark.sql(f"CREATE TEMPORARY VIEW bc USING oz OPTIONS (journal '{recorded}', subject 'b.c')")
    assert spark.sql("SELECT count(*) n FROM bc").first().n == len(expected(recorded, "b.c"))
    spark.sql("DROP VIEW bc")
    with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE t USING oz OPTIONS (journal '{recorded}')")


# without Spark ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option journal: give the directory"),
        ({"journal": "x", "path": "y"}, "either journal or load"),
        ({"startingOffsets": "earliest"}, "use startingOffset"),
        ({"minOffsetsPerTrigger": "1"}, "use trigger\\(processingTime"),
        ({"rowsPerPartition": "1"}, "use numPartitions"),
        ({"failOnDataLos": "1"}, "use failOnDataLoss"),
        ({"failOnDataLoss": "1"}, "one of true, false"),
        ({"subject": "a.b,a.c"}, "one pattern in each line"),
        ({"startingOffset": "-1"}, "earliest, latest, or an offset"),
        ({"startingOffset": "9", "endingOffset": "1"}, "after endingOffset"),
        ({"startingTime": "2026-03-01T00:00"}, "zone"),
        ({"payload": "json"}, "payloadSchema"),
        ({"payloadSchema": "a INT"}, "needs payload=json"),
        ({"mode": "failfast"}, "needs payload"),
        ({"maxRowsPerTrigger": "0"}, "integer of at least 1"),
        ({"journal": "a\nb", "startingOffset": "1"}, "an offset belongs to one journal"),
    ],
)
def test_wrong_options_are_refused_with_the_remedy(options, message):
    given = options if "path" in options or not options else {"journal": "x", **options}
    with pytest.raises(oz.OzError, match=message):
        read_source_options(given)


@pytest.mark.parametrize(
    ("ddl", "options", "message"),
    [
        ("nothing STRING", {}, "the columns are offset"),
        ("offset STRING", {}, "it is BIGINT"),
        ("reply_to BINARY NOT NULL", {}, "may be null"),
        ("offset BIGINT", {"payload": "string", "mode": "failfast"}, "need the column payload"),
        (
            "payload STRUCT<a: INTERVAL DAY>",
            {"payload": "json", "payloadSchema": "a INTERVAL DAY"},
            "payloadSchema",
        ),
        ("offset BIGINT", {"startingOffset": "latest"}, "readStream"),
        ("offset BIGINT", {"maxRowsPerTrigger": "1"}, "readStream"),
    ],
)
def test_wrong_columns_are_refused(spark, recorded, ddl, options, message):
    with pytest.raises(oz.ConfigurationError, match=message):
        JournalReader(read_source_options({"journal": recorded, **options}), StructType.fromDDL(ddl))


def test_an_option_of_streams_in_a_batch_is_reported_with_its_value(spark, recorded):
    options = read_source_options({"journal": recorded, "maxRowsPerTrigger": "1"})
    with pytest.raises(oz.ConfigurationError) as caught:
        JournalReader(options, StructType.fromDDL("offset BIGINT"))
    assert (caught.value.setting, caught.value.value) == ("maxRowsPerTrigger", "1")


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=6),
    st.integers(1, 12),
)
def test_ranges_are_cut_evenly_and_completely(steps, count):
    parts, at = [], 0
    for skip, length in steps:
        parts.append(Range(at + skip, at + skip + length))
        at += skip + length
    total = sum(end - first for first, end in parts)
    shares = cut(parts, count)
    sizes = [sum(end - first for first, end in share) for share in shares]
    assert [at for share in shares for item in share for at in range(*item)] == [
        at for part in parts for at in range(*part)
    ]
    assert len(shares) <= count
    assert all(sizes)
    assert not sizes or max(sizes) == -(-total // min(count, total))


def reader(journal, kind=JournalReader, **options):
    from pyspark.sql.types import LongType, StructField

    schema = StructType([StructField("offset", LongType(), False)])
    return kind(read_source_options({"journal": str(journal), **options}), schema)


def test_retention_after_planning_fails_the_task(tmp_path):
    journal = tmp_path / "journal"
    writer = Writer(journal, retain_bytes=1)
    append_numbers(writer, 0, 10)
    strict, lenient = reader(journal), reader(journal, failOnDataLoss="false")
    [part] = strict.partitions()
    append_numbers(writer, 10, 20)  # retention removes the first segment
    with pytest.raises(JournalError, match="retain_bytes"):
        list(strict.read(part))
    assert list(lenient.read(part)) == []
    writer.close()


def test_a_directory_that_a_task_does_not_see_is_named(tmp_path):
    journal = tmp_path / "journal"
    with Writer(journal) as writer:
        append_numbers(writer, 0, 10)
    made = reader(journal)
    [part] = made.partitions()
    journal.rename(tmp_path / "elsewhere")
    with pytest.raises(JournalError, match="under the same path as the driver"):
        list(made.read(part))


def test_a_flipped_byte_fails_the_query_with_the_file(tmp_path):
    journal = tmp_path / "journal"
    with Writer(journal) as writer:
        append_numbers(writer, 0, 1000)
    [sealed] = journal.glob("*.parquet")
    data = bytearray(sealed.read_bytes())
    data[50] ^= 1
    sealed.write_bytes(data)
    made = reader(journal)
    with pytest.raises(JournalError, match=re.escape(str(sealed))):
        [list(made.read(part)) for part in made.partitions()]


# streams ----------------------------------------------------------------------------------------------------


def test_a_stream_reads_each_record_once_while_segments_are_sealed(spark, tmp_path):
    journal = tmp_path / "journal"

    def run():
        """Read everything into Parquet; return the progress of each micro-batch."""
        source = spark.readStream.format("oz").options(maxRowsPerTrigger=40).load(str(journal))
        sink = source.select("offset", "payload").writeStream.format("parquet")
        sink = sink.option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(availableNow=True)
        query = sink.start(f"{tmp_path}/rows")
        query.awaitTermination()
        return [item for item in query.recentProgress if item.numInputRows]

    with Writer(journal) as writer:
        append_numbers(writer, 0, 100, roll=False)
        assert [item.numInputRows for item in run()] == [40, 40, 20]
        append_numbers(writer, 100, 130, roll=False)
        writer.roll()  # seals what the query has read halfway
        writer.wait_sealed()
        append_numbers(writer, 130, 150, roll=False)
    state = run()[-1].sources[0]
    assert offsets(spark.read.parquet(f"{tmp_path}/rows")) == list(range(150))
    assert '"lag": 0' in state.latestOffset
    assert f'"{journal}": 150' in state.latestOffset


class Stream:
    """A query with the trigger availableNow, without Spark.

    Attributes:
        offsets: of the records that it has read.
        batches: number of rows of each micro-batch of the last run.
        at: its checkpoint.
    """

    def __init__(self, journal, **options):
        self._journal, self._options = journal, options
        self.offsets, self.at = [], None

    def run(self, journal=None, **options):
        """Read everything, as a query that begins at the checkpoint."""
        made = reader(journal or self._journal, JournalStreamReader, **{**self._options, **options})
        self.at, self.batches = self.at or made.initialOffset(), []
        made.prepareForTriggerAvailableNow()
        while (end := made.latestOffset(self.at, made.getDefaultReadLimit())) != self.at:
            parts = made.partitions(self.at, end)
            found = [at for part in parts for batch in made.read(part) for at in batch[0].to_pylist()]
            self.at = end
            self.offsets += found
            self.batches.append(len(found))
        return self


def test_a_micro_batch_that_is_planned_again_has_the_same_rows(tmp_path):
    """As after a kill of the driver, although segments were sealed meanwhile."""
    with Writer(tmp_path) as writer:
        append_numbers(writer, 0, 30, roll=False)
        begin = reader(tmp_path, JournalStreamReader).initialOffset()
        end = Stream(tmp_path).run().at
        append_numbers(writer, 30, 40)
        again = reader(tmp_path, JournalStreamReader)
        parts = again.partitions(begin, end)
        assert [at for part in parts for batch in again.read(part) for at in batch[0].to_pylist()] == [
            *range(30)
        ]


def test_the_limits_of_a_micro_batch(tmp_path):
    with open_journal(tmp_path, 90, sealed=90):
        assert len(Stream(tmp_path, maxBytesPerTrigger="500").run().batches) > 3
        assert Stream(tmp_path, gaps="true").run().batches == [90]
        both = {"maxBytesPerTrigger": str(10**9), "maxRowsPerTrigger": "50"}
        assert Stream(tmp_path, gaps="true", **both).run().batches == [50, 40]


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"startingOffset": "latest"}, 20),
        ({"startingOffset": "7"}, 7),
        ({"startingTime": time_of(12).isoformat()}, 12),
        ({"startingTime": "-1h"}, 20),
    ],
)
def test_a_new_query_begins_where_it_is_told(tmp_path, options, first):
    with open_journal(tmp_path, 20, sealed=10):
        assert Stream(tmp_path, gaps="true", **options).run().offsets == list(range(first, 20))


def test_removed_records_fail_a_stream_or_are_counted(tmp_path):
    stream = Stream(tmp_path)
    with Writer(tmp_path, retain_bytes=1) as writer:
        append_numbers(writer, 0, 10)
        stream.run()
        append_numbers(writer, 10, 20)
        append_numbers(writer, 20, 30)  # retention removes 0 to 19
        with pytest.raises(
            JournalError, match="10 records are not in the journal any more, offsets 10 to 19"
        ):
            stream.run()
        stream.run(failOnDataLoss="false")
        assert stream.offsets == [*range(10), *range(20, 30)]
        assert stream.at["lost"] == 10
        append_numbers(writer, 30, 40)
        stream.run()
    assert stream.offsets == [*range(10), *range(20, 40)]


def test_a_journal_that_was_replaced_fails_the_stream(tmp_path):
    journal = tmp_path / "journal"
    stream = Stream(journal)
    with Writer(journal) as writer:
        append_numbers(writer, 0, 10)
    stream.run()
    shutil.rmtree(journal)
    with Writer(journal) as writer:
        append_numbers(writer, 0, 20)
    for options in ({}, {"failOnDataLoss": "false"}):
        with pytest.raises(JournalError, match="replaced or restored"):
            stream.run(**options)
    assert stream.offsets == list(range(10))


def test_a_journal_may_move_and_others_may_join(tmp_path):
    moved = tmp_path / "moved"
    with Writer(tmp_path / "one") as writer:
        append_numbers(writer, 0, 10)
    stream = Stream(tmp_path / "one").run()
    (tmp_path / "one").rename(moved)
    with Writer(moved) as writer:
        append_numbers(writer, 10, 15)
    assert stream.run(moved).offsets == list(range(15))
    with Writer(tmp_path / "two") as writer:
        append_numbers(writer, 0, 5)
    assert sum(stream.run(f"{moved}\n{tmp_path}/two", maxRowsPerTrigger="4").batches) == 5
    assert stream.offsets == [*range(15), *range(5)]
    with pytest.raises(JournalError, match=f"a position in {moved}"):
        stream.run(f"{tmp_path}/two\n{tmp_path}/two")


def test_a_bad_end_of_a_stream_is_refused(tmp_path):
    for name, value in (("endingOffset", "1"), ("endingTime", str(time_of(0) + timedelta(hours=1)))):
        with pytest.raises(oz.ConfigurationError, match=name):
            reader(tmp_path, JournalStreamReader, **{name: value})


# object stores ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bucket():
    """URI of a bucket with credentials, because Spark's Python processes have the environment of Java."""
    needed = ("moto", "boto3", "flask", "flask_cors")
    if missing := [name for name in needed if importlib.util.find_spec(name) is None]:
        pytest.skip(f"needs: pip install '.[test-s3]' ({', '.join(missing)})")
    with scripts.started(Path(support.__file__).with_name("s3_server.py"), "bucket") as server:
        port = server.stdout.readline().strip()
        assert port, server.communicate(timeout=30)[1]
        yield f"s3://key:secret@bucket/{{}}?endpoint_override=http://127.0.0.1:{port}&region=us-east-1"


def test_sealed_segments_are_read_from_s3(spark, tmp_path, bucket):
    with Writer(tmp_path) as writer:
        append_numbers(writer, 0, 20)
        append_numbers(writer, 20, 30)
    uri = bucket.format("live")
    system, path = fs.FileSystem.from_uri(uri)
    for file in tmp_path.glob("*.parquet"):
        with system.open_output_stream(f"{path}/{file.name}") as stream:
            stream.write(file.read_bytes())
    assert offsets(load(spark, uri, subject="n.*")) == list(range(30))
    stream = reader(uri, JournalStreamReader)
    begin = stream.initialOffset()
    end = stream.latestOffset(begin, stream.getDefaultReadLimit())
    assert sum(len(batch) for part in stream.partitions(begin, end) for batch in stream.read(part)) == 30
