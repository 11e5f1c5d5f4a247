"""The compiled part does with every batch what its Python twin does, and is nothing where it is not built.

`OZ_SOAK=1` makes the seeded loops a million frames long.
"""

import gc
import logging
import random
import sys
from contextlib import contextmanager
from dataclasses import asdict
from types import SimpleNamespace

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oz
from oz.compiled import HOT
from oz.protocol.publisher import batching
from oz.protocol.publisher.interest import Recipients
from oz.protocol.subscriber import columns
from oz.protocol.subscriber.columns import read_columns
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscribed, SubscriptionTable
from oz.wire.batch import MESSAGES, head_end, head_start
from oz.wire.keys import DeliveryOptions
from support.cases import each
from support.sizes import SOAK, size
from support.wire_frames import ALL_DELIVERY_OPTIONS, NAME, ORIGIN, batches, spoil

ROUNDS = size(4_000, 1_000_000)

pytestmark = [
    pytest.mark.skipif(HOT is None, reason="the compiled part does not run"),
    pytest.mark.sized,
    pytest.mark.timeout(3600 if SOAK else 120),
]


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@contextmanager
def twin():
    """Have batches be read by Python alone."""
    columns.HOT = None
    try:
        yield
    finally:
        columns.HOT = HOT


def table(*remembered):
    """Make a table that knows the routes of some subjects."""
    made = SubscriptionTable()
    made.add(Subscribed([oz.compile("a.>"), oz.compile("^b", "regex")], None, lambda _: None))
    for subject in remembered:
        made.route(subject)
    return made


def seen(frame, at, count, attached, remembered):
    """Tell all that is found in a frame, whoever reads it."""
    known = table(*remembered)
    try:
        found = read_columns(frame, at, count, attached, known)
    except oz.ProtocolError as error:
        return str(error), sorted(known.routes)
    places = [(one.subject, one.is_clear, one.is_text, len(one.subscriptions)) for one in found.routes]
    kinds = [type(one) for one in (found.subjects, found.payloads, found.routes)]
    return (
        found.subjects,
        found.payloads,
        found.extras,
        places,
        kinds,
        sorted(known.routes),
    )


def assert_alike(frame, at, count, attached=(), remembered=()):
    """Read a body both ways."""
    compiled = seen(frame, at, count, list(attached), remembered)
    with twin():
        assert compiled == seen(frame, at, count, list(attached), remembered), (frame, at, count)


SUBJECTS = (b"a.b", b"a.c", b"b", b"x", b"\xff\xfe", b"a." + b"l" * 300, b"\x001S", b"")
numbers = st.integers(-(2**63), 2**64 - 1)
parts = st.sampled_from(SUBJECTS) | st.binary(max_size=6) | st.none() | numbers | st.text(max_size=3)
packed = st.lists(parts, max_size=8).map(msgpack.packb)
remembered = st.lists(st.sampled_from(SUBJECTS[:6]), max_size=6)


@given(packed, st.integers(-1, 5), st.integers(0, 3), remembered)
def test_any_list_is_read_as_the_twin_reads_it(body, count, at, known):
    assert_alike(b"\xdc\0\2"[:at] + body, at, count, known)


@given(st.binary(max_size=80), st.integers(-1, 4), st.integers(0, 90), remembered)
def test_any_bytes_are_read_as_the_twin_reads_them(body, count, at, known):
    assert_alike(body, at, count, known)
    assert_alike(b"\x92\xc4" + body, 0, count, known)


@given(st.lists(st.tuples(st.sampled_from(SUBJECTS), st.binary(max_size=300)), min_size=1), remembered)
def test_plain_messages_are_read_as_the_twin_reads_them(messages, known):
    body = msgpack.packb([part for message in messages for part in message])
    assert_alike(body, 0, len(messages), (), known)


@pytest.mark.parametrize("count", [1, 7, 8, 255, 32_767, 32_768])
@pytest.mark.parametrize("bytes_of_each", [0, 255, 256, 65_536])
def test_bodies_of_all_sizes_are_read_as_the_twin_reads_them(count, bytes_of_each):
    count = min(count, 1 << 22 >> bytes_of_each.bit_length())
    body = msgpack.packb([b"a.b", b"x" * bytes_of_each] * count)
    assert_alike(body, 0, count, (), [b"a.b"])
    assert_alike(body + b"\0", 0, count, (), [b"a.b"])
    assert_alike(body[:-1], 0, count, (), [b"a.b"])


def test_arrays_and_bytes_that_say_their_length_in_more_bytes_than_need_be_are_read_alike():
    for start in (b"\x92", b"\xdc\0\2", b"\xdd\0\0\0\2", b"\xdd\xff\xff\xff\xff", b"\xdc", b"\xdd\0"):
        for subject in (b"\xc4\3a.b", b"\xc5\0\3a.b", b"\xc6\0\0\0\3a.b", b"\xc6\xff\xff\xff\xffa.b"):
            assert_alike(start + subject + b"\xc4\1x", 0, 1, (), [b"a.b"])


def numbered(key):
    """Batches with positions that follow one another, and with differences."""
    body = msgpack.packb([b"a.b", b"one", b"a.c", b"two", b"a.d", b""])
    start = head_start(key, MESSAGES, ORIGIN, 3)
    yield [start + head_end(0, 3, 40) + body]
    yield [start + head_end(3, 3, 50, 1) + bytes((2, 5)) + body]


def decoder():
    """Make what is behind a subscriber's socket; give it and its keys."""
    streams = Streams(lambda size: NAME[:size])
    for delivery in ALL_DELIVERY_OPTIONS:
        patterns = [oz.compile("a.>"), oz.compile("a*", "redis")]
        streams.add(Subscribed(patterns, None, lambda one: None), delivery, last_value=False)
    return BatchDecoder(streams), list(streams.by_key)


FIELDS = (
    "subject",
    "payload",
    "body",
    "frames",
    "origin",
    "sequence",
    "position",
    "time_ns",
    "gap",
    "extras",
)


def given_by(one):
    """Tell all of the messages that wait, and forget them."""
    messages = list(one.waiting)
    one.waiting.clear()
    return [(type(message), [getattr(message, name) for name in FIELDS]) for message in messages]


def test_a_subscriber_makes_the_same_of_spoiled_frames_as_one_without_it():
    rng = random.Random(3)
    (ours, keys), (pure, _) = decoder(), decoder()
    whole = [*batches(keys), *(frames for key in keys for frames in numbered(key))]
    firsts = [frames[0] for frames in whole]
    for number in range(ROUNDS):
        frames = list(rng.choice(whole))
        if rng.random() < 0.8:
            frames[0] = spoil(rng, frames[0], firsts, rng.choice((0, 6, 17, 45)))
        lone = ours.accept(list(frames), number)
        with twin():
            other = pure.accept(list(frames), number)
        assert (lone is None) == (other is None)
        assert given_by(ours) == given_by(pure), frames
        assert asdict(ours.stats) == asdict(pure.stats), frames


# messages --------------------------------------------------------------------------------------------


def test_positions_of_both_layouts_reach_the_messages():
    ours, [key, *_] = decoder()
    for frames in numbered(key):
        ours.accept(frames, 1)
    assert [message.position for message in ours.waiting] == [40, 41, 42, 50, 52, 57]


def test_what_batches_leave_behind_is_nothing():
    known = table(*SUBJECTS[:3])
    bodies = [msgpack.packb([b"a.b", b"x", b"a.c", b"y" * size]) for size in (1, 300)]
    bodies += [bodies[0][:-1], msgpack.packb([b"a.b", b"x", b"new", b"y"]), msgpack.packb([b"a.b", 1] * 2)]
    route = known.routes[b"a.b"]

    def count():
        gc.collect()
        watched = (route, route.subject, known.routes)
        return [sys.getrefcount(one) for one in watched], len(gc.get_objects())

    def work():
        for body in bodies:
            HOT.unpack(body, 0, 2, known.routes)
        HOT.pack([b"a", b"b"])
        HOT.pack([b"a", None])

    work()
    before, objects = count()
    for _ in range(size(2_000, 1_000_000)):
        work()
    after, left = count()
    assert after == before
    assert abs(left - objects) < 50


# packing ---------------------------------------------------------------------------------------------


@given(st.lists(parts | st.lists(parts, max_size=2) | st.binary(min_size=250, max_size=260), max_size=20))
def test_a_list_is_packed_as_msgpack_packs_it(items):
    assert HOT.pack(items) == msgpack.packb(items)


@each("count", [0, 1, 15, 16, 65_535, 65_536])
def test_lists_of_all_sizes_are_packed_as_msgpack_packs_them(count):
    assert HOT.pack([b"ab"] * count) == msgpack.packb([b"ab"] * count)


@each("length", [0, 255, 256, 65_535, 65_536])
def test_bytes_of_all_sizes_are_packed_as_msgpack_packs_them(length):
    assert HOT.pack([b"a", b"x" * length]) == msgpack.packb([b"a", b"x" * length])


@each("items", [(b"a",), [bytearray(b"a")], [memoryview(b"a")], {b"a": 1}, b"a", None])
def test_what_is_no_list_of_bytes_is_packed_as_msgpack_packs_it(items):
    assert HOT.pack(items) == msgpack.packb(items)


def test_what_msgpack_refuses_is_refused_with_its_error():
    with pytest.raises(TypeError) as ours:
        HOT.pack([object])
    with pytest.raises(TypeError) as pure:
        msgpack.packb([object])
    assert str(ours.value) == str(pure.value)


# splitting -------------------------------------------------------------------------------------------


class Picking:
    """A queue group of one."""

    def now(self, subject):
        return self

    def pick(self, key):
        return STREAMS[0]


class Hashed(SimpleNamespace):
    """A stream that can be a key."""

    __hash__ = object.__hash__


STREAMS = [Hashed(delivery=DeliveryOptions()) for _ in range(3)]
HELD_BACK = Hashed(delivery=DeliveryOptions(overflow="drop_oldest"))


def _recipients(*streams, choices=()):
    return Recipients(is_plain=False, streams=streams, choices=choices)


SIMPLE = [_recipients(*STREAMS[:count]) for count in range(4)] + [_recipients(STREAMS[2], STREAMS[0])]
OTHERS = [_recipients(HELD_BACK, STREAMS[1]), _recipients(choices=(Picking(),))]
items = st.binary(max_size=3) | st.binary(min_size=254, max_size=257) | st.just(b"x" * 65_536)
firsts = st.sampled_from([0, 1_000, 2**63, 2**64 - 100])


def split(messages, first):
    """Split as the publisher does, and show what comes of it."""
    made = batching.split([part for one in messages for part in one], first)
    return [(one.stream, one.count, list(one.positions), one.body, one.items) for one in made]


@given(
    st.lists(st.tuples(st.sampled_from(SIMPLE), items, items), min_size=1, max_size=20)
    | st.lists(st.tuples(st.sampled_from(SIMPLE + OTHERS), items, items | st.none()), min_size=1, max_size=8),
    firsts,
)
def test_messages_are_split_among_streams_as_by_the_twin(messages, first):
    ours = split(messages, first)
    batching.HOT = None
    try:
        assert ours == split(messages, first)
    finally:
        batching.HOT = HOT


def test_messages_of_simple_recipients_are_split_without_the_twin():
    assert HOT.split([SIMPLE[2], SIMPLE[1]], [b"a", b"1", b"b", b"2"], 5) == {
        STREAMS[0]: ([b"\xc4\x01a\xc4\x011", b"\xc4\x01b\xc4\x012"], [5, 6]),
        STREAMS[1]: ([b"\xc4\x01a\xc4\x011"], [5]),
    }
    assert HOT.split([SIMPLE[2], OTHERS[0]], [b"a", b"1", b"b", b"2"], 5) is None
    assert HOT.split([SIMPLE[2]], [b"a", "text"], 5) is None
    assert HOT.split([SIMPLE[2]], [b"a", bytearray(b"x")], 5) is None
    assert HOT.split([object()], [b"a", b"x"], 5) is None


def test_splitting_leaves_no_reference_behind():
    sets, pairs = [SIMPLE[2], SIMPLE[1], SIMPLE[0]], [b"subject", b"payload"] * 3
    plain_not = [*pairs[:5], None]

    def work():
        HOT.split(sets, pairs, 1 << 40)
        HOT.split(sets, plain_not, 1 << 40)

    def count():
        return [sys.getrefcount(one) for one in (*pairs[:2], *SIMPLE[:3], *STREAMS, SIMPLE[2].streams)]

    work()
    gc.collect()
    before, objects = count(), len(gc.get_objects())
    for _ in range(size(1_000, 100_000)):
        work()
    gc.collect()
    assert count() == before
    assert abs(len(gc.get_objects()) - objects) < 50


def test_what_is_not_to_be_split_is_an_error():
    for wrong in [(), ([], []), ([SIMPLE[0]], [b"a"], 0), ((), [], 0), ([SIMPLE[0]], [b"a", b"x"], "first")]:
        with pytest.raises(TypeError):
            HOT.split(*wrong)
    with pytest.raises(OverflowError):
        HOT.split([SIMPLE[0]], [b"a", b"x"], -1)
    with pytest.raises(TypeError, match="class"):
        HOT.know_recipients(1)
    with pytest.raises(TypeError, match="streams"):
        HOT.know_recipients(object)


def test_arguments_of_other_types_are_a_type_error_and_nothing_worse():
    for wrong in [(), (1, 0, 1, {}), (b"", "0", 1, {}), (b"", 0, 1, []), (b"", 0, None, {})]:
        with pytest.raises(TypeError):
            HOT.unpack(*wrong)
