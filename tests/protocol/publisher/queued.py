"""A publisher's queue of interests, without a socket: its connections are what a test says."""

from __future__ import annotations

import oz
from oz.protocol.publisher.interest_queue import InterestQueue
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.security.limits import Limits
from oz.transport.backend import Peer
from oz.wire.declared import declare
from oz.wire.keys import Declaration

ORIGIN = bytes(16)
NAME = b"n" * 16
HONEST, HOSTILE = Peer(7, 70), Peer(8, 80)


def key(number, *texts, name=NAME, leaving=False):
    patterns = tuple(declare(oz.compile(text)) for text in texts)
    return Declaration(name, number, is_closing=leaving, patterns=patterns).encode()


class Publisher:
    """A router and its queue, with connections that are there until they are taken out of `alive`."""

    def __init__(self, **limits):
        self.alive = {HONEST, HOSTILE}
        self.stats = PublisherStats()
        self.limits = Limits(**limits)
        self.router = Router(ORIGIN, self.stats, limits=self.limits)
        self.queue = InterestQueue(self.router, self.limits, lambda peer: peer in self.alive)
        self.now = 0.0

    def clock(self):
        self.now += 0.0001
        return self.now

    def come(self, peer, *keys):
        return [self.take(b"\x01" + one, peer) for one in keys]

    def go(self, peer, *keys):
        return [self.take(b"\x00" + one, peer) for one in keys]

    def take(self, frame, peer):
        answer = self.queue.take(frame, peer, self.now)
        self.work()
        return answer

    def work(self):
        while self.queue.waits:
            self.queue.work(lambda: 0.0)

    def wants(self, subject):
        recipients = self.router.find(subject)
        return bool(recipients.kind)
