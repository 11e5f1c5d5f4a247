"""What the sink's options and columns may be, and what is said when they are not."""

import os
import tempfile

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.sql import types as T

import oz
from oz.errors import OptionError, SinkError
from oz.spark.sink.columns import find_columns
from oz.spark.sink.settings import read_settings

SOMEWHERE = {"endpoint": "tcp://hub:5555"}


def batch(**options):
    return read_settings({**SOMEWHERE, **options}, is_streaming=False)


def streaming(**options):
    return read_settings({**SOMEWHERE, **options}, is_streaming=True)


def test_an_endpoint_is_enough():
    read = batch()
    assert (read.connect, read.bind, read.dialect) == (("tcp://hub:5555",), (), "nats")
    assert (read.payload, read.invalid, read.subscribers, read.timeout) == ("msgpack", "fail", 1, 30.0)
    assert read.staging == os.path.join(tempfile.gettempdir(), f"oz-sink-{os.getuid()}")


def test_names_of_options_are_of_any_case_and_endpoints_several():
    read = read_settings({"EndPoint": "tcp://a:1, tcp://b:2", "bind": "ipc:///tmp/x"}, is_streaming=False)
    assert read.endpoints == ("ipc:///tmp/x", "tcp://a:1", "tcp://b:2")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endpoint": ""}, "give where to publish to: endpoint=tcp://hub:5555"),
        ({"endpoint": "hub"}, "'hub' is no endpoint; one looks like tcp://"),
        ({"endpoint": "inproc://x"}, "joins sockets of one context"),
        ({"bind": "tcp://*:*"}, "another port for each batch"),
        ({"dialect": "french"}, "dialect='french': it is one of nats, rv"),
        ({"payload": "xml"}, "payload='xml': it is one of msgpack, json"),
        ({"invalid": "ignore"}, "invalid='ignore': it is one of fail, skip"),
        ({"subscribers": "-1"}, "with 0 rows are published even if nobody listens"),
        ({"subscribers": "²"}, "how many subscriptions"),
        ({"timeout": "soon"}, "timeout='soon': it is a number of seconds"),
        ({"timeout": "nan"}, "timeout='nan': it is a number of seconds"),
        (
            {"staging": "s3://bucket/x"},
            "a directory on a file system that the driver and all executors share",
        ),
        ({"subcribers": "1"}, "did you mean subscribers?"),
        ({"path": "/x"}, "the sink has no such option"),
        ({"topic": "a.b"}, "did you mean subject?"),
        ({"kafka.bootstrap.servers": "hub:9092"}, "did you mean endpoint, or bind?"),
    ],
)
def test_a_wrong_option_is_named_with_what_to_write(options, said):
    with pytest.raises(OptionError) as raised:
        batch(**options)
    assert said in str(raised.value)
    assert isinstance(raised.value, oz.OzError)


@pytest.mark.parametrize("written", ["/data/check", "file:/data/check", "file:///data/check"])
def test_a_stream_stages_under_its_checkpoint(written):
    assert streaming(checkpointLocation=written).staging == "/data/check/oz-staging"


@pytest.mark.parametrize("checkpoint", ["s3a://bucket/check", "hdfs://name/check", None])
def test_a_stream_whose_checkpoint_is_no_directory_needs_staging(checkpoint):
    given = {} if checkpoint is None else {"checkpointLocation": checkpoint}
    with pytest.raises(OptionError, match=r"option staging: give one: .* checkpoint"):
        streaming(**given)
    assert streaming(**given, staging="/shared/staging").staging == "/shared/staging"


def test_what_spark_says_of_a_query_is_no_unknown_option():
    assert streaming(checkpointLocation="/x", queryName="flights").connect == ("tcp://hub:5555",)


def test_a_run_is_of_a_batch_only():
    assert batch(run="nightly").run == "nightly"
    with pytest.raises(OptionError, match="a streaming query has an id of its own"):
        streaming(run="nightly", checkpointLocation="/x")


# columns -------------------------------------------------------------------------------------------------


def schema(**columns):
    return T.StructType([T.StructField(name, kind) for name, kind in columns.items()])


STRING, BINARY, LONG = T.StringType(), T.BinaryType(), T.LongType()


@pytest.mark.parametrize("subject", [STRING, BINARY])
@pytest.mark.parametrize("payload", [STRING, BINARY, schema(i=LONG)])
def test_subject_and_payload_are_enough_and_others_are_left_alone(subject, payload):
    found = find_columns(schema(offset=LONG, Subject=subject, payload=payload))
    assert (found.subject, found.payload, found.headers, found.key) == (1, 2, None, None)
    assert found.has_struct == isinstance(payload, T.StructType)


NUMBERS = [
    *(T.ByteType(), T.ShortType(), T.IntegerType(), LONG),
    *(T.FloatType(), T.DoubleType(), T.DecimalType(2, 1)),
]
IN_HEADERS = [STRING, BINARY, T.BooleanType(), *NUMBERS]


@pytest.mark.parametrize("headers", [BINARY, *(T.MapType(STRING, kind) for kind in IN_HEADERS)], ids=str)
def test_headers_and_key_may_be_there_with_all_kinds_of_numbers(headers):
    found = find_columns(schema(key=STRING, headers=headers, payload=BINARY, subject=STRING))
    assert (found.subject, found.payload, found.headers, found.key) == (3, 2, 1, 0)


def test_all_that_is_wrong_is_named_at_once():
    with pytest.raises(SinkError) as raised:
        find_columns(schema(subject=LONG, headers=T.ArrayType(STRING), key=LONG, value=BINARY))
    said = str(raised.value)
    assert "column 'subject' is bigint, not string or binary" in said
    assert "column 'headers' is array<string>, not binary or a map" in said
    assert "column 'key' is bigint, not string or binary" in said
    assert "there is no column 'payload'" in said
    assert "The columns are: subject bigint, headers array<string>, key bigint, value binary" in said


def test_two_columns_that_spark_takes_for_one_are_refused():
    with pytest.raises(SinkError, match="there are two columns 'subject'"):
        find_columns(schema(subject=STRING, SUBJECT=STRING, payload=BINARY))
