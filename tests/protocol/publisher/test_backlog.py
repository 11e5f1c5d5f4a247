"""What waits at ZeroMQ, by estimate, and who holds up what several share."""

from math import inf

import pytest

from oz.protocol.publisher.accounts import LOOK_EVERY, TOO_LONG, Peer, SlowPeers
from oz.protocol.publisher.backlog import Backlog
from support.cases import each

LIMIT = 64 << 20
SLOW, QUICK = Peer(7, 70), Peer(8, 80)


class Way:
    """A way into ZeroMQ that takes what it is told to."""

    def __init__(self, limit=LIMIT):
        self.backlog = Backlog(limit)
        self.sent = 0
        self.taken = 0

    def send(self, size):
        number = self.sent = self.sent + 1
        is_due = self.backlog.is_due(size)
        self.backlog.add(size, (lambda: number <= self.taken) if is_due else None)


@pytest.mark.parametrize("size", [600, 60_000, 5_000_000])
def test_a_way_that_takes_nothing_is_full_at_its_limit(size):
    way = Way()
    while not way.backlog.is_full:
        way.send(size)
    assert LIMIT <= way.sent * size <= 1.05 * LIMIT + size


def test_a_way_that_takes_all_is_never_full():
    way = Way()
    for _ in range(10_000):
        way.send(60_000)
        way.taken = way.sent
        assert not way.backlog.is_full


def test_a_message_of_any_size_is_taken_when_nothing_waits():
    way = Way()
    way.send(2 * LIMIT)
    assert way.backlog.is_full
    way.taken = way.sent
    assert not way.backlog.is_full


def test_a_way_without_limit_is_never_full_and_watches_nothing():
    way = Way(inf)
    for _ in range(100):
        assert not way.backlog.is_due(LIMIT)
        way.send(LIMIT)
    assert not way.backlog.is_full


@each("every", [2, 3, 4, 5, 8])
@each("size", [60_000, 65_536, 1 << 20])
def test_what_waits_is_seen_if_only_each_nth_message_waits(every, size):
    backlog, waiting = Backlog(LIMIT), 0
    for number in range(100_000):
        if backlog.is_full:
            break
        stays = number % every == 0
        waiting += size * stays
        backlog.add(size, (lambda stays=stays: not stays) if backlog.is_due(size) else None)
    assert LIMIT / 2 < waiting < 2 * LIMIT


class Looking:
    def __init__(self):
        self.slow = SlowPeers()
        self.now = 100.0
        self.waiting = {}

    def find(self, size=1_000):
        return self.slow.find(
            self.now,
            size,
            lambda: [SLOW, QUICK],
            lambda peers: {one: self.waiting[one] for one in peers if one in self.waiting},
        )

    def find_for(self, seconds, quick=0):
        found = []
        for _ in range(round(seconds / LOOK_EVERY) + 1):
            found += self.find()
            self.now += 1.01 * LOOK_EVERY
            if QUICK in self.waiting:
                self.waiting[QUICK] += quick
        return found


def test_who_takes_nothing_for_a_second_is_found():
    looking = Looking()
    looking.waiting = {SLOW: 0}
    assert looking.find_for(TOO_LONG / 2) == []
    assert looking.find_for(TOO_LONG) == [SLOW]


def test_who_takes_as_much_as_there_is_holds_nothing_up():
    looking = Looking()
    looking.waiting = {SLOW: 0, QUICK: 5_000_000}
    assert looking.find_for(2 * TOO_LONG, quick=1_000) == [SLOW]


def test_who_can_be_written_to_now_and_then_holds_nothing_up():
    looking = Looking()
    looking.waiting = {SLOW: 0, QUICK: 0}
    looking.find_for(TOO_LONG / 2)
    del looking.waiting[QUICK]
    looking.find()
    looking.waiting[QUICK] = 0
    assert looking.find_for(TOO_LONG) == [SLOW]


def test_a_second_begins_anew_once_no_more_waits_than_may():
    looking = Looking()
    looking.waiting = {SLOW: 0}
    for _ in range(5):
        assert looking.find_for(0.7 * TOO_LONG) == []
        looking.slow.calm()
