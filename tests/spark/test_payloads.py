"""Payloads decode to their schema or to null, and no bytes make the decoders raise."""

from datetime import UTC, datetime

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.sql import types as T

import oz.spark
from oz.spark.payloads import decode_json, decode_msgpack, decode_string
from oz.wire.codec import MsgpackCodec

QUOTE = pa.struct(
    [
        ("price", pa.float64()),
        ("size", pa.int32()),
        ("name", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("more", pa.map_(pa.string(), pa.int64())),
        ("inner", pa.struct([("x", pa.int8())])),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
EMPTY = dict.fromkeys(QUOTE.names)


def decoded(value, kind=QUOTE):
    made = decode_msgpack(pa.array([MsgpackCodec().encode(value)], pa.binary()), kind)
    made.validate(full=True)
    assert made.type == kind
    return made.to_pylist()[0]


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ({"price": 1.5, "size": 3, "name": "é"}, {"price": 1.5, "size": 3, "name": "é"}),
        ({"price": 2}, {"price": 2.0}),
        ({"price": 2**60}, {"price": float(2**60)}),
        ({"unknown": [1], "size": None}, {}),
        ({"tags": ["a", None], "more": {"k": 1}}, {"tags": ["a", None], "more": [("k", 1)]}),
        ({"tags": [], "more": {}}, {"tags": [], "more": []}),
        ({"inner": {"x": 3, "y": 4}}, {"inner": {"x": 3}}),
        ({"at": msgpack.Timestamp(1, 5000)}, {"at": datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC)}),
        ({"at": "2026-01-01T01:00:00+01:00"}, {"at": datetime(2026, 1, 1, tzinfo=UTC)}),
        ({}, {}),
    ],
)
def test_what_fits_is_decoded(value, fits):
    assert decoded(value) == EMPTY | fits


@pytest.mark.parametrize(
    "value",
    [
        {"size": 1.0}, {"size": True}, {"size": 2**40}, {"size": "1"}, {"name": b"bytes"}, {"name": 1},
        {"tags": ["a", 1]}, {"tags": "a"}, {"more": {1: 1}}, {"more": {None: 1}}, {"inner": {"x": 300}},
        {"inner": [1]}, {"at": 5}, {"at": "yesterday"}, [1, 2], "text", 7, None
    ],
)  # fmt: skip
def test_what_does_not_fit_is_null(value):
    assert decoded(value) is None


def test_rows_around_one_that_does_not_fit_are_whole():
    values = [{"tags": ["a", "b"], "size": 1}, {"tags": ["c", 1]}, None, {"tags": ["d"], "more": {"k": 2}}]
    values += [{"more": {"x": "y"}}, {"more": {"z": 3}}]
    payloads = pa.array([msgpack.packb(value) for value in values] + [None, b"", b"\xc1", b"\x01\x01"])
    assert decode_msgpack(payloads, QUOTE).to_pylist() == [
        EMPTY | {"tags": ["a", "b"], "size": 1},
        None,
        None,
        EMPTY | {"tags": ["d"], "more": [("k", 2)]},
        None,
        EMPTY | {"more": [("z", 3)]},
        *[None] * 4,
    ]


@given(st.lists(st.none() | st.binary(max_size=40), max_size=20))
def test_no_bytes_raise(payloads):
    for decode in (decode_msgpack, decode_json):
        assert len(decode(pa.array(payloads, pa.binary()), QUOTE)) == len(payloads)
    assert len(decode_string(pa.array(payloads, pa.binary()))) == len(payloads)


_INTS = st.integers(-(2**63), 2**64 - 1)
_VALUES = st.recursive(
    st.none() | st.booleans() | _INTS | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*QUOTE.names, "x", 1]), inner)
    ),
    max_leaves=8,
)


@given(_VALUES)
def test_no_value_raises_and_what_fits_is_unchanged(value):
    found = decoded(value)
    if found is not None:
        for name in ("price", "size", "name", "tags"):
            assert found[name] == value.get(name)


def test_nesting_too_deep_to_read_is_null():
    deep = [b"\x91" * 100_000 + b"\x01", b"\x81\x01" * 2000 + b"\x01"]
    assert decode_msgpack(pa.array(deep), QUOTE).to_pylist() == [None, None]
    assert decode_json(pa.array([b"[" * 200_000]), QUOTE).to_pylist() == [None]


@pytest.mark.parametrize("kind", [pa.int64(), pa.list_(pa.int64()), pa.map_(pa.string(), pa.int64())])
def test_other_types_than_structs(kind):
    payloads = pa.array([msgpack.packb(value) for value in (5, [1, 2], {"a": 1}, "x")])
    found = [value for value in decode_msgpack(payloads, kind).to_pylist() if value is not None]
    assert found in ([5], [[1, 2]], [[("a", 1)]])


def test_spark_types_and_arrow_types_mean_the_same():
    fields = T.StructType().add("a", T.IntegerType()).add("d", T.DecimalType(10, 2)).add("t", T.DateType())
    payloads = pa.array([msgpack.packb({"a": 1, "d": "1.25", "t": "2026-03-01"}), msgpack.packb({"d": "x"})])
    first, second = decode_msgpack(payloads, fields).to_pylist()
    assert (first["a"], str(first["d"]), str(first["t"]), second) == (1, "1.25", "2026-03-01", None)
    with pytest.raises(TypeError, match="no payload decodes to"):
        decode_msgpack(payloads, pa.struct([("a", pa.duration("us"))]))


ROWS = [
    ({"price": 1.5, "name": "a"}, (1.5, "a")),
    ({"price": 2.5, "more": 1}, (2.5, None)),
    ({"price": "dear"}, None),
    (b"\xc1{", None),
    (b"", None),
    (None, None),
]


def test_from_msgpack_makes_a_struct_and_null_of_a_malformed_payload(spark):
    payloads = [
        value if value is None or isinstance(value, bytes) else msgpack.packb(value) for value, _ in ROWS
    ]
    table = spark.createDataFrame(list(enumerate(payloads)), "number int, payload binary")
    column = oz.spark.from_msgpack("payload", "price double, name string")
    assert table.select(column).columns == ["from_msgpack(payload)"]
    found = table.select("number", column.alias("quote")).orderBy("number").collect()
    assert [row.quote and tuple(row.quote) for row in found] == [expected for _, expected in ROWS]
    lists = spark.createDataFrame([(msgpack.packb([1, 2]),)], "payload binary")
    assert lists.select(oz.spark.from_msgpack(lists.payload, T.ArrayType(T.LongType()))).first()[0] == [1, 2]


def test_failfast_fails_the_query_and_names_the_payload(spark):
    table = spark.createDataFrame([(b"\xc1{",), (None,)], "payload binary")
    column = oz.spark.from_msgpack("payload", "price double", mode="failfast")
    with pytest.raises(Exception, match=r"PayloadError.*b'\\xc1\{' is no MessagePack"):
        table.select(column).collect()
    assert table.where("payload is null").select(column).first()[0] is None
    with pytest.raises(ValueError, match=r"DROPMALFORMED.*isNotNull"):
        oz.spark.from_msgpack("payload", "price double", mode="DROPMALFORMED")


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (T.VariantType(), "no payload decodes to"),
        (T.ArrayType(T.VarcharType(3)), r"varchar\(3\): no payload decodes to"),
        (
            T.StructType([T.StructField("n", T.LongType(), False)]),
            "'n' is NOT NULL, and a payload may lack it",
        ),
        (T.StructType([T.StructField("n", T.LongType())] * 2), "the field 'n' appears twice"),
    ],
)
def test_types_without_payloads_are_refused_before_the_query(kind, why):
    with pytest.raises(TypeError, match=why):
        oz.spark.from_msgpack("payload", kind)
