"""Endpoints of a publisher: each endpoint for plain subscribers has a second endpoint for links.

For the TCP port `*`, the publisher picks a port whose link port is free too. If the program gives a port whose link
port is in use, the publisher logs a warning and serves plain subscribers only. Later, `retry` tries to bind the link
port again. If the endpoint given as `links=` is in use, `bind` raises EndpointError.

Linux also uses ports above 32,767 for outgoing connections. An outgoing connection can occupy a link port, and
occupies the port for one more minute after it has ended.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, cast

import zmq

from oz.errors import ConfigurationError
from oz.logs import logger
from oz.publisher.keys import PublisherKeys
from oz.publisher.links import LinkListener
from oz.publisher.plain import PlainSubscribers
from oz.transport import descriptors
from oz.transport.endpoints import as_text, check, refused_by_libzmq
from oz.transport.errors import EndpointError
from oz.transport.ipc_paths import SocketFiles
from oz.transport.routers import link_endpoint

_ATTEMPTS = 64  # Maximum number of ports that `bind` tries for `*`.
_MULTICAST = ("pgm", "epgm")
_BIND_HINT = "bind to an address or a network interface of this host, or to tcp://*:PORT"
_CONNECT_HINT = "name the host and the port of the other side"

_log = logger("oz.publisher")


class PublisherEndpoints:
    """Endpoints of a publisher. The caller of each method holds the lock of the engine.

    Attributes:
        bound: dict from each bound endpoint to its link endpoint, or to None. An endpoint that `bind_links` has bound
            is mapped to itself.
        connected: connected endpoints.
        listener: ROUTER socket for links; None before the first link endpoint.
        taken: bound endpoints without links, because another socket uses their link endpoint.
    """

    def __init__(
        self,
        plain: PlainSubscribers,
        create_listener: Callable[[], LinkListener],
        links: str | bool | None,
        *,
        own_context: bool,
        keys: PublisherKeys | None = None,
    ) -> None:
        """Start without endpoints.

        Args:
            plain: socket of the plain subscribers.
            create_listener: function that creates the ROUTER.
            links: endpoint for links. None derives a link endpoint from each bound endpoint, False turns links off.
            own_context: whether the publisher created its context. If so, inproc endpoints are refused, because no
                other socket can use this context.
            keys: keys of the publisher; None without security.
        """
        self._plain, self._create_listener = plain, create_listener
        self._links, self._own_context, self._keys = links, own_context, keys
        self.bound: dict[str, str | None] = {}
        self.connected: list[str] = []
        self.listener: LinkListener | None = None
        self.taken: list[str] = []
        self._plain_files, self._link_files = SocketFiles(), SocketFiles()

    @property
    def last(self) -> str | None:
        """Last bound endpoint. Without a bound endpoint, the last connected endpoint, or None."""
        return next(reversed(self.bound), None) or (self.connected[-1] if self.connected else None)

    @property
    def all(self) -> tuple[str, ...]:
        """All bound endpoints, then all connected endpoints."""
        return (*self.bound, *self.connected)

    @property
    def link_endpoints(self) -> tuple[str, ...]:
        """Bound link endpoints, without repetitions."""
        return tuple(dict.fromkeys(endpoint for endpoint in self.bound.values() if endpoint is not None))

    def bind(self, endpoint: str | bytes) -> None:
        """Bind to an endpoint, and to its link endpoint.

        Raises:
            EndpointError: the endpoint cannot be used, or the endpoint given as `links=` cannot be used.
        """
        text = as_text(endpoint)
        self._check(text)
        descriptors.need_for_endpoint(text)
        picks_port = text.startswith("tcp://") and text.endswith(":*") and self._links is None
        if self._links is not False and self.listener is None:
            # Create the ROUTER before binding, because subscribers may ask for links as soon as the endpoint is bound.
            self.listener = self._create_listener()
        for left in reversed(range(_ATTEMPTS if picks_port else 1)):
            bound = self._bind_plain(text)
            try:
                self.bound[bound] = self._bind_links(bound)
            except zmq.ZMQError as error:
                if error.errno == zmq.ETERM:
                    raise
                if isinstance(self._links, str):
                    self._unbind_plain(bound)
                    raise
                if picks_port and left and error.errno == zmq.EADDRINUSE:
                    self._unbind_plain(bound)
                    continue
                self.bound[bound] = None
                if error.errno == zmq.EADDRINUSE:
                    self.taken.append(bound)
                _log.warning(
                    "%s has no links yet, only plain subscribers: %s. The publisher tries again. Free that "
                    "endpoint, or give links= another one (links=False turns this warning off)",
                    bound,
                    error,
                )
            return

    def retry(self) -> None:
        """Try again to bind the link endpoints that were in use."""
        for bound in [*self.taken]:
            try:
                self.bound[bound] = self._bind_links(bound)
            except zmq.ZMQError:
                continue
            self.taken.remove(bound)
            _log.info("%s has links now, at %s", bound, self.bound[bound])

    def _check(self, endpoint: str) -> None:
        check(endpoint, own_context=self._own_context)
        if endpoint.partition("://")[0] in _MULTICAST:
            rule = (
                "a publisher for multicast is made with its endpoint, or with options=Options(multicast=...)"
            )
            raise ConfigurationError("multicast", None, "argument", f"{endpoint!r}: {rule}")

    def _bind_plain(self, endpoint: str) -> str:
        plain = self._plain
        if self._keys is not None:
            self._keys.serve(plain.socket, endpoint, monotonic())
        with refused_by_libzmq(endpoint, _BIND_HINT):
            bind = self._plain_files.bind
            bound = cast("str", bind(plain.socket, endpoint, lambda _, where: plain.bind(where)))
        if self._keys is not None:
            self._keys.served(bound)
        return bound

    def _unbind_plain(self, endpoint: str) -> None:
        self._plain_files.remove(endpoint)
        self._plain.socket.unbind(endpoint)
        if self._keys is not None:
            self._keys.forget(endpoint)

    def bind_links(self, endpoint: str | bytes) -> str:
        """Bind to an endpoint for links only; return the endpoint with its port.

        Raises:
            EndpointError: the endpoint cannot be used.
        """
        text = as_text(endpoint)
        self._check(text)
        descriptors.need_for_endpoint(text)
        if self.listener is None:
            self.listener = self._create_listener()
        bound = self._listen(text)
        self.bound[bound] = bound
        return bound

    def _bind_links(self, bound: str) -> str | None:
        links = self._links
        if links is False:
            return None
        if isinstance(links, str):
            if self.link_endpoints:
                return self.link_endpoints[0]
            self._check(links)
            where = links
        else:
            where = link_endpoint(bound)
        return self._listen(where)

    def _listen(self, where: str) -> str:
        listener: Any = self.listener
        if self._keys is not None:
            self._keys.serve(listener.socket, where, monotonic())
        with refused_by_libzmq(where, _BIND_HINT):
            bind = self._link_files.bind
            bound = cast("str", bind(listener.socket, where, lambda _, own: listener.bind(own)))
        if self._keys is not None:
            self._keys.served(bound)
        return bound

    def connect(self, endpoint: str | bytes) -> None:
        """Connect to an endpoint, for plain subscribers only.

        Raises:
            EndpointError: the endpoint cannot be used.
        """
        text = as_text(endpoint)
        self._check(text)
        descriptors.need_for_endpoint(text)
        if self._keys is not None:
            self._keys.call(self._plain.socket, text, monotonic())
        with refused_by_libzmq(text, _CONNECT_HINT):
            self._plain.connect(text)
        self.connected.append(text)

    def unbind(self, endpoint: str | bytes) -> None:
        """Undo a `bind`. Existing links stay connected.

        Raises:
            EndpointError: the publisher is not bound to the endpoint.
        """
        text = as_text(endpoint)
        if text not in self.bound:
            raise EndpointError(
                f"{text!r} is not bound; bound are {', '.join(self.bound) or 'none'}", errno.ENOENT
            )
        link = self.bound.pop(text)
        if text in self.taken:
            self.taken.remove(text)
        if link != text:
            self._unbind_plain(text)
        if link is not None and self.listener is not None and link not in self.bound.values():
            self._link_files.remove(link)
            self.listener.socket.unbind(link)

    def disconnect(self, endpoint: str | bytes) -> None:
        """Undo a `connect`.

        Raises:
            EndpointError: the publisher is not connected to the endpoint.
        """
        text = as_text(endpoint)
        if text not in self.connected:
            known = ", ".join(self.connected) or "none"
            raise EndpointError(f"{text!r} is not connected; connected are {known}", errno.ENOENT)
        self.connected.remove(text)
        if self._keys is not None:
            self._keys.forget(text)
        # If `PublisherKeys` does not trust the endpoint's key, it has disconnected the endpoint, and libzmq raises
        # ENOENT.
        with suppress(zmq.ZMQError):
            self._plain.socket.disconnect(text)

    def close(self) -> None:
        """Remove the files of ipc sockets, and clear the lists of endpoints."""
        self._plain_files.remove_all()
        self._link_files.remove_all()
        self.bound.clear()
        self.connected.clear()
        self.taken.clear()
