"""Subscribers of the simulation: the state machines of one, on a SUB of the model."""

from __future__ import annotations

import zmq

import oz
from oz.protocol.subscriber.columns import MessageBatch
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.streams import SILENCE, Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.transport.subscriber.links import PublisherLinks, read_with_link
from oz.wire.batch import key_size, parse_head
from oz.wire.keys import DeliveryOptions, parse_declaration
from simulation.ledger import check
from simulation.processes import EVENTS, NOBLOCK, POLLIN, SUBSCRIBE, UNSUBSCRIBE, Process

NS = 1_000_000_000

SIDE = DeliveryOptions(overflow="conflate")
"""How what comes by a second stream is treated: nobody publishes anything for it."""

KEPT = 5
"""Subscriptions of many that stay."""

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
        self.bulk, self.has_side = 0, False
        self.dedupes = delivery.overflow == "drop_oldest" or (name == "s1" and not last_value)

    def begin(self):
        self.most_taken = SLOW[0] if self.delivery.overflow else 10_000
        self.sub = self.socket(zmq.SUB, SNDHWM=0, RCVHWM=self.mark)
        self.asked, self._ends = set(), {}
        self.streams = Streams(self.world.random_bytes, dedupe=self.dedupes)
        self.decoder = BatchDecoder(self.streams, on_gap=self._on_gap)
        self.ledger = self.world.oracle.joined(self)
        self.decoder.in_batches = self.delivery.is_shared
        self.links = PublisherLinks(self.decoder, self.context.backend.inode)
        self._subscriptions, self._draining = [], []
        self._next = iter(self.patterns)
        self._is_told = False
        for _ in range(2):
            self.subscribe_more()
        self.side = Subscribed([oz.compile("side.>")], None, self._cancel)
        if self.has_side:
            self._ask(self.streams.add(self.side, SIDE, last_value=False))
            self.ledger.side = self.streams.stream(self.side)
        self._many = [
            Subscribed([oz.compile(f"{self.name}.{number}")], None, self._cancel)
            for number in range(self.bulk)
        ]
        for one in self._many:
            self._ask(self.streams.add(one, self.delivery, last_value=False))
        self._ask(self.streams.flush())
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
        subscription = Subscribed([oz.compile(text)], None, self._cancel)
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
            subscription = self._subscriptions.pop()
            self._draining.append(subscription)
            self.ledger.begins_drain(str(subscription.patterns[0].text))
            # What has come may be all that is known of a publisher.
            self._read(10_000)
            for changes in self.streams.part(subscription):
                self._ask(changes)
            self.wake()

    def _end_drains(self):
        for subscription in [one for one in self._draining if self.streams.has_drained(one)]:
            self._draining.remove(subscription)
            number = self.streams._draining[subscription]
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
        held = self.held()
        self._ask(self.streams.remove(subscription))
        self.decoder.retain(lambda message: any(one.active for one in message.subscriptions))
        self.ledger.unwanted += held - self.held()

    def held(self):
        """Count the messages that wait for the application."""
        return sum(len(list(stream.receive_buffer)) for stream in self.streams.buffered)

    def _ask(self, changes):
        for key in changes.wanted:
            self.sub.set(SUBSCRIBE, key)
        for key in changes.dropped:
            self.sub.set(UNSUBSCRIBE, key)
        self.asked.update(changes.wanted)
        self.asked.difference_update(changes.dropped)

    def turn(self):
        if not self.is_busy:
            self._read(self.pace)
        now = self.network.now
        if self.is_ending:
            if self.streams.has_left():
                self.ledger.was_answered(self._goodbye)
                self.close()
                return None
            return now + 0.02
        if self._draining:
            self._end_drains()
        self._ask(self.streams.renew(now))
        ends = self.links.next_deadline()
        if ends is not None and now >= ends:
            self.links.look(now, is_idle=not self.sub.get(EVENTS) & POLLIN)
            ends = self.links.next_deadline()
        more = now + SLOW[1] if any(one.receive_buffer for one in self.streams.buffered) else None
        due = [one for one in (self.streams.next_deadline(), ends, more) if one is not None]
        return max(min(due), now + 0.001) if due else None

    def now_ns(self):
        return round((self.network.now + 1_000) * NS)

    def _read(self, most):
        """Take in what has come, and give it to the application; the rest in a moment."""
        get, receive, accept, links = self.sub.get, self.sub.recv_multipart, self.decoder.accept, self.links
        now_ns = self.now_ns()
        given = self.ledger.given
        is_quiet = self.name in self.world.quiet
        for _ in range(most):
            if not get(EVENTS) & POLLIN:
                break
            if links.is_curious:
                frames, link = read_with_link(self.context.backend, self.sub, NOBLOCK)
                message = accept(frames, now_ns)
                links.note(frames[0], link)
            else:
                frames = receive(NOBLOCK)
                message = accept(frames, now_ns)
            if is_quiet:
                self._check_new(frames[0])
            if message is not None:
                given(message)
        else:
            self.wake()
        self._give()

    def _check_new(self, frame):
        """Nothing is sent twice where there is one way for it."""
        size = key_size(frame)
        head = parse_head(frame, size)
        publisher = self.world.oracle.publishers.get(head.origin)
        if head.count and publisher is not None and not publisher.connects:
            place = frame[:size], head.origin, head.epoch
            check(
                self._ends.get(place, 0) <= head.sequence, "{}: {} sent it again", self.name, publisher.name
            )
            self._ends[place] = head.sequence + head.count

    def _give(self):
        """Have the application take what is there, or a part."""
        for _ in range(self.most_taken):
            message = self.decoder.next()
            if message is None:
                break
            self._take(message)

    def _take(self, message):
        for one in message.messages() if type(message) is MessageBatch else (message,):
            self.ledger.given(one)

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
        """Tell whether a publisher has answered all, and is heard."""
        heard_at = self.streams.heard_at(origin)
        if heard_at is None or self.network.now + 1_000 - heard_at / NS > SILENCE:
            return False
        return self.streams.has_answered(origin)
