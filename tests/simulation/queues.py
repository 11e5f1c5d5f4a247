"""Runs of what a publisher does with those who have no room: members of groups, and streams with an overflow.

Connections take as many frames as the seed says, and read when it says so. Nothing else goes wrong, so
that it is known of each message where it has to be: given, waiting, or counted as missed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random

from oz.protocol.publisher.accounts import Account, Peer
from oz.protocol.publisher.batches import PATIENCE, Batches
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.wire.batch import HEAD_SIZE, RICH, key_size, parse_body, parse_head
from oz.wire.extras import Extras, Rich, rich
from oz.wire.keys import ID_SIZE, Declaration, Declared, DeliveryOptions, stream_key
from simulation.choosing import POLICIES, check_choices
from simulation.ledger import check, matches
from simulation.rooms import ENDLESS, Pipe, Room
from simulation.schedule import Fault
from simulation.several import check_several

STEPS = 120
SUBJECTS = "a.x", "a.y", "a.z", "b.x", "b.y", "b.z"
PATTERNS = "a.*", "b.*", "*.x", ">"
OVERFLOWS = "drop_oldest", "drop_newest", "conflate"
LARGEST = 512
"""Messages in one batch at most."""

UNEVEN = 3
"""Messages that one member may be given more than another: each set of members has turns of its own."""


class Receiver:
    """Whoever has one stream, and what it asks for."""

    def __init__(self, number, delivery, patterns, pipes):
        name = b"%d" % number
        self.name, self.delivery, self.patterns = name.ljust(ID_SIZE), delivery, patterns
        self.key, self.pipes = stream_key(self.name), pipes

    def wants(self, subject):
        return any(matches(one, subject) for one in self.patterns)


class QueueWorld:
    """A publisher, the members of two groups, and others with and without an overflow."""

    def __init__(self, seed, faults=None, mechanisms=None):
        self.random = random = Random(seed + 18)
        self.mechanisms = Counter() if mechanisms is None else mechanisms
        self.faults = [Fault(1.0, "full", ("p1",), 1.0)] if faults is None else faults
        self.now, self.drops = 100.0, random.random() < 0.5
        self.stats, self.sink = PublisherStats(), Room(self)
        self.router = Router(bytes(16), self.stats)
        self.batches = Batches(self.router, self.sink, self._clock, drops=self.drops)
        self.is_narrow = bool(self.faults) and random.random() < 0.8
        self.policy = random.choice(POLICIES) if self.is_narrow else "round_robin"
        self.has_idle, self.is_joint = self.is_narrow and random.random() < 0.5, random.random() < 0.5
        leaves_at = random.choice((0, STEPS // 3, STEPS // 2))
        self.leaver, self._leaves_at = None, leaves_at if self.is_narrow else 0
        self.receivers = [Receiver(number, *one) for number, one in enumerate(self._kinds())]
        self._number, self.subjects = 0, {}
        self.wanted, self.in_group = defaultdict(list), []
        for number, one in enumerate(self.receivers):
            self._join(one, number)

    def _clock(self):
        return self.now

    def _kinds(self):
        """Choose who is there: one kind of room for all that one has."""
        choice, random = self.random.choice, self.random
        group = DeliveryOptions(group="g", policy=self.policy)
        room = lambda: [Pipe(choice((1, 2, 4)) if self.is_narrow else ENDLESS)]  # noqa: E731
        patterns = ["a.*", "b.*"] if choice((True, False)) or not self.is_narrow else None
        for _ in range(choice((2, 3, 4))):
            yield group, patterns or random.sample(PATTERNS, 2), room()
        if self.has_idle:
            yield group, [">"], [Pipe(ENDLESS)]
        yield DeliveryOptions(), random.sample(PATTERNS, 2), room()
        yield DeliveryOptions(), [">"], [Pipe(ENDLESS)]
        yield DeliveryOptions(), [">"], [*room(), Pipe(ENDLESS)]
        for overflow in random.sample(OVERFLOWS, 2):
            limit = 0 if overflow == "drop_newest" else choice((1, 3, 8, 600))
            pipes = room() + [Pipe(ENDLESS)] * choice((0, 1))
            yield DeliveryOptions(overflow=overflow, limit=limit), [">"], pipes

    def _join(self, one, number):
        self.sink.pipes[one.key] = one.pipes
        accounts = [Account(Peer(100 * number + at, at)) for at, _ in enumerate(one.pipes)]
        if number == 1 and self.is_joint:
            accounts = [self.receivers[0].account]
        for account in accounts:
            self.router.learn(b"\1" + one.key, self.now, account)
        one.account = accounts[-1]
        patterns = tuple(Declared(1, text.encode()) for text in one.patterns)
        said = Declaration(one.name, 1, one.delivery, patterns=patterns).encode()
        self.router.learn(b"\1" + said, self.now, accounts[-1])
        one.stream = self.router.streams[one.key]

    # what happens ----------------------------------------------------------------------------------------

    def run(self):
        """Publish, read and wait, and check what must be so."""
        for step in range(STEPS):
            if step and step == self._leaves_at:
                self._leave()
            self.random.choices((self._publish, self._read, self._wait, self._plain), (5, 4, 2, 1))[0]()
            self._check_state()
        self._settle()
        for one in self.receivers:
            self._check_receiver(one)
        self._check_group()
        self._check_missed()
        self._check_batches()
        self._lose_count()
        check_choices(self.random)
        check_several(self.random)
        return self

    def _publish(self):
        if self.batches.is_blocked:
            self.batches.retry()
        if self.batches.is_blocked:
            check(not self.drops, "a publisher is held up, and may drop messages")
            self.mechanisms["publisher held up"] += 1
            return
        messages = [self._message() for _ in range(self.random.choice((1, 1, 2, 5, 20)))]
        subjects = {subject.decode() for _, subject, _ in messages}
        asking = [one for one in self.receivers if not one.delivery.group and any(map(one.wants, subjects))]
        free = [one for one in asking if self._has_room(one, len(messages))]
        self._send(messages)
        for one in free:
            check(not one.stream.is_full, "{} waits, though all have room", one.name)

    def _send(self, messages):
        batches = self.batches
        if len(messages) == 1 and type(messages[0][2]) is bytes and self.random.random() < 0.3:
            self._send_large(messages[0])
        elif len(messages) == 1:
            batches.send_alone(*messages[0])
        else:
            first = batches.position
            batches.position += len(messages)
            is_rich = any(type(one[2]) is Rich for one in messages)
            batches.send([part for one in messages for part in one], first, is_rich=is_rich)

    def _send_large(self, message):
        """Send a large message; it is counted as missed at most once for each that has no room for it."""
        subject, before = message[1].decode(), self.stats.missed
        asking = [one for one in self.receivers if one.wants(subject)]
        full = [one for one in asking if one.stream.is_full or not all(pipe.has_room() for pipe in one.pipes)]
        most = len({one.delivery.group or one.key for one in full})
        self.batches.send_large(message)
        missed = self.stats.missed - before
        check(missed <= most, "{} are counted as missed of a large message, for {}", missed, most)

    def _has_room(self, one, count):
        """Tell whether all fits that waits for a receiver, and so many messages more."""
        pipes = [pipe for pipe in one.pipes if not pipe.is_left_out]
        stream = one.stream
        waiting = len(stream.unsent) + (
            len(stream.send_buffer.take(stream, ENDLESS)[2]) if stream.send_buffer else 0
        )
        return all(pipe.most - pipe.waiting >= waiting + count for pipe in pipes)

    def _message(self):
        self._number += 1
        text = self.random.choice(SUBJECTS)
        subject, self.subjects[self._number] = text.encode(), text
        asking = [one for one in self.receivers if one.wants(text)]
        for one in asking:
            if not one.delivery.group:
                self.wanted[one.key].append(self._number)
        if any(one.delivery.group and one is not self.leaver for one in asking):
            self.in_group.append(self._number)
        payload = b"%d" % self._number
        if self.random.random() < 0.1:
            payload = rich(payload, Extras({"number": self._number}))
        return [self.router.find(subject, subject), subject, payload]

    def _read(self):
        pipe = self.random.choice([one for each in self.receivers for one in each.pipes])
        pipe.waiting = self.random.randrange(pipe.waiting + 1) if pipe.waiting else 0

    def _wait(self):
        self.now += self.random.choice((0.01, 0.1, 0.6, 1.1))
        self.batches.retry()

    def _plain(self):
        """Others filter by prefixes, and are told in a way that drops."""
        self.batches.make_lossy()

    def _leave(self):
        """Have a member of the group say goodbye, and go on to read."""
        self.leaver, self._left_at = self.receivers[0], self._number
        said = Declaration(self.leaver.name, 2, self.leaver.delivery, is_closing=True)
        self.router.learn(b"\1" + said.encode(), self.now, self.leaver.account)
        check(self.leaver.stream.is_closing, "a goodbye is not heard")

    def _lose_count(self):
        """Messages are lost on their way here, nobody knows how many: nothing waits, and all count anew."""
        for _ in range(10):
            self._publish()
        epochs = [one.stream.epoch for one in self.receivers]
        blocked = self.batches.is_blocked
        self.batches.skip(None)
        check(not (self.batches.full or self.batches.is_blocked), "what was lost waits still: {}", blocked)
        for one, epoch in zip(self.receivers, epochs, strict=True):
            check(one is self.leaver or one.stream.epoch > epoch, "a stream goes on as before")
            held = one.stream.unsent or one.stream.send_buffer or one.stream.is_full
            check(one is self.leaver or not held, "what was lost waits still for {}", one.name)

    def _settle(self):
        """Everybody reads, until nothing waits."""
        for _ in range(STEPS * 20):
            for pipes in self.sink.pipes.values():
                for one in pipes:
                    one.waiting = 0
            self.sink.look()
            self.batches.retry()
            if not self.batches.full:
                break
        check(not self.batches.full, "{} streams wait though all have room", len(self.batches.full))
        check(not self.batches.is_blocked, "the publisher is held up by nobody")

    # what must be so -------------------------------------------------------------------------------------

    def left_out(self, key):
        """One of several connections is left out: where messages wait for it, after they have for a while."""
        (one,) = [one for one in self.receivers if one.key == key]
        check(self.drops, "{} is left out, and nothing may be lost", key)
        check(len(one.pipes) > 1, "the only connection is left out")
        self.mechanisms["connection left out"] += 1
        if one.delivery.overflow in ("drop_oldest", "conflate"):
            waited = self.now - self.sink.refused_at.get(key, self.now)
            check(waited >= PATIENCE, "a connection is left out after {} s", waited)

    def _check_state(self):
        """Who is full is known to be, and holds the publisher up where it has to."""
        streams = [one.stream for one in self.receivers]
        held = [one for one in streams if one.unsent or one.send_buffer]
        for stream in held:
            check(stream in self.batches.full, "messages wait, and nobody tries to send them")
        for stream in streams:
            check(stream.is_full == (stream in self.batches.full), "a stream is full, or not")
        blocks = any(one.unsent and one.delivery.overflow is None for one in streams)
        check(
            self.batches.is_blocked == (blocks and not self.drops),
            "the publisher is held up: {}, and {} has to be", self.batches.is_blocked, blocks,
        )  # fmt: skip
        for one in self.receivers:
            buffered = one.stream.send_buffer
            if buffered:
                count = len(buffered.take(one.stream, ENDLESS)[2])
                check(count <= one.delivery.limit, "{} are held of {}", count, one.delivery.limit)
            may_wait = one.delivery.policy == "round_robin" or one is self.leaver
            is_patient = (one.delivery.group and may_wait) or not self.drops
            waits = one.stream.unsent and one.delivery.overflow is None
            check(is_patient or not waits, "frames wait that are to be dropped")

    def _frames(self, pipe):
        """Return sequence, number and subject of each message that a connection was given."""
        for frames in pipe.taken:
            at = key_size(frames[0])
            head = parse_head(frames[0], at)
            body = parse_body(frames[0], at + HEAD_SIZE + head.width * (head.count - 1), head.count)
            for place in range(head.count):
                subject, payload = body[2 * place : 2 * place + 2]
                if type(payload) is list and payload[0] is not None:
                    check(head.flags & RICH, "a message with more than a payload is in a plain batch")
                    payload = payload[0]
                number = int(payload if type(payload) is bytes else frames[1])
                yield head.sequence + place, number, subject.decode()

    def _check_receiver(self, one):
        """Numbers and subjects are in order, and nothing comes that is not asked for."""
        for pipe in one.pipes:
            last, newest = -1, Counter()
            for sequence, number, subject in self._frames(pipe):
                check(sequence > last, "number {} comes after {}", sequence, last)
                check(self.subjects[number] == subject and one.wants(subject), "{} is not wanted", number)
                check(newest[subject] < number, "{} comes after {}", number, newest[subject])
                last, newest[subject] = sequence, number
            check(last < one.stream.sequence, "{} was sent, and {} comes next", last, one.stream.sequence)
            self._check_numbers(one, pipe)
        if one.delivery.overflow in ("drop_oldest", "conflate"):
            self._check_newest(one)
        if one.delivery.group or one.delivery.overflow == "conflate":
            return
        given = [number for _, number, _ in self._frames(one.pipes[-1])]
        check(given == sorted(given), "messages are not in order")
        if one.pipes[-1].most == ENDLESS or not (self.drops or one.delivery.overflow):
            # Of several connections that listen on its key the full one alone misses something.
            is_left_out = self.drops and one.delivery.overflow in (None, "drop_newest")
            is_free = one.pipes[-1].most == ENDLESS and (is_left_out or len(one.pipes) == 1)
            is_whole = is_free or not (self.drops or one.delivery.overflow)
            check(not is_whole or given == self.wanted[one.key], "{} are not all that were sent", given[-5:])

    def _check_batches(self):
        """Of much that waits not more goes out at once than fits into a batch."""
        one = next((one for one in self.receivers if one.delivery.limit > LARGEST), None)
        if one is None:
            return
        first, one.pipes[0].most = len(one.pipes[0].taken), 0
        for _ in range(30):
            self._send([self._message() for _ in range(20)])
        one.pipes[0].most = ENDLESS
        self._settle()
        counts = [parse_head(frames[0], key_size(frames[0])).count for frames in one.pipes[0].taken[first:]]
        check(max(counts, default=0) <= LARGEST, "{} messages are in one batch", max(counts, default=0))

    def _check_newest(self, one):
        """The newest is held, and of what is conflated that of each subject."""
        given = {number for _, number, _ in self._frames(one.pipes[-1])}
        newest = {self.subjects[number]: number for number in self.wanted[one.key]}
        if one.delivery.overflow == "drop_oldest":
            newest = dict(sorted(newest.items(), key=lambda two: two[1])[-1:])
        is_room = one.delivery.limit >= len(SUBJECTS) or one.delivery.overflow == "drop_oldest"
        missing = set(newest.values()) - given
        check(not (is_room and missing), "{} are the newest, and did not come", missing)

    def _check_numbers(self, one, pipe):
        """The numbers of a stream without a group are those of what was published for it."""
        if one.delivery.group or one.delivery.overflow == "conflate":
            return
        book = self.wanted[one.key]
        for sequence, number, _ in self._frames(pipe):
            check(book[sequence] == number, "{} has the number {}", number, sequence)
        check(one.stream.sequence == len(book), "{} are counted of {}", one.stream.sequence, len(book))

    def _check_group(self):
        """A message goes to one member: to one, unless none has room and the publisher may drop it."""
        members = [one for one in self.receivers if one.delivery.group]
        by_member = {one: [number for _, number, _ in self._frames(one.pipes[0])] for one in members}
        given = Counter(number for numbers in by_member.values() for number in numbers)
        check(not given or max(given.values()) == 1, "a message came to several members")
        missing = [one for one in self.in_group if one not in given]
        may_drop = self.drops and not (self.has_idle and self.policy == "round_robin")
        check(not missing or may_drop, "{} came to no member: {}", len(missing), missing[:5])
        self._missing = len(missing)
        if self.leaver is not None:
            self._check_leaver(by_member[self.leaver], members)
            return
        senior = members[0]
        for number, subject in self.subjects.items():
            if self.policy == "failover" and number in given and senior.wants(subject):
                check(number in by_member[senior], "{} went past the first", number)
        if self.policy == "sticky":
            self._check_sticky(by_member)
        if self.policy == "round_robin" and not self.is_narrow:
            self._check_turns([len(by_member[one]) for one in members])

    def _check_leaver(self, given, members):
        """Who has said goodbye gets nothing that another member wants."""
        for number in given:
            others = any(one.wants(self.subjects[number]) for one in members if one is not self.leaver)
            check(number <= self._left_at or not others, "{} went to a member that leaves", number)
        self.mechanisms["member left"] += 1

    def _check_turns(self, counts):
        """Where all have room each connection has as many turns, and each member of one connection."""
        if self.is_joint:
            first, second, *counts = counts
            check(abs(first - second) <= UNEVEN, "two of one connection were given {} and {}", first, second)
            counts.append(first + second)
        check(max(counts) - min(counts) <= UNEVEN, "members were given {}", counts)

    def _check_sticky(self, by_member):
        """Messages of one subject go to one member."""
        for subject in SUBJECTS:
            to = [
                one
                for one, numbers in by_member.items()
                if any(self.subjects[at] == subject for at in numbers)
            ]
            check(len(to) <= 1, "{} went to {} members", subject, len(to))

    def _check_missed(self):
        """As many are counted as missed as came to nobody."""
        least = most = self._missing
        for one in self.receivers:
            if one.delivery.group:
                continue
            numbers = [{number for _, number, _ in self._frames(pipe)} for pipe in one.pipes]
            lost = [len(set(self.wanted[one.key]) - given) for given in numbers]
            if one.delivery.overflow == "conflate":
                # What is conflated is not missed, as something newer comes.
                most += max(lost)
            elif len(one.pipes) > 1:
                # Nobody knows how many of several connections had no room; one left out is not counted.
                most += max(lost)
            else:
                least, most = least + lost[0], most + lost[0]
        missed = self.stats.missed
        check(least <= missed <= most, "{} to {} are missed, and {} counted", least, most, missed)
