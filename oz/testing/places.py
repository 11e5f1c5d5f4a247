"""Processes of a bus: each member has one, on a host of its own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from oz.asyncio.publisher_engine import LoopPublisher
from oz.testing.awaiting import AwaitedContext, WatchedPublisher
from oz.testing.network import Network
from oz.transport.node.local_directory import MeetingPlace, socket_names
from oz.transport.node.opening import SocketKinds

HOST_ID = bytes(16)
"""Id of the host of all nodes: they reach each other as processes of one host."""


class VirtualDirectory:
    """Directory in which the nodes of one bus find each other."""

    def __init__(self, network: Network, bus: str, uuid: bytes, key: str | None = None) -> None:
        """Create the entry of a node.

        Args:
            network: of the nodes.
            bus: of the nodes.
            uuid: of the node.
            key: public key of the node, or None.
        """
        self._network = network
        self._begins, self._own = socket_names(bus, uuid, b"", key)

    @property
    def endpoint(self) -> str:
        """Endpoint of this node."""
        return f"ipc://{self._own}"

    @property
    def prefix(self) -> str:
        """Prefix of the endpoints of all nodes."""
        return f"ipc://{self._begins}"

    def others(self) -> set[str]:
        """Return the endpoints of the other nodes."""
        found = self._network.listening("ipc", self._begins)
        return {f"ipc://{address}" for address in found if address != self._own}

    def clear(self, endpoint: str) -> bool:
        """Return whether an endpoint is unbound."""
        return endpoint.removeprefix("ipc://") not in self._network.listening("ipc", self._begins)

    def remove(self) -> None:
        """Do nothing: an endpoint ends with its socket."""


class VirtualProcess:
    """Process on a virtual network with one publisher, subscriber or node.

    Attributes:
        context: of its sockets.
        host: name for faults.
        make_publisher: creates the publisher of a node.
        kinds: of the sockets of a node.
    """

    def __init__(self, network: Network, host: str) -> None:
        """Create a process.

        Args:
            network: of its sockets.
            host: unique name.
        """
        self.host = host
        self.context = context = AwaitedContext(network, host)
        itself: Any = context
        self.make_publisher = partial(LoopPublisher, front_class=WatchedPublisher)
        self.kinds = SocketKinds(lambda: itself, self.make_publisher, context.backend, self._meet)

    def _meet(self, _: Path, bus: str, uuid: bytes, key: str | None) -> tuple[MeetingPlace, bytes]:
        return VirtualDirectory(self.context.network, bus, uuid, key), HOST_ID
