import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oz
from oz.logs import forget_rates
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.wire.batch import (
    CHUNK_FIELD,
    CONTROL,
    HEAD_SIZE,
    LAST_VALUES,
    MAX_COUNT,
    MESSAGES,
    RICH,
    Head,
    array_header,
    head_end,
    head_start,
    key_size,
    pack_array,
    pack_chunk,
    pack_control,
    parse_body,
    parse_chunk,
    parse_control,
    parse_head,
    read_lone,
    strip_header,
)
from oz.wire.keys import STREAM, Declared, DeliveryOptions, pattern_key, stream_key
from support.cases import each
from support.wire_frames import NAME, ORIGIN, batch, control
from support.wire_vectors import rows, text_of

ROWS = rows("batches")
GOOD = [row for row in ROWS if "value" in row]
BAD = [row for row in ROWS if "error" in row]
KEY = stream_key(NAME + b"\0\1")


def frames_of(row):
    return [bytes.fromhex(frame) for frame in row["frames"]]


def subscriber():
    """A subscriber to everything on the stream and the shared pattern of the vectors."""
    streams = Streams(lambda size: NAME[:size])
    for pattern, delivery in (
        (oz.compile(b"", "zmq"), DeliveryOptions()),
        (oz.compile("a.>"), DeliveryOptions(is_shared=True)),
    ):
        subscription = Subscribed([pattern], None, lambda one: None)
        streams.add(subscription, delivery, last_value=True)
    [own] = [one for one in streams.by_key.values() if not one.is_shared and not one.only_answers]
    streams.by_key[KEY] = own
    return BatchDecoder(streams)


def as_shown(message):
    """A message as the vectors write it."""
    return {
        "subject": message.frames[0],
        "frames": message.frames[1:],
        "headers": dict(message.headers),
        "reply_to": message.reply_to,
    }


def as_said(value):
    frames = [frame.encode() for frame in value.get("frames", [value["payload"]])]
    return {
        "subject": text_of(value, "subject"),
        "frames": frames,
        "headers": value.get("headers", {}),
        "reply_to": value.get("reply_to"),
    }


@each("row", GOOD)
def test_a_head_means_what_its_vector_says(row):
    frame, value = frames_of(row)[0], row["value"]
    size = key_size(frame)
    head = parse_head(frame, size)
    assert frame[:size].hex() == value["key"]
    assert (head.flags, head.origin.hex(), head.epoch, head.sequence, head.count) == tuple(
        value[name] for name in ("flags", "origin", "epoch", "sequence", "count")
    )
    if head.flags & LAST_VALUES:
        assert parse_chunk(frame, size + HEAD_SIZE) == value["chunk"]
    if head.flags & CONTROL:
        answer = value["control"]
        body = parse_control(frame, size + HEAD_SIZE)
        assert {name: body[name] for name in answer} == {
            **answer,
            **({"refused": dict(answer["refused"])} if answer else {}),
        }
    # And written again.
    assert head.position == value["position"]
    start = head_start(frame[:size], head.flags, head.origin, head.epoch)
    assert frame.startswith(start + head_end(head.sequence, head.count, head.position, head.width))


@each("row", GOOD)
def test_a_subscriber_gets_the_messages_that_a_vector_says(row):
    decoder, value = subscriber(), row["value"]
    decoder.accept(frames_of(row), 1)
    wanted = value.get("messages", [])
    assert [as_shown(message) for message in decoder.waiting] == [as_said(one) for one in wanted]
    assert [message.sequence for message in decoder.waiting] == [
        value["sequence"] + place for place in range(len(wanted))
    ]
    positions = value.get("positions") or range(value["position"], value["position"] + len(wanted))
    assert [message.position for message in decoder.waiting] == list(positions)
    assert decoder.stats.malformed == 0


@each("row", BAD)
def test_a_malformed_frame_is_counted_skipped_and_leaves_everything_as_it_was(row, caplog):
    caplog.clear()
    forget_rates()
    decoder = subscriber()
    for _ in range(2):
        decoder.accept(frames_of(row), 1)
    assert not decoder.waiting
    assert (decoder.stats.received, decoder.stats.malformed) == (2, 2)
    assert len(caplog.records) == 1, "logged once"
    assert len(caplog.records[0].getMessage()) < 400
    assert not any(stream.sources for stream in decoder.streams.by_key.values())
    # The messages that it held are missing from the sequence, and that shows.
    decoder.accept([batch(KEY, [(b"a", b"x")], sequence=3)], 2)
    assert [message.gap for message in decoder.waiting] == [3]


def test_a_frame_that_was_given_is_passed_over():
    decoder = subscriber()
    for sequence in (0, 2, 2, 0):
        decoder.accept([batch(KEY, [(b"a", b"%d" % sequence), (b"b", b"x")], sequence=sequence)], 1)
    assert [message.sequence for message in decoder.waiting] == [0, 1, 2, 3]
    assert (decoder.stats.received, decoder.stats.filtered, decoder.stats.lost) == (8, 4, 0)


def test_another_batch_with_a_number_that_was_given_is_given_too(caplog):
    decoder = subscriber()
    for sequence in (0, 1):
        decoder.accept([batch(KEY, [(b"a", b"%d" % sequence), (b"b", b"x")], sequence=sequence)], 1)
    assert [message.sequence for message in decoder.waiting] == [0, 1, 1, 2]
    assert decoder.stats.contradictions == 1


def test_of_a_lone_message_each_byte_counts_in_the_short_way_too():
    extras = {"reply_to": "r", "headers": {"n": 1}}
    rich = batch(KEY, [(b"a.b", [b"one", extras])], RICH)
    bare = batch(KEY, [(b"a.b", b"one")])
    assert read_lone(bare) == (KEY, ORIGIN, 1, 0, b"a.b", b"one", None, 0)
    assert read_lone(rich) == (KEY, ORIGIN, 1, 0, b"a.b", b"one", extras, 0)
    for frame in (bare, rich):
        for size in range(len(frame)):
            assert read_lone(frame[:size]) is None
        assert read_lone(frame + b"\0") is None
    # Frames of their own, or with no flag that says so.
    assert read_lone(batch(KEY, [(b"a.b", [[b"one", b"two"], {}])], RICH)) is None
    assert read_lone(batch(KEY, [(b"a.b", [b"one", None])], RICH)) is None
    assert read_lone(batch(KEY, [(b"a.b", [b"one", extras])])) is None


def test_the_vectors_have_each_flag_and_names_of_their_own():
    flags = {row["value"]["flags"] for row in GOOD}
    assert flags >= {MESSAGES, CONTROL, RICH, LAST_VALUES, LAST_VALUES | RICH}
    assert len({row["name"] for row in ROWS}) == len(ROWS)
    assert len(ROWS) + len(rows("keys")) >= 60


# round trips -----------------------------------------------------------------------------------------

origins = st.binary(min_size=16, max_size=16)
epochs, sequences = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
messages = st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=300)), min_size=1, max_size=40)
keys = st.builds(stream_key, origins) | st.builds(
    pattern_key, st.builds(Declared, st.sampled_from([1, 8]), st.binary(max_size=300))
)


@given(keys, st.sampled_from([MESSAGES, RICH]), origins, epochs, sequences, messages)
def test_a_batch_comes_back_as_it_was(key, flags, origin, epoch, sequence, sent):
    items = [part for message in sent for part in message]
    frame = head_start(key, flags, origin, epoch) + head_end(sequence, len(sent)) + pack_array(items)
    assert key_size(frame) == len(key)
    head = parse_head(frame, len(key))
    assert head == Head(flags, origin, epoch, sequence, len(sent))
    assert parse_body(frame, len(key) + HEAD_SIZE, head.count) == items


@given(st.lists(messages, min_size=1, max_size=5))
def test_bodies_are_joined_without_being_read(parts):
    """What lets a message that several streams get be packed once."""
    items = [[part for message in part_messages for part in message] for part_messages in parts]
    joined = b"".join(strip_header(pack_array(one), len(one)) for one in items)
    count = sum(len(one) for one in items)
    assert array_header(count) + joined == pack_array([part for one in items for part in one])


@each("count", [0, 15, 16, 65_535, 65_536, 2 * MAX_COUNT])
def test_the_header_of_an_array_is_what_messagepack_writes(count):
    packed = pack_array([0] * count)
    assert packed.startswith(array_header(count))
    assert array_header(count) + strip_header(packed, count) == packed


@given(
    st.lists(st.integers(0, 2**32 - 1)),
    st.dictionaries(st.integers(0, 2**32 - 1), st.text(max_size=20)),
    st.integers(0, 1000),
    sequences,
)
def test_an_answer_comes_back_as_it_was(live, refused, paths, sequence):
    start = head_start(KEY, CONTROL, ORIGIN, 1) + head_end(sequence, 0)
    frame = start + pack_control(live=live, refused=refused, paths=paths)
    assert parse_head(frame, len(KEY)).sequence == sequence
    assert parse_control(frame, len(KEY) + HEAD_SIZE) == {"live": live, "refused": refused, "paths": paths}


@given(st.integers(0, 2**32 - 1), messages)
def test_last_values_carry_their_chunk(chunk, sent):
    frame = batch(KEY, sent, LAST_VALUES, chunk)
    at = key_size(frame) + HEAD_SIZE
    assert parse_chunk(frame, at) == chunk
    assert pack_chunk(chunk) == frame[at : at + CHUNK_FIELD]
    assert len(parse_body(frame, at + CHUNK_FIELD, len(sent))) == 2 * len(sent)


# bounds ----------------------------------------------------------------------------------------------


@given(messages, st.data())
def test_a_batch_that_is_cut_anywhere_is_a_protocol_error(sent, data):
    frame = batch(KEY, sent)
    cut = frame[: data.draw(st.integers(0, len(frame) - 1))]
    with pytest.raises(oz.ProtocolError):
        parse_body(cut, key_size(cut) + HEAD_SIZE, parse_head(cut, key_size(cut)).count)


def test_the_largest_batch_is_taken_and_one_more_is_not():
    messages = [(b"", b"")] * MAX_COUNT
    frame = batch(KEY, messages)
    assert len(parse_body(frame, len(KEY) + HEAD_SIZE, parse_head(frame, len(KEY)).count)) == 2 * MAX_COUNT
    with pytest.raises(oz.ProtocolError, match="16385"):
        parse_head(batch(KEY, [*messages, (b"", b"")]), len(KEY))


@each("depth", [1, 900, 1000, 1020, 1100, 100_000])
def test_an_error_says_little_whatever_was_read(depth):
    """msgpack's own error holds all that was read, and its text fails when that is nested."""
    nested = b"\x91" * depth + b"\1\1"
    start = KEY + struct.pack(">BB16sIQI", 1, MESSAGES, ORIGIN, 1, 0, 1)
    for read in (
        lambda frame: parse_body(frame, len(start), 1),
        lambda frame: parse_control(frame, len(start)),
    ):
        with pytest.raises(oz.ProtocolError) as caught:
            read(start + nested)
        assert len(str(caught.value)) < 200


def test_the_reason_of_a_refusal_is_bounded():
    answer = {"live": [], "paths": 1}
    parse_control(control(KEY, {**answer, "refused": {1: "x" * 16_384}}), len(KEY) + HEAD_SIZE)
    with pytest.raises(oz.ProtocolError, match="answer"):
        parse_control(control(KEY, {**answer, "refused": {1: "x" * 16_385}}), len(KEY) + HEAD_SIZE)


@each("frame", [b"", STREAM, b"\x001P\1\x20", b"\x001P\1\x20\1" + bytes(9000), b"a.b"])
def test_what_begins_with_no_key_is_a_protocol_error(frame):
    with pytest.raises(oz.ProtocolError):
        parse_head(frame, key_size(frame))
