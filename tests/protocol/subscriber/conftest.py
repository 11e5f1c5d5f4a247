"""The streams of a subscriber that has declared nothing, and a publisher's frames for them."""

import os

import pytest

from oz.protocol.subscriber.streams import Streams
from protocol.subscriber.fed import Feed, add


@pytest.fixture
def streams():
    return Streams(os.urandom)


@pytest.fixture
def feed(streams):
    add(streams, "a.*")
    return Feed(streams)
