"""Name server: introduces the nodes of a bus to each other."""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass
from typing import Any

from oz.errors import ConfigurationError
from oz.logs import peer_logger
from oz.node import events, roster
from oz.node.engine import Engine
from oz.node.events import Event
from oz.node.threads import ThreadPool
from oz.options import Limits, NodeOptions
from oz.services.service import NodeService
from oz.transport.endpoints import Endpoints, as_list
from oz.wire.links import NAMESERVER, Card

MAX_NAME = 512
"""Maximum length of the name of a name server, in characters."""

LOST_AFTER = 5.0
"""Seconds of silence after which a node is lost."""

_log = peer_logger("oz.nameserver")


@dataclass
class NameServerStats:
    """Counts of a name server since it was created.

    Attributes:
        joined: nodes that came up.
        left: nodes that closed or were restarted.
        lost: nodes that were silent for `lost_after` seconds.
        conflicts: nodes that came up with the name of another node of their bus.
        refused: refused endpoints and nodes, for example of another bus.
    """

    joined: int = 0
    left: int = 0
    lost: int = 0
    conflicts: int = 0
    refused: int = 0


_COUNTERS = {
    events.PEER_LEFT: "left",
    events.PEER_LOST: "lost",
    events.NAME_CONFLICT: "conflicts",
    events.DENIED: "refused",
}


class NameServer(NodeService):
    """Introduces each node to the other nodes of the same bus.

    Messages do not pass through a name server. A name server stores nothing on disk. While it is down, nodes keep their
    peers. After a restart of the name server, the nodes connect to it again.

    Attributes:
        stats: counts of the name server.
    """

    def __init__(
        self,
        bind: Endpoints,
        *,
        name: str | None = None,
        bus: str | None = None,
        connect: Endpoints = (),
        lost_after: float = LOST_AFTER,
        limits: Limits | None = None,
        security: Any = None,
    ) -> None:
        """Bind the endpoints. `run` begins to serve.

        Args:
            bind: endpoints at which nodes reach the name server, such as `tcp://*:5756`.
            name: name of this name server in the logs of nodes. Default: name of the host.
            bus: name of the bus to serve; None serves any number of separate buses.
            connect: endpoints of other name servers. Name servers that are connected introduce each other's nodes.
            lost_after: seconds without an answer after which a silent node is lost.
            limits: limits of the name server. `peers` is the maximum number of nodes.
            security: key and trusted keys, as for `oz.Node`.

        Raises:
            EndpointError: an endpoint cannot be used.
            ConfigurationError: an argument has a wrong value.
        """
        endpoints = as_list(bind)
        if not endpoints:
            raise ConfigurationError("bind", bind, "argument", "nodes need an endpoint of the name server")
        for endpoint in endpoints:
            if not endpoint.startswith(("tcp://", "ipc://")):
                rule = "nodes reach a name server over tcp:// or ipc://"
                raise ConfigurationError("bind", endpoint, "argument", rule)
        if name is not None and len(name) > MAX_NAME:
            raise ConfigurationError("name", name, "argument", f"it has at most {MAX_NAME} characters")
        self.stats = NameServerStats()
        self._up: set[str] = set()
        options = NodeOptions(lost_after=lost_after, echo=False, limits=limits or Limits())
        self._engine = Engine(
            name or socket.gethostname(),
            bus=bus,
            connect=as_list(connect),
            bind=endpoints,
            codec=None,
            dialect="nats",
            on_full="drop",
            last_value=False,
            security=security,
            options=options,
            runs_handlers=True,
            pool=ThreadPool(1),
            kind=NAMESERVER,
        )
        self._engine.notify = self._on_event
        super().__init__(self._engine)

    def _on_event(self, event: Event) -> None:
        counter = _COUNTERS.get(event.kind)
        if event.peer is not None and event.kind in (events.PEER_LEFT, events.PEER_LOST):
            self._up.discard(event.peer.id)
        elif event.peer is not None and event.kind == events.PEER_UP:
            # A silent node that answers again causes the same event. It does not count as joined.
            counter = None if event.peer.id in self._up else "joined"
            self._up.add(event.peer.id)
        if counter is not None:
            setattr(self.stats, counter, getattr(self.stats, counter) + 1)
        is_wrong = event.kind in (events.DENIED, events.NAME_CONFLICT)
        _log.log(logging.WARNING if is_wrong else logging.INFO, "%s", event.text)

    @property
    def _node_engines(self) -> tuple[Engine, ...]:
        return (self._engine,)

    @property
    def name(self) -> str:
        """Name of this name server."""
        return self._engine.name

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Endpoints at which nodes reach the name server, with the real ports in place of `*`."""
        return self._engine.endpoints

    @property
    def endpoint(self) -> str:
        """First endpoint of `endpoints`."""
        return self._engine.endpoints[0]

    @property
    def nodes(self) -> list[Card]:
        """Cards of the nodes that are up, on all buses, sorted by bus and name. Name servers are left out."""
        with self._engine.lock:
            found = self._engine.cards(roster.UP, roster.SILENT)
        return sorted(found, key=lambda item: (item.bus, item.name, item.node))

    def __repr__(self) -> str:
        return f"<oz.services.NameServer {self.name!r} at {', '.join(self.endpoints)}>"
