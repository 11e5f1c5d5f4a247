"""The links of a node that knows nobody, and a registry that nobody has joined."""

import pytest

from oz.protocol.node.registry import Registry
from protocol.node.linked import Bus
from protocol.node.registered import ID


@pytest.fixture
def bus():
    return Bus()


@pytest.fixture
def registry():
    return Registry(ID, "ns1")
