"""The keys of a node: its own, and those of its peers."""

from __future__ import annotations

from typing import NamedTuple

from oz.protocol.node.ownership import Ownership
from oz.transport.credentials import Credentials


class NodeKeys(NamedTuple):
    """The keys of one node.

    Attributes:
        credentials: its own, and those that it trusts.
        ownership: what of oz's own subjects belongs to whom.
    """

    credentials: Credentials
    ownership: Ownership
