"""Rows as the sink's tasks make them ready: what becomes of subjects, payloads, headers and bad rows."""

import datetime
import json
from decimal import Decimal

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import msgpack
import pyarrow as pa
from pyspark.sql import types as T

from oz.errors import OptionError, SinkError
from oz.spark.sink.columns import STAGED, RowReader, find_columns
from oz.spark.sink.encoding import unpack_headers
from oz.spark.sink.settings import read_settings

STRUCT = T.StructType()
KINDS = {
    pa.string(): T.StringType(),
    pa.binary(): T.BinaryType(),
    pa.int8(): T.ByteType(),
    pa.decimal128(3, 2): T.DecimalType(3, 2),
}


def kind_of(arrow):
    if pa.types.is_map(arrow):
        return T.MapType(T.StringType(), KINDS[arrow.item_type])
    return KINDS.get(arrow, STRUCT)


def reader_of(batch, partition=0, **options):
    fields = [T.StructField(one.name, kind_of(one.type)) for one in batch.schema]
    settings = read_settings({"endpoint": "tcp://hub:1", **options}, is_streaming=False)
    columns = find_columns(T.StructType(fields), needs_subject=settings.subject is None)
    return RowReader(columns, settings, partition)


def ready(columns, **options):
    batch = pa.RecordBatch.from_pydict(columns)
    made = list(reader_of(batch, **options).ready(iter([batch])))
    assert all(one.schema == STAGED for one in made)
    return [row for one in made for row in one.to_pylist()]


def payloads(values, **options):
    rows = ready({"subject": ["a"] * len(values), "payload": values}, **options)
    return [row["payload"] for row in rows]


def test_text_and_bytes_stay_as_they_are():
    rows = ready({"subject": [b"a.b", b"c"], "payload": ["ü", ""], "key": ["k", None]})
    assert [row["subject"] for row in rows] == [b"a.b", b"c"]
    assert [row["payload"] for row in rows] == ["ü".encode(), b""]
    assert [row["key"] for row in rows] == [b"k", None]
    assert payloads([b"\x00\xff"]) == [b"\x00\xff"]


def test_one_subject_may_be_that_of_all_rows():
    rows = ready({"payload": ["x", "y"]}, subject="stats.delay")
    assert [row["subject"] for row in rows] == [b"stats.delay"] * 2
    rows = ready({"subject": [None, "a..b"], "payload": ["x", "y"]}, subject="stats.delay")
    assert [row["subject"] for row in rows] == [b"stats.delay"] * 2  # as Kafka's topic: the option wins
    with pytest.raises(OptionError, match=r"option subject='a\.\.b'"):
        ready({"payload": ["x"]}, subject="a..b")


def test_a_spark_string_that_is_not_utf8_stays_as_it_is():
    broken = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())
    assert payloads(broken) == [b"\xff\xfe"]


NESTED = {
    "i": 1, "f": 1.5, "s": "ü", "b": b"\x01", "n": None, "l": [1, 2], "o": {"x": True},
    "d": datetime.date(2026, 3, 1), "t": datetime.datetime(2026, 3, 1, 9, 30, tzinfo=datetime.UTC),
    "m": Decimal("1.50"),
}  # fmt: skip


def test_a_struct_becomes_msgpack_as_the_codec_of_the_bus_reads_it():
    (payload,) = payloads([NESTED])
    as_text = {"d": "2026-03-01", "t": "2026-03-01T09:30:00+00:00", "m": "1.50"}
    assert msgpack.unpackb(payload) == NESTED | as_text


def test_a_struct_becomes_json_that_every_reader_takes():
    (payload,) = payloads([NESTED], payload="json")
    expected = {"d": "2026-03-01", "t": "2026-03-01T09:30:00+00:00", "m": "1.50", "b": "AQ=="}
    assert json.loads(payload) == NESTED | expected
    odd = [{"f": float("nan"), "l": [{"x": float("-inf")}]}]
    assert [json.loads(one) for one in payloads(odd, payload="json")] == [
        {"f": "NaN", "l": [{"x": "-Infinity"}]}
    ]


def test_a_map_in_a_struct_becomes_a_map():
    kind = pa.struct([("m", pa.map_(pa.string(), pa.int64()))])
    assert [msgpack.unpackb(one) for one in payloads(pa.array([{"m": [("a", 1)]}], kind))] == [
        {"m": {"a": 1}}
    ]


def test_headers_come_as_a_map_or_as_the_journal_packs_them():
    as_map = pa.array([[("h", "v")], [], None], pa.map_(pa.string(), pa.string()))
    rows = ready({"subject": ["a"] * 3, "payload": [b""] * 3, "headers": as_map})
    assert [row["headers"] and unpack_headers(row["headers"]) for row in rows] == [
        ({"h": "v"}, []),
        None,
        None,
    ]
    packed = msgpack.packb({"h": 1, "oz-more": [b"second frame"], 5: "what oz does not publish"})
    (row,) = ready({"subject": ["a"], "payload": [b""], "headers": [packed]})
    assert unpack_headers(row["headers"]) == ({"h": 1}, [b"second frame"])


@pytest.mark.parametrize(
    ("kind", "value", "found"), [(pa.int8(), -5, -5), (pa.decimal128(3, 2), Decimal("1.50"), "1.50")]
)
def test_headers_may_be_any_number_and_decimals_become_digits(kind, value, found):
    headers = pa.array([[("h", value)]], pa.map_(pa.string(), kind))
    (row,) = ready({"subject": ["a"], "payload": [b""], "headers": headers})
    assert unpack_headers(row["headers"]) == ({"h": found}, [])


BAD = [
    ({"subject": ["a", None]}, "row 1 of partition 7: the subject is null"),
    ({"subject": ["a", "a..b"]}, "row 1 of partition 7: nats subject 'a..b'"),
    ({"subject": [b"a", b"\xff"]}, "row 1 of partition 7: nats subject"),
    ({"subject": ["a", "\x001x"]}, "row 1 of partition 7: "),
    ({"subject": ["a", "_LOCAL.x"]}, "_LOCAL subjects stay on this host"),
    ({"payload": ["a", None]}, "row 1 of partition 7: the payload is null"),
    ({"payload": [{"i": 1}, None]}, "row 1 of partition 7: the payload is null"),
    ({"headers": [None, b"\xc1"]}, "row 1 of partition 7: headers cannot be encoded: ValueError"),
    ({"headers": [None, msgpack.packb([1])]}, "headers are no MessagePack map"),
]


@pytest.mark.parametrize(("columns", "said"), BAD)
def test_a_row_that_cannot_be_published_is_named(columns, said):
    batch = pa.RecordBatch.from_pydict({"subject": ["a", "b"], "payload": [b"1", b"2"], **columns})
    with pytest.raises(SinkError) as raised:
        list(reader_of(batch, partition=7).ready(iter([batch])))
    assert said in str(raised.value)
    assert "nothing of this batch was published" in str(raised.value)


@pytest.mark.parametrize(("columns", "said"), BAD)
def test_such_rows_are_counted_when_they_are_to_be_skipped(columns, said):
    batch = pa.RecordBatch.from_pydict({"subject": ["a", "b"], "payload": [b"1", b"2"], **columns})
    reader = reader_of(batch, partition=7, invalid="skip")
    (made,) = reader.ready(iter([batch]))
    assert made.num_rows == 1
    assert reader.skipped == 1
    assert said in reader.example


def test_a_struct_whose_text_is_not_utf8_is_a_row_that_cannot_be_published():
    broken = pa.Array.from_buffers(pa.string(), 2, pa.array([b"ok", b"\xff"]).buffers())
    batch = pa.RecordBatch.from_arrays([pa.array(["a", "b"]), pa.StructArray.from_arrays([broken], ["s"])],
                                       ["subject", "payload"])  # fmt: skip
    with pytest.raises(SinkError, match="row 1 of partition 0: the payload cannot be encoded: UnicodeDecode"):
        list(reader_of(batch).ready(iter([batch])))


def test_rows_are_counted_over_batches():
    batch = pa.RecordBatch.from_pydict({"subject": ["a", "b"], "payload": [b"1", b"2"]})
    bad = pa.RecordBatch.from_pydict({"subject": ["a", "a b"], "payload": [b"1", b"2"]})
    with pytest.raises(SinkError, match="row 5 of partition 0: nats subject 'a b'"):
        list(reader_of(batch).ready(iter([batch, batch.slice(0, 0), batch, bad])))
