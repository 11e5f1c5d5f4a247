"""Spans of OpenTelemetry for messages, requests and handlers. The module needs the extra `tracing`.

    oz.tracing.instrument(node)

Theory of operation
-------------------
`instrument` replaces the class of one object with a subclass whose methods begin a span. Other objects keep their
class. Therefore this module adds no cost to objects without spans.

The context of a span is sent in headers, by default in `traceparent` of W3C Trace Context. Forwarders, journals and
Spark keep the headers of a message. Therefore the span of a handler is a child of the span that published the message,
even after a replay. The name of a span is an operation and a subject, as in OpenTelemetry's semantic conventions for
messaging.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, wraps
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any

from oz.errors import missing_module
from oz.message import Message
from oz.version import VERSION

try:
    from opentelemetry import propagate, trace
except ImportError:
    raise missing_module("opentelemetry", "tracing") from None

if TYPE_CHECKING:
    from oz.node.base import NodeBase
    from oz.publisher.base import PublisherBase
    from oz.subscriber.base import SubscriberBase

__all__ = ["instrument", "process", "uninstrument"]


def instrument(
    target: NodeBase | PublisherBase | SubscriberBase, *, tracer_provider: trace.TracerProvider | None = None
) -> None:
    """Begin a span for each publication, request and handler call of an object.

    `publish_many` begins no span, because its messages have no headers. A handler has spans only if the program
    subscribes after this call. A program that calls `receive` must call `process` to begin a span.

    Args:
        target: node, publisher or subscriber, of `oz` or `oz.asyncio`. A second call replaces the provider.
        tracer_provider: provider that creates the spans; None for the global provider of OpenTelemetry.

    Raises:
        TypeError: the object has another class.
    """
    if not hasattr(type(target), "_class_name"):
        raise TypeError(f"target is a node, a publisher or a subscriber, not {type(target).__name__}")
    tracer = trace.get_tracer("oz", VERSION, tracer_provider)
    target.__dict__["_spans"] = _Spans(tracer, getattr(target, "name", None))
    made: Any = type(target)
    if not hasattr(made, "_plain_class"):
        target.__class__ = _traced(made)


def uninstrument(target: NodeBase | PublisherBase | SubscriberBase) -> None:
    """End the effect of `instrument`. Handlers that already have spans still begin spans."""
    made: Any = type(target)
    target.__class__ = getattr(made, "_plain_class", made)


@contextmanager
def process(message: Message, *, tracer_provider: trace.TracerProvider | None = None) -> Iterator[trace.Span]:
    """Begin a span for a `with` block that processes a message, which `receive` or a journal has returned.

    Args:
        message: message to process. The span is a child of the span in which the message was published.
        tracer_provider: provider that creates the span; None for the global provider of OpenTelemetry.
    """
    with _Spans(trace.get_tracer("oz", VERSION, tracer_provider), None).process(message, None) as span:
        yield span


class _Spans:
    def __init__(self, tracer: trace.Tracer, name: str | None) -> None:
        self._tracer = tracer
        self._shared = {"messaging.system": "oz"} | ({} if name is None else {"messaging.client.id": name})

    @contextmanager
    def send(
        self, operation: str, kind: trace.SpanKind, subject: str | bytes, headers: dict[str, Any] | None
    ) -> Iterator[dict[str, Any] | None]:
        """Begin a span for a `with` block that sends a message. Yield headers that contain the span's context."""
        with self._span(operation, "send", kind, _text(subject), None):
            carrier: dict[str, Any] = {}
            propagate.inject(carrier)
            yield {**(headers or {}), **carrier} if carrier else headers

    @contextmanager
    def process(self, message: Message, group: str | None) -> Iterator[trace.Span]:
        """Begin a span for a `with` block that processes a message."""
        # Headers of a peer may have values that are not text.
        carrier = {name: value for name, value in message.headers.items() if type(value) is str}
        context = propagate.extract(carrier)
        with self._span("process", "process", trace.SpanKind.CONSUMER, message.subject, context) as span:
            if group is not None:
                span.set_attribute("messaging.consumer.group.name", group)
            yield span

    @contextmanager
    def _span(
        self, operation: str, kind_of_operation: str, kind: trace.SpanKind, subject: str, context: Any
    ) -> Iterator[trace.Span]:
        attributes = {
            **self._shared,
            "messaging.operation.name": operation,
            "messaging.operation.type": kind_of_operation,
            "messaging.destination.name": subject,
        }
        name = f"{operation} {subject}"
        with self._tracer.start_as_current_span(name, context, kind, attributes) as span:
            try:
                yield span
            except Exception as error:
                span.set_attribute("error.type", type(error).__qualname__)
                raise

    def wrap(self, handler: Callable[[Any], Any], group: str | None) -> Callable[[Any], Any]:
        """Return a handler that begins a span for each call."""
        if iscoroutinefunction(handler):

            @wraps(handler)
            async def handle_in_task(message: Message) -> Any:
                with self.process(message, group):
                    return await handler(message)

            return handle_in_task

        def handle(message: Message) -> Any:
            with ExitStack() as stack:
                stack.enter_context(self.process(message, group))
                result = handler(message)
                # If the handler returns an awaitable, the span ends when the awaitable has finished.
                return _finish(result, stack.pop_all()) if isawaitable(result) else result

        # A callable object may lack `__name__`, which `wraps` copies.
        return wraps(handler)(handle) if hasattr(handler, "__name__") else handle


async def _finish(result: Awaitable[Any], span: ExitStack) -> Any:
    with span:
        return await result


@cache
def _traced(plain: type[Any]) -> type[Any]:
    content: dict[str, Any] = {"__slots__": (), "__module__": plain.__module__, "_plain_class": plain}

    if hasattr(plain, "publish"):
        content["publish"] = _sending(plain.publish, "publish", trace.SpanKind.PRODUCER)
    if hasattr(plain, "request"):
        content["request"] = _sending(plain.request, "request", trace.SpanKind.CLIENT)
        content["request_many"] = _sending(plain.request_many, "request", trace.SpanKind.PRODUCER)
    if hasattr(plain, "subscribe"):

        def subscribe(
            self: Any, kind: Any, pattern: Any, handler: Any, dialect: Any, group: Any, *options: Any
        ) -> Any:
            if callable(handler):
                handler = self._spans.wrap(handler, group)
            return plain._subscribe(self, kind, pattern, handler, dialect, group, *options)

        content["_subscribe"] = subscribe
    return type(plain.__name__, (plain,), content)


def _sending(call: Callable[..., Any], operation: str, kind: trace.SpanKind) -> Callable[..., Any]:
    def send(
        self: Any, subject: Any, payload: Any = b"", *, headers: dict[str, Any] | None = None, **options: Any
    ) -> Any:
        with self._spans.send(operation, kind, subject, headers) as carried:
            return call(self, subject, payload, headers=carried, **options)

    async def send_in_task(
        self: Any, subject: Any, payload: Any = b"", *, headers: dict[str, Any] | None = None, **options: Any
    ) -> Any:
        with self._spans.send(operation, kind, subject, headers) as carried:
            return await call(self, subject, payload, headers=carried, **options)

    return send_in_task if iscoroutinefunction(call) else send


def _text(subject: Any) -> str:
    return subject.decode(errors="backslashreplace") if isinstance(subject, bytes) else str(subject)
