"""Processes of the simulation: publishers and subscribers as their state machines, on sockets of the model.

A process does what the engines of `oz.transport` do, without threads, loops and options: it wakes up when its
socket has news or when a deadline of its machines is over. It can be frozen, killed, and started again.
"""

from __future__ import annotations

from functools import partial

import zmq

import oz
from oz.protocol.publisher.batches import Batches
from oz.protocol.publisher.interest import ROUTED
from oz.protocol.publisher.last_value_cache import LastValueCache
from oz.protocol.publisher.records import Records
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.streams import SILENCE, Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.testing.context import Context
from oz.testing.proxy import ModelProxy
from oz.transport.publisher.sink import XpubSink
from oz.wire.keys import parse_declaration

NS = 1_000_000_000
NOBLOCK, POLLIN, EVENTS = int(zmq.NOBLOCK), int(zmq.POLLIN), int(zmq.EVENTS)
SUBSCRIBE, UNSUBSCRIBE = int(zmq.SUBSCRIBE), int(zmq.UNSUBSCRIBE)
FIRST_PAUSE, LONGEST_PAUSE = 0.0005, 0.25
CLOSING = 1.0
"""Seconds for which a process that ends in order tries to say so."""


class Process:
    """One process on a host of its own.

    Attributes:
        name: its host.
        is_alive: whether it runs; what it knew is gone when it starts again.
        is_frozen: it stands still, and all that comes for it waits.
    """

    def __init__(self, world, name):
        self.world, self.name = world, name
        self.network = world.network
        self.is_alive = self.is_frozen = False
        self.is_ending = False
        self.life = 0
        self._timer = None
        self._due = None
        self._is_woken = False

    def start(self):
        self.life += 1
        self.is_alive, self.is_frozen, self.is_ending = True, False, False
        self._is_woken, self._timer = False, None
        self.context = Context(self.network, self.name)
        self.begin()
        self.wake()

    def kill(self):
        if self.is_alive:
            self.is_alive = False
            self.network.kill(self.name)
            self._sleep()

    def end(self):
        """End in order: say goodbye, for a while."""
        if self.is_alive and not self.is_ending:
            self.is_ending = True
            self.begin_end()
            self.network.call_at(self.network.now + CLOSING, partial(self._give_up, self.life))
            self.wake()

    def _give_up(self, life):
        if self.is_alive and self.is_ending and self.life == life:
            self.close()

    def close(self):
        self.is_alive = False
        self._sleep()
        self.context.closed = True
        for socket in list(self.context._sockets):
            socket.close(1000)

    def _sleep(self):
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def freeze(self):
        self.is_frozen = True

    def thaw(self):
        if self.is_frozen:
            self.is_frozen = False
            self.wake()

    def wake(self):
        """Have it take its turn in a moment."""
        if not self._is_woken:
            self._is_woken = True
            self.network.call_soon(partial(self._turn, self.life))

    def _turn(self, life):
        if life != self.life or not self.is_alive:
            return
        self._is_woken = False
        if self.is_frozen:
            return
        due = self.turn()
        if self.is_alive:
            self.wake_at(due)

    def wake_at(self, due):
        if self._timer is not None:
            if self._timer.action is not None and due == self._due:
                return
            self._timer.cancel()
            self._timer = None
        self._due = due
        if due is not None:
            self._timer = self.network.call_at(due, self.wake)

    def socket(self, kind, **options):
        made = self.context.socket(kind)
        for name, value in options.items():
            made.set(getattr(zmq, name), value)
        made.notify = self.wake
        return made


class SimPublisher(Process):
    """A publisher."""

    def __init__(self, world, name, *, binds, connects=(), drops, mark):
        super().__init__(world, name)
        self.binds, self.connects, self.drops, self.mark = binds, connects, drops, mark

    def begin(self):
        self.origin = self.world.random_bytes(16)
        self.world.oracle.began(self)
        options = {"SNDHWM": self.mark, "XPUB_MANUAL": 1, "IMMEDIATE": 1}
        self.xpub = self.socket(zmq.XPUB, **options, XPUB_NODROP=int(not self.drops))
        for endpoint in self.binds:
            self.xpub.bind(endpoint)
        for endpoint in self.connects:
            self.xpub.connect(endpoint)
        self.stats = PublisherStats()
        self.router = Router(self.origin, self.stats)
        self.sink = XpubSink(self.xpub, drops=self.drops)
        self.batches = Batches(self.router, self.sink, self.clock, drops=self.drops)
        self.last_values = LastValueCache()
        self.records = Records(self.router, self.batches, self.last_values, self.sink, self.clock)
        self._accumulated = []
        self._known = {}
        self._pause = FIRST_PAUSE

    def clock(self):
        return self.network.now

    def publish(self, subject, payload):
        """Publish one message; tell whether it was taken."""
        recipients = self._known.get(subject)
        if recipients is None:
            recipients = self._known[subject] = self.router.find(subject, subject)
        if recipients.kind & ROUTED and self.batches.is_blocked:
            self.batches.retry()
            if self.batches.is_blocked:
                self.world.mechanisms["publisher held up"] += 1
                return False
        self.last_values.put(subject, payload)
        self.world.oracle.published(self, subject, payload)
        if recipients.kind & ROUTED:
            self._accumulated += (recipients, subject, payload)
        else:
            self.stats.unwanted += 1
        return True

    def flush(self):
        accumulated, self._accumulated = self._accumulated, []
        if not accumulated:
            return
        self.stats.sent += len(accumulated) // 3
        if len(accumulated) == 3:
            self.batches.send_alone(*accumulated)
        else:
            self.batches.send(accumulated, is_rich=False)

    def _listen(self):
        get, recv, put = self.xpub.get, self.xpub.recv, self.xpub.set
        while get(EVENTS) & POLLIN:
            try:
                while True:
                    frame = recv(NOBLOCK)
                    wanted, dropped = self.router.learn(frame, self.network.now)
                    for key in wanted:
                        put(SUBSCRIBE, key)
                    for key in dropped:
                        put(UNSUBSCRIBE, key)
            except zmq.Again:
                pass
            self._forget()
            if self.router.to_answer or self.router.to_serve:
                self.flush()
                self._answer()

    def look(self):
        """Take in subscriptions while messages wait for others, as `publish` does."""
        self._listen()

    def _answer(self):
        before = [(stream, stream.sequence) for stream, _ in self.router.to_serve]
        self.records.answer()
        for stream, sequence in dict(before).items():
            self.world.oracle.gave_last_values(self, stream, stream.sequence - sequence)

    def _forget(self):
        interest = self.router.interest
        if interest.has_changed:
            interest.has_changed = False
            self._known.clear()

    def turn(self):
        self.flush()
        self._listen()
        if self.batches.full:
            before = self.sink.taken
            self.batches.retry()
            has_moved = self.sink.taken != before
            self._pause = FIRST_PAUSE if has_moved else min(2 * self._pause, LONGEST_PAUSE)
        if self.is_ending:
            if not self.batches.full and self.records.say_goodbye():
                self.close()
                return None
            return self.network.now + FIRST_PAUSE * 8
        self.records.beat(self.network.now)
        self._forget()
        self._listen()
        due = self.records.next_deadline(self.network.now)
        if self.batches.full:
            later = self.network.now + self._pause
            due = later if due is None else min(due, later)
        return due

    def begin_end(self):
        self.flush()
        self.world.oracle.closed.add(self.origin)

    def _give_up(self, life):
        if self.is_alive and self.is_ending and self.life == life:
            self.records.part_with_the_rest()
        super()._give_up(life)


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

    def begin(self):
        self.sub = self.socket(zmq.SUB, SNDHWM=0, RCVHWM=self.mark)
        self.streams = Streams(self.world.random_bytes)
        self.decoder = BatchDecoder(self.streams, on_gap=self._on_gap)
        self.ledger = self.world.oracle.joined(self)
        self._subscriptions, self._draining = [], []
        self._next = iter(self.patterns)
        self._is_told = False
        for _ in range(2):
            self.subscribe_more()
        for endpoint in self.endpoints:
            self.sub.connect(endpoint)

    def _on_gap(self, gap):
        self.ledger.gap(self, gap)

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
            self._cancel(subscription)

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
            self.ledger.standing.remove(str(subscription.patterns[0].text))
            self._cancel(subscription)
            self.world.mechanisms["subscription drained"] += 1

    def _cancel(self, subscription):
        self._ask(self.streams.remove(subscription))

    def _ask(self, changes):
        for key in changes.wanted:
            self.sub.set(SUBSCRIBE, key)
        for key in changes.dropped:
            self.sub.set(UNSUBSCRIBE, key)

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
        due = self.streams.next_deadline()
        if due is not None:
            due = max(due, now + 0.001)
        return due

    def now_ns(self):
        return round((self.network.now + 1_000) * NS)

    def _read(self, most):
        """Take in what has come, and give it to the application; the rest in a moment."""
        get, receive, accept = self.sub.get, self.sub.recv_multipart, self.decoder.accept
        now_ns = self.now_ns()
        given = self.ledger.given
        for _ in range(most):
            if not get(EVENTS) & POLLIN:
                break
            message = accept(receive(NOBLOCK), now_ns)
            if message is not None:
                given(message)
        else:
            self.wake()
        self._give()

    def _give(self):
        given, take = self.ledger.given, self.decoder.next
        while (message := take()) is not None:
            given(message)

    def begin_end(self):
        self.ledger.left()
        goodbye = self.streams.leave()
        self._goodbye = parse_declaration(goodbye.wanted[0]).chunk
        self._ask(goodbye)

    def close(self):
        self._read(1_000)
        super().close()

    def is_ready(self, origin):
        """Tell whether a publisher has answered all, and is heard."""
        heard_at = self.streams.heard_at(origin)
        if heard_at is None or self.network.now + 1_000 - heard_at / NS > SILENCE:
            return False
        return self.streams.has_answered(origin)


class SimProxy(Process):
    """A plain proxy."""

    def __init__(self, world, name, *, front, back, is_verbose, mark):
        super().__init__(world, name)
        self.front, self.back, self.is_verbose, self.mark = front, back, is_verbose, mark

    def begin(self):
        front = self.socket(zmq.XSUB, SNDHWM=self.mark, RCVHWM=self.mark)
        back = self.socket(zmq.XPUB, SNDHWM=self.mark, RCVHWM=self.mark)
        if self.is_verbose:
            back.set(zmq.XPUB_VERBOSER, 1)
        front.bind(self.front)
        back.bind(self.back)
        self._proxy = ModelProxy(front, back)

    def freeze(self):
        """Go on: a proxy has no more than what its sockets do."""

    def begin_end(self):
        self.close()

    def turn(self):
        return None
