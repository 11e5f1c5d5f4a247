"""Processes of the simulation on sockets of the model: what all have in common, a proxy, a plain subscriber.

A process does what the engines of `oz.transport` do, without threads, loops and options: it wakes up when its
socket has news or when a deadline of its machines is over. It can be frozen, killed, and started again.
"""

from __future__ import annotations

from functools import partial

import zmq

import oz
from oz.protocol.subscriber.receiver import PrefixReceiver, SplittingReceiver
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.testing.context import Context
from oz.wire.codec import find_codec
from oz.wire.keys import ID_SIZE, OWN, Declaration, Declared, DeliveryOptions
from simulation.ledger import check, matches
from simulation.spoiling import NOT_TEXT
from support.model_proxy import ModelProxy

NOBLOCK = int(zmq.NOBLOCK)
SUBSCRIBE, UNSUBSCRIBE = int(zmq.SUBSCRIBE), int(zmq.UNSUBSCRIBE)
MALFORMED = OWN + b"D\xff"
"""What nobody may ask for, and somebody does."""

UNKNOWN = Declaration(b"of the future".ljust(ID_SIZE), 1, DeliveryOptions(), patterns=(Declared(99, b"a.*"),))
"""Pattern of an unknown dialect."""

DELIMITER = b" "

BOOTED = 1_000.0
"""Seconds that the clock of a process shows more than the network's, once more for each of its lives: no
clock of a host begins at 0 as a program does."""

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
        self._time = world.network.clock
        self.is_alive = self.is_frozen = False
        self.is_ending = False
        self.life = self.turns = 0
        self.ahead = 0.0
        self._timer = None
        self._due = None
        self._is_woken = False

    def start(self):
        self.life += 1
        self.ahead = self.life * BOOTED
        self.is_alive, self.is_frozen, self.is_ending = True, False, False
        self._is_woken, self._timer = False, None
        self._turn_of_this_life = partial(self._turn, self.life)
        self.context = Context(self.network, self.name)
        self.begin()
        self.wake()

    def clock(self):
        """Return the seconds that its host counts."""
        return self._time.now + self.ahead

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
            self.network.call_at(self.network.clock.now + CLOSING, partial(self._give_up, self.life))
            self.wake()

    def _give_up(self, life):
        if self.is_alive and self.is_ending and self.life == life:
            self.close()

    def close(self):
        self.is_alive = False
        self._sleep()
        self.context.closed = True
        for socket in list(self.context.sockets):
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
            self.network.call_soon(self._turn_of_this_life)

    def _turn(self, life):
        if life == self.life:
            self._is_woken = False
            self._take_turn()

    def _take_turn(self):
        if not self.is_alive or self.is_frozen:
            return
        self.turns += 1
        due = self.turn()
        if self.is_alive:
            self.wake_at(due)

    def wake_at(self, due):
        timer = self._timer
        if timer is not None:
            if timer.action is not None and due == self._due:
                return
            timer.action = self._timer = None
        self._due = due
        if due is not None:
            self._timer = self._time.call_at(due - self.ahead, self._take_turn)

    def socket(self, kind, **options):
        made = self.context.socket(kind)
        for name, value in options.items():
            made.set(getattr(zmq, name), value)
        made.notify = self.wake
        return made


class SimPlainSubscriber(Process):
    """A subscriber that filters by prefixes, as any of ZeroMQ, and by its patterns.

    All that comes is also read as it would come in one frame, with a delimiter.

    Attributes:
        standing: the patterns that it asks for.
        given: numbers and subjects, in the order in which they came.
        refused: the subjects of messages that none of its patterns wanted.
    """

    def __init__(self, world, name, *, endpoints, patterns):
        super().__init__(world, name)
        self.endpoints, self.patterns = endpoints, patterns
        self.standing, self.given, self.refused = {}, [], []
        self.spoiled = 0

    def begin(self):
        self.sub = self.socket(zmq.SUB)
        codec = find_codec("json")
        self.receiver, self.splitting = PrefixReceiver(codec), SplittingReceiver(DELIMITER, codec)
        self.receiver.refusals.on_refused = self.splitting.refusals.on_refused = self.refused.append
        self.sub.set(SUBSCRIBE, MALFORMED)
        self.sub.set(SUBSCRIBE, UNKNOWN.encode())
        for pattern in self.patterns:
            self.subscribe(pattern)
        for endpoint in self.endpoints:
            self.sub.connect(endpoint)

    def subscribe(self, text):
        """Ask for a pattern."""
        self.standing[text] = subscription = Subscribed([oz.compile(text)], None, print)
        self.splitting.table.add(subscription)
        for prefix in self.receiver.table.add(subscription):
            self.sub.set(SUBSCRIBE, prefix)

    def unsubscribe(self, text):
        """Ask no longer for a pattern."""
        subscription = self.standing.pop(text)
        self.splitting.table.remove(subscription)
        for prefix in self.receiver.table.remove(subscription):
            self.sub.set(UNSUBSCRIBE, prefix)

    def begin_end(self):
        self.close()

    def turn(self):
        while self.sub.has_in():
            frames = self.sub.recv_multipart(NOBLOCK)
            self.spoiled += frames[0] == NOT_TEXT
            message = self.receiver.accept(frames, 0)
            whole = [DELIMITER.join(frames)]
            split = self.splitting.accept(whole, 0)
            if message is not None:
                self.given.append((message.payload, message.subject))
                check(
                    any(matches(text, message.subject) for text in self.standing),
                    "plain: {!r} is not asked for", message.subject,
                )  # fmt: skip
            first, second = (
                one and (one.subject, one.payload, one.route.subscriptions) for one in (message, split)
            )
            check(first == second, "plain: {} is {} in one frame", first, second)
            check(split is None or split.frames is whole, "plain: {} is not what came", split)


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
