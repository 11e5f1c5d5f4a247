"""What becomes of payloads that do not decode, and of a schema that changes."""

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

import oz
from oz.errors import OptionError
from oz.journal import Record
from oz.spark.source.batch import JournalReader
from oz.spark.source.options import read_options
from oz.spark.source.rows import Malformed, ddl
from spark.source_journals import fill, rows_of, run_to_the_end, streamed

PRICED = StructType([StructField("price", LongType())])
LATER = [b'{"price": 1}', b'{"price": 2, "size": 3}', b"{", b"[]", b'{"size": 4}']


def rows(directory, corrupt="payload_raw", **options):
    given = {"payload": "json", "payloadSchema": "price BIGINT", **options}
    kind = StringType() if given["payload"] == "string" else PRICED
    fields = [StructField("offset", LongType(), False), StructField("payload", kind)]
    schema = StructType([*fields, StructField(corrupt, BinaryType())])
    given = {name: value for name, value in given.items() if value is not None}
    made = JournalReader(read_options({"journal": str(directory), **given}), schema)
    batches = [batch for share in made.partitions() for batch in made.read(share)]
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


@pytest.fixture
def mixed(tmp_path):
    gap = Record.of_gap("nats:a", lost=1)
    fill(tmp_path / "journal", [[*(("a", each) for each in LATER), gap]])
    return tmp_path / "journal"


def test_permissive_keeps_them_in_the_column_that_is_named(mixed):
    found = rows(mixed, "bad", columnNameOfCorruptRecord="bad")
    assert found == [
        (0, {"price": 1}, None),
        (1, {"price": 2}, None),
        (2, None, b"{"),
        (3, None, b"[]"),
        (4, {"price": None}, None),
    ]
    assert rows(mixed, mode="PERMISSIVE") == found


def test_dropmalformed_leaves_them_out_and_says_so(mixed, caplog):
    assert [row[0] for row in rows(mixed, mode="dropmalformed")] == [0, 1, 4]
    assert "the payload of offset 2 is no json of the schema: b'{'; it and 1 more are left out" in caplog.text
    # What is no message has no payload that could be malformed.
    assert [row[0] for row in rows(mixed, mode="dropmalformed", gaps="true")] == [0, 1, 4, 5]


def test_failfast_names_the_first(mixed):
    with pytest.raises(
        oz.JournalError, match=r"payload of offset 2 is no json .*; mode=permissive gives null"
    ):
        rows(mixed, mode="failfast")
    assert len(rows(mixed, mode="failfast", payload="string", payloadSchema=None)) == 5


def test_modes_need_a_payload_that_is_decoded():
    for options in ({"mode": "failfast"}, {"columnNameOfCorruptRecord": "bad"}):
        with pytest.raises(OptionError, match="needs a payload that is decoded"):
            read_options({"journal": "/j", **options})
    with pytest.raises(OptionError, match="it is one of permissive, failfast, dropmalformed"):
        read_options({"journal": "/j", "payload": "string", "mode": "drop"})
    assert ddl("string", None, malformed=Malformed(column="bad")).endswith("`bad` BINARY")


def test_a_query_goes_on_when_its_schema_has_changed(spark, tmp_path):
    """Fields that only later messages have are null before; those that the schema lost are passed by."""
    for first, schema in ((0, "price BIGINT"), (5, "size INT, price BIGINT"), (10, "size INT")):
        fill(tmp_path / "journal", [[("a", each) for each in LATER]])
        frame = streamed(spark, tmp_path / "journal", payload="json", payloadSchema=schema)
        query = run_to_the_end(frame.select("offset", "payload.*"), tmp_path)
        assert sum(each.numInputRows for each in query.recentProgress) == 5, first
    whole = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "rows")).orderBy("offset")
    found = [(row.price, row["size"]) for row in whole.collect()]
    priced = [(1, None), (2, None), (None, None), (None, None), (None, None)]
    both = [(1, None), (2, 3), (None, None), (None, None), (None, 4)]
    assert found == priced + both + [(None, size) for _, size in both]
    assert len(rows_of(spark, tmp_path, "offset")) == 15
