"""Subjects that begin with `_OZ.`, which only patterns with this begin match."""

import pytest

from oz.publisher.sync import Publisher
from oz.subscriber.sync import Subscriber
from support.waiting import DEADLINE


@pytest.mark.parametrize("filtering", ["publisher", "prefix"])
def test_wildcards_do_not_match_reserved_subjects(filtering):
    with (
        Publisher("tcp://127.0.0.1:*", dialect="zmq") as publisher,
        Subscriber(publisher.endpoint, filtering=filtering) as everything,
        Subscriber(publisher.endpoint, filtering=filtering) as named,
    ):
        everything.subscribe([">", "*.x", "_OZ.other"])
        named.subscribe("_OZ.*")
        for item in (everything, named):
            item.wait_ready(timeout=DEADLINE)
        # A plain publisher counts prefixes. The subject begins with the prefixes of ">" and "*.x" of `everything`.
        count = 2 if filtering == "publisher" else 3
        publisher.wait_for_subscribers("_OZ.x", count=count, timeout=DEADLINE)
        publisher.publish("_OZ.x", b"reserved")
        publisher.publish("_OZ.other", b"named")
        publisher.publish("a.x", b"ordinary")
        assert [everything.receive(timeout=DEADLINE).subject for _ in range(2)] == ["_OZ.other", "a.x"]
        assert [named.receive(timeout=DEADLINE).subject for _ in range(2)] == ["_OZ.x", "_OZ.other"]
