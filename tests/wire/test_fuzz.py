"""Whatever the bytes: wire functions raise `oz.ProtocolError` or nothing, and what is behind sockets nothing.

`OZ_SOAK=1` makes the seeded loops a million frames long.
"""

import gc
import logging
import random
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

import oz
from oz.protocol.publisher.lifetimes import GRACE, WITHDRAWAL_DELAY
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.security.limits import Limits
from oz.wire.batch import (
    CHUNK_FIELD,
    CONTROL,
    HEAD_SIZE,
    LAST_VALUES,
    MESSAGES,
    RICH,
    Head,
    key_size,
    parse_body,
    parse_chunk,
    parse_control,
    parse_head,
    read_lone,
)
from oz.wire.codec import MsgpackCodec
from oz.wire.keys import STREAM, parse_declaration, parse_pattern, parse_stream
from oz.wire.positions import parse_positions
from support.sizes import SOAK, size
from support.wire_frames import ALL_DELIVERY_OPTIONS, NAME, ORIGIN, batch, batches, control, keys, spoil

ROUNDS = size(6_000, 1_000_000)
CONNECTIONS = ROUNDS // 500 if SOAK else 10
"""Of 500 keys each: more of them say the same again."""
pytestmark = [pytest.mark.sized, pytest.mark.timeout(3600 if SOAK else 600)]

SOURCES = 100
GROWTH = 2_000_000
"""Bytes by which a loop may grow: caches and counters, not something for each frame."""


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def allocated_by_oz():
    """Bytes that lines of oz hold, but for one table: Python's own of all names, which msgpack adds keys to.

    That table doubles by 1.9 MB in whichever line adds the name that is one too many.
    """
    gc.collect()
    mine = tracemalloc.Filter(True, f"{Path(oz.__file__).parent}/*")
    sizes = [trace.size for trace in tracemalloc.take_snapshot().filter_traces([mine]).traces]
    return sum(size for size in sizes if size < GROWTH // 4)


def decode(frame):
    """Read a frame that a publisher sent, as far as `oz.wire` goes."""
    size = key_size(frame)
    head = parse_head(frame, size)
    at = size + HEAD_SIZE
    if head.flags & CONTROL:
        return parse_control(frame, at)
    if head.flags & LAST_VALUES:
        parse_chunk(frame, at)
        at += CHUNK_FIELD
    if head.position is not None:
        numbers = parse_positions(frame, at, head.position, head.width, head.count)
        assert len(numbers) == head.count
        assert all(0 <= number < 2**64 for number in numbers)
        at += head.width * (head.count - 1)
    return parse_body(frame, at, head.count)


def read_both_ways(frame):
    """Read a frame, and check that the short way says what the long one does."""
    alone = read_lone(frame)
    if alone is not None and frame.startswith(STREAM):
        key, origin, epoch, sequence, subject, payload, extras, position = alone
        flags, payload = (MESSAGES, payload) if extras is None else (RICH, [payload, extras])
        assert frame.startswith(key)
        try:
            assert parse_head(frame, len(key)) == Head(flags, origin, epoch, sequence, 1, position)
            assert decode(frame) == [subject, payload]
        except oz.ProtocolError as error:
            raise AssertionError(f"read the short way only: {frame!r}") from error
    return decode(frame)


def read_key(key):
    """Read a key that a subscriber sent, in every way."""
    for parse in (parse_declaration, parse_pattern, parse_stream):
        with suppress(oz.ProtocolError):
            parse(key)


def subscriber(codec=None, on_gap=None):
    """What is behind a subscriber's socket, with a subscription of each kind; and its keys."""
    streams = Streams(lambda size: NAME[:size])
    for delivery in ALL_DELIVERY_OPTIONS:
        patterns = [oz.compile("a.>"), oz.compile("a*", "redis")]
        streams.add(Subscribed(patterns, None, lambda one: None), delivery, last_value=False)
    return BatchDecoder(streams, codec, on_gap, Limits(sources=SOURCES)), list(streams.by_key)


def publisher():
    return Router(ORIGIN, PublisherStats())


# laws ------------------------------------------------------------------------------------------------


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_are_a_protocol_error(data):
    read_key(data)
    for frame in (data, NAME[:2] + data, b"\x001S" + data, b"\x001P" + data, b"\x001D" + data):
        with suppress(oz.ProtocolError):
            read_both_ways(frame)
        read_key(frame)


@given(st.lists(st.binary(max_size=80), min_size=1, max_size=3), st.sampled_from(range(9)))
def test_a_subscriber_takes_any_frames(frames, which):
    decoder, known = subscriber()
    decoder.accept(frames, 0)
    decoder.accept([known[which] + frames[0], *frames[1:]], 0)
    decoder.accept([batch(known[which], [(b"a.b", b"")])[: -len(frames[0]) or None] + frames[0]], 0)


@given(st.lists(st.binary(max_size=80), max_size=5))
def test_a_publisher_takes_any_subscription_frame(frames):
    router = publisher()
    for frame in frames:
        router.learn(frame, 0.0)
        for start in (b"\1\x001D" + NAME, b"\1\x001S", b"\1\x001P", b"\0\x001D" + NAME, b"\0"):
            router.learn(start + frame, 0.0)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["live", "headers", "refused", "paths"]) | st.text(max_size=3), inner
        )
    ),
    max_leaves=10,
)


@given(
    st.lists(st.tuples(values, values), min_size=1, max_size=4), st.sampled_from((0, 2)), st.none() | values
)
def test_a_subscriber_takes_batches_of_any_values(messages, flags, answer):
    decoder, known = subscriber()
    for key in known:
        decoder.accept([batch(key, messages, flags)], 0)
        decoder.accept([control(key, answer)], 0)
    assert all(message.subscriptions for message in decoder.waiting)


# seeded loops ----------------------------------------------------------------------------------------


def test_spoiled_frames_are_read_or_are_a_protocol_error():
    rng = random.Random(1)
    frames = [frames[0] for frames in batches(subscriber()[1])] + list(keys())
    errors = 0
    for _ in range(ROUNDS):
        frame = spoil(rng, rng.choice(frames), frames)
        read_key(frame)
        try:
            read_both_ways(frame)
        except oz.ProtocolError:
            errors += 1
    assert 0 < errors < ROUNDS, "both kinds must have come up"


@pytest.mark.parametrize("codec", [None, MsgpackCodec()], ids=["bytes", "msgpack"])
def test_a_subscriber_takes_spoiled_frames_counts_each_and_does_not_grow(codec):
    rng = random.Random(2)
    gaps = []
    decoder, known = subscriber(codec, gaps.append)
    whole = list(batches(known))
    others = [frames[0] for frames in whole]
    stats = decoder.stats
    # What is remembered of subjects and publishers fills up to its bounds in the first half.
    for number in range(ROUNDS):
        if number % 20 == 0:
            # Of a publisher whose epoch was spoiled nothing counts any more.
            origin = rng.randbytes(16)
        frames = rng.choice(whole)
        frame = spoil(rng, frames[0].replace(ORIGIN, origin), others, rng.choice((0, 19, 20, 40)))
        alone = decoder.accept([frame, *frames[1:]], number)
        assert alone is None or alone.subscriptions
        if number % 100 == 99:
            assert all(message.subscriptions for message in decoder.waiting)
            decoder.waiting.clear()
            gaps.clear()
        if number == ROUNDS // 2:
            tracemalloc.start()
    # The newest frames that were given are remembered, bounded by their number: 1.1 MB of hashes.
    decoder.forget_frames()
    decoder.forget_frames()
    grown = allocated_by_oz()
    tracemalloc.stop()
    assert stats.malformed > ROUNDS // 10
    assert stats.delivered > ROUNDS // 100
    assert stats.received == stats.delivered + stats.filtered + stats.malformed + stats.dropped
    assert all(len(stream.sources) <= SOURCES for stream in decoder.streams.by_key.values())
    assert grown < GROWTH


@pytest.mark.heavy
def test_a_publisher_takes_spoiled_keys_and_forgets_all_of_them_in_the_end():
    rng = random.Random(3)
    known = list(keys())
    router = publisher()
    now, before = 0.0, 0
    for left in reversed(range(CONNECTIONS)):
        held = {}
        for _ in range(500):
            key = spoil(rng, rng.choice(known), known, rng.choice((0, 3, 19)))
            now += 0.001
            if key not in held:
                # ZeroMQ tells of a key once for each connection, and takes it back once.
                held[key] = None
                router.learn(b"\1" + key, now)
            if rng.random() < 0.3:
                gone = rng.choice(list(held))
                del held[gone]
                router.learn(b"\0" + gone, now)
            if rng.random() < 0.004:
                router.find(b"a.b")
                router.expire(now)
        for key in held:
            router.learn(b"\0" + key, now)
        router.expire(now + WITHDRAWAL_DELAY + 0.1)
        for _ in range(2):
            # The streams of shared patterns outlive those that declared them.
            now += GRACE + 2
            router.expire(now)
        router.acceptance.to_serve.clear()
        assert_forgotten(router)
        if left == 6:
            # Not from the start: to trace is slow.
            tracemalloc.start()
        elif left == 3:
            before = traced()
    grown = traced() - before
    tracemalloc.stop()
    assert router.stats.malformed > 100
    assert grown < GROWTH


def traced():
    """The memory in use, without the cache of the regex engine, which grows and shrinks."""
    regex.purge()
    return allocated_by_oz()


def assert_forgotten(router):
    assert not router.streams
    assert not router.to_answer
    assert not router.plain.count()
    assert not router.interest.groups
    assert not router.lifetimes.vanished
    assert not router.lifetimes.withdrawn
    assert router.interest.pattern_count == len(router.interest.index) == 0
