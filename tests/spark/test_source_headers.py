"""Columns that come out of headers. No session is needed."""

from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import msgpack
import pyarrow as pa
from pyspark.sql.types import BinaryType, MapType, StringType, StructField, StructType, TimestampType

import oz
from oz.journal import Record
from oz.spark.source.batch import JournalReader
from oz.spark.source.headers import HeaderColumns
from oz.spark.source.options import read_options
from oz.spark.source.rows import ddl
from spark.source_journals import fill

SCHEMA = StructType(
    [
        StructField("headers", MapType(StringType(), StringType())),
        StructField("key", BinaryType()),
        StructField("published", TimestampType()),
    ]
)
NS = 1_772_366_400_000_001_999
HEADERS = [
    {"key": "k1", "at": NS, "oz-id": b"\x01", "oz-more": [b"frame"]},
    {
        "key": b"\xff",
        "at": "2026-03-01T13:00:00+01:00",
        "n": 1,
        "x": 1.5,
        "yes": True,
        "b": b"\x01",
        "none": None,
    },
    {"key": 7, "at": "2026-03-01T12:00:00"},
    {"at": True},
    {},
]


def rows(directory, **options):
    records = [Record("a", headers=msgpack.packb(one)) for one in HEADERS] * 2
    fill(directory, [[*records, Record("a"), Record("a", headers=b"\xc1")]])
    given = {"headers": "map", "keyHeader": "key", "timeHeader": "at", **options}
    made = JournalReader(read_options({"journal": str(directory), **given}), SCHEMA)
    return [row for share in made.partitions() for batch in made.read(share) for row in batch.to_pylist()]


def test_a_map_has_text_as_it_is_and_all_else_as_json(tmp_path):
    found = [row["headers"] for row in rows(tmp_path / "journal")]
    assert found[:5] == found[5:10]
    assert found[0] == [
        ("key", "k1"),
        ("at", str(NS)),
    ]  # what oz itself keeps there is none of the publisher's
    assert dict(found[1]) | {"key": None} == {
        "key": None,
        "at": "2026-03-01T13:00:00+01:00",
        "n": "1",
        "x": "1.5",
        "yes": "true",
        "b": "AQ==",
        "none": None,
    }
    assert found[4:] == [[], *found[5:10], None, None]


def test_a_key_is_bytes_whatever_the_header_has(tmp_path):
    found = [row["key"] for row in rows(tmp_path / "journal")]
    assert found[:5] == [b"k1", b"\xff", b"7", None, None]


def test_the_time_of_a_publisher_is_nanoseconds_or_iso_with_a_zone(tmp_path):
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    found = [row["published"] for row in rows(tmp_path / "journal")]
    assert found[:5] == [noon.replace(microsecond=1), noon, None, None, None]


def test_columns_that_were_not_asked_for_are_not_there(tmp_path):
    assert "`headers` BINARY" in ddl("raw", None)
    assert "key" not in ddl("raw", None)
    assert "`headers` MAP<STRING, STRING>" in ddl("raw", None, HeaderColumns(as_map=True))
    assert ddl("raw", None, HeaderColumns(key="id", time="at")).endswith(
        "`key` BINARY, `published` TIMESTAMP"
    )
    with pytest.raises(oz.errors.OptionError, match="option schema='key': there are the columns"):
        JournalReader(read_options({"journal": str(tmp_path)}), StructType([SCHEMA["key"]]))


def test_headers_are_read_once_for_all_messages_that_have_the_same(monkeypatch):
    seen = []
    unpack = msgpack.unpackb
    monkeypatch.setattr(
        "oz.spark.source.headers.msgpack.unpackb",
        lambda packed, **options: seen.append(packed) or unpack(packed, **options),
    )
    packed = pa.array([msgpack.packb({"a": 1})] * 1000 + [None], pa.binary())
    found = HeaderColumns(as_map=True).of(packed)["headers"]
    assert len(found) == 1001
    assert len(seen) == 1
