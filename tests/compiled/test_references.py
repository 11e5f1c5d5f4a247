"""The compiled part keeps no references: a debug build of Python counts all of them.

`python3.11-dbg -m venv`, `pip install '.[test]'` and this file: another Python counts none, and skips it.
"""

import gc
import itertools
import sys

import pytest
import zmq

import oz
from oz.compiled import HOT
from support.waiting import DEADLINE

pytestmark = [
    pytest.mark.skipif(HOT is None, reason="the compiled part does not run"),
    pytest.mark.skipif(not hasattr(sys, "gettotalrefcount"), reason="takes a debug build of Python"),
]

ROUNDS, COUNT = 8, 2000


@pytest.fixture
def pub():
    with oz.Publisher("tcp://127.0.0.1:*", on_full="block") as publisher:
        yield publisher


def kept(work):
    """Count what a round of work leaves referred to, in the best of several."""
    counts = []
    for _ in range(ROUNDS):
        work()
        gc.collect()
        counts.append(sys.gettotalrefcount())
    return min(after - before for before, after in itertools.pairwise(counts))


def publish(pub):
    for number in range(COUNT):
        pub.publish("md.a" if number % 2 else "md.b", b"payload %d" % number)


def iterated(sub):
    for number, _ in enumerate(sub, 1):
        if number == COUNT:
            return


def many(sub):
    left = COUNT
    while left:
        left -= len(sub.receive_many(left, timeout=DEADLINE))


def received(sub):
    for _ in range(COUNT):
        sub.receive(timeout=DEADLINE)


@pytest.mark.parametrize("read", [iterated, many, received])
@pytest.mark.parametrize("filtering", ["publisher", "prefix"])
def test_no_reference_stays_of_messages_that_were_published_and_read(pub, read, filtering):
    with oz.Subscriber(pub.endpoint, filtering=filtering) as sub:
        sub.subscribe("md.*")
        sub.wait_ready(timeout=DEADLINE)
        pub.wait_for_subscribers(timeout=DEADLINE)

        def work():
            publish(pub)
            read(sub)

        assert kept(work) < COUNT / 10


def test_no_reference_stays_of_messages_that_handlers_had(pub):
    seen = []
    with oz.Subscriber(pub.endpoint) as sub:
        sub.subscribe("md.a", handler=lambda message: seen.append(message.payload))
        sub.subscribe("md.*", handler=lambda message: seen.append(message.subject))
        pub.wait_for_subscribers(timeout=DEADLINE)

        def work():
            seen.clear()
            publish(pub)
            while len(seen) < COUNT + COUNT // 2:
                sub.run(timeout=0.01)

        assert kept(work) < COUNT / 10


def test_no_reference_stays_of_plain_messages():
    with zmq.Context() as context, context.socket(zmq.PUB) as plain:
        plain.sndhwm = 0
        port = plain.bind_to_random_port("tcp://127.0.0.1")
        with oz.Subscriber(
            f"tcp://127.0.0.1:{port}", filtering="prefix", options=oz.Options(high_water_mark=0)
        ) as sub:
            sub.subscribe("md.*")
            sub.wait_ready(timeout=DEADLINE)

            def work():
                for number in range(COUNT):
                    plain.send_multipart([b"md.a", b"payload %d" % number])
                received(sub)

            assert kept(work) < COUNT / 10
