"""A network for the tests of several hosts; where it cannot be built, they are skipped with the reason."""

import pytest

from support import network as networks

DELAY = 0.02
"""Seconds from one host to another."""


@pytest.fixture(scope="module")
def network():
    """Three hosts, 20 ms apart."""
    if reason := networks.missing():
        pytest.skip(reason)
    with networks.Network(3, delay=DELAY) as made:
        yield made


@pytest.fixture
def hosts(network):
    """Hosts without losses and with an ordinary MTU."""
    yield network.hosts
    for host in network.hosts:
        network.narrow(host, 1500)
        host.lose(0)
