"""What the options say, and how those that are wrong are refused. No session is needed."""

import time

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CharType,
    DayTimeIntervalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    VarcharType,
    VariantType,
)

import oz
from oz.errors import OptionError
from oz.spark.source.batch import JournalReader
from oz.spark.source.headers import HeaderColumns
from oz.spark.source.options import NAMES, read_options
from oz.spark.source.position import Position
from oz.spark.source.rows import DecodedRows, Malformed, ddl
from oz.spark.source.stream import JournalStreamReader

SCHEMA = StructType([StructField("offset", LongType(), False)])


def read(**options):
    return read_options({"journal": "/j", **options})


def test_names_are_read_in_any_case():
    for name, value in {"maxRowsPerTrigger": 5, "maxrowspertrigger": 5, "MAXROWSPERTRIGGER": "5"}.items():
        assert read(**{name: value}).most_rows == 5


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("subjects", "subject"),
        ("maxRows", "maxRowsPerTrigger"),
        ("startOffset", "startingOffset"),
        ("maxOffsetsPerTrigger", "maxRowsPerTrigger"),
        ("includeHeaders", "headers"),
        ("startingTimestamp", "startingTime"),
        ("startingOffsetsByTimestamp", "startingTime"),
        ("endingOffsetsByTimestamp", "endingTime"),
        ("endpoint", "journal, a directory that `oz record` writes"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_known_one(option, meant):
    with pytest.raises(
        OptionError, match=f"there is no such option; did you mean {meant}\\? There are {NAMES[0]}"
    ):
        read(**{option: "1"})


def test_no_option_is_named_for_one_of_another_connector_that_has_none_here():
    with pytest.raises(OptionError, match="there is no such option; There are"):
        read(**{"fetchOffset.numRetries": "3"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("startingOffset", "first"),
        ("startingOffset", "-1"),
        ("startingTime", "yesterday"),
        ("startingTime", "1772366400123456789"),
        ("endingTime", "nan"),
        ("endingOffset", "1.5"),
        ("maxRowsPerTrigger", "0"),
        ("maxBytesPerTrigger", "1k"),
        ("minOffsetsPerTrigger", "0"),
        ("maxTriggerDelay", "15 minutes"),
        ("startingTime", "-1y"),
        ("startingTime", "1h"),
        ("headers", "json"),
        ("maxRowsPerTrigger", str(1 << 63)),
        ("failOnDataLoss", "no"),
        ("gaps", "1"),
        ("payload", "avro"),
        ("numPartitions", "none"),
        ("payloadSchema", "a INT"),
        ("journal", " "),
        ("journal", "s3://bucket/bus"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_name(name, value):
    with pytest.raises(OptionError, match=f"option {name}='"):
        read(**{name: value})


def test_options_that_contradict_each_other_are_refused():
    with pytest.raises(OptionError, match="give it or rowsPerPartition, not both"):
        read(numPartitions=2, rowsPerPartition=5)
    with pytest.raises(OptionError, match="give the directory of a journal"):
        read_options({"subject": "a"})
    with pytest.raises(OptionError, match="startingOffset=20: it is behind endingOffset=10"):
        read(startingOffset=20, endingOffset=10)
    with pytest.raises(OptionError, match="startingTime: it is later than endingTime"):
        read(startingTime="2026-03-02T00Z", endingTime="2026-03-01T00Z")
    with pytest.raises(oz.PatternError):
        read(subject="a\nb..c")


def test_a_path_is_a_journal():
    assert read_options({"path": "file:/data/j"}).journal == read_options({"journal": "/data/j"}).journal
    with pytest.raises(OptionError, match="option journal: give it or path, not both"):
        read(path="/other")


def test_the_end_is_what_is_there_unless_something_else_is_said():
    assert read(endingOffset="Latest").end is None
    assert read(endingOffset=0).end == 0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("now", 0), ("-1h", 3600), (" -1.5 h", 5400), ("-90s", 90), ("-250ms", 0.25), ("-2w", 1_209_600)],
)
def test_times_may_count_from_now(text, seconds):
    before = time.time_ns()
    found = read(startingTime=text)
    assert before <= found.start_ns + seconds * 10**9 <= time.time_ns()
    assert found.relative == {"startingTime"}


@pytest.mark.parametrize(("text", "seconds"), [("15m", 900), ("90", 90), ("1.5s", 1.5)])
def test_a_delay_is_a_duration(text, seconds):
    assert read(minOffsetsPerTrigger=1, maxTriggerDelay=text).delay == seconds
    with pytest.raises(OptionError, match="maxTriggerDelay: it needs minOffsetsPerTrigger"):
        read(maxTriggerDelay=text)


def test_options_for_the_other_kind_of_read_are_refused():
    for options in (
        {"startingOffset": "latest"},
        {"maxRowsPerTrigger": 1},
        {"maxBytesPerTrigger": 1},
        {"minOffsetsPerTrigger": 1},
    ):
        with pytest.raises(OptionError):
            JournalReader(read(**options), SCHEMA)
    with pytest.raises(OptionError, match="it is for a batch"):
        JournalStreamReader(read(endingOffset=5), SCHEMA)
    with pytest.raises(OptionError, match="a stream has it anew at each start"):
        JournalStreamReader(read(endingTime="-1h"), SCHEMA)


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("0", 0),
        ("1772366400.123456789", 1_772_366_400_123_456_789),
        ("-1.5", -1_500_000_000),
        ("2026-03-01T12:00:00Z", 1_772_366_400_000_000_000),
        ("2026-03-01 13:00:00.000001+01:00", 1_772_366_400_000_001_000),
    ],
)
def test_times_are_iso_or_seconds(text, time_ns):
    assert read(startingTime=text).start_ns == time_ns


@pytest.mark.parametrize("text", ["2026-03-01T12:00:00", "2026-03-01"])
def test_a_time_without_a_zone_is_refused(text):
    with pytest.raises(OptionError, match=r"it names no time zone: write 2026-03-01T.*[+]00:00 if it is UTC"):
        read(endingTime=text)


@pytest.mark.parametrize("subject", ["a.>,b.>", "a.b, c.d", "x.*\na,b"])
def test_patterns_with_commas_between_are_refused(subject):
    with pytest.raises(OptionError, match=r"several patterns are one a line. .* the dialect: nats:a"):
        read(subject=subject)


def test_a_comma_is_taken_where_the_dialect_is_named():
    assert [each.text for each in read(subject="nats:a,b\nregex:a{1,2}").patterns()] == ["a,b", "a{1,2}"]


def test_several_patterns_are_one_a_line():
    assert [each.text for each in read(subject="a.*\n\nrv:b.>\n").patterns()] == ["a.*", "b.>"]


def test_columns_of_decoded_payloads():
    assert ddl("raw", None).endswith("`payload` BINARY, `position` BIGINT")
    assert ddl("string", None).endswith("`payload` STRING, `position` BIGINT, `payload_raw` BINARY")
    assert ddl("json", "a INT").endswith("`payload` STRUCT<a INT>, `position` BIGINT, `payload_raw` BINARY")
    for schema in (None, " "):
        with pytest.raises(OptionError, match="payloadSchema"):
            ddl("msgpack", schema)


MISREAD = {
    "price DOUBEL": "price DOUBEL",
    "price": "price",
    "size INT, DOUBLE": "DOUBLE",
    "a: DECIMAL(9, 2), b: INTT": "b: INTT",
    "a ARRAY<INT>, b INTT, c ARRAY<INT>": "b INTT",
    "a INT, b STRUCT<x: INT, y: ARRAY<INTT>>": "b STRUCT<x: INT, y: ARRAY<INTT",
    "a MAP<STRING>": "a MAP<STRING>",
    "a INT DEFAULT 5": "a INT DEFAULT",
    "a DECIMAL(50, 2)": "a DECIMAL(50",
    "a DOUBLE PRECISION": "a DOUBLE PRECISION",
    "a INT; DROP TABLE t": "a INT;",
    "a INT COMMENT x": "a INT COMMENT x",
    "a ARRAY<INT": "a ARRAY<INT",
}


@pytest.mark.parametrize(("schema", "wrong"), MISREAD.items())
def test_a_payload_schema_that_spark_would_misread_is_refused_by_name(schema, wrong):
    with pytest.raises(OptionError) as raised:
        ddl("json", schema)
    assert f": {wrong!r} is no name and type as in" in str(raised.value)


@pytest.mark.parametrize("schema", ["a INT,", ",", "a INT,, b INT"])
def test_a_comma_without_a_column_is_refused(schema):
    with pytest.raises(OptionError, match=r"payloadSchema=.* is no name and type as in"):
        ddl("json", schema)


@pytest.mark.parametrize(
    "schema",
    [
        "a INT NOT NULL COMMENT 'x, y z', `b, c``d`DOUBLE",
        "a: decimal(9, 2), m MAP<STRING, ARRAY<STRUCT<x: INT, y: DOUBLE>>>, t timestamp_ntz",
        "s STRUCT<x INT, y INT>, v VARCHAR(5)",
        "a TIMESTAMP WITHOUT TIME ZONE, b INTERVAL DAY TO SECOND",
        'c STRING COLLATE UTF8_LCASE COMMENT "it\'s"',
        "e STRUCT<>, d dec(5), n numeric, `not` INT COMMENT 'it\\'s' NOT NULL",
        "date DATE, s: STRUCT<`<`: INT NOT NULL>",
    ],
)
def test_a_payload_schema_goes_to_spark_as_it_is(schema):
    assert f"STRUCT<{schema}>" in ddl("json", schema)


def test_a_type_that_no_payload_decodes_to_is_refused_before_anything_is_read():
    kind = StructType([StructField("lasted", DayTimeIntervalType())])
    with pytest.raises(OptionError, match=r"payloadSchema=.*no payload decodes to duration"):
        DecodedRows(StructType([StructField("payload", kind)]), "msgpack")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (VariantType(), "no payload decodes to variant"),
        (ArrayType(VarcharType(3)), r"no payload decodes to varchar\(3\)"),
        (StructType([StructField("b", CharType(3))]), r"no payload decodes to char\(3\)"),
        (StructType([StructField("b", LongType(), False)]), "'b' is NOT NULL, and a payload may lack it"),
        (StructType([StructField("b", LongType())] * 2), "there are two fields 'b'"),
        (MapType(StringType(), VariantType()), "no payload decodes to variant"),
    ],
)
def test_what_spark_would_fail_at_row_by_row_is_refused(kind, said):
    payload = StructType([StructField("a", kind)])
    with pytest.raises(OptionError, match=f"payloadSchema=.*{said}"):
        DecodedRows(StructType([StructField("payload", payload)]), "json")


def test_a_column_that_may_be_null_is_not_taken_for_one_that_is_not():
    def rows(**kinds):
        fields = [StructField(name, kind, False) for name, kind in kinds.items()]
        return DecodedRows(StructType(fields), "raw")

    rows(offset=LongType(), time_ns=LongType(), subject=StringType(), payload=BinaryType())
    for name, kind in {"lost": LongType(), "origin": BinaryType(), "reply_to": BinaryType()}.items():
        with pytest.raises(OptionError, match=f"schema='{name} NOT NULL': it may be null"):
            rows(**{name: kind})
    with pytest.raises(OptionError, match="payload NOT NULL"):
        DecodedRows(StructType([StructField("payload", StringType(), False)]), "string")


@pytest.mark.parametrize("name", ["subject", "Payload", "journal", " ", "key"])
def test_malformed_payloads_have_a_column_of_their_own(name):
    malformed, headers = Malformed(column=name), HeaderColumns(key="order")
    with pytest.raises(OptionError, match=r"columnNameOfCorruptRecord='.*it is a column of its own, beside"):
        ddl("json", "a INT", headers, malformed, names_journal=True)
    payload = StructField("payload", StructType([StructField("a", LongType())]))
    with pytest.raises(OptionError, match="columnNameOfCorruptRecord"):
        DecodedRows(StructType([payload]), "json", headers, malformed, names_journal=True)


def test_a_column_for_malformed_payloads_may_have_any_other_name():
    assert ddl("json", "a INT", malformed=Malformed(column="a`b")).endswith(", `a``b` BINARY")
    assert "`journal`" in ddl("json", "a INT", malformed=Malformed(column="journal"))


def test_a_position_of_another_journal_is_refused():
    position = Position("a" * 32, 7, 2)
    assert Position.from_data(position.as_data(), "/j", "a" * 32) == position
    with pytest.raises(
        oz.JournalError, match=r"this journal has the id b+, and the checkpoint is one of journal a+"
    ):
        Position.from_data(position.as_data(), "/j", "b" * 32)
    for data in ({}, {"journal": "a" * 32, "offset": None}, {"partition-0": {"index": 3}}):
        with pytest.raises(oz.JournalError, match="a checkpoint of another source"):
            Position.from_data(data, "/j", "a" * 32)
