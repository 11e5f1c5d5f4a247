"""Metrics of nodes for Prometheus.

The module has a collector for `prometheus_client`, and an HTTP server without dependencies.

The collector needs the extra `metrics`:

    prometheus_client.REGISTRY.register(oz.metrics.Collector(node))
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from oz.errors import ClosedError, ConfigurationError, OwnershipError, missing_module
from oz.logs import peer_logger
from oz.node.metrics import CONTENT_TYPE, COUNTER, families

if TYPE_CHECKING:
    from oz.node.base import NodeBase

__all__ = ["Collector", "Server"]

# Time limit in seconds for a client to send its request. The same limit applies to the answer.
_TIMEOUT = 10.0
_log = peer_logger("oz.metrics")


def parse_address(setting: str, address: str, *, example: str) -> tuple[str, int]:
    """Return the host and the port of an HTTP server's address.

    Args:
        setting: name of the setting that an error shows.
        address: address as `HOST:PORT`. An IPv6 address may be in brackets.
        example: valid address that an error shows.

    Raises:
        ConfigurationError: the address is malformed.
    """
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 65_536):
        raise ConfigurationError(setting, address, "argument", f"give HOST:PORT, such as {example}")
    return host.strip("[]"), int(port)


def format_address(host: str, port: int) -> str:
    """Return `HOST:PORT`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Collector:
    """Collector of `prometheus_client` for one node."""

    def __init__(self, node: NodeBase) -> None:
        """Create a collector for a registry.

        Args:
            node: node whose metrics are collected, an `oz.Node` or `oz.asyncio.Node`.

        Raises:
            MissingDependency: `prometheus_client` is not installed.
        """
        try:
            from prometheus_client import core
        except ImportError:
            raise missing_module("prometheus_client", "metrics") from None
        self._node, self._core = node, core

    def describe(self) -> list[Any]:
        """Return an empty list, so that the registry does not call `collect` when the collector is registered."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the current metrics.

        Yield nothing if the node is closed, or belongs to the parent of a forked process.
        """
        try:
            snapshot = self._node.snapshot()
        except (ClosedError, OwnershipError):
            return
        for family in families([snapshot]):
            is_counter = family.kind == COUNTER
            kind = self._core.CounterMetricFamily if is_counter else self._core.GaugeMetricFamily
            names = [name for name, _ in next(iter(family.samples))]
            metric = kind(family.name.removesuffix("_total"), family.help, labels=names)
            for labels, value in family.samples.items():
                metric.add_metric([text for _, text in labels], value)
            yield metric


class Server:
    """HTTP server for Prometheus and for health probes. It runs in separate threads.

    `/metrics` returns the metrics. `/healthz` returns status 200 if `is_healthy` returns True, else status 503.
    """

    def __init__(
        self, address: str, metrics: Callable[[], str], is_healthy: Callable[[], bool] = lambda: True
    ) -> None:
        """Bind to an address, and start to serve requests.

        Args:
            address: address as `HOST:PORT`; port 0 picks a free port.
            metrics: function that returns the metrics as text, such as `node.metrics`. Threads of the server call it.
            is_healthy: function that returns whether the program is healthy, such as `node.is_healthy`. Threads of the
                server call it.

        Raises:
            ConfigurationError: the address is malformed, or the server cannot bind to it.
        """
        place = parse_address("metrics", address, example="127.0.0.1:9464")
        try:
            self._server = _HttpServer(place, _Handler)
        except OSError as error:
            rule = f"it cannot be bound: {error.strerror or error}"
            raise ConfigurationError("metrics", address, "argument", rule) from None
        self._server.answers = {"/metrics": (metrics, CONTENT_TYPE), "/healthz": (is_healthy, "text/plain")}
        self._thread = threading.Thread(target=self._server.serve_forever, name="oz metrics", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Address of the server, host and bound port with a colon between them."""
        host, port = self._server.server_address[:2]
        return format_address(str(host), port)

    def close(self) -> None:
        """Close the server. A second call has no effect."""
        # In the child of a fork the thread does not exist, and `shutdown` would wait for it for ever.
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    answers: dict[str, tuple[Callable[[], Any], str]]

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self.deadlines: dict[socket.socket, float] = {}
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.deadlines[request] = monotonic() + _TIMEOUT
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """End connections whose deadline has passed. `serve_forever` calls it about twice a second."""
        now = monotonic()
        for request, deadline in self.deadlines.copy().items():
            if now >= deadline:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        """Remove the deadline of a connection that ends."""
        self.deadlines.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log errors at level DEBUG, because most errors occur when a client closes its connection early."""
        _log.debug("a client of %s failed", self.server_address, exc_info=True)

    def server_bind(self) -> None:
        """Bind without the lookup of the host name, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "oz", int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    server: _HttpServer
    server_version = "oz"

    def do_GET(self) -> None:
        function, kind = self.server.answers.get(self.path.partition("?")[0], (None, "text/plain"))
        if function is None:
            self._send(404, kind, "see /metrics and /healthz\n")
            return
        self.server.deadlines.pop(self.connection, None)
        try:
            found = function()
        except Exception as error:
            _log.warning("%s failed: %s", self.path, error)
            self._send(503, "text/plain", f"{type(error).__name__}\n")
            return
        if isinstance(found, bool):
            self._send(200 if found else 503, kind, "ok\n" if found else "not healthy\n")
        else:
            self._send(200, kind, found)

    def _send(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        self.server.deadlines[self.connection] = monotonic() + _TIMEOUT
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing, because Prometheus scrapes every few seconds."""
