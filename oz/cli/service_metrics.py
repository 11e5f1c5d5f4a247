"""Metrics of a service for Prometheus, which the option `--metrics` of all services serves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from oz.node.metrics import COUNTER, GAUGE, Family, exposition, families

if TYPE_CHECKING:
    from oz.cli.serving import Runnable

_GAUGES = ("interests", "is_full")
"""Fields of `stats` that are present values. The other fields count events since the service was created."""


@contextmanager
def metrics_server(address: str | None, service: Runnable, is_ready: Callable[[], bool]) -> Iterator[str]:
    """Serve the metrics of a service in a `with` block; yield the bound address, or an empty text without a server.

    Args:
        address: address to bind, as `HOST:PORT`; None for no server.
        service: service to describe. The metrics come from its attributes `stats` and `_node_engines`, if they exist.
        is_ready: function that returns True if `/healthz` returns 200, and False if it returns 503.

    Raises:
        ConfigurationError: the address cannot be used.
    """
    if address is None:
        yield ""
        return
    # Imported here, because the import takes 30 ms and most services run without an HTTP server.
    from oz.metrics import Server

    with Server(address, lambda: service_metrics(service), is_ready) as server:
        yield server.address


def service_metrics(service: Runnable) -> str:
    """Return the counters of a service, and the metrics of its nodes."""
    engines: tuple[Any, ...] = getattr(service, "_node_engines", ())
    own = _counters(type(service).__name__.lower(), getattr(service, "stats", None))
    return exposition([*own, *families(engine.sampling.snapshot() for engine in engines)])


def _counters(kind: str, stats: Any) -> Iterator[Family]:
    for field in () if stats is None else fields(stats):
        is_gauge = field.name in _GAUGES
        name = f"oz_{kind}_{field.name}{'' if is_gauge else '_total'}"
        text = f"{field.name} of the {kind}; see oz.services.{type(stats).__name__}."
        yield Family(name, GAUGE if is_gauge else COUNTER, text, {(): getattr(stats, field.name)})
