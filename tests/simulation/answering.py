"""Laws of what a subscriber finds of its publishers: who is there, and what they have answered."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace

from oz.protocol.subscriber.publishers import Answers, Publishers
from oz.protocol.subscriber.sequences import Source
from simulation.ledger import check

NS = 1_000_000_000
SILENT = 3.5
"""Seconds behind others after which a publisher does not count."""

ORIGINS = b"a", b"b", b"c"
LONGEST, CHARACTERS = 1_024, 16_384
"""Characters of each reason, and of all reasons of one answer, that are kept."""


def _stream(random):
    """Make a stream of which some publishers were heard, and some have said goodbye."""
    stream = SimpleNamespace(sources={}, ended={})
    for origin in random.sample(ORIGINS, random.randrange(4)):
        source = SimpleNamespace(heard_at=random.randrange(1, 20) * NS // 2)
        source.answered = frozenset(random.sample(range(1, 6), random.randrange(5)))
        source.refused = {one: f"no {one}" for one in random.sample(range(1, 6), random.randrange(3))}
        (stream.ended if random.random() < 0.2 else stream.sources)[origin] = source
    return stream


def check_answering(random):
    """Look at streams of which all is known, and compare."""
    streams = [_stream(random) for _ in range(3)]
    interests, own = {}, streams[: random.choice((1, 2))]
    for stream in own:
        chunks = dict.fromkeys(random.sample(range(1, 6), random.randrange(5)))
        interests[len(interests)] = SimpleNamespace(
            stream=stream, declarations=SimpleNamespace(chunks=chunks)
        )
    publishers = Publishers(interests, dict(enumerate(streams)))
    _check_times(publishers, streams, own, random.randrange(8, 30) * NS // 2)
    _check_owed(publishers, interests.values(), random)
    _check_taken(random)


def _check_times(publishers, streams, own, now):
    """When each was heard is the newest of all its streams; who is silent behind others does not count."""
    every = [pair for one in streams for pair in one.sources.items()]
    newest = {origin: max(s.heard_at for o, s in every if o == origin) for origin, _ in every}
    check(publishers.last_heard() == newest, "{} were heard, not {}", newest, publishers.last_heard())
    for origin in ORIGINS:
        found = publishers.heard_at(origin)
        check(found == newest.get(origin), "{} was heard at {}", origin, found)
    every = [pair for one in own for pair in one.sources.items()]
    answering = {origin: max(s.heard_at for o, s in every if o == origin) for origin, _ in every}
    check(publishers.answering() == answering, "{} answer", publishers.answering())
    check(publishers.origins() == set(answering), "{} are there", publishers.origins())
    met = set(answering).union(*(one.ended for one in own))
    check(publishers.met() == met, "{} were there, not {}", publishers.met(), met)
    for time in (None, now):
        last = max(answering.values(), default=0) if time is None else time
        alive = {origin for origin, at in answering.items() if last - at <= SILENT * NS}
        check(set(publishers.alive(time)) == alive, "{} are alive, not {}", publishers.alive(time), alive)
    left = [(at - now) / NS + SILENT for at in answering.values()]
    expected = min((one for one in left if one >= 0), default=None)
    check(publishers.next_silence(now) == expected, "silence begins in {} s", expected)


def _check_owed(publishers, interests, random):
    """What some publisher has neither answered nor refused is owed, since the first of those was there."""
    met = {origin: random.choice((0.0, 1.0, 2.0)) for origin in random.sample(ORIGINS, random.randrange(4))}
    reasons = []
    for interest in interests:
        expected, sources = {}, interest.stream.sources
        for number in interest.declarations.chunks:
            for origin, at in met.items():
                source = sources.get(origin)
                if source is None or number not in source.answered | source.refused.keys():
                    expected[number] = min(expected.get(number, inf), at)
        found = publishers.owed(interest, met)
        check(found == expected, "{} are owed, not {}", found, expected)
        check(publishers.unanswered(interest, list(met)) == set(expected), "others are unanswered")
        for source in sources.values():
            reasons += [source.refused[one] for one in source.refused if one in interest.declarations.chunks]
    check(sorted(publishers.refusals()) == sorted(reasons), "{} were refused", publishers.refusals())


def _check_taken(random):
    """Of an answer is kept what was declared, and of reasons as many and as much as may be."""
    last, source = random.randrange(1, 40), Source()
    stream = SimpleNamespace(last_declared=last, chunk={}.get)
    live = random.sample(range(1, 60), 20)
    length = random.choice((1, LONGEST, LONGEST + 1))
    refused = dict.fromkeys(random.sample(range(1, 60), 30), "n" * length)
    Answers().take(stream, source, {"live": live, "refused": refused, "paths": 2})
    check(source.answered == {one for one in live if one <= last}, "{} are answered", source.answered)
    mine = [one for one in refused if one <= last]
    check(list(source.refused) == mine, "{} are refused, not {}", list(source.refused), mine)
    length = min(length, LONGEST)
    kept = [reason for reason in source.refused.values() if reason == "n" * length]
    room = CHARACTERS // length
    check(len(kept) == min(len(mine), room), "{} reasons are kept, of {}", len(kept), len(mine))
    check(source.paths == 2, "it says that it has {} ways", source.paths)
    Answers().take(stream, source, {"live": []})
    left = source.answered, source.refused, source.paths
    check(not any(left), "of what was answered before there is {}", left)
