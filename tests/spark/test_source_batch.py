"""A journal read once: which rows there are, and what is in them."""

import struct
from datetime import UTC, datetime

import msgpack
import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import functions as F

from oz.journal import Journal, Record, Writer
from spark.source_journals import fill, loaded, numbered

ORIGIN = bytes(range(16))
NOW = 1_772_366_400_123_456_789


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Messages in several segments, an odd one, and what is no message."""
    directory = tmp_path_factory.mktemp("mixed") / "journal"
    odd = [
        Record(
            b"raw.\xff", b"\xfe", time_ns=NOW, origin=ORIGIN, sequence=7, reply_to="back", headers=b"\x80"
        ),
        Record.of_gap("nats:n.3.>", lost=4, origin=ORIGIN, sequence=8, time_ns=NOW + 1),
        Record("early", b"e", time_ns=-1),
    ]
    fill(directory, [*(numbered(300, 300 * at, "n.{}.x") for at in range(6)), odd])
    return directory


def test_rows_are_those_of_the_journal(spark, mixed):
    frame = loaded(spark, mixed, numPartitions=3)
    assert frame.dtypes == [
        ("offset", "bigint"),
        ("time", "timestamp"),
        ("time_ns", "bigint"),
        ("kind", "tinyint"),
        ("lost", "bigint"),
        ("origin", "binary"),
        ("sequence", "bigint"),
        ("subject", "string"),
        ("subject_raw", "binary"),
        ("reply_to", "binary"),
        ("headers", "binary"),
        ("payload", "binary"),
        ("position", "bigint"),
    ]
    assert not frame.schema["offset"].nullable
    rows = frame.orderBy("offset").collect()
    records = list(Journal(mixed).read())
    assert len(rows) == 1802
    assert [(row.offset, row.time_ns, row.subject, bytes(row.payload)) for row in rows[:1800]] == [
        (each.offset, each.time_ns, each.subject, each.payload) for each in records[:1800]
    ]
    odd, early = rows[1800:]
    assert (odd.subject, bytes(odd.subject_raw), bytes(odd.payload)) == ("raw.\ufffd", b"raw.\xff", b"\xfe")
    assert (odd.kind, odd.lost, odd.sequence, bytes(odd.origin)) == (0, None, 7, ORIGIN)
    assert (bytes(odd.reply_to), bytes(odd.headers)) == (b"back", b"\x80")
    assert odd.time.astimezone(UTC) == datetime.fromtimestamp(NOW // 10**9, UTC).replace(microsecond=123456)
    assert early.time.astimezone(UTC) == datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)


def test_gaps_come_on_request_if_they_may_concern_the_pattern(spark, mixed):
    def kinds(**options):
        counted = (
            loaded(spark, mixed, gaps="true", **options).groupBy("kind").agg(F.count("*"), F.sum("lost"))
        )
        return {tuple(row) for row in counted.collect()}

    assert kinds() == {(0, 1802, None), (1, 1, 4)}
    assert kinds(subject="n.3.x") == {(0, 257, None), (1, 1, 4)}
    assert kinds(subject="n.4.x") == {(0, 257, None)}


def test_patterns_offsets_and_times_choose_rows(spark, mixed):
    def count(**options):
        return loaded(spark, mixed, **options).count()

    assert count(subject="rv:n.2.*\nredis:n.[35].x") == 3 * 257
    assert count(subject="redis:raw.?") == 1
    assert count(startingOffset=1795, endingOffset=1801) == 6
    assert (
        count(startingTime="2026-03-01T12:00:00.123456+00:00", endingTime="2026-03-01T13:00:00.124+01:00")
        == 1
    )
    assert count(startingTime=NOW // 10**9 + 1, endingOffset=1801) == 1800
    assert count(endingTime="1970-01-01T00Z") == 1


@pytest.mark.parametrize("count", [1, 5])
def test_partitions_are_of_even_size(spark, mixed, count):
    frame = loaded(spark, mixed, numPartitions=count, endingOffset=1800)
    sizes = [row[1] for row in frame.groupBy(F.spark_partition_id()).count().collect()]
    assert len(sizes) == count
    assert max(sizes) - min(sizes) <= 1


def test_some_columns_may_be_asked_for(spark, mixed):
    frame = (
        spark.read.schema("payload binary, subject string").format("oz").option("journal", str(mixed)).load()
    )
    assert frame.columns == ["payload", "subject"]
    assert frame.where("subject = 'early'").collect()[0].payload == b"e"
    with pytest.raises(
        AnalysisException, match="OptionError: option schema='nothing': there are the columns offset"
    ):
        spark.read.schema("nothing int").format("oz").option("journal", str(mixed)).load().count()


def test_an_empty_journal_has_no_rows(spark, tmp_path):
    fill(tmp_path / "journal", [])
    assert loaded(spark, tmp_path / "journal").collect() == []


def test_a_journal_that_is_written_gives_what_it_had(spark, tmp_path):
    with Writer(tmp_path / "journal", seal_on_close=False) as writer:
        writer.append(numbered(10))
        assert loaded(spark, tmp_path / "journal").count() == 10
        writer.append(numbered(5, 10))
        assert loaded(spark, tmp_path / "journal").count() == 15


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"journal": "/nowhere/at/all"},
            "JournalError: /nowhere/at/all: there is no journal here; `oz record`",
        ),
        ({"journl": "x"}, "OptionError: option journl: there is no such option; did you mean journal"),
        ({"startingOffset": "1900"}, "option startingOffset=1900: the journal ends at offset 1803"),
    ],
)
def test_what_is_wrong_is_said(spark, mixed, options, said):
    with pytest.raises((AnalysisException, PythonException)) as caught:
        loaded(spark, options.get("journal", mixed), **options).count()
    assert said in str(caught.value)


def test_damage_is_said_with_its_place(spark, tmp_path):
    fill(tmp_path / "journal", [numbered(100)])
    [segment] = (tmp_path / "journal").glob("*.arrows")
    data = bytearray(segment.read_bytes())
    data[-300] ^= 1
    segment.write_bytes(data)
    with pytest.raises(
        PythonException, match=r"JournalError: .*byte .*`oz journal repair` keeps what is intact"
    ):
        loaded(spark, tmp_path / "journal").collect()


def test_payloads_are_decoded_and_what_does_not_decode_is_kept(spark, tmp_path):
    good = {"price": 1.5, "size": 3, "more": [1]}
    fill(
        tmp_path / "journal",
        [
            [
                ("m.good", msgpack.packb(good)),
                ("m.bad", b"\xc1"),
                ("m.list", msgpack.packb([1])),
                ("j.good", b'{"price": 1.5, "size": 3}'),
                ("j.part", b'{"price": null}'),
                ("j.bad", b'{"price": "much"}'),
                ("t.good", "grün".encode()),
                ("t.bad", b"\xff" + struct.pack("d", 1)),
                ("t.empty", b""),
            ]
        ],
    )
    schema = "price DOUBLE, size BIGINT"

    def payloads(subject, **options):
        rows = loaded(spark, tmp_path / "journal", subject=subject, **options).orderBy("offset").collect()
        return [(row.payload, row.payload_raw and bytes(row.payload_raw)) for row in rows]

    assert payloads("m.>", payload="msgpack", payloadSchema=schema) == [
        ((1.5, 3), None),
        (None, b"\xc1"),
        (None, msgpack.packb([1])),
    ]
    assert payloads("j.>", payload="json", payloadSchema=schema) == [
        ((1.5, 3), None),
        ((None, None), None),
        (None, b'{"price": "much"}'),
    ]
    assert payloads("t.>", payload="string") == [
        ("grün", None),
        (None, b"\xff" + struct.pack("d", 1)),
        ("", None),
    ]


def test_headers_keys_and_times_of_publishers_are_columns(spark, tmp_path):
    """With the directory as a path, and of times that count from now."""
    packed = msgpack.packb({"order": "o7", "venue": "X", "size": 3, "oz-time-ns": NOW})
    old = Record("a.b", time_ns=NOW)
    fill(tmp_path / "journal", [[old, Record("a.c", headers=packed)]])
    options = {"headers": "map", "keyHeader": "order", "timeHeader": "oz-time-ns", "startingTime": "-1h"}
    for reading in (
        spark.read,
        spark.read.schema("published TIMESTAMP, key BINARY, headers MAP<STRING, STRING>"),
    ):
        frame = reading.format("oz").options(**options).load(str(tmp_path / "journal"))
        [row] = frame.select(
            "headers.venue", "headers.size", F.col("key").cast("string"), "published"
        ).collect()
        when = datetime.fromtimestamp(NOW // 1000 / 1_000_000, UTC)
        assert tuple(row)[:3] == ("X", "3", "o7")
        assert row.published.astimezone(UTC) == when
