"""Nodes of a test bus."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any

import oz.node.aio
from oz.configuration import DEFINITIONS, Configuration, Definition, Setting
from oz.errors import ClosedError, ConfigurationError
from oz.node.directory import Directory
from oz.node.engine import Engine
from oz.options import Limits
from oz.testing.context import Context
from oz.testing.network import Network
from oz.wire.links import NAMESERVER


class VirtualDirectory(Directory):
    """Virtual directory with the endpoints of the nodes on one bus. It replaces a directory with Unix sockets."""

    def __init__(self, network: Network, path: str, bus: str, node: bytes) -> None:
        """Create the directory for a node.

        Args:
            network: virtual network of the nodes.
            path: start of the addresses of the nodes on the network. No real directory is created.
            bus: name of the bus.
            node: id of the node.
        """
        self._network = network
        self._begins = f"{path}/{bus}-"
        self.prefix = f"ipc://{self._begins}"
        self.endpoint = f"{self.prefix}{urlsafe_b64encode(node).decode().rstrip('=')}"
        self._read_at = 0.0

    def others(self) -> set[str]:
        """Return the endpoints of the other nodes."""
        found = {f"ipc://{address}" for address in self._network.bound("ipc", self._begins)}
        return found - {self.endpoint}

    def count_separate(self) -> int:
        """Return 0, because nodes of a virtual network have no keys."""
        return 0

    def remove_dead(self, endpoint: str) -> bool:
        """Return False, because the virtual network removes an endpoint together with its socket."""
        return False

    @property
    def is_missing(self) -> bool:
        """False, because an endpoint of the virtual network is never deleted."""
        return False

    def remove(self) -> None:
        """Do nothing, because the virtual network removes an endpoint together with its socket."""


class VirtualEngine(Engine):
    """Engine of a node on a virtual network. Its configuration comes only from arguments and defaults."""

    @staticmethod
    def _resolve(**given: Any) -> Configuration:
        return Configuration(
            tuple(_setting(definition, given.get(definition.name)) for definition in DEFINITIONS), Limits()
        )

    def _bind(self, config: Configuration) -> tuple[str, ...]:
        if self.kind == NAMESERVER:
            return tuple(map(self.publisher.bind_links, config.bind))
        context: Any = self._context
        path = str(self.options.directory or "/oz")
        self.directory = VirtualDirectory(context.network, path, self.bus, self.id)
        return tuple(map(self.publisher.bind_links, (*config.bind, self.directory.endpoint)))

    def die(self) -> None:
        """End all requests and handlers of the node after `kill` has killed its process."""
        self.exchange.end_requests(ClosedError("the node was killed: create another one with bus.node()"))
        self.pool.finish(0.0)


class Node(oz.node.aio.Node):
    """Node of `oz.testing.Bus`: `oz.asyncio.Node` on a virtual network.

    Attributes:
        place: process of the node on the virtual network.
    """

    _node: VirtualEngine

    def __init__(self, place: Context, name: str, **options: Any) -> None:
        self.place = place
        super().__init__(name, **options)
        # The bus closes the node. Therefore the node must not be closed at the end of the program.
        self._life.forget()

    def _create_engine(self, *arguments: Any, **options: Any) -> Engine:
        context: Any = self.place
        return VirtualEngine(*arguments, context=context, **options)

    def adopt(self) -> None:
        """Start the tasks of the node in the running loop."""
        if not self.closed:
            self._attendance.start()

    def die(self) -> None:
        """Close without BYE (the last message to peers) after `kill` has killed the process of the node."""
        loop = self._attendance._loop
        self._life.abort()
        if loop is None or not loop.is_closed():
            self._node.die()


def _setting(definition: Definition, value: Any) -> Setting:
    """Return a setting with the value of an argument; with the default of the setting if the argument is None.

    Raises:
        ConfigurationError: the argument has a wrong value.
    """
    if value is None:
        return Setting(definition.name, definition.default(), "default")
    try:
        return Setting(definition.name, definition.kind.check(value), "argument")
    except ValueError as error:
        raise ConfigurationError(definition.name, value, "argument", str(error)) from None
