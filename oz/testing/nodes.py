"""The nodes of a bus in a test tube."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import oz.asyncio.node
from oz.asyncio.node_engine import LoopNode
from oz.testing.places import Place
from oz.transport.node.opening import NodeSettings
from oz.transport.node.publisher import make_uuid


class Node(oz.asyncio.node.Node):
    """A node of `oz.testing.Bus`: `oz.asyncio.Node`, on a virtual network."""

    def __init__(self, place: Place, name: str | None, **options: Any) -> None:
        """Prepare to join; `oz.testing.Bus.node` makes nodes.

        Args:
            place: the process that it runs in.
            name: what it is called.
            options: as of `oz.asyncio.Node`.
        """
        self.place = place
        super().__init__(name, **options)

    def _make_shell(self, settings: NodeSettings) -> LoopNode:
        uuid = make_uuid(self.place.context.backend.random_bytes)
        return LoopNode(replace(settings, uuid=uuid), self.place.kinds)
