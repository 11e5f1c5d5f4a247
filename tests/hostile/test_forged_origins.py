"""A publisher that uses the name of another one, whose subscribers hear both."""

import asyncio
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import oz
import oz.asyncio
from support.inside import engine_of
from support.scripts import started
from support.waiting import DEADLINE, until

FORGING = Path(__file__).with_name("forging.py")

LIMITS = oz.Limits(sources=1_000)

WINS_BACK = ["can be", "goodbyes", "ahead"]
"""What a subscriber believes at first."""

WAYS = ["cannot be", *WINS_BACK]


def each_way(suite):
    """Give all ways; those that the suite has not are for the heavy run."""
    return [pytest.param(what, marks=() if what in suite else pytest.mark.heavy) for what in WAYS]


@contextmanager
def forging(origin, what, publisher):
    """Start the hostile publisher; give its endpoint and the process."""
    with started(FORGING, origin.hex(), what, *[publisher.endpoint] * (what == "ahead")) as process:
        endpoint = process.stdout.readline().strip()
        assert endpoint.startswith("tcp://"), process.stderr.read()
        yield endpoint, process


def begin(process):
    """Have it begin, as soon as somebody has subscribed to it."""
    assert process.stdout.readline() == "ready\n", process.stderr.read()
    print(file=process.stdin, flush=True)


class Both:
    """A publisher, and what a subscriber of it has had."""

    def __init__(self, pub):
        self.pub, self.sent = pub, 0
        self.got = []

    def publish(self):
        self.pub.publish("a.b", b"%d" % self.sent)
        self.pub.flush()
        self.sent += 1

    def take(self, messages):
        self.got += [int(one.payload) for one in messages if one.subject == "a.b"]

    def take_from(self, sub):
        with suppress(oz.Timeout):
            self.take(sub.receive_many(timeout=0.01))


def hears_both(sub, both, process, what, gaps):
    """Publish beside the hostile publisher until that has no effect; yield to have messages taken."""
    begin(process)
    stats = sub.stats
    ends = time.monotonic() + DEADLINE
    while stats.contradictions < 100:
        assert time.monotonic() < ends, stats
        both.publish()
        yield
    first, ends = both.sent, time.monotonic() + DEADLINE
    for _ in range(200):
        both.publish()
        yield
    while both.got[-1] != both.sent - 1:
        assert time.monotonic() < ends, (both.got[-10:], both.sent, stats)
        yield
    assert process.poll() is None
    assert both.got == sorted(set(both.got))
    assert both.got[-200:] == list(range(first, first + 200))
    if what not in WINS_BACK:
        assert both.got == list(range(both.sent))
        assert gaps == []
    assert all(gap.count is None or gap.count < 10**9 for gap in gaps)
    if what == "ahead":
        told = {at for one in gaps if one.count for at in range(one.sequence, one.sequence + one.count)}
        assert {*range(both.sent)} - {*both.got} <= told


@pytest.mark.parametrize("what", each_way(suite=["goodbyes", "ahead"]))
def test_whose_name_is_used_is_heard(what):
    gaps = []
    with (
        oz.Publisher("tcp://127.0.0.1:*") as pub,
        oz.Subscriber(filtering="publisher", on_gap=gaps.append) as sub,
    ):
        both = Both(pub)
        sub.connect(pub.endpoint)
        sub.subscribe("a.>")
        sub.wait_ready(DEADLINE)
        both.publish()
        message = sub.receive(timeout=DEADLINE)
        both.take([message])
        with forging(message.origin, what, pub) as (endpoint, process):
            sub.connect(endpoint)
            for _ in hears_both(sub, both, process, what, gaps):
                both.take_from(sub)


@pytest.mark.parametrize("what", each_way(suite=["can be"]))
def test_whose_name_is_used_is_heard_by_asyncio(what):
    async def hear():
        gaps = []
        with oz.Publisher("tcp://127.0.0.1:*") as pub:
            async with oz.asyncio.Subscriber(filtering="publisher", on_gap=gaps.append) as sub:
                both = Both(pub)
                sub.connect(pub.endpoint)
                sub.subscribe("a.>")
                await sub.wait_ready(DEADLINE)
                both.publish()
                message = await sub.receive(timeout=DEADLINE)
                both.take([message])
                with forging(message.origin, what, pub) as (endpoint, process):
                    sub.connect(endpoint)
                    for _ in hears_both(sub, both, process, what, gaps):
                        with suppress(oz.Timeout):
                            both.take(await sub.receive_many(timeout=0.01))

    asyncio.run(hear())


def test_thousands_of_names_do_not_push_out_who_is_known():
    gaps = []
    with (
        oz.Publisher("tcp://127.0.0.1:*") as pub,
        oz.Subscriber(filtering="publisher", on_gap=gaps.append, limits=LIMITS) as sub,
    ):
        both = Both(pub)
        sub.connect(pub.endpoint)
        sub.subscribe("a.>")
        sub.wait_ready(DEADLINE)
        both.publish()
        message = sub.receive(timeout=DEADLINE)
        both.take([message])
        with forging(message.origin, "names", pub) as (endpoint, process):
            sub.connect(endpoint)
            begin(process)
            (stream,) = engine_of(sub).receiver.streams.by_key.values()
            known = set()
            ends = time.monotonic() + 2 * DEADLINE
            while len(known) <= LIMITS.sources + 500:
                assert time.monotonic() < ends, len(known)
                both.publish()
                both.take_from(sub)
                known |= stream.sources.keys()
                assert len(stream.sources) <= LIMITS.sources
            assert all(len("".join(one.refused.values())) <= 1_024 for one in stream.sources.values())
            until(lambda: both.take_from(sub) or both.got[-1] == both.sent - 1)
        assert both.got == list(range(both.sent))
        assert not [gap for gap in gaps if gap.origin == message.origin]
