"""The sink of `format("oz")`: rows become messages, at least once, with ids that stay."""

import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import msgpack
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import oz
from oz.errors import SinkError
from oz.spark.sink import Delivery, read_sink_options
from oz.spark.sink_rows import Row, RowIds, unpack_headers
from spark.sink_listening import Listening
from support.ports import lasting_endpoint, lasting_port
from support.scripts import ENVIRONMENT
from support.waiting import DEADLINE, Thread, until


def rows(spark, count, partitions=3):
    return spark.range(0, count, 1, partitions).selectExpr("concat('a.', id) subject", "string(id) payload")


def publish(frame, sub, **options):
    frame.write.format("oz").mode("append").option("endpoint", sub.endpoint).options(**options).save()


def error_of(frame, **options):
    with pytest.raises(PySparkException) as raised:
        frame.write.format("oz").mode("append").options(**options).save()
    return str(raised.value)


def payloads(sub):
    """Count the payloads; after the end of the `with` block everything that arrived is in it."""
    return Counter(message.payload for message in sub.messages)


def test_rows_arrive_once_and_in_order_within_a_partition(spark):
    with Listening() as sub:
        publish(rows(spark, 3000), sub)
        sub.received(3000)
    numbers = [int(message.payload) for message in sub.messages]
    assert sorted(numbers) == list(range(3000))
    for partition in range(3):
        mine = [number for number in numbers if number // 1000 == partition]
        assert mine == sorted(mine)


def test_structs_maps_and_recorded_headers_become_payloads_and_headers(spark):
    packed = msgpack.packb({"unit": "s", "oz-id": b"x"})
    frame = spark.createDataFrame(
        [("p", (1, Decimal("2.50"), None), {"h": "v"}, None), ("q", (2, None, float("nan")), None, packed)],
        "subject string, value struct<i: int, d: decimal(9, 2), f: double>, map map<string, string>, "
        "raw binary",
    )
    with Listening() as sub:
        publish(frame.selectExpr("subject", "value payload", "map headers"), sub, payload="json")
        publish(frame.selectExpr("subject", "value payload", "raw headers"), sub)
        sub.received(4)
    found = {(message.subject, message.payload): message for message in sub.messages}
    assert found["p", b'{"i": 1, "d": "2.50", "f": null}'].headers == {"h": "v"}
    assert ("q", b'{"i": 2, "d": null, "f": "NaN"}') in found
    recorded = next(message for message in sub.messages if message.headers.get("unit") == "s")
    assert msgpack.unpackb(recorded.payload)["i"] == 2
    assert unpack_headers(packed) == ({"unit": "s"}, [])


def test_one_subject_for_all_rows_and_raw_subjects(spark):
    frame = spark.createDataFrame(
        [("a.\ufffd", b"a.\xff", b"1")], "subject string, subject_raw binary, payload binary"
    )
    with Listening("zmq:a.") as sub:
        publish(frame, sub, dialect="zmq")
        publish(frame, sub, subject="a.b")
        sub.received(2)
    assert {message.subject_bytes for message in sub.messages} == {b"a.\xff", b"a.b"}


# ids --------------------------------------------------------------------------------------------------------

contents = st.lists(st.tuples(st.binary(max_size=2), st.binary(max_size=2)), max_size=30)


def ids_of(content, *identity):
    ids = RowIds(*identity)
    return Counter(ids.of_content(*each) for each in content)


@given(contents, st.randoms())
def test_ids_depend_on_rows_and_not_on_their_order(content, chance):
    shuffled = content.copy()
    chance.shuffle(shuffled)
    found = ids_of(content, "query", 1, 2)
    assert found == ids_of(shuffled, "query", 1, 2)
    assert set(found.values()) <= {1}  # equal rows have different ids too
    others = [("query", 1, 3), ("query", 2, 2), ("other", 1, 2)]
    assert all(found.keys().isdisjoint(ids_of(content, *each)) for each in others)


def test_fields_of_a_row_cannot_run_into_each_other():
    contents = [(b"ab", b""), (b"a", b"b"), (b"", b"ab")]
    contents += [(b"a", b"", b"b"), (b"a", b"", None, b"b"), (b"a", b"", b"", b"b")]
    assert len({RowIds("q", 0, 0).of_content(*each) for each in contents}) == 6


def test_a_column_id_identifies_a_row_in_all_batches_and_partitions():
    first, second = RowIds("query", 1, 2), RowIds("query", 7, 0)
    assert first.of_value(5) == second.of_value(5) != first.of_value(6)
    assert first.of_value(b"k") == second.of_value(b"k") != RowIds("other", 1, 2).of_value(b"k")


def test_writes_with_equal_names_are_delivered_once(spark):
    with Listening(dedupe=True) as sub:
        publish(rows(spark, 200), sub, run="day-1")
        publish(rows(spark, 200).orderBy(F.rand()).coalesce(1), sub, run="day-2")
        publish(rows(spark, 200, partitions=1), sub, run="day-2")  # the same partition, another order
        publish(rows(spark, 200), sub)
        publish(rows(spark, 200), sub)
        sub.received(800)
    assert set(payloads(sub).values()) == {4}


def test_a_column_id_makes_rows_equal_across_partitions(spark):
    numbered = rows(spark, 200).withColumn("id", F.col("payload").cast("long"))
    with Listening(dedupe=True) as sub:
        publish(numbered, sub, run="again")
        publish(numbered.repartition(5), sub, run="again")
        publish(numbered.withColumn("id", F.col("id").cast("string")), sub, run="again")
        sub.received(400)
    assert set(payloads(sub).values()) == {2}


@pytest.mark.parametrize("dedupe", [True, False])
def test_a_batch_that_spark_repeats_has_the_same_ids(spark, tmp_path, dedupe):
    source = tmp_path / "source"
    rows(spark, 100, partitions=1).write.parquet(str(source))

    def run(sub):
        stream = spark.readStream.schema("subject string, payload string").parquet(str(source))
        writer = stream.writeStream.format("oz").option("endpoint", sub.endpoint)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
            availableNow=True
        ).start().awaitTermination()

    with Listening(dedupe=dedupe) as sub:
        run(sub)
        # As if the driver had been killed before Spark recorded the end of the batch.
        shutil.rmtree(tmp_path / "checkpoint" / "commits")
        run(sub)
        sub.received(100 if dedupe else 200)
    assert set(payloads(sub).values()) == {1 if dedupe else 2}
    assert len(payloads(sub)) == 100


def test_update_mode_through_foreach_batch(spark, tmp_path):
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    counted = []

    def run(sub):
        stream = spark.readStream.schema("subject string, payload string").parquet(str(source))
        counts = stream.groupBy("subject").count().selectExpr("subject", "string(count) payload")

        def publish_batch(batch, number):
            counted.append(number)
            publish(batch, sub)

        query = counts.writeStream.outputMode("update").foreachBatch(publish_batch)
        query.option("checkpointLocation", str(checkpoint)).trigger(
            availableNow=True
        ).start().awaitTermination()

    with Listening(dedupe=True) as sub:
        rows(spark, 20, partitions=1).write.parquet(str(source))
        run(sub)
        rows(spark, 10, partitions=1).write.mode("append").parquet(str(source))
        run(sub)
        Path(checkpoint, "commits", "1").unlink()
        Path(checkpoint, "commits", ".1.crc").unlink()
        run(sub)  # repeats the second batch
        sub.received(30)
    assert counted == [0, 1, 1]
    assert payloads(sub) == {b"1": 20, b"2": 10}


# errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option endpoint: give an endpoint to bind to"),
        ({"endpoint": "tcp://*:*"}, "must be a number"),
        ({"endpoint": "tcp://*:5603-5600"}, "a range has 1 to"),
        ({"endpoint": "epgm://lo;239.192.1.1:5555"}, "option of Spark: endpoint = "),
        ({"bind": "ipc://x"}, "use endpoint"),
        ({"endpoint": "tcp://hub"}, "tcp://hub"),
        ({"endpoint": "ipc://x", "subscriber": "1"}, "use subscribers"),
        ({"endpoint": "ipc://x", "topic": "a"}, "use subject"),
        ({"endpoint": "ipc://x", "timeout": "-1"}, "seconds above 0"),
        ({"endpoint": "ipc://x", "subject": "a.*"}, "option of Spark: subject = "),
        ({"endpoint": "ipc://x", "payload": "xml"}, "one of msgpack, json"),
        ({"endpoint": "ipc://x", "subscribers": "0"}, "integer of at least 1"),
    ],
)
def test_wrong_options_are_refused_with_the_remedy(spark, options, message):
    assert message in error_of(rows(spark, 1), **options)


def test_wrong_columns_are_refused_with_all_faults(spark):
    error = error_of(spark.sql("select 1 payload, map(1, 2) headers"), endpoint="ipc://x")
    for part in ("'payload' is int", "'headers' is map<int,int>", "no column 'subject'", "option subject"):
        assert part in error
    with pytest.raises(PySparkException, match='mode\\("append"\\)'):
        rows(spark, 1).write.format("oz").mode("overwrite").option("endpoint", "ipc://x").save()


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("'a.*' subject, 'x' payload", "row 0 of partition 0"),
        ("string(null) subject, 'x' payload", "the subject is null"),
        ("'a' subject, binary(null) payload", "the payload is null"),
        ("'a' subject, 'x' payload, binary('x') headers", "MessagePack map"),
        ("'a' subject, 'x' payload, -1 id", "at least 0"),
        ("'a' subject, 'x' payload, x'81a96f7a2d6672616d657391c40161' headers", "recorded with 2 frames"),
    ],
)
def test_a_row_that_cannot_be_published_fails_with_its_place(spark, expression, message):
    with Listening() as sub:
        assert message in error_of(spark.sql(f"select {expression}"), endpoint=sub.endpoint)
    assert not sub.messages


def test_an_absent_subscriber_fails_the_write(spark, tmp_path):
    error = error_of(rows(spark, 1), endpoint=f"ipc://{tmp_path}/nobody", timeout="0.2")
    assert f"ipc://{tmp_path}/nobody" in error
    assert "0 of 1 subscribers" in error


def test_endpoints_in_use_fail_the_write_with_the_remedy(spark):
    endpoint = lasting_endpoint()
    with oz.Publisher(endpoint):
        error = error_of(rows(spark, 1), endpoint=endpoint, timeout="0.2")
    assert endpoint in error
    assert "as many endpoints as tasks run at once" in error


def test_tasks_share_the_ports_of_a_range(spark):
    first, last = lasting_port(), lasting_port()
    while last != first + 1:
        first, last = last, lasting_port()
    ends = [f"tcp://127.0.0.1:{port}" for port in (first, last)]
    with Listening(endpoint=ends) as sub:
        frame = rows(spark, 3000, partitions=4)
        frame.write.format("oz").mode("append").option("endpoint", f"tcp://127.0.0.1:{first}-{last}").save()
        sub.received(3000)
    assert sorted(int(message.payload) for message in sub.messages) == list(range(3000))


def test_a_subscriber_that_does_not_read_fails_the_write(spark):
    with Listening() as sub:
        sub.pause_after(10)
        large = spark.range(0, 2000, 1, 1).selectExpr("'a.b' subject", "repeat('x', 100000) payload")
        error = error_of(large, endpoint=sub.endpoint, timeout="1")
        sub.go_on()
    assert "check the subscriber" in error or "check them" in error


# a task and its subscriber, without Spark --------------------------------------------------------------------


def options_for(sub, **more):
    return read_sink_options({"endpoint": sub.endpoint, "timeout": "30", **more})


def row(number):
    return Row(b"a.b", b"%d" % number, None, None, b"%d" % number)


@pytest.mark.parametrize("published", [0, 100])
def test_a_task_fails_if_its_subscriber_leaves(published):
    with Listening() as sub:
        delivery = Delivery(options_for(sub), 0)
        for number in range(published):
            delivery.publish(row(number))
        sub.received(published)
    until(lambda: not delivery._publisher.subscribers)
    delivery.publish(row(published))
    with pytest.raises(SinkError, match="a subscriber left"):
        delivery.finish()


def test_a_task_fails_if_a_member_of_a_group_dies_with_unacknowledged_messages():
    with Listening() as sub:
        delivery = Delivery(options_for(sub, subscribers="1", timeout="2"), 0)
        with running_subscriber(sub.endpoint) as other:
            delivery._publisher.wait_for_subscribers(count=2)
            other.send_signal(signal.SIGSTOP)
            delivery.publish(row(0))
            sub.received(1)
            other.kill()
            other.wait()
            with pytest.raises(SinkError, match="1 of 2 subscribers have not acknowledged"):
                delivery.finish()


def test_a_task_waits_until_a_group_has_handled_its_messages():
    endpoint = lasting_endpoint()
    with oz.Subscriber(endpoint, filtering="publisher") as sub:
        sub.subscribe(">", group="workers", ack="handled")
        delivery = Delivery(read_sink_options({"endpoint": endpoint, "timeout": "30"}), 0)
        delivery.publish(row(0))
        message = sub.receive(timeout=DEADLINE)
        # Another thread answers the publisher: a second `receive` of this thread would acknowledge the message.
        answering = Thread(sub.run)
        (session,) = delivery._engine.sessions()
        until(lambda: session.acked == session.following)
        finishing = Thread(delivery.finish)
        finishing.wait_until_stuck()
        assert not delivery._engine.is_closing
        message.ack()
        finishing.outcome()
    answering.outcome()


@contextmanager
def running_subscriber(endpoint):
    """Run a subscriber in a process of its own, which is killed at the end."""
    code = "import sys, oz; sub = oz.Subscriber(sys.argv[1].split(','), filtering='publisher'); "
    code += "sub.subscribe('>'); [None for _ in sub]"
    process = subprocess.Popen([sys.executable, "-c", code, endpoint], env=ENVIRONMENT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
