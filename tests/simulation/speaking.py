"""Publishers that speak to a subscriber frame by frame, and its streams as a list has them."""

from __future__ import annotations

from collections import Counter

from oz.protocol.publisher.accounts import Account, Peer
from oz.protocol.publisher.batches import Batches
from oz.protocol.publisher.records import Records
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.wire.keys import Declaration, Declared, stream_of
from simulation.books import Taker
from simulation.ledger import matches

LIMIT = 3
"""Messages that may wait for the application."""


class Sent:
    """A message as it was published."""

    def __init__(self, subject, payload, extras, frames):
        self.subject, self.payload, self.extras, self.frames = subject, payload, extras, frames


class Speaker:
    """A publisher, whose frames go where the run lets them."""

    def __init__(self, world, number):
        self.origin, self.sink = bytes([number + 1]) * 16, Taker()
        self.router = Router(self.origin, PublisherStats())
        self.batches = Batches(self.router, self.sink, world.clock, drops=True)
        self.records = Records(self.router, self.batches, None, self.sink, world.clock)
        self.account, self.sent = Account(Peer(number, number)), {}
        for one in world.readers:
            self.router.learn(b"\1" + one.key, world.now, self.account)
            said = Declaration(stream_of(one.key), 1, one.delivery, patterns=(Declared(1, b">"),)).encode()
            self.router.learn(b"\1" + said, world.now, self.account)
        self.records.answer()


class Reader:
    """One stream of the subscriber, as the list has it.

    Attributes:
        places: epoch and next number of each publisher.
        unreported: what was lost, and no message has said yet.
        held: what waits for the application, by its overflow.
    """

    def __init__(self, delivery, texts):
        self.delivery, self.texts = delivery, list(texts)
        self.places, self.unreported, self.held, self.ids = {}, Counter(), [], set()

    def wants(self, subject):
        return any(matches(one, subject) for one in self.texts)

    def hold(self, new):
        """Have messages wait, and say how many are dropped."""
        before = len(self.held) + len(new)
        overflow = self.delivery.overflow
        for one in new:
            if overflow == "drop_newest" and len(self.held) >= LIMIT:
                continue
            same = [at for at, other in enumerate(self.held) if other[0].subject == one[0].subject]
            if overflow == "conflate" and same:
                self.held[same[0]] = one
            else:
                self.held.append(one)
        if overflow is not None:
            del self.held[:-LIMIT]
        return before - len(self.held)
