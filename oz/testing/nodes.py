"""Nodes of a bus for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import oz.asyncio.node
from oz.asyncio.node_engine import LoopNode
from oz.configuration.settings import DEFINITIONS
from oz.security.identity import make_uuid_of
from oz.testing.places import VirtualProcess
from oz.transport.node.opening import NodeSettings
from oz.transport.node.publisher import make_uuid
from oz.transport.security import Security


class VirtualNode(LoopNode):
    """Tasks of a node, with an end as by `kill -9`."""

    def die(self) -> None:
        """Cancel the tasks and handlers, because the sockets are dead."""
        if self._is_closing or not self.has_started:
            return
        self._is_closing = self.engine.is_closed = True
        if self._loop.is_closed():
            return
        for task in self.tasks:
            task.cancel()
        self.pool.cancel()
        self.engine.close_queues(is_killed=True)
        self._woken.set()
        self._last_news = self._loop.create_task(self._tell_news())


class Node(oz.asyncio.node.Node):
    """Node of `oz.testing.Bus`: `oz.asyncio.Node` on a virtual network.

    It reads no environment and no configuration file.
    """

    _shell: VirtualNode

    def __init__(self, place: VirtualProcess, name: str, **options: Any) -> None:
        """Create a node that has not joined; `oz.testing.Bus.node` calls this.

        Args:
            place: process that it runs in.
            name: of the node.
            options: as of `oz.asyncio.Node`.
        """
        self.place = place
        defaults = {one.name: one.default() for one in DEFINITIONS}
        super().__init__(**(defaults | options | {"name": name}))

    def _find_security(self, given: Security | None) -> Security | None:
        return given

    def _make_shell(self, settings: NodeSettings) -> VirtualNode:
        if settings.security is not None and settings.configuration.nameserver:
            raise ValueError("a bus of oz.testing has no name server with keys: leave nameserver= out")
        random_bytes, credentials = self.place.context.backend.random_bytes, settings.credentials
        uuid = (
            make_uuid(random_bytes)
            if credentials is None
            else make_uuid_of(credentials.public_key, random_bytes)
        )
        return VirtualNode(replace(settings, uuid=uuid), self.place.kinds)

    @property
    def closed(self) -> bool:
        """Whether the node is closed."""
        return self._engine.is_closed

    def die(self) -> None:
        """End the node, because its process was killed."""
        self._shell.die()
