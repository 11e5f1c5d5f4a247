"""The links and connections of a node that knows nobody, and a registry that nobody has joined."""

import pytest

from oz.protocol.node.connections import Connections
from oz.protocol.node.registry import Registry
from protocol.node.connected import OWN
from protocol.node.linked import Bus
from protocol.node.registered import ID
from support.hearing import Subscriber


@pytest.fixture
def bus():
    return Bus()


@pytest.fixture
def registry():
    return Registry(ID, "ns1")


@pytest.fixture
def sub():
    return Subscriber()


@pytest.fixture
def connections(sub):
    return Connections(OWN, sub, None)
