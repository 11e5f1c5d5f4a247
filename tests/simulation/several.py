"""Laws of several connections that listen on one key: docs/routing.md, When a subscriber is too slow."""

from __future__ import annotations

from types import SimpleNamespace

from oz.protocol.publisher.accounts import Account, Peer
from oz.protocol.publisher.batches import PATIENCE, Batches
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.wire.keys import ID_SIZE, Declaration, Declared, DeliveryOptions, stream_key
from simulation.ledger import check
from simulation.rooms import ENDLESS, Pipe, Room

NAME = b"s".ljust(ID_SIZE)
SUBJECT = b"a"


def check_several(random):
    """A connection that is full is left out, until it has room again; the other is given all."""
    overflow = random.choice((None, "drop_newest"))
    world = SimpleNamespace(now=100.0, drops=True, left_out=bool)
    full, free = Pipe(random.randrange(1, 4)), Pipe(ENDLESS)
    router, sink = Router(bytes(16), PublisherStats()), Room(world)
    batches = Batches(router, sink, lambda: world.now, drops=True)
    sink.pipes[stream_key(NAME)] = [full, free]
    said = Declaration(NAME, 1, DeliveryOptions(overflow=overflow), patterns=(Declared(1, SUBJECT),))
    for number in range(2):
        router.learn(b"\1" + stream_key(NAME), world.now, account := Account(Peer(number, number)))
        router.learn(b"\1" + said.encode(), world.now, account)
    for _ in range(3):
        while full.has_room():
            _send(batches, router)
        for _ in range(random.randrange(1, 3)):
            _send(batches, router)
        given = len(full.taken)
        check(full.is_left_out and len(free.taken) > given, "one of two is full, and is not left out")
        world.now += random.uniform(0.0, 0.99 * PATIENCE)
        full.waiting -= random.randrange(1, full.most + 1)
        before = len(free.taken)
        _send(batches, router)
        check(len(full.taken) == given + 1, "who was left out has room again, and is left out")
        check(len(free.taken) == before + 1, "who has room was not given all")
    check(not batches.full, "{} wait though one may be left out", list(batches.full))


def _send(batches, router):
    """Send two messages at once: of one that is sent alone ZeroMQ looks by itself."""
    first, recipients = batches.position, router.find(SUBJECT, SUBJECT)
    batches.position += 2
    batches.send([recipients, SUBJECT, b"1", recipients, SUBJECT, b"2"], first, is_rich=False)
