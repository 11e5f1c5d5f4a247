"""What a broken peer sends: frames that are malformed, of which subscribers take nothing, and count each."""

from __future__ import annotations

from oz.protocol.publisher.stream import CONTROL, LAST_VALUES, PLAIN, RICH
from oz.wire.batch import head_end, pack_array, pack_chunk
from oz.wire.keys import OWN
from simulation.ledger import check

MARK = b"\xc1spoiled"
"""What all of them hold, and no other frame; MessagePack never uses the first byte."""

NOT_TEXT = b"b.\xfe" + MARK
"""A subject that is not UTF-8, on the way to who filters by prefixes: none of a text dialect's."""

BODIES = (
    lambda sequence: (PLAIN, sequence, 1, MARK),
    lambda sequence: (PLAIN, sequence, 2, pack_array([b"a.x", MARK])),
    lambda sequence: (PLAIN, sequence, 1, pack_array([b"a.x", MARK, b"a.y", MARK])),
    lambda sequence: (PLAIN, sequence, 1, pack_array([OWN + b"x", MARK])),
    lambda sequence: (PLAIN, sequence, 1, pack_array([5, MARK])),
    lambda sequence: (PLAIN, sequence, 1, pack_array([[MARK], b""])),
    lambda sequence: (PLAIN, sequence, 1, pack_array([b"a.x" + MARK, 5])),
    lambda sequence: (PLAIN, sequence, 1, pack_array([b"a.x" + MARK, None])),
    lambda sequence: (RICH, sequence, 1, pack_array([b"a.x", [MARK]])),
    lambda sequence: (RICH, sequence, 1, pack_array([b"a.x", [[MARK, 5], {}]])),
    lambda sequence: (RICH, sequence, 1, pack_array([b"a.x" + MARK, [[], {}]])),
    lambda sequence: (CONTROL, sequence, 0, MARK),
    lambda sequence: (LAST_VALUES, sequence, 1, MARK),
    lambda sequence: (LAST_VALUES, sequence, 1, pack_chunk(1) + MARK),
)
"""Kinds, sequences, counts and bodies that do not go together."""


def spoil(publisher, choose):
    """Send a frame that no publisher sends, to somebody who listens."""
    streams = [one for one in publisher.router.streams.values() if one.listeners and one.vanished_at is None]
    if streams:
        stream = choose(streams)
        kind, sequence, count, body = choose(BODIES)(stream.sequence)
        frames = (
            stream.heads[kind] + head_end(sequence, count) + body,
            stream.key + MARK,
            stream.key + bytes(34) + MARK,
        )
        publisher.sink.try_send((choose(frames),))


def accept_spoiled(subscriber, accept):
    """Have a subscriber take in what is malformed: it counts that, and nothing else comes of it."""
    stats, ledger = subscriber.decoder.stats, subscriber.ledger
    before = stats.malformed, stats.delivered, stats.lost, stats.repeated, len(subscriber.decoder.waiting)
    message = accept()
    malformed, *rest = stats.malformed, stats.delivered, stats.lost, stats.repeated
    rest.append(len(subscriber.decoder.waiting))
    ledger.spoiled += malformed - before[0]
    check(message is None and rest == list(before[1:]), "{}: something came of a broken frame", ledger.name)
    ledger.oracle.mechanisms["frame malformed"] += malformed - before[0]
