"""Runs of one subscriber that asks for this and that, and of publishers that answer, or do not.

What publishers are told is what they hold: each answers by that, later, after a part was lost on the way, or
never. So the run knows what has come where, and holds what the subscriber says of it against that: who is
ready, what has been drained, what is denied and who is gone.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from random import Random

import oz
from oz.protocol.subscriber.declarations import GREETING
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.transport.subscriber.links import PublisherLinks
from oz.wire.batch import pack_control
from oz.wire.keys import (
    CHUNK_SIZE,
    DECLARATION,
    DeliveryOptions,
    is_goodbye,
)
from simulation.answerers import SECRET, Answerer
from simulation.answering import check_answering
from simulation.asked import (
    check_asked,
    check_calm,
    check_drained,
    check_gaps,
    check_ready,
    check_traffic,
)
from simulation.chunks import check_chunks
from simulation.ledger import check
from simulation.schedule import Fault

NS = 1_000_000_000

BUSY, CALM, ENDS = 20.0, 62.0, 74.0
"""Virtual seconds in which something happens, after which all is well, and for which a run lasts."""

TICK = 0.1
"""Virtual seconds after which the subscriber takes a turn, whatever happens."""

SELDOM, OFTEN = 0.1, 0.3
"""The share of turns, and of changes, after which it is looked whether all is as it is said to be."""

SOON_OVER = 0.1
"""The share of many subscriptions that end before the next one begins."""

DELIVERIES = (
    DeliveryOptions(),
    DeliveryOptions(group="g"),
    DeliveryOptions(overflow="conflate"),
    DeliveryOptions(is_shared=True),
)

ACTIONS = {"add": 8, "add_many": 1, "remove": 4, "part": 2}
FAULTS = {"lose": 3, "mute": 2, "reconnect": 3, "die": 1, "bye": 1, "freeze": 1}


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
        self.looks = self.renewals = 0

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
            self.decoder.accept([frame], self.ns())
            publisher.heard_at = self.now
            if self.links.is_curious:
                is_there = self._inodes.get(link.descriptor) == link.inode
                self.looks += 1
                self.links.note(frame, link if is_there else link._replace(inode=None))

    def ns(self):
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
            check_asked(self)

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
        before, looks, self.renewals = Counter(self.said), self.looks, 0
        check_calm(self)
        self._run_until(ENDS)
        check_calm(self)
        check_traffic(self, before, looks)
        check_gaps(self)
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
            self.renewals += 1
        ends = self.links.next_deadline()
        if ends is not None and now >= ends:
            self.links.look(now, is_idle=True)
        for due in (streams.next_deadline(), self.links.next_deadline()):
            check(due is None or due > now, "something is due at {}, again and again", due)
        for subscription in [one for one in self.draining if streams.has_drained(one)]:
            check_drained(self, subscription)
            self._end(subscription)
        if self.random.random() < SELDOM and streams.is_ready(1, self.ns()):
            check_ready(self)

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
