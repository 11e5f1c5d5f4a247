"""A router of which nobody has asked for anything."""

import pytest

from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from protocol.publisher.routed import ORIGIN


@pytest.fixture
def router():
    return Router(ORIGIN, PublisherStats())
