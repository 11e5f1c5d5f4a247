"""Spans of OpenTelemetry: the span of a handler is a child of the span that sent its message."""

import functools
import subprocess
import sys

import pytest

import oz
from support.waiting import until

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import oz.tracing
from oz.journal import Recorder, replay
from support.waiting import DEADLINE, Thread


class Spans:
    """Provider whose spans are kept."""

    def __init__(self):
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def instrument(self, node):
        oz.tracing.instrument(getattr(node, "raw", node), tracer_provider=self.provider)

    def wait(self, count):
        return until(lambda: len(found := self._exporter.get_finished_spans()) >= count and found)

    def named(self, name, count=1):
        def find():
            found = [span for span in self._exporter.get_finished_spans() if span.name == name]
            return found if len(found) >= count else None

        return until(find)


@pytest.fixture
def spans():
    return Spans()


@pytest.fixture
def pair(make, spans):
    nodes = make("first"), make("second")
    for node in nodes:
        spans.instrument(node)
    return nodes


def is_child(child, parent):
    return (
        child.context.trace_id == parent.context.trace_id and child.parent.span_id == parent.context.span_id
    )


def test_span_of_a_handler_is_a_child_of_the_publication(pair, spans):
    first, second = pair
    second.subscribe("order.*", handler=lambda message: None)
    first.wait_ready("second", timeout=DEADLINE)
    first.wait_for_subscribers("order.new", timeout=DEADLINE)
    first.publish("order.new", 1, headers={"mine": "kept"})
    process = spans.named("process order.new")[0]
    (publish,) = spans.named("publish order.new")
    assert is_child(process, publish)
    assert (publish.kind, process.kind) == (trace.SpanKind.PRODUCER, trace.SpanKind.CONSUMER)
    assert dict(publish.attributes) == {
        "messaging.system": "oz",
        "messaging.client.id": "first",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": "order.new",
    }
    assert process.attributes["messaging.operation.type"] == "process"


def test_own_headers_are_kept_and_the_context_is_in_traceparent(pair, spans):
    first, second = pair
    received = second.subscribe("order.*")
    first.wait_for_subscribers("order.new", timeout=DEADLINE)
    first.publish("order.new", 1, headers={"mine": "kept"})
    message = received.receive(timeout=DEADLINE)
    context = spans.named("publish order.new")[0].context
    assert dict(message.headers) == {
        "mine": "kept",
        "traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}",
    }
    with oz.tracing.process(message, tracer_provider=spans.provider):
        pass
    assert is_child(spans.named("process order.new")[0], spans.named("publish order.new")[0])


def test_request_is_a_client_span_around_the_handler_and_a_failure_is_in_both(pair, spans):
    first, second = pair

    def divide(message):
        return 12 // message.payload

    second.subscribe("svc.divide", handler=divide)
    first.wait_for_subscribers("svc.divide", timeout=DEADLINE)
    assert first.request("svc.divide", 4, timeout=DEADLINE).payload == 3
    with pytest.raises(oz.ReplyError):
        first.request("svc.divide", 0, timeout=DEADLINE)
    requests, processes = spans.named("request svc.divide", 2), spans.named("process svc.divide", 2)
    for request, process in zip(requests, processes, strict=True):
        assert is_child(process, request)
        assert request.kind == trace.SpanKind.CLIENT
        assert request.start_time <= process.start_time <= process.end_time
    assert processes[1].attributes["error.type"] == "ZeroDivisionError"
    assert requests[1].attributes["error.type"] == "ReplyError"


def test_span_of_a_member_names_its_group_and_a_publication_is_a_child_of_the_span_of_the_program(
    pair, spans
):
    first, second = pair
    second.subscribe("job.*", handler=lambda message: None, group="workers")
    first.wait_for_subscribers("job.1", timeout=DEADLINE)
    with spans.provider.get_tracer("program").start_as_current_span("work"):
        first.publish("job.1")
    process, publish = spans.named("process job.1")[0], spans.named("publish job.1")[0]
    assert process.attributes["messaging.consumer.group.name"] == "workers"
    assert is_child(process, publish)
    assert is_child(publish, spans.named("work")[0])


def test_span_of_a_coroutine_lasts_until_its_end(make, spans):
    import asyncio

    if make.kind != "asyncio":
        pytest.skip("only a loop calls coroutine functions")
    node = make("one")
    spans.instrument(node)

    async def work(prefix, message):
        with spans.provider.get_tracer("program").start_as_current_span("inner"):
            await asyncio.sleep(0)

    node.subscribe("plain", handler=functools.partial(work, ""))
    node.subscribe("awaited", handler=lambda message: work("", message))
    for subject in ("plain", "awaited"):
        node.publish(subject)
        process = spans.named(f"process {subject}")[0]
        assert any(is_child(inner, process) for inner in spans.named("inner"))
        assert all(
            inner.end_time <= process.end_time for inner in spans.named("inner") if is_child(inner, process)
        )


def test_recorded_context_is_replayed(tmp_path, spans):
    with oz.Publisher("tcp://127.0.0.1:*") as publisher:
        spans.instrument(publisher)
        with Recorder(tmp_path / "journal", ">", source=publisher.endpoint) as recorder:
            thread = Thread(recorder.run)
            publisher.wait_for_subscribers(timeout=DEADLINE)
            publisher.publish("a.b", b"1")
            until(lambda: recorder.stats.recorded == 1)
            recorder.stop()
            thread.outcome()
    (message,) = oz.journal.Journal(tmp_path / "journal").read()
    with oz.tracing.process(message, tracer_provider=spans.provider):
        pass
    (publish,) = spans.named("publish a.b")
    assert is_child(spans.named("process a.b")[0], publish)
    with oz.Publisher("tcp://127.0.0.1:*") as again, oz.Subscriber(again.endpoint) as subscriber:
        spans.instrument(subscriber)
        subscriber.subscribe("a.*", lambda message: None)
        subscriber.wait_ready(timeout=DEADLINE)
        replay(oz.journal.Journal(tmp_path / "journal"), again)
        thread = Thread(lambda: subscriber.run(timeout=DEADLINE))
        assert is_child(spans.named("process a.b", 2)[1], publish)
    thread.outcome()


def test_uninstrumented_object_has_its_own_class_again(make, spans):
    node = make("one")
    raw = getattr(node, "raw", node)
    plain = type(raw)
    oz.tracing.instrument(raw, tracer_provider=spans.provider)
    oz.tracing.instrument(raw, tracer_provider=spans.provider)
    assert isinstance(raw, plain)
    assert type(raw) is not plain
    with pytest.raises(TypeError, match="handler"):
        node.subscribe("a", handle=print)
    oz.tracing.uninstrument(raw)
    assert type(raw) is plain


def test_other_objects_are_refused():
    with pytest.raises(TypeError, match="not str"):
        oz.tracing.instrument("node")


def test_missing_library_is_named():
    code = "import sys; sys.modules['opentelemetry'] = None\nimport oz\nimport oz.tracing"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE)
    assert "MissingDependency" in done.stderr
    assert ".[tracing]" in done.stderr
