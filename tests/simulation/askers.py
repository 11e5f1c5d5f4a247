"""Runs of one subscriber that asks for this and that, and of publishers that answer, or do not.

What publishers are told is what they hold: each answers by that, later, after a part was lost on the way, or
never. So the run knows what has come where, and holds what the subscriber says of it against that: who is
ready, what has been drained, what is denied and who is gone.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from heapq import heappop, heappush
from itertools import pairwise
from random import Random

import oz
from oz.protocol.subscriber.absences import UNCOUNTED, Link
from oz.protocol.subscriber.declarations import GREETING, MOST_SMALL
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.publishers import SILENCE, Answers
from oz.protocol.subscriber.sequences import source_of
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.transport.subscriber.links import PublisherLinks
from oz.wire.batch import CONTROL, head_end, head_start, pack_control
from oz.wire.denials import Denial, fields_of
from oz.wire.keys import (
    CHUNK_SIZE,
    DECLARATION,
    PATTERN,
    STREAM,
    DeliveryOptions,
    is_goodbye,
    stream_key,
    stream_of,
)
from oz.wire.keys import parse_declaration as parsed
from simulation.answering import check_answering
from simulation.ledger import check
from simulation.schedule import Fault

NS = 1_000_000_000

PATTERN_HEAD = 3
"""Bytes of a declared pattern beside its text: its dialect and its length."""

LONGEST_REASON = 1024
"""Characters of a reason that are kept."""

BUSY, CALM, ENDS = 20.0, 62.0, 74.0
"""Virtual seconds in which something happens, after which all is well, and for which a run lasts."""

TICK = 0.1
"""Virtual seconds after which the subscriber takes a turn, whatever happens."""

SELDOM, OFTEN = 0.1, 0.3
"""The share of turns, and of changes, after which it is looked whether all is as it is said to be."""

SOON_OVER = 0.1
"""The share of many subscriptions that end before the next one begins."""

STEADY = 4.0
"""Seconds for which nothing has gone wrong with a publisher that counts as one that answers."""

DEATH_TOLD = 1.8
"""Seconds behind those promised in which is told of somebody that has died: until the next look, and the one
behind that."""

DELIVERIES = (
    DeliveryOptions(),
    DeliveryOptions(group="g"),
    DeliveryOptions(overflow="conflate"),
    DeliveryOptions(is_shared=True),
)

ACTIONS = {"add": 8, "add_many": 1, "remove": 4, "part": 2}
FAULTS = {"lose": 3, "mute": 2, "reconnect": 3, "die": 1, "bye": 1, "freeze": 1}
SECRET = "secret"
"""How patterns begin that publishers deny."""

MOST_KEYS = MOST_SMALL + 8
"""Parts in which patterns are declared once all is well, beside those that are denied."""


parse_declaration = cache(parsed)


class Answerer:
    """A publisher that says what it holds.

    Attributes:
        told: the keys that it holds.
        troubled_at: when something went wrong with it last.
        ended: "died" or "said goodbye", and when.
    """

    def __init__(self, world, number):
        self.world, self.origin = world, bytes([number + 1]) * 16
        self.told, self.sequence = set(), Counter()
        self.is_mute, self.troubled_at, self.ended, self.heard_at = False, -10.0, None, None
        self.descriptor, self.is_local = number, world.random.random() < 0.3
        self.is_connected = False

    @property
    def link(self):
        return Link(self.descriptor, self.inode, self.is_local)

    def connect(self):
        """Have a connection, over which all comes that is asked for."""
        if self.ended:
            return
        self.is_connected = True
        self.inode = self.world.new_inode(self.descriptor)
        for key in sorted(self.world.asked):
            self.hear(key, comes=True)

    def hear(self, key, *, comes):
        """Take in that something is asked for, or no longer."""
        if not self.is_connected:
            return
        (self.told.add if comes else self.told.discard)(key)
        if comes:
            own = stream_key(stream_of(key)) if key.startswith(DECLARATION) else key
            self.world.call(self.world.random.uniform(0.005, 0.04), lambda: self.answer(own))

    def holds(self, name):
        """Return the declarations that it holds of a stream."""
        return [
            parse_declaration(key) for key in self.told if key[:3] == DECLARATION and stream_of(key) == name
        ]

    def answer(self, key):
        """Say which declarations of a stream it holds, and which it denies."""
        if self.is_mute or key not in self.told:
            return
        live, refused = [], {}
        for one in self.holds(key[len(STREAM) :]) if key.startswith(STREAM) else ():
            denied = [SECRET in pattern.text.decode() for pattern in one.patterns]
            if any(denied):
                text = next(p.text.decode() for p in one.patterns if SECRET in p.text.decode())
                refused[one.chunk] = Denial(f"{text} is secret", "the rule", text)
            if not (denied and all(denied)):
                live.append(one.chunk)
        body = pack_control(live=live, refused=refused, denied=fields_of(refused), paths=1)
        self.say(key, body if key.startswith(STREAM) else b"")

    def beat(self):
        """Say where it stands, once a second."""
        if self.ended:
            return
        for key in sorted(self.told):
            if key[:3] != DECLARATION:
                self.say(key, b"")
        self.world.call(1.0, self.beat)

    def say(self, key, body):
        if self.is_connected and not self.ended:
            head = head_start(key, CONTROL, self.origin, 1) + head_end(self.sequence[key], 0)
            self.world.receive(self, head + body)

    def is_steady(self):
        """Tell whether it answers as one does with which nothing is wrong."""
        return self.is_connected and not self.ended and self.world.now - self.troubled_at > STEADY


class AskerWorld:
    """One subscriber and three publishers.

    Attributes:
        asked: the keys that are asked of ZeroMQ.
    """

    def __init__(self, seed, faults=None, mechanisms=None):
        self.random = random = Random(seed + 15)
        self.mechanisms = Counter() if mechanisms is None else mechanisms
        every = [
            Fault(
                random.uniform(0.5, BUSY), kind, (str(random.randrange(3)),), random.choice((0.3, 2.0, 8.0))
            )
            for kind in (
                *random.choices(list(ACTIONS), list(ACTIONS.values()), k=14),
                *random.choices(list(FAULTS), list(FAULTS.values()), k=4),
            )
        ]
        self.faults = sorted(every) if faults is None else faults
        self.asked, self.said = set(), Counter()
        self.now, self._events, self._order = 0.0, [], 0
        self._inodes, self._inode = {}, 0
        self.frozen_until, self._waiting = 0.0, []
        self.gaps = []
        self.streams = Streams(random.randbytes)
        self.decoder = BatchDecoder(self.streams, on_gap=self._on_gap)
        self.decoder.answers.on_denial = bool
        self.links = PublisherLinks(self.decoder, self._inodes.get)
        self.publishers = [Answerer(self, number) for number in range(3)]
        self.subscriptions, self.draining, self._names = {}, {}, 0
        self.long = ".x" * random.choice((0, 35))
        self._looks = self._renewals = 0

    # time and wire ---------------------------------------------------------------------------------------

    def call(self, after, action):
        self._order += 1
        heappush(self._events, (self.now + after, self._order, action))

    def new_inode(self, descriptor):
        self._inode += 1
        self._inodes[descriptor] = self._inode
        return self._inode

    def receive(self, publisher, frame):
        """Have a frame come to the subscriber, which reads it when it does not stand still."""
        self._waiting.append((publisher, publisher.link, frame))
        if self.now >= self.frozen_until:
            self._read()

    def _read(self):
        waiting, self._waiting = self._waiting, []
        for publisher, link, frame in waiting:
            self.decoder.accept([frame], self._ns())
            publisher.heard_at = self.now
            if self.links.is_curious:
                is_there = self._inodes.get(link.descriptor) == link.inode
                self._looks += 1
                self.links.note(frame, link if is_there else link._replace(inode=None))

    def _ns(self):
        return round((1_000 + self.now) * NS)

    def ask(self, changes):
        for key in changes.wanted:
            check(len(key) < CHUNK_SIZE + 128, "a key of {} bytes is asked for", len(key))
            self.asked.add(key)
            self.said[key[:3]] += 1
        self.asked.difference_update(changes.dropped)
        for publisher in self.publishers:
            for keys, comes in ((changes.wanted, True), (changes.dropped, False)):
                for key in keys:
                    self.call(0.01, lambda one=publisher, key=key, comes=comes: one.hear(key, comes=comes))
        if self.random.random() < OFTEN:
            self._check_asked()

    # what happens ----------------------------------------------------------------------------------------

    def run(self):
        """Have everything happen, and check what must be so."""
        self._check_unanswered()
        self._add(0)
        for publisher in self.publishers:
            self.call(self.random.uniform(0.0, 0.5), publisher.connect)
            self.call(self.random.uniform(0.0, 1.0), publisher.beat)
        for fault in self.faults:
            self.call(fault.at, lambda fault=fault: self._happen(fault))
        self.call(TICK, self._turn)
        self._run_until(CALM)
        before, looks, self._renewals = Counter(self.said), self._looks, 0
        self._check_calm()
        self._run_until(ENDS)
        self._check_calm()
        self._check_traffic(before, looks)
        self._check_gaps()
        self._check_leaving()
        check_chunks(self.random)
        for _ in range(4):
            check_answering(self.random)
        return self

    def _run_until(self, at):
        while self._events and self._events[0][0] <= at:
            self.now, _, action = heappop(self._events)
            action()
        self.now = at

    def _happen(self, fault):
        getattr(self, f"_{fault.kind}")(int(fault.who[0]), fault.lasts)

    def _turn(self):
        """Take a turn as an engine does."""
        self.call(TICK, self._turn)
        if self.now < self.frozen_until:
            return
        self._read()
        now, streams = self.now, self.streams
        due = streams.next_deadline()
        if due is not None and now >= due:
            self.ask(streams.renew(now))
            self._renewals += 1
        ends = self.links.next_deadline()
        if ends is not None and now >= ends:
            self.links.look(now, is_idle=True)
        for due in (streams.next_deadline(), self.links.next_deadline()):
            check(due is None or due > now, "something is due at {}, again and again", due)
        for subscription in [one for one in self.draining if streams.has_drained(one)]:
            self._check_drained(subscription)
            self._end(subscription)
        if self.random.random() < SELDOM and streams.is_ready(1, self._ns()):
            self._check_ready()

    def _add(self, _, lasts=0.0, count=1):
        for _ in range(count):
            self._names += 1
            texts = [f"a{self._names}.*", f"a{self.random.randrange(5)}.x", ">", f"{SECRET}.{self._names}"]
            some = self.random.sample(texts, self.random.choice((1, 1, 2)))
            if count > 1:
                # Long ones, so that not all of them fit into one declaration.
                some = [texts[0] + self.long, *texts[3:][self._names % 30 :: 30]]
            subscription = Subscribed([oz.compile(text) for text in some], None, print)
            delivery = self.random.choice(DELIVERIES) if count == 1 else DELIVERIES[0]
            last_value = count == 1 and self.random.random() < 0.2
            self.subscriptions[subscription] = delivery
            self.ask(self.streams.add(subscription, delivery, last_value=last_value))
            if count > 1 and self.random.random() < SOON_OVER:
                # It may be collected still, with others.
                self._end(subscription)
        if self.streams.is_collecting:
            self._check_unanswered()
        self.ask(self.streams.flush())
        self._check_unanswered()

    def _check_unanswered(self):
        """Nobody has answered what was not asked yet, nor is anybody ready for it."""
        for publisher in self.publishers:
            check(not self.streams.has_answered(publisher.origin), "it has an answer before it has asked")

    def _add_many(self, number, lasts):
        self._add(number, count=self.random.choice((40, 75)))

    def _remove(self, number, lasts):
        for _ in range(self.random.choice((1, 1, 8))):
            some = list(self.subscriptions)
            if len(some) > 1:
                self._end(self.random.choice(some))

    def _end(self, subscription):
        self.subscriptions.pop(subscription, None)
        self.draining.pop(subscription, None)
        self.ask(self.streams.remove(subscription))

    def _part(self, number, lasts):
        some = list(self.subscriptions)
        if len(some) > 1:
            subscription = self.random.choice(some)
            self.draining[subscription] = self.subscriptions.pop(subscription)
            for changes in self.streams.part(subscription):
                self.ask(changes)

    # what goes wrong -------------------------------------------------------------------------------------

    def _trouble(self, publisher, lasts=0.0):
        publisher.troubled_at = max(publisher.troubled_at, self.now + lasts)
        return publisher

    def _lose(self, number, lasts):
        """A part of what is asked for gets lost on its way."""
        publisher = self._trouble(self.publishers[number], 12.0)
        keys = sorted(one for one in publisher.told if one.startswith(DECLARATION))
        publisher.told.difference_update(self.random.sample(keys, min(len(keys), 2)))

    def _mute(self, number, lasts):
        """It does not answer for a while; its heart beats."""
        # What was lost before may have to wait for the next greeting.
        publisher = self._trouble(self.publishers[number], lasts + GREETING)
        publisher.is_mute = True

        def end():
            publisher.is_mute = False

        self.call(lasts, end)

    def _reconnect(self, number, lasts):
        """It is cut off, and back by another connection, which may have the same descriptor."""
        publisher = self.publishers[number]
        if publisher.is_local:
            # No network cuts that: who is away for longer has died.
            lasts = min(lasts, 2.0)
        self._trouble(publisher, lasts)
        self._cut(publisher)
        if self.random.random() < 0.5:
            publisher.descriptor += 10
        self.call(lasts, publisher.connect)

    def _cut(self, publisher):
        if publisher.is_connected:
            self._inodes.pop(publisher.descriptor, None)
        publisher.is_connected = False
        publisher.told.clear()

    def _die(self, number, lasts):
        publisher = self.publishers[number]
        if not publisher.ended:
            self._cut(publisher)
            publisher.ended = "died", self.now
            publisher.known_on = [
                stream
                for stream in self.streams.by_key.values()
                if publisher.origin in stream.sources and not stream.only_answers
            ]

    def _bye(self, number, lasts):
        publisher = self.publishers[number]
        if publisher.is_connected and not publisher.ended and not publisher.is_mute:
            for key in sorted(publisher.told):
                if key[:3] != DECLARATION:
                    publisher.say(key, pack_control(bye=True))
            publisher.ended = "said goodbye", self.now
            self._cut(publisher)

    def _freeze(self, number, lasts):
        """The subscriber stands still."""
        self.frozen_until = max(self.frozen_until, self.now + lasts)
        for publisher in self.publishers:
            self._trouble(publisher, lasts)

    # what must be so -------------------------------------------------------------------------------------

    def _asked_on(self, name):
        return [
            one.text.decode()
            for key in self.asked
            if key[:3] == DECLARATION and stream_of(key) == name
            for one in parse_declaration(key).patterns
        ]

    def _name(self, subscription):
        return self.streams.homes[subscription].name

    def _check_asked(self):
        """What is wanted is declared, nothing on streams that there are not, and the newest is known."""
        asked, newest = {}, {}
        for key in self.asked:
            if key[:3] == DECLARATION:
                said = parse_declaration(key)
                check(not said.is_closing, "a goodbye is asked for still")
                asked.setdefault(said.stream, set()).update(one.text.decode() for one in said.patterns)
                if said.patterns:
                    newest[said.stream] = max(said.chunk, newest.get(said.stream, 0))
        check(self.streams.asked() == newest, "{} are the newest, and not {}", newest, self.streams.asked())
        if not self.streams.is_collecting:
            for subscription in self.subscriptions:
                if subscription in self.streams.homes:
                    texts = {str(one.text) for one in subscription.patterns}
                    missing = texts - asked.get(self._name(subscription), set())
                    check(not missing, "{} is declared nowhere", missing)

    def _check_drained(self, subscription):
        """Nothing is on its way any more for what was drained: no publisher holds it that answers."""
        self.mechanisms["asker drained"] += 1
        name = self._name(subscription)
        others = [one for one in (*self.subscriptions, *self.draining) if self._name(one) == name]
        wanted = {str(p.text) for one in others if one is not subscription for p in one.patterns}
        gone = {str(one.text) for one in subscription.patterns} - wanted
        for publisher in self.publishers:
            if publisher.is_steady():
                held = {p.text.decode() for one in publisher.holds(name) for p in one.patterns}
                check(not held & gone, "{} was drained, and a publisher holds it", held & gone)

    def _check_ready(self):
        """Who is ready is known to each publisher that answers."""
        self.mechanisms["asker ready"] += 1
        for publisher in self.publishers:
            if not publisher.is_steady():
                continue
            has_answered = publisher.heard_at is None or self.streams.has_answered(publisher.origin)
            check(has_answered, "it is ready without an answer")
            for name, subscriptions in self._by_name().items():
                held = {p.text.decode() for one in publisher.holds(name) for p in one.patterns}
                wanted = {str(p.text) for one in subscriptions for p in one.patterns}
                check(wanted <= held, "it is ready, and a publisher does not know of {}", wanted - held)

    def _by_name(self):
        found = {}
        for one in self.subscriptions:
            found.setdefault(self._name(one), []).append(one)
        return found

    def _check_calm(self):
        """All is known to everybody, each denial is told of who it concerns, and nothing is asked in vain."""
        there = [one for one in self.publishers if not one.ended]
        streams = self.streams
        if there:
            check(streams.is_ready(len(there), self._ns()), "it is not ready: {}", streams.unready())
            check(not streams.unready()["unanswered"], "unanswered is {}", streams.unready())
        check(not self.draining or not there, "it drains still")
        is_alone = self.links.is_alone()
        check(is_alone == (not there), "{} are there, and it is alone: {}", len(there), is_alone)
        if there:
            check(streams.unready()["publishers"] == len(there), "{} are there", streams.unready())
            secret = Counter(
                one for one in self.subscriptions if any(SECRET in str(p.text) for p in one.patterns)
            )
            found = Counter(one for one, _ in streams.denied())
            told = Counter(map(str, self.decoder.answers.denials))
            texts = {str(p.text) for one in secret for p in one.patterns if SECRET in str(p.text)}
            missing = {f"{text} is secret" for text in texts} - told.keys()
            check(not missing, "nobody is told that {}", missing)
            # Once more where a publisher had forgotten it.
            most = len(self.publishers) + len(self.faults)
            often = {one: times for one, times in told.items() if times > most}
            check(not often, "denials are told again and again: {}", often)
            check(set(found) == set(secret), "{} are denied, and {} are said to be", len(secret), len(found))
        wanted = {
            name: {str(p.text) for one in some for p in one.patterns}
            for name, some in self._by_name().items()
        }
        for one in self.draining:
            wanted.setdefault(self._name(one), set())
        keys = Counter()
        for key in self.asked:
            if key[:3] == DECLARATION:
                said = parse_declaration(key)
                keys[said.stream, bool(said.patterns)] += 1
                texts = {one.text.decode() for one in said.patterns}
                check(said.stream in wanted, "something is declared on a stream of nobody")
                check(texts <= wanted[said.stream], "{} is declared, and nobody asks", texts)
            else:
                check(key in streams.by_key, "{!r} is listened to, and nobody asks", key)
        for (name, has_patterns), count in keys.items():
            most = MOST_KEYS + sum(SECRET in text for text in self._asked_on(name)) if has_patterns else 1
            check(count <= most, "{} keys stand of one stream", count)

    def _check_traffic(self, before, looks):
        """Where nothing happens nothing is asked but to show itself, and no connection is looked for."""
        streams = len(self._by_name())
        asked = sum(self.said.values()) - sum(before.values())
        check(self._renewals <= 4 + 4 * streams, "it was looked {} times what is due", self._renewals)
        check(asked <= 2 * streams, "{} keys were asked for while nothing happened", asked)
        if not self.draining and not any(one.ended for one in self.publishers):
            check(self._looks == looks, "{} frames were looked at for nothing", self._looks - looks)

    def _check_gaps(self):
        """Who has died is told of, once on each stream, in time; of others nobody is told anything."""
        for publisher in self.publishers:
            told = [at for at, gap in self.gaps if gap.origin == publisher.origin]
            if publisher.ended is None or publisher.ended[0] == "said goodbye":
                check(not told, "of one that is there or has said goodbye a loss is told")
                continue
            self.mechanisms["asker told of a death"] += bool(told)
            patience = SILENCE if publisher.is_local else UNCOUNTED
            heard_at = publisher.heard_at or 0.0
            latest = max(publisher.ended[1], self.frozen_until) + patience + DEATH_TOLD
            is_right = all(heard_at + patience <= at <= latest for at in told)
            check(is_right, "a death is told at {}, of {}, heard at {}", told, publisher.ended, heard_at)
            # Not one with the same key that began later.
            left = [one for one in publisher.known_on if one in self.streams.by_key.values()]
            check(told or not left, "nobody is told of a death")
            most = self.said[STREAM] + self.said[PATTERN]
            check(len(told) <= most, "a death is told {} times", len(told))

    def _on_gap(self, gap):
        self.gaps.append((self.now, gap))

    def _check_leaving(self):
        """Who says goodbye has left when each publisher has answered, and not before."""
        self.ask_to_leave()
        there = [one for one in self.publishers if not one.ended]
        if there:
            check(not self.streams.has_left(), "it has left before anybody knows")
        self._run_until(self.now + 1.0)
        # Of nobody: the last that was heard counts as there, since silence is what others are heard in.
        check(not there or self.streams.has_left(), "it has not left")
        for publisher in there:
            held = [one for one in publisher.told if one[:3] == DECLARATION and not is_goodbye(one)]
            check(not held, "a publisher holds {} of who has left", held)

    def ask_to_leave(self):
        self.subscriptions.clear()
        goodbye = self.streams.leave()
        for key in goodbye.wanted:
            self.asked.add(key)
        for publisher in self.publishers:
            for key in goodbye.wanted:
                self.call(0.01, lambda one=publisher, key=key: one.hear(key, comes=True))
            for key in goodbye.dropped:
                self.call(0.01, lambda one=publisher, key=key: one.hear(key, comes=False))


def check_chunks(random):
    """Of very many patterns as many are in one declaration as docs/wire.md says, and each is in one."""
    streams, texts = (
        Streams(random.randbytes),
        [f"{at}.{'x' * random.randrange(1, 200)}" for at in range(150)],
    )
    found, answers = [], Answers()
    for text in texts:
        subscription = Subscribed([oz.compile(text)], None, print)
        changes = streams.add(subscription, DeliveryOptions(), last_value=False)
        found.append([parsed(key).patterns for key in changes.wanted if key.startswith(DECLARATION)])
    found.append([parsed(key).patterns for key in streams.flush().wanted if key.startswith(DECLARATION)])
    for at_once in found:
        for patterns in at_once:
            check(_bytes_of(patterns) <= CHUNK_SIZE, "{} bytes are declared at once", _bytes_of(patterns))
        for patterns, (first, *_) in pairwise(at_once):
            check(_bytes_of((*patterns, first)) > CHUNK_SIZE, "{} bytes would fit in", len(first.text))
    declared = sorted(one.text.decode() for at_once in found for patterns in at_once for one in patterns)
    check(declared == sorted(texts), "{} patterns are declared of {}", len(declared), len(texts))
    stream = streams.stream(subscription)
    source = source_of(stream.sources, b"o" * 16)
    answers.take(stream, source, {"live": [], "refused": {1: "x" * random.randrange(1, 5_000)}})
    check(len(source.refused[1]) <= LONGEST_REASON, "a reason of {} is kept", len(source.refused[1]))


def _bytes_of(patterns):
    return sum(len(one.text) + PATTERN_HEAD for one in patterns)
