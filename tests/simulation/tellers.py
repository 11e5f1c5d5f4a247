"""Runs of what a publisher says beside messages: answers, where streams stand, and goodbyes, to very many.

The sink takes a moment for each record and has no room for some. What is held against it are the promises of
docs/wire.md: all are answered soon, all are told every second, and no subscriber is told too much.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from random import Random

from oz.protocol.publisher.accounts import Account, Peer
from oz.protocol.publisher.batches import Batches
from oz.protocol.publisher.lifetimes import FEW
from oz.protocol.publisher.records import ANSWER_RATE, RECORD_PATIENCE, Records
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.wire.batch import HEAD_SIZE, key_size, parse_control
from oz.wire.keys import ID_SIZE, Declaration, Declared, stream_key
from simulation.ledger import check
from simulation.promises import check_promises
from simulation.schedule import Fault

MOMENT = 0.00002
"""Seconds that a record takes."""

TURN = 0.0005
"""Seconds after which a publisher goes on with what it has not come to the end of."""

SOON, CLOSES_IN = 0.3, 3.0
"""Seconds in which all are answered, and for which a publisher that closes tries to say so."""

SECONDS = 4
"""For which nothing happens but that hearts beat."""

HEARD, CROWD_EVERY, LOOKED_AT = 60, 0.1, 256
"""Streams of a crowd on which something is sent; seconds between two looks at a crowd, of which so many are
looked at each time."""

MANY = 200
"""Declarations of one stream, of which each is named in each answer: see docs/limits.md."""


class Room:
    """A sink: what was taken, and the keys for which there is no room.

    Attributes:
        said: the times and the bodies of what was said on each key.
        full: keys on which all connections are full; `half`, those of which one of several is.
        patience: seconds for which a record waits for that one, while it has to.
    """

    patience = 0.0

    def __init__(self, world):
        self.world, self.said = world, defaultdict(list)
        self.full, self.half, self._refused = set(), set(), {}

    def try_send(self, frames, backlog=None):
        self.world.now += MOMENT
        size = key_size(frames[0])
        if frames[0][:size] in self.full | self.half:
            self._refused.setdefault(frames[0][:size], self.world.now)
            return False
        self._take(frames, size)
        return True

    def send_past_the_full(self, frames):
        size, now = key_size(frames[0]), self.world.now
        key = frames[0][:size]
        waited = now - self._refused.get(key, now)
        check(waited >= self.patience, "a connection is left out after {} s", waited)
        self._refused[key] = now
        if key not in self.full:
            self._take(frames, size)

    def _take(self, frames, size):
        body = parse_control(frames[0], size + HEAD_SIZE)
        self.said[frames[0][:size]].append((self.world.now, len(frames[0]), body))

    def look(self):
        """Know of room at once."""

    make_lossless = make_lossy = look


def check_moments(random):
    """Publishers of nodes beat once in each period, those of one moment together."""
    now, period = random.uniform(0.0, 1e6), random.choice((0.5, 1.0, 3.0))
    origin = random.randrange(256)
    first, other = (Router(bytes([origin, number] * 8), PublisherStats()) for number in range(2))
    check(first.next_beat(now, period) == now + period, "it beats at {}", first.next_beat(now, period))
    for one in (first, other):
        one.interest.watcher = one
    at, later = first.next_beat(now, period), now + random.uniform(0.0, period)
    check(now < at <= now + period + 1e-6, "it beats at {} after {}, every {}", at, now, period)
    again = other.next_beat(at + 1e-6, period)
    check(abs(again - at - period) < 1e-6, "it beats at {} after {}, every {}", again, at, period)
    check(first.next_beat(later, period) in (at, again) or abs(later - at) < 1e-6, "it beats otherwise later")


class TellerWorld:
    """A publisher, and connections with very many streams."""

    def __init__(self, seed, faults=None, mechanisms=None):
        self.random = random = Random(seed + 16)
        self.mechanisms = Counter() if mechanisms is None else mechanisms
        self.faults = [Fault(1.0, "full", ("p1",), 1.0)] if faults is None else faults
        self.now = 100.0
        self.sink = Room(self)
        self.router = Router(bytes(16), PublisherStats())
        self.batches = Batches(self.router, self.sink, self._clock, drops=True)
        self.records = Records(self.router, self.batches, None, self.sink, self._clock)
        self.accounts = [Account(Peer(number, number)) for number in range(1, 4)]
        self.keys, self._declared = {}, Counter()
        self.counts = [random.choice((1, FEW, 40, 160, random.randrange(200))) for _ in self.accounts]

    def _clock(self):
        return self.now

    # what happens ----------------------------------------------------------------------------------------

    def _learn(self, key, account):
        self.router.learn(b"\1" + key, self.now, account)

    def _listen(self, account):
        name = b"%d" % len(self.keys)
        name = name.ljust(ID_SIZE)
        key = stream_key(name)
        self.keys[key] = name, account
        self._learn(key, account)
        self._declare(key)
        return key

    def _declare(self, key):
        name, account = self.keys[key]
        self._declared[key] += 1
        number = self._declared[key]
        pattern = Declared(1, b"a.%d.*" % (number % 4))
        self._learn(Declaration(name, number, patterns=(pattern,)).encode(), account)

    def _turns(self, until):
        """Take turns as an engine does."""
        records, router = self.records, self.router
        while self.now < until:
            records.is_halfway = False
            if waiting := len(router.to_answer):
                records.answer()
                left = len(router.to_answer)
                goes_on = records.is_halfway or left in (0, waiting)
                check(goes_on, "{} of {} are to be answered, and wait for nothing", left, waiting)
            records.beat(self.now)
            due = self.now + TURN if records.is_halfway else records.next_deadline(self.now)
            self.now = max(self.now + MOMENT, min(until, until if due is None else due))

    def run(self):
        """Have all declare, beat and part, and check what must be so."""
        for account, count in zip(self.accounts, self.counts, strict=True):
            for _ in range(count):
                self._listen(account)
        began = self.now
        self._turns(began + SOON)
        self._check_answered(began)
        self._declare_without_room()
        self._declare_many()
        self._check_beats()
        self._check_crowd()
        self._part()
        check_moments(self.random)
        check_promises()
        return self

    # what must be so -------------------------------------------------------------------------------------

    def _check_answered(self, began):
        """Everybody is answered soon, and what stands is named."""
        for key in self.keys:
            live = [body["live"] for _, _, body in self.sink.said[key] if "live" in body]
            check(live and live[-1] == [1], "a stream is answered {} after {} s", live[-1:], self.now - began)

    def _declare_without_room(self):
        """Who declares something and has no room is answered as soon as it has, however long that takes."""
        some = self.random.sample(sorted(self.keys), min(3, len(self.keys)))
        self.sink.full.update(some)
        for key in some:
            self._declare(key)
        self._turns(self.now + self.random.choice((0.0, SOON, 2.0)))
        self.sink.full.clear()
        self._turns(self.now + RECORD_PATIENCE + SOON)
        for key in some:
            live = [body["live"] for _, _, body in self.sink.said[key] if "live" in body]
            answered, count = len(live[-1]), self._declared[key]
            check(answered == count, "{} are answered of {} once there is room", answered, count)

    def _declare_many(self):
        """Have one stream declare more and more: it is answered as often as that rate allows, and at last."""
        key = next(iter(self.keys))
        began, before = self.now, len(self.sink.said[key])
        for _ in range(MANY):
            self._declare(key)
            self._turns(self.now + 0.0001)
        self._turns(self.now + SOON)
        said = self.sink.said[key][before:]
        answers = [(at, size) for at, size, body in said if "live" in body]
        large = [(at, size) for at, size in answers[:-1] if size > answers[-1][1] * 0.7]
        for (at, size), (later, _) in pairwise(large):
            check(later - at >= 0.5 * size / ANSWER_RATE, "{} bytes of answers in {} s", size, later - at)
        live = next(body["live"] for _, _, body in reversed(said) if "live" in body)
        count = self._declared[key]
        check(len(live) == count > MANY, "{} are answered of {}", len(live), count)
        check(self.now - began < 2 * SOON + MANY * 0.001, "answers take {} s", self.now - began)
        self.mechanisms["answers spared"] += len(answers) < MANY

    def _check_beats(self):
        """Each is told once a second where it stands, and nobody more; who has no room is told afterwards."""
        full = self.random.sample(sorted(self.keys), min(3, len(self.keys) - 1)) if self.faults else []
        self.sink.full.update(full)
        several = self._share(full) if self.faults else None
        self.sink.patience = RECORD_PATIENCE
        before, began = {key: len(said) for key, said in self.sink.said.items()}, self.now
        self._turns(began + SECONDS)
        for key in self.keys:
            said = len(self.sink.said[key]) - before[key]
            if key in full:
                check(not said, "{} records were taken where there is no room", said)
                continue
            stream = self.router.streams[key]
            least = 1 if stream in self.router.lifetimes.crowd else SECONDS - 1
            # Until the full one has room too it is tried for, each time for as long as it may wait.
            most = SECONDS / RECORD_PATIENCE if key == several else SECONDS
            check(least <= said <= most + 2, "a stream was told {} times in {} s", said, SECONDS)
        self.mechanisms["record past the full"] += several is not None
        self.sink.full.clear()
        self.sink.half.clear()
        self.sink.patience = 0.0
        self._turns(self.now + 1.0 + 2 * RECORD_PATIENCE)
        for key in full:
            check(len(self.sink.said[key]) > before[key], "who had no room is told nothing once it has")

    def _check_crowd(self):
        """Of a crowd those are told soon on which something was sent, and do not wait for their turn."""
        crowd = self.router.lifetimes.crowd
        some = self.random.sample(list(crowd), min(len(crowd), HEARD))
        for stream in some:
            stream.sequence += 1
        before = {stream: len(self.sink.said[stream.key]) for stream in some}
        self._turns(self.now + CROWD_EVERY * (2 + len(crowd) // LOOKED_AT))
        late = [stream for stream in some if len(self.sink.said[stream.key]) == before[stream]]
        check(not late, "{} of {} in a crowd were sent something, and not told soon", len(late), len(some))

    def _share(self, others):
        """Have a stream come by two connections, of which one has no room: it is told by the other."""
        some = sorted(self.keys.keys() - set(others))
        if not some:
            return None
        several = self.random.choice(some)
        _, account = self.keys[several]
        self._learn(several, next(one for one in self.accounts if one is not account))
        self._turns(self.now + SOON)
        self.sink.half.add(several)
        return several

    def _part(self):
        """Say goodbye: once to everybody, and to those of several connections that have room."""
        several = self.random.choice(sorted(self.keys))
        self._learn(several, self.random.choice(self.accounts))
        self._turns(self.now + SOON)
        self.sink.half.add(several)
        self.router.streams[several].left_out_at = self.now
        full = self.random.choice([None, *sorted(self.keys)])
        self.sink.full.update({full} - {None, several})
        ends = self.now + CLOSES_IN
        while self.now < ends and not self.records.say_goodbye():
            self.now += 0.05
        check(self.now >= ends, "all have been told, of whom one has no room")
        self.records.part_with_the_rest()
        for key in self.keys:
            told = sum(body.get("bye", False) for _, _, body in self.sink.said[key])
            check(told == (key not in self.sink.full), "{} goodbyes were said to one", told)
        self._part_again()

    def _part_again(self):
        """Say goodbye anew, as some may have been left out: all have room now, and are told once more."""
        said = {key: len(self.sink.said[key]) for key in self.keys}
        self.sink.full.clear()
        self.sink.half.clear()
        self.records.part_again()
        check(self.records.say_goodbye(), "all have room, and not all have been told")
        for key in self.keys:
            told = sum(body.get("bye", False) for _, _, body in self.sink.said[key][said[key] :])
            check(told == 1, "{} goodbyes were said to one that was to be told again", told)
