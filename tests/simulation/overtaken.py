"""Laws of what comes late at a subscriber: docs/wire.md, Contradictions."""

from __future__ import annotations

from oz.protocol.subscriber.sequences import Source
from oz.wire.batch import CONTROL, MESSAGES, Head
from simulation.ledger import check

ORIGIN, NS = b"o" * 16, 1_000_000_000
PATIENCE, CALM = 3, 600
"""Seconds in which what was overtaken is late, and nothing else; and after which that is forgotten."""


def check_overtaken(random):
    """What comes of a loss is late for three seconds, and contradicts what was said behind that."""
    for is_announced in (False, True):
        _check_late(random, is_announced)
    _check_calm(random)


def _check_late(random, is_announced):
    source, now = Source(), random.randrange(10**18)

    def hear(sequence, count, at):
        head = Head(MESSAGES if count else CONTROL, ORIGIN, 3, sequence, count)
        return source.advance(head, round(at), is_shared=False)

    hear(0, 5, now)
    behind = now + random.randrange(10) * NS
    ahead, lost = (0 if is_announced else 1), random.randrange(3, 50)
    check(hear(5 + lost, ahead, behind) == (lost, True), "{} are lost, and not told", lost)
    late = behind + random.randrange(PATIENCE * NS)
    if random.random() < 0.5:
        late = behind + PATIENCE * NS - 1
    check(hear(5, 1, late) == (0, False), "what was overtaken for {} ns is given", late - behind)
    check(not source.is_contested, "what was overtaken for {} ns contradicts", late - behind)
    # One late message says nothing against whatever comes next.
    stands = 5 + lost + ahead
    check(hear(stands + 4, 0, late) == (4, True), "4 are lost, a record says so, and that is not told")
    check(hear(stands + 4, 1, late) == (0, True), "what comes next is not given")
    late = behind + PATIENCE * NS + random.choice((0, 1, NS))
    check(
        hear(random.choice((5, 6)), 1, late) == (None, True),
        "it goes on from before for {} ns, and is not heard",
        late - behind,
    )
    check(source.is_contested, "it goes on from before, and that is no contradiction")
    others = [one.expected for one in source.doubt.rivals]
    check(source.expected not in others, "it stands at {}, and beside that at {}", source.expected, others)


def _check_calm(random):
    """What came late speaks against a publisher for ten minutes, from then on and not from the loss on."""
    source, now = Source(), random.randrange(10**18)
    source.advance(Head(MESSAGES, ORIGIN, 3, 0, 5), now, is_shared=False)
    source.advance(Head(MESSAGES, ORIGIN, 3, 9, 1), now, is_shared=False)
    late = now + random.randrange(1, PATIENCE * NS)
    source.advance(Head(MESSAGES, ORIGIN, 3, 5, 1), late, is_shared=False)
    for at in (CALM * NS - 1, CALM * NS):
        source.advance(Head(MESSAGES, ORIGIN, 3, source.expected, 1), late + at, is_shared=False)
        is_doubted = source.doubt is not None
        check(is_doubted == (at < CALM * NS), "{} ns after the last it is doubted: {}", at, is_doubted)
