"""Subscribers of the simulation: the state machines of one, on a SUB of the model."""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import repeat
from math import inf

import zmq

import oz
from oz.protocol.subscriber.columns import MessageBatch
from oz.protocol.subscriber.declarations import AT_ONCE
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.publishers import SILENCE
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.transport.subscriber.engine import count
from oz.transport.subscriber.links import PublisherLinks, read_with_link
from oz.wire.batch import key_size, parse_head
from oz.wire.keys import DeliveryOptions, parse_declaration
from simulation.ledger import check
from simulation.processes import NOBLOCK, SUBSCRIBE, UNSUBSCRIBE, Process
from simulation.spoiling import MARK, accept_spoiled
from simulation.tables import check_batch, check_dropped, check_route

NS = 1_000_000_000

compiled = lru_cache(maxsize=4_096)(oz.compile)
"""Each subscriber of each run asks for the same patterns."""

SIDE = DeliveryOptions(overflow="conflate")
"""How what comes by a second stream is treated: nobody publishes anything for it."""

LONGEST = 2.5
"""Virtual seconds between two signs of a publisher where nothing goes wrong; its heart beats every second."""

STALE = 4.0
"""Virtual seconds for which an answer may be on its way."""

KEPT = 5
"""Subscriptions of many that stay."""

COUNTED = "b.z"
"""What is asked for so many times and no more, by some subscriber."""

SLOW = 2, 0.02
"""Messages that an application with an overflow takes at once at most, and seconds until it takes others."""


class SimSubscriber(Process):
    """A subscriber: subscriptions with the same delivery options, and so one stream.

    Attributes:
        log: what it was given: origin, number and sequence of each message.
        gaps: what it was told of.
    """

    def __init__(self, world, name, *, endpoints, patterns, delivery, mark, pace, last_value=False):
        super().__init__(world, name)
        self.endpoints, self.patterns, self.delivery, self.mark = endpoints, patterns, delivery, mark
        self.pace, self.last_value = pace, last_value
        self.is_busy = False
        self.bulk, self.has_side, self.most_counted = 0, False, 0
        self.frames = 0
        self.dedupes = delivery.overflow == "drop_oldest" or (name == "s1" and not last_value)

    def begin(self):
        self.most_taken = SLOW[0] if self.delivery.overflow else 10_000
        self.sub = self.socket(zmq.SUB, SNDHWM=0, RCVHWM=self.mark)
        self.asked, self._ends, self._heard = set(), {}, {}
        self.streams = Streams(self.world.random_bytes, dedupe=self.dedupes)
        self.decoder = BatchDecoder(self.streams, on_gap=self._on_gap)
        self.ledger = self.world.oracle.joined(self)
        self.decoder.in_batches = self.delivery.is_shared
        self.decoder.access = self.world.publish_access_of(self)
        self.links = PublisherLinks(self.decoder, self.context.backend.inode)
        self._subscriptions, self.draining = [], []
        self._next = iter(self.patterns)
        self._is_told = False
        self._refused_at = inf
        for _ in range(2):
            self.subscribe_more()
        self.side = Subscribed([compiled("side.>")], None, self._cancel)
        if self.has_side:
            self._ask(self.streams.add(self.side, SIDE, last_value=False))
            self.ledger.side = self.streams.stream(self.side)
        self._many = [
            Subscribed([compiled(f"{self.name}.{number}")], None, self._cancel) for number in range(self.bulk)
        ]
        keys = len(self.asked)
        for one in self._many:
            self._ask(self.streams.add(one, self.delivery, last_value=False))
        self._counted = None
        if self.most_counted:
            self._counted = Subscribed([compiled(COUNTED)], None, self._cancel, self.most_counted)
            self.ledger.subscribed(COUNTED)
            self._ask(self.streams.add(self._counted, self.delivery, last_value=False))
        self._ask(self.streams.flush())
        keys = len(self.asked) - keys
        check(not self._many or keys == AT_ONCE + 1, "{} asks for many by {} keys", self.name, keys)
        for endpoint in self.endpoints:
            self.sub.connect(endpoint)

    def _on_gap(self, gap):
        if gap.subscription is self.side:
            self.ledger.beside += gap.count or 0
        else:
            self.ledger.gap(self, gap)

    def drop_many(self):
        """Ask no longer for most of the many subjects."""
        if self.is_alive and not (self.is_frozen or self.is_ending):
            for one in self._many[KEPT:]:
                one.unsubscribe()

    def drop_side(self):
        """Ask no longer for anything of its other stream."""
        self.has_side = False
        self.side.unsubscribe()

    def subscribe_more(self):
        """Ask for the next of its patterns."""
        text = next(self._next, None)
        if text is None or self.is_ending:
            return
        handler = self._handle if self.world.choose((True, False, False)) else None
        subscription = Subscribed([compiled(text)], handler, self._cancel, drain=self._drain)
        self._subscriptions.append(subscription)
        self.ledger.subscribed(text)
        self._ask(self.streams.add(subscription, self.delivery, last_value=self.last_value))
        self._ask(self.streams.flush())

    def unsubscribe(self):
        """Ask no longer for the newest of its patterns, unless that is the only one."""
        if len(self._subscriptions) > 1 and not self.is_ending:
            subscription = self._subscriptions.pop()
            self.ledger.unsubscribed(str(subscription.patterns[0].text))
            subscription.unsubscribe()

    def drain(self):
        """The same, but lose nothing that was published before."""
        if len(self._subscriptions) > 1 and not self.is_ending:
            self._subscriptions.pop().drain()

    def _drain(self, subscription, _):
        self.draining.append(subscription)
        self.ledger.begins_drain(str(subscription.patterns[0].text))
        # What has come may be all that is known of a publisher.
        self._read(10_000)
        for changes in self.streams.part(subscription):
            self._ask(changes)
        self.wake()

    def _end_drains(self):
        for subscription in [one for one in self.draining if self.streams.has_drained(one)]:
            self.draining.remove(subscription)
            number = self.streams.draining[subscription]
            sources = self.streams.stream(subscription).sources
            answered = frozenset(
                origin for origin, one in sources.items() if max(one.answered, default=0) >= number
            )
            for message in self.decoder.rest(self.streams.stream(subscription)):
                self._take(message)
            self.ledger.ends_drain(str(subscription.patterns[0].text), answered)
            subscription.unsubscribe()
            self.world.mechanisms["subscription drained"] += 1

    def _cancel(self, subscription):
        if subscription is self._counted:
            self.ledger.unsubscribed(COUNTED)
        before = self.held()
        self._ask(self.streams.remove(subscription))
        self.decoder.retain(lambda message: any(one.active for one in message.subscriptions))
        kept = set(map(id, self.held()))
        for one in before:
            if id(one) not in kept:
                self.ledger.withdrawn(one)

    def held(self):
        """Return the messages that wait for the application."""
        held = [message for stream in self.streams.buffered for message in stream.receive_buffer]
        return [*held, *self.decoder.waiting]

    def _ask(self, changes):
        if not (changes.wanted or changes.dropped):
            return
        for key in changes.wanted:
            self.sub.set(SUBSCRIBE, key)
        for key in changes.dropped:
            self.sub.set(UNSUBSCRIBE, key)
        self.asked.update(changes.wanted)
        self.asked.difference_update(changes.dropped)

    def turn(self):
        if not self.is_busy:
            self._read(self.pace)
        now, streams, links = self.clock(), self.streams, self.links
        if self.world.has_stranger and not self.world.is_over:
            self._check_refusals(now)
        if self.is_ending:
            if streams.has_left():
                self.ledger.was_answered(self._goodbye)
                self.close()
                return None
            return now + 0.02
        if self.draining:
            self._end_drains()
        due = streams.next_deadline()
        if due is not None and now >= due:
            self._ask(streams.renew(now))
            due = streams.next_deadline()
        ends = links.next_deadline()
        if ends is not None and now >= ends:
            links.look(now, is_idle=not self.sub.has_in())
            ends, due = links.next_deadline(), streams.next_deadline()
        if ends is not None and (due is None or ends < due):
            due = ends
        if streams.buffered and any(one.receive_buffer for one in streams.buffered):
            due = min(now + SLOW[1], inf if due is None else due)
        return None if due is None else max(due, now + 0.001)

    def now_ns(self):
        return round((self._time.now + 1_000) * NS)

    def _read(self, most):
        """Take in what has come, and give it to the application; the rest in a moment."""
        has_in, receive = self.sub.has_in, self.sub.recv_multipart
        if not has_in():
            self._give()
            return
        decoder, links, forged = self.decoder, self.links, self.world.forged
        accept, access, stats = decoder.accept, decoder.access, decoder.stats
        give, overflow, now_ns = self._dispatch, self.delivery.overflow, self.now_ns()
        is_quiet = self.name in self.world.quiet
        for place in range(most):
            if place and not has_in():
                break
            self.frames += 1
            link = None
            if access is not None:
                frames, link = read_with_link(self.context.backend, self.sub, 0)
                access.key = self.world.key_of(link.descriptor, self.name)
            elif links.is_curious:
                frames, link = read_with_link(self.context.backend, self.sub, 0)
            else:
                frames = receive(NOBLOCK)
            if MARK in frames[0]:
                accept_spoiled(self, partial(accept, frames, now_ns))
                continue
            if overflow:
                held, dropped = self.held(), stats.dropped
                message = accept(frames, now_ns)
                check(message is None, "{}: it is given what is to wait", self.name)
                if stats.dropped > dropped:
                    check_dropped(self, held, frames[0])
            else:
                message = accept(frames, now_ns)
            if link is not None and links.is_curious and (access is None or not access.has_denied):
                links.note(frames[0], link)
            if forged and frames[0] in forged:
                self._check_forged()
            elif is_quiet and not (access is not None and access.has_denied):
                self._check_new(frames[0])
            if message is not None:
                give(message)
        else:
            if has_in():
                self.wake()
        self._give()

    def _check_refusals(self, now):
        """What somebody else is refused under its number is in no answer, but one that was on its way."""
        if not self.streams.publishers.refusals():
            self._refused_at = inf
        else:
            self._refused_at = min(self._refused_at, now)
        check(now - self._refused_at < STALE, "{} is refused what somebody else is", self.name)

    def _check_forged(self):
        """Who says what cannot be is contradicted, and refuses nothing."""
        self.world.mechanisms["forged and passed over"] += 1
        check(self.decoder.stats.contradictions > 0, "{}: nobody is contradicted", self.name)
        check(not self.streams.publishers.refusals(), "{}: a stranger has refused it", self.name)

    def _check_new(self, frame):
        """Nothing is sent twice where there is one way for it."""
        size = key_size(frame)
        head = parse_head(frame, size)
        publisher = self.world.oracle.publishers.get(head.origin)
        if publisher is not None and publisher.name in self.world.quiet and publisher.drops:
            # Whatever becomes of others who listen on the same key.
            way, now = (frame[:size], head.origin), self.network.clock.now
            silent = now - self._heard.get(way, now)
            check(silent < LONGEST, "{}: {} was silent for {:.2f} s", self.name, publisher.name, silent)
            self._heard[way] = now
        if head.count and publisher is not None and not publisher.connects:
            place = frame[:size], head.origin, head.epoch
            check(
                self._ends.get(place, 0) <= head.sequence, "{}: {} sent it again", self.name, publisher.name
            )
            self._ends[place] = head.sequence + head.count

    def _give(self):
        """Have the application take what is there, or a part."""
        if not (self.decoder.waiting or self.streams.buffered):
            return
        for _ in range(self.most_taken):
            message = self.decoder.next()
            if message is None:
                break
            self._take(message)

    def _take(self, message):
        check_batch(self, message)
        for one in message.messages() if type(message) is MessageBatch else (message,):
            self._dispatch(one)

    def _dispatch(self, message):
        """Do with a message what an engine does with it."""
        self.ledger.given(message)
        check_route(self.ledger, message)
        route, counted = message.route, self._counted
        if route.is_counted:
            count(message)
        if route.handled:
            self._handled = []
            for one in route.handled:
                if one.active or one.wants(message):
                    one.handler(message)
            wanted = sum(map(Subscribed.wants, route.handled, repeat(message)))
            check(len(self._handled) == wanted, "not handled")
        if counted is not None and counted in route.subscriptions and counted.wants(message):
            self.ledger.counted += 1
            is_enough = self.ledger.counted == self.most_counted
            check(is_enough == (not counted.active), "{}: {} were counted", self.name, self.ledger.counted)
            self.world.mechanisms["subscription counted out"] += is_enough

    def _handle(self, message):
        self._handled.append(message)

    def leave_all(self):
        """Ask for nothing any more."""
        for one in (*self._subscriptions, *self.draining, *self._many, self.side, self._counted):
            if one is not None:
                one.unsubscribe()

    def count_keys(self):
        """Count the keys on which something is to come."""
        return 1 + self.has_side + (len(set(self.ledger.standing)) if self.delivery.is_shared else 0)

    def begin_end(self):
        self.ledger.left()
        goodbye = self.streams.leave()
        self._goodbye = parse_declaration(goodbye.wanted[0]).chunk
        self._ask(goodbye)

    def close(self):
        self.most_taken = 10_000
        self._read(1_000)
        super().close()

    def is_ready(self, origin):
        """Tell whether a publisher has answered all, and is heard; once all faults are over, since then.

        It is heard on each stream: a proxy may have dropped one of them.
        """
        for interest in self.streams.interests.values():
            source = interest.stream.sources.get(origin)
            if source is None:
                return False
            heard = source.heard_at / NS - 1_000
            if heard < self.world.healed_at or self.network.clock.now - heard > SILENCE:
                return False
        return self.streams.has_answered(origin)
