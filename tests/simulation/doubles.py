"""Runs of one subscriber that hears several speak in one publisher's name, by two ways each.

One of them is the publisher. Where it goes on, nobody is to be shut out for long by what others say, no
number is given twice, and where nobody else speaks nothing speaks against it: docs/security.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from math import inf
from random import Random

import oz
from oz.protocol.subscriber.contradictions import LONGEST, MOST_EPOCHS, MOST_MESSAGES, SLACK, can_be
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.sequences import Source
from oz.protocol.subscriber.stream import OUTLIVED
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.wire.batch import (
    CONTROL,
    MESSAGES,
    Head,
    head_end,
    head_start,
    key_size,
    pack_array,
    pack_control,
    parse_head,
)
from oz.wire.keys import DeliveryOptions
from simulation.ledger import check
from simulation.overtaken import check_overtaken
from simulation.repeats import check_repeats
from simulation.schedule import Fault

NS = 1_000_000_000

ENDS, CALM = 40.0, 605.0
"""Virtual seconds in which somebody speaks, and after which all is forgotten when nobody else does."""

PATIENCE, SLOWER = 3.0, 2.4
"""Seconds after which who goes on is listened to whatever was said; and by which a way may be slower."""

SETTLED = PATIENCE + SLOWER + 1.6
"""The same, with the time until both have said something by both ways."""

FAR, TOO_FAR = 5_000_000, 10**12
"""Numbers ahead that a publisher can come to, and that none can."""

MOST_PLACES = 40
"""Places of one publisher that are remembered at most."""

ORIGIN = b"o" * 16

KINDS = {"rival": 5, "goodbye": 1, "impossible": 2, "renumber": 2, "swarm": 1, "ahead": 3}
"""What may happen in a run, and how often each does."""


class Speaker:
    """Somebody who numbers messages, from some place on."""

    def __init__(self, world, name, epoch, sequence, began):
        self.world, self.name, self.began = world, name, began
        self.epoch, self.sequence = epoch, sequence
        self.count, self.reached = 0, (0, 0)
        self.said = {}

    def say(self, at):
        """Say some messages, or where it stands."""
        world = self.world
        count = world.random.choice((0, 1, 1, 1, 2, 3))
        names = [f"{self.name}.{self.count + one}" for one in range(count)]
        self.count += count
        body = pack_array([part for name in names for part in (b"a.x", name.encode())]) if count else b""
        frame = world.frame(self.epoch, self.sequence, count, body)
        for place, name in enumerate(names):
            self.said[name] = at, self.epoch, self.sequence + place
        self.sequence += count
        world.send(frame, at, names, self)


def check_claims(random):
    """Nobody can have come farther than each second allows, from where it was, or from 0 in a new epoch."""
    seconds, expected = random.uniform(0.0, 2 * LONGEST), random.randrange(10**12)
    most = int(MOST_MESSAGES * (SLACK + min(seconds, LONGEST)))
    epoch = random.randrange(1, 1_000)
    for later in (0, 1, random.randrange(2, 1_000)):
        begins = expected if later == 0 else 0
        for number, is_possible in ((begins, True), (begins + most, True), (begins + most + 1, False)):
            head = Head(MESSAGES, ORIGIN, epoch + later, number, 1)
            found = can_be(head, epoch, expected, seconds, is_shared=False)
            check(
                found == is_possible,
                "{} of {} is possible after {:.1f} s: {}",
                number,
                begins,
                seconds,
                found,
            )
            is_anywhere = is_possible or later > 0
            found = can_be(head, epoch, expected, seconds, is_shared=True)
            check(found == is_anywhere, "{} on a shared key is possible: {}", number, found)
    check(can_be(Head(MESSAGES, ORIGIN, epoch, most, 1), None, 0, seconds, is_shared=False), "the first")
    for later, is_possible in ((MOST_EPOCHS, True), (MOST_EPOCHS + 1, False)):
        head = Head(MESSAGES, ORIGIN, epoch + later, 0, 1)
        found = can_be(head, epoch, expected, seconds, is_shared=False)
        check(found == is_possible, "{} epochs later is possible: {}", later, found)


def check_reached(random):
    """A publisher is not followed to where it cannot have come since its last loss, and no less far."""
    source, began, seconds = Source(), random.randrange(10**18), random.randrange(2 * int(LONGEST))
    source.advance(Head(MESSAGES, ORIGIN, 3, 0, 1), began, is_shared=False)
    most = int(MOST_MESSAGES * (SLACK + min(seconds, LONGEST)))
    for number, is_possible in ((most + 2, False), (most + 1, True)):
        head = Head(MESSAGES, ORIGIN, 3, number, 1)
        lost, is_new = source.advance(head, began + seconds * NS, is_shared=False)
        check(is_new == is_possible, "after {} s it has come to {}: {}", seconds, number, is_new)
    check(lost == most, "{} are lost, and {} told", most, lost)


class DoubleWorld:
    """One subscriber, a publisher, and others in its name.

    Attributes:
        faults: what others say, and when.
    """

    def __init__(self, seed, faults=None, mechanisms=None):
        self.random = random = Random(seed + 12)
        self.mechanisms = Counter() if mechanisms is None else mechanisms
        kinds = random.choices(list(KINDS), list(KINDS.values()), k=random.choice((0, 1, 1, 2, 3)))
        every = [
            Fault(random.uniform(4.0, ENDS - 15.0), kind, ("p1",), random.uniform(0.1, 14.0))
            for kind in kinds
        ]
        self.faults = sorted(every) if faults is None else faults
        self.kinds = {one.kind for one in self.faults}
        self.loss = random.choice((0.0, 0.0, 0.05, 0.3))
        self.has_two_ways = random.random() < 0.6
        self.gaps, self.given, self.arrived = [], defaultdict(list), {}
        self.streams = Streams(Random(seed).randbytes)
        self.decoder = BatchDecoder(self.streams, on_gap=self.gaps.append)
        subscription = Subscribed([oz.compile(">")], None, print)
        self.streams.add(subscription, DeliveryOptions(), last_value=False)
        self.stream = self.streams.stream(subscription)
        self._events, self._order, self.now = [], 0, 0.0
        self._is_heard = False
        self._last = {}
        self.disturbed, self.impossible = [], 0
        self.ahead, self.replaced_from = 0, inf

    # what is sent ----------------------------------------------------------------------------------------

    def frame(self, epoch, sequence, count, body=b""):
        flags = MESSAGES if count else CONTROL
        return head_start(self.stream.key, flags, ORIGIN, epoch) + head_end(sequence, count) + body

    def send(self, frame, at, names=(), speaker=None):
        """Send it by each way; of one way the order stays, and some is lost."""
        for way in range(1 + self.has_two_ways):
            if self.random.random() < self.loss:
                continue
            arrives = at + self.random.uniform(0.0, 0.01) + way * self.random.uniform(0.0, SLOWER)
            arrives = max(arrives, self._last.get(way, 0.0))
            self._last[way] = arrives
            self._events.append((arrives, len(self._events), frame, names, speaker))

    def run(self):
        """Have everybody speak, and check what must be so."""
        self.honest = Speaker(self, "honest", 3, 0, 0.0)
        self.rivals = []
        turns = [(at, self.honest) for at in self._turns(0.0, ENDS)]
        others = [pair for fault in self.faults for pair in getattr(self, f"_{fault.kind}")(fault)]
        for at, speaker in sorted(turns + others, key=lambda one: one[0]):
            if callable(speaker):
                speaker(at)
            else:
                speaker.say(at)
        for frame_at in sorted(self._events):
            self._hear(*frame_at)
        self._check_honest()
        self._check_rivals()
        self._check_gaps()
        self._check_replaced()
        self._check_calm()
        self._check_goodbye()
        check_claims(self.random)
        check_reached(self.random)
        check_overtaken(self.random)
        check_repeats(self.random)
        return self

    def _turns(self, begins, ends):
        at, turns = begins, []
        while at < ends:
            turns.append(at)
            at += self.random.uniform(0.05, 1.0)
        return turns

    def _rival(self, fault):
        """Somebody goes on from another place, for a while."""
        epoch = self.random.choice((1, 2, 3, 3, 4, 50))
        # Not as many as a swarm: so far it cannot have come.
        sequence = (
            FAR * (min(len(self.rivals), len(self.faults)) + 3)
            if epoch == 3
            else self.random.choice((0, 7, FAR))
        )
        rival = Speaker(
            self, f"rival{len(self.rivals)}", epoch + len(self.rivals) * 60 * (epoch != 3), sequence, fault.at
        )
        self.rivals.append(rival)
        self.disturbed.append(fault.at)
        return [(at, rival) for at in self._turns(fault.at, fault.at + fault.lasts)]

    def _swarm(self, fault):
        """Very many begin, and say next to nothing."""
        self.disturbed.append(fault.at)
        some = [
            Speaker(self, f"swarm{one}", 3, FAR + 100_000 * one, fault.at) for one in range(2 * MOST_PLACES)
        ]
        self.rivals += some
        return [(fault.at + 0.01 * place, one) for place, one in enumerate(some)]

    def _ahead(self, fault):
        """Somebody gives the publisher's next numbers before that does, again and again."""
        ahead = self.random.choice((0, 1, 3, 20))
        most = self.random.choice((1, 3, 40))
        self.replaced_from = min(self.replaced_from, fault.at)

        def say(at):
            self.disturbed.append(at)
            count = self.random.randint(1, most)
            names = [f"ahead.{self.ahead + one}" for one in range(count)]
            self.ahead += count
            body = pack_array([part for name in names for part in (b"a.x", name.encode())])
            self.send(self.frame(self.honest.epoch, self.honest.sequence + ahead, count, body), at, names)

        return [(at, say) for at in self._turns(fault.at, fault.at + fault.lasts)]

    def _goodbye(self, fault):
        """Somebody says goodbye for it."""
        self.disturbed.append(fault.at)

        def say(at):
            frame = self.frame(self.honest.epoch, self.honest.sequence, 0, pack_control(bye=True))
            self.send(frame, at)

        return [(fault.at, say)]

    def _impossible(self, fault):
        """Somebody says what it cannot have come to."""
        if "goodbye" in self.kinds:
            # Behind that it would be the first that comes of a publisher that has begun anew.
            self.disturbed += [fault.at + after for after in range(round(fault.lasts) + 1)]

        def say(at):
            place = self.random.choice(((3, TOO_FAR), (1 << 30, 0), (1 << 30, TOO_FAR)))
            count = len(self._events)
            self.send(self.frame(*place, 1, pack_array([b"a.x", b"forged"])), at)
            self.impossible += len(self._events) - count

        return [(at, say) for at in self._turns(fault.at, fault.at + fault.lasts)]

    def _renumber(self, fault):
        """The publisher itself numbers anew."""

        def renumber(at):
            self.honest.epoch, self.honest.sequence = self.honest.epoch + 1000, 0

        return [(fault.at, renumber)]

    # what comes ------------------------------------------------------------------------------------------

    def _hear(self, at, _, frame, names, speaker=None):
        self.now = max(self.now, at)
        if speaker is not None:
            head = parse_head(frame, key_size(frame))
            for place, name in enumerate(names):
                is_overtaken = (head.epoch, head.sequence + place) < speaker.reached
                self.arrived.setdefault(name, is_overtaken)
            speaker.reached = max(speaker.reached, (head.epoch, head.sequence + head.count))
        now_ns = round((1_000 + self.now) * NS)
        message = self.decoder.accept([frame], now_ns)
        while message is not None:
            self.given[message.payload.decode()].append((message.sequence, self.now))
            message = self.decoder.next()
        while (message := self.decoder.next()) is not None:
            self.given[message.payload.decode()].append((message.sequence, self.now))
        source = self.stream.sources.get(ORIGIN)
        if source is not None and not self._is_heard:
            # Who was heard from its beginning has said nothing else before.
            self._is_heard, number = True, parse_head(frame, key_size(frame)).sequence
            is_right = (source.doubt is not None) == (number > 0)
            check(is_right, "it is heard from {} on, and doubted: {}", number, source.doubt is not None)
        if source is not None and source.doubt is not None:
            doubt = source.doubt
            places = max(len(doubt.rivals), len(doubt.runs))
            check(places <= MOST_PLACES, "{} places of one publisher are remembered", places)

    # what must be so -------------------------------------------------------------------------------------

    def _is_disturbed(self, at):
        # What it said before may come after, by the slower way.
        return any(-SLOWER <= at - one <= SETTLED for one in self.disturbed)

    def _check_honest(self):
        """All that came of it was given, but for a moment after somebody else began to speak."""
        for name, times in self.given.items():
            # Of a swarm not all places are remembered, and so not all that was here.
            check(
                len(times) == 1 or name == "forged" or "swarm" in self.kinds,
                "{} was given {} times",
                name,
                len(times),
            )
        # Once somebody is believed to be elsewhere, it may be from there.
        is_right = "forged" not in self.given or self.disturbed or "renumber" in self.kinds
        check(is_right, "what cannot be was given")
        stats = self.decoder.stats
        self.mechanisms["publisher contradicted"] += stats.contradictions
        last = -1
        for name in self.given:
            if name.startswith("honest"):
                number = int(name.partition(".")[2])
                if not (self.disturbed or self.impossible):
                    check(number > last, "{} came late", name)
                last = number
        for name, (at, _, _) in self.honest.said.items():
            # What another way has overtaken is lost, and told so.
            if not self.arrived.get(name, True) and not self._is_disturbed(at):
                check(name in self.given, "{} of {:.1f} s was not given", name, at)
        if not (self.disturbed or self.impossible):
            check(
                not stats.contradictions, "nobody else spoke, and {} are contradictions", stats.contradictions
            )
        if self.impossible and not (self.disturbed or "renumber" in self.kinds):
            check(
                stats.contradictions == self.impossible,
                "{} are contradictions of {}",
                stats.contradictions,
                self.impossible,
            )

    def _check_rivals(self):
        """Whoever goes on is listened to."""
        for rival in self.rivals:
            for name, (at, _, _) in rival.said.items():
                is_known = at - rival.began > SETTLED and not self._is_disturbed(at)
                if is_known and name in self.arrived and not self.loss and not self.has_two_ways:
                    check(name in self.given, "{} of {:.1f} s was not given", name, at)

    def _check_gaps(self):
        """Nothing was told to be lost that was given; where nobody else spoke all is one or the other."""
        lost = {
            at
            for gap in self.gaps
            if gap.count
            for at in range(gap.sequence, gap.sequence + min(gap.count, 10_000))
        }
        if self.disturbed or "renumber" in self.kinds:
            return
        given = {sequence for times in self.given.values() for sequence, _ in times}
        check(lost.isdisjoint(given), "{} were given and told as lost", sorted(lost & given)[:5])
        end = max(given | lost, default=-1) + 1
        check(len(given | lost) == end, "{} of {} are neither given nor lost", end - len(given | lost), end)

    def _check_replaced(self):
        """Nothing of the publisher is replaced in silence by somebody who has its numbers."""
        if not self.ahead or not self.kinds <= {"ahead", "impossible"} or self.loss:
            return
        lost = {at for gap in self.gaps if gap.count for at in range(gap.sequence, gap.sequence + gap.count)}
        replaced = [
            name
            for name, (_, _, number) in self.honest.said.items()
            if name not in self.given and number not in lost
        ]
        check(not replaced, "{} were replaced in silence", replaced)
        is_told = self.decoder.stats.contradictions > 0 or len(self.honest.said) > len(self.given)
        self.mechanisms["forged: ahead"] += is_told

    def _check_goodbye(self):
        """What was on its way when a publisher said goodbye is not given, and does not bring it back."""
        stream, honest = self.stream, self.honest
        if stream.sources[ORIGIN].is_contested:
            return
        stands, before = (honest.epoch, honest.sequence), self.decoder.stats.contradictions
        goodbye = self.frame(*stands, 0, pack_control(bye=True))
        self._hear(self.now + 0.5, 0, goodbye, ())
        left_at, known = self.now, len(self.gaps)
        late = pack_array([b"a.x", b"late"])
        for place in (stands, (honest.epoch, honest.sequence + 3), (honest.epoch - 1, 7)):
            self._hear(
                self.now + self.random.uniform(0.0, OUTLIVED / 3.1), 0, self.frame(*place, 1, late), ()
            )
            is_known = ORIGIN in stream.sources or not stream.has_said_goodbye(ORIGIN)
            check(not is_known, "{} came behind a goodbye, and brought it back", place)
        self._hear(self.now, 0, goodbye, ())
        check("late" not in self.given, "what came behind a goodbye was given")
        check(len(self.gaps) == known, "what came behind a goodbye was told as lost")
        if self.random.random() < 0.5:
            self._hear(left_at + OUTLIVED + 0.1, 0, self.frame(*stands, 1, late), ())
            check(stream.sources[ORIGIN].is_contested, "it goes on behind its goodbye, and that is no matter")
            said = self.decoder.stats.contradictions - before
            check(said == 1, "it goes on behind its goodbye, and that are {} contradictions", said)
        else:
            self._hear(self.now, 0, self.frame(honest.epoch + 1, 0, 1, late), ())
            check(stream.sources[ORIGIN].doubt is None, "it has begun anew, and is doubted")
        check(len(self.given["late"]) == 1, "it goes on behind its goodbye, and is not heard")

    def _check_calm(self):
        """When nobody else has spoken for long it is believed as any other."""
        at = self.now + 0.5
        frame = self.frame(self.honest.epoch, self.honest.sequence, 0)
        while at < ENDS + 20.0 + CALM:
            at += 1.0
            self._hear(at, 0, frame, ())
        lossy, self.loss = self.loss, 0.0
        before = len(self._events)
        for _ in range(3):
            self.honest.say(at + 1.0)
        for one in sorted(self._events[before:]):
            self._hear(*one)
        source = self.stream.sources[ORIGIN]
        # Of what was lost the end may be: then it has come to a place meanwhile that is new.
        is_known = not (lossy and self.disturbed)
        check(
            source.doubt is None or not is_known, "nothing has spoken against it for long, and something does"
        )
        check(source.expected == self.honest.sequence or not is_known, "it stands at {}", source.expected)
