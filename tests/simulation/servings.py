"""Runs of last values that very many ask for: each is given all of them once, and waits for nobody.

A moment passes with each look at the clock, and streams have no room for a while. What is published meanwhile
comes by itself, and is given to nobody as a last value; docs/wire.md says so.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from types import SimpleNamespace

import oz
from oz.protocol.publisher import last_value_cache
from oz.protocol.publisher.accounts import Account, Peer
from oz.protocol.publisher.batches import Batches
from oz.protocol.publisher.last_value_cache import MOST_ITEMS, SLICE, LastValueCache, LastValueServing
from oz.protocol.publisher.records import Records
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.wire.batch import CHUNK_FIELD, HEAD_SIZE, RICH, key_size, parse_body, parse_chunk
from oz.wire.extras import Extras, rich
from oz.wire.keys import ID_SIZE, Declaration, Declared, stream_key
from simulation.books import Taker
from simulation.changing import changed
from simulation.ledger import check, matches
from simulation.schedule import Fault

TICK = SLICE / 40
"""Seconds that pass with each look at the clock."""

TEXTS = "a.*", "*.1", "b.>", ">", "a.7"
ASKERS, CALLS = 12, 4000


MOST_KEPT, FEW = 65_536, 5
"""Subjects whose newest message is kept, by docs/limits.md; and how many in a run, as those take long."""


def check_kept(random):
    """Those subjects are kept on which something was published last, as many as docs/limits.md says."""
    check(last_value_cache.LIMIT == MOST_KEPT, "{} last values are kept", last_value_cache.LIMIT)
    with changed((last_value_cache, "LIMIT", FEW)):
        cache, newest = LastValueCache(), {}
        for number in range(4 * FEW):
            subject = b"a.%d" % random.randrange(2 * FEW)
            newest.pop(subject, None)
            newest[subject] = b"%d" % number
            cache.put(subject, newest[subject], number)
            expected = [one for two in list(newest.items())[-FEW:] for one in two]
            check(cache.match([ALL]) == expected, "{} are kept, not {}", cache.match([ALL]), expected)


ALL = oz.compile(">")


class Narrow(Taker):
    """A sink that takes so many frames of a key until they are read."""

    def __init__(self, most):
        super().__init__()
        self.most, self.read = most, 0

    def try_send(self, frames, backlog=None):
        if len(self.taken[frames[0][: key_size(frames[0])]]) - self.read >= self.most:
            return False
        return super().try_send(frames, backlog)


def check_waiting(random):
    """Last values wait for room, even where messages are dropped: all come, in order and numbered."""
    now, cache, sink = [100.0], LastValueCache(), Narrow(random.choice((1, 2, 3)))

    def clock():
        return now[0]

    router = Router(bytes(16), PublisherStats())
    batches = Batches(router, sink, clock, drops=random.random() < 0.7)
    records = Records(router, batches, cache, sink, clock)
    count = random.choice((3, 3, MOST_ITEMS))
    with_headers = random.sample(range(count), random.randrange(2))
    for number in range(count):
        payload = rich(b"", Extras({"n": number})) if number in with_headers else b""
        cache.put(b"a.%d" % number, payload, number)
    name, account = b"1".ljust(ID_SIZE), Account(Peer(1, 1))
    said = [Declaration(name, one, wants_last_value=True, patterns=(Declared(1, b"a.*"),)) for one in (1, 2)]
    for key in (stream_key(name), *(one.encode() for one in said)):
        router.learn(b"\1" + key, now[0], account)
    frames = sink.taken[stream_key(name)]
    for _ in range(CALLS):
        records.answer()
        batches.retry()
        records.beat(now[0])
        sink.read, now[0] = random.randint(sink.read, len(frames)), now[0] + 0.1
        if not (records.is_serving or batches.full or router.to_answer):
            break
    sequence, given = 0, {1: [], 2: []}
    for head, parts, size in frames:
        check(head.sequence == sequence, "{} has the number {}", sequence, head.sequence)
        sequence += head.count
        if head.count:
            at = size + HEAD_SIZE
            items = parse_body(parts[0], at + CHUNK_FIELD + head.width * (head.count - 1), head.count)
            given[parse_chunk(parts[0], at)] += items[0::2]
            is_rich = any(type(one) is not bytes for one in items[1::2])
            check(
                bool(head.flags & RICH) == is_rich, "last values have headers, and are said to: {}", is_rich
            )
    expected = [b"a.%d" % number for number in range(count)]
    check(given == {1: expected, 2: expected}, "of {} last values not all came, or in another order", count)
    check(not router.stats.missed, "{} last values are missed", router.stats.missed)


class Asker:
    """A chunk that asked, and what it was given: subject, payload and position of each."""

    def __init__(self, stream, number, text, due):
        self.stream, self.number, self.text, self.due = stream, number, text, due
        self.given = []


class ServingWorld:
    """A publisher with last values, and connections that ask for them."""

    def __init__(self, seed, faults=None, mechanisms=None):
        self.random = random = Random(seed + 22)
        self.mechanisms = Counter() if mechanisms is None else mechanisms
        self.faults = [Fault(1.0, "full", ("p1",), 1.0)] if faults is None else faults
        self.now, self.most, self.held = 0.0, random.choice((30, 600)), set()
        self.cache, self.newest = LastValueCache(), {}
        self.serving = LastValueServing(self.cache, self._clock, self._send, self._is_held)
        self.accounts = [object() for _ in range(random.choice((1, 2, 5)))]
        self.askers, self._of = [], {}

    def _clock(self):
        self.now += TICK
        return self.now

    def _is_held(self, stream):
        return stream in self.held

    def run(self):
        """Publish, ask, hold up and serve, and check what everybody was given."""
        for _ in range(self.most):
            self._publish()
        for _ in range(ASKERS):
            self._ask()
            for _ in range(self.random.randrange(4)):
                self.random.choice((self._publish, self._hold, self._work, self._work))()
        self._check_no_one_waits()
        self.held.clear()
        for _ in range(CALLS):
            if not self.serving:
                break
            self._work()
        check(not self.serving, "last values are still to be given after {} turns", CALLS)
        for one in self.askers:
            self._check(one)
        self.mechanisms["last values given"] += len(self.askers)
        check_waiting(self.random)
        check_kept(self.random)
        return self

    # what happens ----------------------------------------------------------------------------------------

    def _publish(self):
        subject = f"{self.random.choice('abc')}.{self.random.randrange(self.most)}"
        self.newest[subject] = self.cache.count + 1
        self.cache.put(subject.encode(), b"%d" % (self.cache.count + 1), self.cache.count + 1)

    def _ask(self):
        pattern = oz.compile(self.random.choice(TEXTS))
        number = self.random.randrange(1, 99)
        stream = _Stream(self.random.choice(self.accounts), {number: SimpleNamespace(patterns=(pattern,))})
        before = self.cache.count
        due = {one: at for one, at in self.newest.items() if matches(pattern.text, one)}
        self.askers.append(Asker(stream, number, pattern.text, due))
        self._of[stream] = self.askers[-1]
        self.serving.ask(stream, number, (before,))

    def _hold(self):
        if not self.faults:
            return
        one = self.random.choice(self.askers)
        (self.held.discard if one.stream in self.held else self.held.add)(one.stream)
        one.stream.is_gone |= self.random.random() < 0.1

    def _work(self):
        began = self.now
        goes_on = self.serving.work()
        check(self.now - began <= 2 * SLICE, "a turn of last values takes {} s", self.now - began)
        check(not goes_on or bool(self.serving), "somebody is to be served, and nobody is there")

    def _send(self, stream, number, items, positions):
        one = self._of[stream]
        check(number == one.number, "what {} asked for is given to {}", one.number, number)
        check(stream not in self.held, "somebody is given last values that has no room")
        check(not stream.is_gone, "somebody is given last values that is gone")
        check(len(items) <= MOST_ITEMS, "{} items are given at once", len(items))
        one.given += zip(items[0::2], items[1::2], positions, strict=True)

    # what must be so -------------------------------------------------------------------------------------

    def _check_no_one_waits(self):
        """Who has room is given all, however many others have none."""
        idle = 0
        while idle <= ASKERS:
            # Of each connection one chunk is looked at in a turn.
            idle = 0 if self.serving.work() else idle + 1
        for one in self.askers:
            if one.stream not in self.held and not one.stream.is_gone:
                self._check(one)

    def _check(self, one):
        """All that stood when it asked was given, but for what has been published anew, once and in order."""
        if one.stream.is_gone:
            return
        positions = [position for _, _, position in one.given]
        check(positions == sorted(set(positions)), "last values come twice, or in another order")
        given = {subject.decode(): position for subject, _, position in one.given}
        for subject, payload, position in one.given:
            check(one.due.get(subject.decode()) == position, "{} is not what {} asks for", subject, one.text)
            check(int(payload) == position, "{} is given as {}", position, payload)
        for subject, position in one.due.items():
            is_same = self.newest[subject] == position
            check(not is_same or subject in given, "{} is missing of {}", subject, one.text)


class _Stream:
    """A stream as what serves it sees it."""

    def __init__(self, account, chunks):
        self.account, self.chunks, self.is_gone = account, chunks, False
