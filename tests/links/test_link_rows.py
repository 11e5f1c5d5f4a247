"""Rows of links that `LinkRows` keeps between samples equal rows that are made from the sessions."""

import random

import pytest

from links.pair import Publisher
from oz.node.link_rows import LinkRows
from oz.publisher.stats import REASONS
from oz.wire.links import DEFAULT_OPTIONS, StreamOptions

ROUTES = [b"route 0", b"route 1", b"route 2"]
OPTIONS = [
    DEFAULT_OPTIONS,
    StreamOptions(overflow="conflate"),
    StreamOptions(overflow="drop_oldest", max_pending=2),
    StreamOptions(group="workers", handled=True),
]

EVENTS = [
    "hello", "declare", "remove", "ack", "ack", "pull", "pull", "down", "end", "publish", "sample", "sample"
]  # fmt: skip


class Bus:
    """Publisher with three subscribers at most."""

    def __init__(self):
        self.publisher = Publisher(window=2, high_water_mark=3)
        self.sessions, self.revisions = {}, {}

    def do(self, event, number):
        publisher, route = self.publisher, ROUTES[number % 3]
        session = self.sessions.get(route)
        if event == "publish":
            publisher.publish(*[f"a.{count}" for count in range(number + 1)])
        elif event == "hello":
            self.revisions[route] = 0
            name = b"%d" % number * 16
            self.sessions[route] = publisher.hello(route, session=name, member=name)
        elif session is None or session.has_ended:
            return
        elif event == "ack":
            publisher.ack(session.sent, {2: session.sent} if 2 in session.streams else {}, route=route)
        elif event == "pull":
            publisher.pull(session)
        elif event == "down":
            publisher.sessions.unreachable(session, publisher.now)
        elif event == "end":
            publisher.sessions.end(session, publisher.now)
        else:
            self.revisions[route] += 1
            revision = self.revisions[route]
            if event == "declare":
                options = OPTIONS[revision % len(OPTIONS)]
                publisher.declare(revision=revision, base=revision - 1, sid=revision, route=route,
                                  options=options, stream=2 if options.group else 3 + revision % 4)  # fmt: skip
            else:
                publisher.declare(
                    text=None, revision=revision, base=revision - 1, route=route, removed=[revision - 1]
                )


def rows(kept, bus):
    drops = dict(zip(REASONS, bus.publisher.sessions.drops, strict=True))
    kept.update(bus.publisher.sessions.by_id.values(), drops, bytes.decode, bus.publisher.now)
    return sorted(kept.links)


@pytest.mark.parametrize("seed", range(20))
def test_kept_rows_equal_new_rows(seed):
    chance, bus, kept = random.Random(seed), Bus(), LinkRows()
    for _ in range(300):
        event = chance.choice(EVENTS)
        if event == "sample":
            assert rows(kept, bus) == rows(LinkRows(), bus)
        else:
            bus.do(event, chance.randrange(3))


def test_rows_of_idle_links_are_the_same_object():
    bus, kept = Bus(), LinkRows()
    bus.do("hello", 0)
    bus.do("declare", 0)
    rows(kept, bus)
    links = kept.links
    rows(kept, bus)
    assert kept.links is links


def test_drops_between_two_idle_samples_show():
    bus, kept = Bus(), LinkRows()
    bus.do("hello", 0)
    bus.do("declare", 0)
    rows(kept, bus)
    for _ in range(10):
        bus.do("publish", 0)
    while (session := bus.sessions[ROUTES[0]]).bytes:
        bus.do("pull", 0)
        bus.do("ack", 0)
    (row,) = rows(kept, bus)
    assert (row.pending, sum(row.dropped.values()), session.acked) == (0, 7, 3)
