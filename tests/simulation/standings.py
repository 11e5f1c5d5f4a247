"""Runs of what a publisher knows of its subscribers, next to a book kept by the rules of docs/wire.md.

Subscribers come by one connection or two, of which one may lose what they declare; they declare, take back,
are cut off, return in time or too late, and say goodbye. Time moves in halves of seconds, so that it is known
to the moment what has ended. After each step all is as the book says: who is given which subject, under which
numbers, who is counted, what each answer names, and what connections are counted to have.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import oz
from oz.protocol.publisher import lifetimes
from oz.protocol.publisher.accounts import Peer
from oz.protocol.publisher.batches import Batches
from oz.protocol.publisher.interest_queue import InterestQueue
from oz.protocol.publisher.records import Records
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.security.limits import DEFAULT_LIMITS
from oz.subjects.pattern import weight_of
from oz.wire.batch import HEAD_SIZE, parse_body, parse_control
from oz.wire.keys import PATTERN, Declaration, Declared, DeliveryOptions
from simulation.books import DELAY, GRACE, Book, Subscriber, Taker
from simulation.changing import changed
from simulation.leaks import count_reached
from simulation.ledger import check
from simulation.parted import check_left, check_watched
from simulation.schedule import Fault

STEPS = 50
HEAVY = "a.*." + "h" * 60
"""It takes more memory than any pattern may, and that is counted."""

TEXTS = "a.*", "b.*", "*.x", "a.x", ">", "c.>", HEAVY
WEIGHTS = {text: weight_of(oz.compile(text)) for text in TEXTS}
SUBJECTS = "a.x", "b.y", "c.z.z", "d"
DELIVERIES = (
    DeliveryOptions(),
    DeliveryOptions(),
    DeliveryOptions(overflow="drop_oldest", limit=3),
    DeliveryOptions(group="g"),
    DeliveryOptions(group="g"),
)

MOST_LEFT = 12
"""Entries of dictionaries, sets and lists, beside accounts, that are left of those who have gone."""

BEAT = 1.0
"""Seconds between two heartbeats."""

ACTIONS = {
    "connect": 12, "declare": 10, "take_back": 6, "cut": 4, "goodbye": 4, "publish": 12, "wait": 10,
    "skip": 2,
}  # fmt: skip
WAITS = 0.5, 0.5, 1.0, 1.5, 29.5, 30.0


class StandingWorld(Book):
    """A publisher, and a few subscribers."""

    deliveries, texts = DELIVERIES, TEXTS

    def __init__(self, seed, faults=None, mechanisms=None):
        self.random = random = Random(seed + 23)
        super().__init__(Counter() if mechanisms is None else mechanisms)
        kinds = random.choices(list(ACTIONS), list(ACTIONS.values()), k=STEPS)
        every = [
            Fault(at, kind, (str(random.randrange(len(self.deliveries))),), 0.0)
            for at, kind in enumerate(kinds)
        ]
        self.faults = every if faults is None else faults
        self.alive, self._inode = {}, 0
        self.most_kept = random.choice((1_000, 1, 1))
        self.stats, self.sink = PublisherStats(), Taker()
        self.router = Router(bytes(16), self.stats)
        self.queue = InterestQueue(self.router, DEFAULT_LIMITS, self.alive.__contains__)
        self.batches = Batches(self.router, self.sink, self._clock, drops=True)
        self.records = Records(self.router, self.batches, None, self.sink, self._clock)
        self.subscribers = [Subscriber(number, one) for number, one in enumerate(self.deliveries)]
        self.published, self._beats_at = 0, 0.0

    def _clock(self):
        return self.now

    def run(self):
        """Let everything happen, and check what must be so after each step."""
        with changed((lifetimes, "VANISHED_KEPT", self.most_kept)):
            self._run()
        for _ in range(2):
            check_left(self.random)
            check_watched(self.random)
        return self

    def _run(self):
        for one in self.subscribers:
            self._connect(one)
            self._declare(one)
        for fault in self.faults:
            before = {one: len(self.sink.taken[one.key]) for one in self.subscribers}
            self.answered = set()
            getattr(self, f"_{fault.kind}")(self.subscribers[int(fault.who[0])])
            self.records.answer()
            self._check_answers(before)
            self._check()
        for one in self.subscribers:
            for connection in list(one.connections):
                self._end(one, connection)
        self._check()
        self._pass(GRACE)
        self._check()
        left = self.router.streams, self.router.lifetimes.cut_members, self.router.interest.groups
        check(not any(left), "of those who have gone there is {}", left)
        self._check_left()

    # what subscribers do ---------------------------------------------------------------------------------

    def _connect(self, one):
        if len(one.connections) == 2:
            return
        self._inode += 1
        connection = Peer(10 + self._inode % 3 if len(self.alive) < 3 else self._inode, self._inode)
        if any(connection.descriptor == other.descriptor for other in self.alive):
            return
        self.alive[connection], one.connections[connection] = None, set()
        for key in sorted([*one.asked, one.key]):
            self._say(one, connection, key)

    def _declare(self, one):
        one.number += 1
        texts = tuple(self.random.sample(self.texts, self.random.choice((1, 1, 2))))
        patterns = tuple(Declared(1, text.encode()) for text in texts)
        key = Declaration(one.name, one.number, one.delivery, patterns=patterns).encode()
        one.asked[key] = one.number, texts
        for connection in one.connections:
            # What gets lost comes when it connects anew.
            if len(one.connections) == 1 or self.random.random() < 0.5:
                self._say(one, connection, key)

    def _take_back(self, one):
        if not one.asked:
            return
        key = self.random.choice(list(one.asked))
        for connection, said in one.connections.items():
            if key in said:
                said.discard(key)
                self._take(b"\0" + key, connection)
                self._let_go(one, one.asked[key][0], connection, DELAY)
        del one.asked[key]

    def _cut(self, one):
        if one.connections:
            self._end(one, self.random.choice(list(one.connections)))

    def _goodbye(self, one):
        """Say goodbye by one connection or by all, and end those."""
        one.number += 1
        said = self.random.sample(
            list(one.connections), self.random.randint(min(1, len(one.connections)), len(one.connections))
        )
        goodbye = Declaration(one.name, one.number, one.delivery, is_closing=True).encode()
        for connection in said:
            if one.key in one.connections[connection]:
                self._say(one, connection, goodbye)
                self._hear_goodbye(one, connection, one.number)
        self.records.answer()
        self._check()
        for connection in said:
            self._end(one, connection)
        if len(said) and not one.connections:
            one.asked.clear()

    def _say(self, one, connection, key):
        one.connections[connection].add(key)
        self._take(b"\1" + key, connection)
        if key == one.key:
            self._listen(one, connection)
        elif key in one.asked:
            self._hear(one, connection, *one.asked[key])

    def _take(self, frame, peer):
        self.queue.take(frame, peer, self.now)
        while self.queue.waits:
            self.queue.work(self._clock)

    def _end(self, one, connection):
        """Have a connection end: ZeroMQ takes back all that was asked for by it."""
        del self.alive[connection]
        said = one.connections.pop(connection)
        for key in sorted(said):
            self._take(b"\0" + key, None)
            if key == one.key:
                self._listen_no_more(one)
            elif not key.startswith(PATTERN):
                number = one.asked[key][0] if key in one.asked else None
                if number is None:
                    number = next(
                        (
                            at
                            for at, chunk in one.chunks.items()
                            if connection in chunk.holders and not chunk.texts
                        ),
                        None,
                    )
                self._let_go(one, number, connection, GRACE)
        self.mechanisms["standing: cut off"] += 1

    def _pass(self, seconds):
        """Have time pass, half a second after the other."""
        for _ in range(round(2 * seconds)):
            self.now += 0.5
            self.router.expire(self.now)
            for one in self.subscribers:
                self._expire(one)

    # what a publisher does -------------------------------------------------------------------------------

    def _wait(self, one):
        self._pass(self.random.choice(WAITS))
        self.records.beat(self.now)
        if self.now < self._beats_at:
            return
        self._beats_at = self.now + BEAT
        for one in self.subscribers:
            if one.is_known and one.vanished_at is None:
                head = self.sink.taken[one.key][-1][0]
                is_right = (
                    head.count == 0
                    and head.sequence == one.sequence
                    and head.position == self.batches.position
                )
                check(is_right, "{} is told {}, and stands at {}", one.name, head, one.sequence)

    def _publish(self, _):
        """Publish something: each that wants it is given it under its next number, nobody else."""
        subject = self.random.choice(SUBJECTS)
        raw, self.published = subject.encode(), self.published + 1
        before = {one: len(self.sink.taken[one.key]) for one in self.subscribers}
        recipients = self.router.find(raw, raw)
        self.batches.send_alone(recipients, raw, b"%d" % self.published)
        members = [one for one in self.subscribers if one.group and one.is_known]
        given = [one for one in members if len(self.sink.taken[one.key]) > before[one]]
        wanting = [one for one in members if one.wants(subject)]
        largest, is_away = 0, False
        is_right = len(given) == bool(wanting) and all(one in wanting for one in given)
        check(is_right, "{!r} went to {} members, and {} want it", subject, len(given), len(wanting))
        for one in self.subscribers:
            new = self.sink.taken[one.key][before[one] :]
            is_for_it = one in given if one.group else one.is_known and one.wants(subject)
            is_sent = is_for_it and one.vanished_at is None
            check(len(new) == is_sent, "{} of {!r} went to {}", len(new), subject, one.name)
            for head, frames, size in new:
                check(head.sequence == one.sequence, "{} has the number {}", one.sequence, head.sequence)
                check(head.position == self.batches.position - 1, "its position is {}", head.position)
                body = list(parse_body(frames[0], size + HEAD_SIZE, head.count))
                check(body == [raw, b"%d" % self.published], "{} came of {!r}", body, subject)
            one.sequence += is_for_it
            is_whole = is_for_it and one.delivery.overflow is None
            largest = max([largest, *(len(frames[0]) for _, frames, _ in new)]) if is_whole else largest
            is_away |= is_whole and one.vanished_at is not None
        if not (recipients.is_simple or is_away):
            size = self.batches.size
            check(size == largest, "the largest batch has {} bytes, and it is said {}", largest, size)

    def _skip(self, _):
        """Have some messages be lost before they come here."""
        count = self.random.choice((1, 5, None))
        self.batches.skip(count)
        seniors = [
            one for one in self.subscribers if one.group and one.is_known and one.texts(with_ending=True)
        ]
        senior = min(seniors, key=lambda one: one.joined, default=None)
        for one in self.subscribers:
            if count is None:
                one.kept = None
                if one.is_known and not one.is_closing:
                    self._number_anew(one)
                    self.answered |= {one} if one.vanished_at is None else set()
            elif one.is_known and not one.is_closing and one.texts(with_ending=True):
                one.sequence += count * (not one.group or one is senior)

    # what must be so -------------------------------------------------------------------------------------

    def _check_answers(self, before):
        """Who has asked or was cut is answered: what stands is named, and by how many ways it is served."""
        for one in self.subscribers:
            said = [
                parse_control(frames[0], size + HEAD_SIZE)
                for head, frames, size in self.sink.taken[one.key][before[one] :]
                if not head.count
            ]
            answers = [body for body in said if "live" in body]
            if one in self.answered and one.is_known and one.vanished_at is None:
                check(answers, "{} is not answered", one.name)
            if answers and one.is_known and one.vanished_at is None:
                live, paths = sorted(answers[-1]["live"]), len(one.listeners)
                check(
                    live == sorted(one.standing()), "{} stand, and {} are named", sorted(one.standing()), live
                )
                check(answers[-1]["paths"] == paths, "{} ways, and {} are named", paths, answers[-1]["paths"])
                check(not answers[-1]["refused"], "{} are refused", answers[-1]["refused"])

    def _check(self):
        router = self.router
        for one in self.subscribers:
            self._check_stream(one, router.streams.get(one.key))
        for subject in SUBJECTS:
            raw = subject.encode()
            found = router.find(raw, raw)
            given = [one.key for one in found.streams]
            members = [one.key for choice in found.choices for one in choice.members]
            known = sorted((one for one in self.subscribers if one.is_known), key=lambda one: one.joined)
            wanting = [one for one in known if one.wants(subject)]
            expected = [one.key for one in wanting if not one.group]
            check(given == expected, "{!r} goes to {}, not {}", subject, given, expected)
            expected = [one.key for one in wanting if one.group]
            check(members == expected, "{!r} goes to one of {}, not {}", subject, members, expected)
            there = [one for one in known if one.vanished_at is None]
            count = len({one.owner for one in there if one.wants(subject, with_ending=False)})
            said = router.count(raw, raw)
            check(said == count, "{} are counted for {!r}, and {} ask", said, subject, count)
        count = len({one.owner for one in there if one.texts(with_ending=True)})
        said = router.count(None, None)
        check(said == count, "{} subscribers are counted, and there are {}", said, count)
        self._check_counts()

    def _check_left(self):
        """Of those who have gone nothing takes memory but what is counted of their connections."""
        for _ in range(3):
            self.now += 1.0
            self.queue.sweep(self.now)
        machines = self.queue, self.router, self.batches, self.records
        count = count_reached(*machines, beside=(self, self.alive, self.sink))
        most = 2 * len(self.queue.accounts) + MOST_LEFT
        check(count <= most, "{} entries are left of those who have gone, and {} may be", count, most)

    def _check_stream(self, one, stream):
        check((stream is not None) == one.is_known, "{} is known: {}", one.name, one.is_known)
        if stream is None:
            return
        check(
            stream.sequence == one.sequence,
            "{} stands at {}, not {}",
            one.name,
            stream.sequence,
            one.sequence,
        )
        place = one.life, stream.epoch
        if not one.epochs or one.epochs[-1] != place:
            is_new = not one.epochs or (one.epochs[-1][0] < one.life and one.epochs[-1][1] < stream.epoch)
            check(is_new, "{} has the epoch {} behind {}", one.name, place, one.epochs)
            one.epochs.append(place)
        check((stream.vanished_at is None) == (one.vanished_at is None), "{} is there, or not", one.name)
        has_learned = self.router.has_learned
        check(has_learned({one.name: one.newest}), "{} of {} was learned", one.newest, one.name)
        check(not has_learned({one.name: one.newest + 1}), "more was learned than came")

    def _check_counts(self):
        """Connections are counted what they began and declared, and patterns once for each stream."""
        accounts, known = self.queue.accounts.values(), [one for one in self.subscribers if one.is_known]
        count = sum(len(one.texts(with_ending=True)) for one in known)
        said = self.router.interest.pattern_count
        check(said == count, "{} patterns are counted, and there are {}", said, count)
        count = sum(len(chunk.texts) for one in known for chunk in one.chunks.values())
        said = sum(one.patterns for one in accounts)
        check(said == count, "{} patterns are counted of connections, and they have {}", said, count)
        count = sum(WEIGHTS[text] for one in known for chunk in one.chunks.values() for text in chunk.texts)
        said = sum(one.pattern_weight for one in accounts)
        check(said == count, "patterns take {} bytes of connections, and are said to take {}", count, said)
        for name in ("own_streams", "beating"):
            said = sum(getattr(one, name) for one in accounts)
            check(said == len(known), "{} are {}, and there are {}", name, said, len(known))
