"""The nodes of a bus in one process."""

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
    """The tasks of a node that can be killed."""

    def die(self) -> None:
        """End without a word, when the sockets have: what its tasks and handlers do is cut off."""
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
    """A node of `oz.testing.Bus`: `oz.asyncio.Node`, on a virtual network.

    It reads no environment and no configuration file.
    """

    _shell: VirtualNode

    def __init__(self, place: VirtualProcess, name: str, **options: Any) -> None:
        """Prepare to join; `oz.testing.Bus.node` makes nodes.

        Args:
            place: the process that it runs in.
            name: what it is called.
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
        """Whether it has left the bus."""
        return self._engine.is_closed

    def die(self) -> None:
        """End without a word, when its process has."""
        self._shell.die()
