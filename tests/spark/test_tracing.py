"""Spans of OpenTelemetry over a journal and Spark: the header `traceparent` travels with each row."""

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")
pytest.importorskip("opentelemetry.sdk", reason="without the SDK of OpenTelemetry")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pyspark.sql import functions as F

import oz
import oz.tracing
from oz.journal import Recorder
from spark.sink_listening import Listening
from support.ports import lasting_endpoint
from support.waiting import DEADLINE, Thread, until


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter):
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(exporter))
    return made


def process(messages, provider):
    """Begin and end a span for each message."""
    for message in messages:
        with oz.tracing.process(message, tracer_provider=provider):
            pass


def links_of(exporter):
    """Return the subject, the trace and the parent of each processing span, and these of each publication."""
    found = {"publish": set(), "process": set()}
    for span in exporter.get_finished_spans():
        operation, subject = span.name.split()
        parent = span.context.span_id if operation == "publish" else span.parent.span_id
        found[operation].add((subject, span.context.trace_id, parent))
    return found


def test_message_of_the_sink_continues_the_span_that_published_the_recorded_message(
    spark, tmp_path, provider, exporter
):
    journal, endpoint = tmp_path / "journal", lasting_endpoint()
    with oz.Publisher(endpoint) as publisher, Recorder(journal, "a.*", source=endpoint) as recorder:
        oz.tracing.instrument(publisher, tracer_provider=provider)
        thread = Thread(recorder.run)
        publisher.wait_for_subscribers("a.x", timeout=DEADLINE)
        for number in range(3):
            publisher.publish(f"a.{number}", b"payload")
        publisher.flush()
        until(lambda: recorder.stats.recorded == 3)
        recorder.stop()
        thread.outcome()
    frame = spark.read.format("oz").load(str(journal)).select("subject", "payload", "headers")
    with Listening() as sub:
        frame.write.format("oz").mode("append").option("endpoint", sub.endpoint).save()
        process(sub.received(3), provider)
    found = links_of(exporter)
    assert len(found["publish"]) == 3
    assert found["process"] == found["publish"]


def test_column_of_headers_sets_the_parent(spark, provider, exporter):
    trace_id, parent = 0x1F << 64, 0x2A << 8
    text = f"00-{trace_id:032x}-{parent:016x}-01"
    frame = spark.createDataFrame([("a.b", "1")], "subject string, payload string")
    frame = frame.withColumn("headers", F.create_map(F.lit("traceparent"), F.lit(text)))
    with Listening() as sub:
        frame.write.format("oz").mode("append").option("endpoint", sub.endpoint).save()
        process(sub.received(1), provider)
    assert links_of(exporter)["process"] == {("a.b", trace_id, parent)}
