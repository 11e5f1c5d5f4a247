"""The places of a bus: the processes that its sockets and nodes run in, each a host of its own."""

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
"""What all nodes have in common: they can reach each other as processes of one host do."""


class VirtualDirectory:
    """The place where the nodes of one bus on a virtual network find each other."""

    def __init__(self, network: Network, bus: str, uuid: bytes, key: str | None = None) -> None:
        """Name a node's own endpoint.

        Args:
            network: theirs.
            bus: their bus.
            uuid: of the node.
            key: the public key of the node, if it has one.
        """
        self._network = network
        self._begins, self._own = socket_names(bus, uuid, b"", key)

    @property
    def endpoint(self) -> str:
        """This node's own."""
        return f"ipc://{self._own}"

    @property
    def prefix(self) -> str:
        """The beginning that the endpoints of all nodes share."""
        return f"ipc://{self._begins}"

    def others(self) -> set[str]:
        """Return the endpoints of the others."""
        found = self._network.listening("ipc", self._begins)
        return {f"ipc://{address}" for address in found if address != self._own}

    def clear(self, endpoint: str) -> bool:
        """Tell whether nobody listens at an endpoint any more."""
        return endpoint.removeprefix("ipc://") not in self._network.listening("ipc", self._begins)

    def remove(self) -> None:
        """Do nothing: an endpoint ends with its socket."""


class VirtualProcess:
    """A process on a virtual network, with one publisher, subscriber or node.

    Attributes:
        context: what its sockets are made by.
        host: the name by which faults mean it.
        make_publisher: makes the engine of a publisher.
        kinds: of its sockets.
    """

    def __init__(self, network: Network, host: str) -> None:
        """Make a process.

        Args:
            network: where its sockets are.
            host: a name that no other has.
        """
        self.host = host
        self.context = context = AwaitedContext(network, host)
        itself: Any = context
        self.make_publisher = partial(
            LoopPublisher, context_class=lambda: itself, front_class=WatchedPublisher
        )
        self.kinds = SocketKinds(lambda: itself, self.make_publisher, context.backend, self._meet)

    def _meet(self, _: Path, bus: str, uuid: bytes, key: str | None) -> tuple[MeetingPlace, bytes]:
        return VirtualDirectory(self.context.network, bus, uuid, key), HOST_ID
