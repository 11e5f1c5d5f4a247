"""`receive_many` takes what is there at once, in order, and loses nothing."""

import asyncio

import pytest
import zmq

import oz
from support.waiting import DEADLINE

FILTERINGS = pytest.mark.parametrize("filtering", ["prefix", "publisher"])


def subscribed(endpoint, filtering, pub, *patterns, make=oz.Subscriber):
    sub = make(endpoint, filtering=filtering)
    for pattern in patterns:
        sub.subscribe(pattern)
    pub.wait_for_subscribers(1, "a.x", timeout=DEADLINE)
    return sub


@FILTERINGS
def test_all_messages_come_in_order_in_lists_of_bounded_length(filtering):
    with oz.Publisher("tcp://127.0.0.1:*") as pub, subscribed(pub.endpoint, filtering, pub, "a.*") as sub:
        pub.publish_many((f"a.{number % 7}", b"%d" % number) for number in range(5_000))
        got = []
        while len(got) < 5_000:
            some = sub.receive_many(limit=300, timeout=DEADLINE)
            assert 1 <= len(some) <= 300
            got += some
        assert [int(message.payload) for message in got] == list(range(5_000))
        with pytest.raises(oz.Timeout):
            sub.receive_many(timeout=0.01)


@FILTERINGS
def test_handlers_run_and_their_messages_are_not_in_the_list(filtering):
    calls = []
    with oz.Publisher("tcp://127.0.0.1:*") as pub, subscribed(pub.endpoint, filtering, pub, "a.x") as sub:
        sub.subscribe("b.*", handler=calls.append)
        pub.wait_for_subscribers(1, "b.x", timeout=DEADLINE)
        pub.publish_many([("a.x", b""), ("b.x", b"1"), ("a.x", b""), ("b.y", b"2"), ("a.x", b"last")])
        got = []
        while not got or got[-1].payload != b"last":
            got += sub.receive_many(timeout=DEADLINE)
        assert [message.subject for message in got] == ["a.x"] * 3
        assert [message.payload for message in calls] == [b"1", b"2"]


@FILTERINGS
def test_asyncio_takes_many_too(filtering):
    async def run():
        with oz.Publisher("tcp://127.0.0.1:*") as pub:
            async with oz.asyncio.Subscriber(pub.endpoint, filtering=filtering) as sub:
                sub.subscribe("a.*")
                while True:
                    try:
                        pub.wait_for_subscribers(1, "a.x", timeout=0)
                        break
                    except oz.Timeout:
                        await sub.poll(10, zmq.POLLIN)
                pub.publish_many((f"a.{number % 7}", b"%d" % number) for number in range(5_000))
                got = []
                while len(got) < 5_000:
                    got += await sub.receive_many(limit=300, timeout=DEADLINE)
                return [int(message.payload) for message in got]

    assert asyncio.run(run()) == list(range(5_000))
