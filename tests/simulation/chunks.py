"""What fits into one declaration, of very many patterns."""

from __future__ import annotations

from itertools import pairwise

import oz
from oz.protocol.subscriber.publishers import Answers
from oz.protocol.subscriber.sequences import source_of
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.wire.keys import CHUNK_SIZE, DECLARATION, DeliveryOptions, parse_declaration
from simulation.ledger import check

PATTERN_HEAD = 3
"""Bytes of a declared pattern beside its text: its dialect and its length."""

LONGEST_REASON = 1024
"""Characters of a reason that are kept."""


def check_chunks(random):
    """Of very many patterns as many are in one declaration as docs/wire.md says, and each is in one."""
    streams, texts = (
        Streams(random.randbytes),
        [f"{at}.{'x' * random.randrange(1, 200)}" for at in range(150)],
    )
    found, answers = [], Answers()
    for text in texts:
        subscription = Subscribed([oz.compile(text)], None, print)
        changes = streams.add(subscription, DeliveryOptions(), last_value=False)
        found.append(_declared(changes))
    found.append(_declared(streams.flush()))
    for at_once in found:
        for patterns in at_once:
            check(_bytes_of(patterns) <= CHUNK_SIZE, "{} bytes are declared at once", _bytes_of(patterns))
        for patterns, (first, *_) in pairwise(at_once):
            check(_bytes_of((*patterns, first)) > CHUNK_SIZE, "{} bytes would fit in", len(first.text))
    declared = sorted(one.text.decode() for at_once in found for patterns in at_once for one in patterns)
    check(declared == sorted(texts), "{} patterns are declared of {}", len(declared), len(texts))
    stream = streams.stream(subscription)
    source = source_of(stream.sources, b"o" * 16)
    answers.take(stream, source, {"live": [], "refused": {1: "x" * random.randrange(1, 5_000)}})
    check(len(source.refused[1]) <= LONGEST_REASON, "a reason of {} is kept", len(source.refused[1]))


def _declared(changes):
    return [parse_declaration(key).patterns for key in changes.wanted if key.startswith(DECLARATION)]


def _bytes_of(patterns):
    return sum(len(one.text) + PATTERN_HEAD for one in patterns)
