import struct
import zlib

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oz.errors import ProtocolError
from oz.wire.batch import CONTROL, RICH, Head
from oz.wire.datagram import (
    BATCH,
    OVERHEAD,
    common_prefix,
    pack,
    pack_batch,
    parse,
    parse_control,
    parse_messages,
)
from support.cases import each
from support.wire_vectors import rows, text_of

ORIGIN = bytes(range(0xA0, 0xB0))
SUBJECTS = st.binary(min_size=1, max_size=20).filter(lambda subject: 0 not in subject)
ONE = pack(b"md.x", Head(0, ORIGIN, 7, 41, 1), b"12:00")


def read(frame):
    prefix, head, at = parse(frame)
    return head, *parse_messages(frame, prefix, at, head)


def resealed(frame):
    return frame[:-4] + struct.pack("<I", zlib.crc32(frame[:-4]))


@each("row", rows("datagrams"))
def test_vectors(row):
    frame = bytes.fromhex(row["hex"])
    value = row["value"]
    prefix, head, at = parse(frame)
    assert prefix == text_of(value, "prefix")
    origin = bytes.fromhex(value["origin"])
    assert head == Head(value["flags"], origin, value["epoch"], value["sequence"], value["count"])
    if head.flags & CONTROL:
        assert parse_control(frame, at) == value["control"]
        assert pack(prefix, head, msgpack.packb(value["control"])) == frame
        return
    subjects, payloads = parse_messages(frame, prefix, at, head)
    assert subjects == [text_of(one, "subject") for one in value["messages"]]
    wanted = [one.get("rich", one.get("payload", "").encode()) for one in value["messages"]]
    assert [
        payload if type(payload) is bytes else [payload[0].decode(), payload[1]] for payload in payloads
    ] == wanted


@given(SUBJECTS, st.binary(max_size=300), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
def test_one_message_comes_back_as_it_was(subject, payload, sequence, epoch):
    frame = pack(subject, Head(0, ORIGIN, epoch, sequence, 1), payload)
    assert len(frame) == len(subject) + OVERHEAD + len(payload)
    assert frame.startswith(subject + b"\0")
    assert read(frame) == (Head(0, ORIGIN, epoch, sequence, 1), [subject], [payload])


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=20), st.binary(max_size=50)), min_size=1, max_size=20)
)
def test_a_batch_comes_back_as_it_was(messages):
    subjects, payloads = map(list, zip(*messages, strict=True))
    prefix, body = pack_batch(subjects, payloads)
    assert all(subject.startswith(prefix) for subject in subjects)
    assert read(pack(prefix, Head(BATCH, ORIGIN, 0, 3, len(messages)), body))[1:] == (subjects, payloads)


def test_rich_payloads_come_back_as_they_were():
    prefix, body = pack_batch([b"a.b", b"a.c"], [[b"x", {"headers": {"n": 1}}], b"y"])
    frame = pack(prefix, Head(BATCH | RICH, ORIGIN, 0, 3, 2), body)
    assert read(frame)[1:] == ([b"a.b", b"a.c"], [[b"x", {"headers": {"n": 1}}], b"y"])


@each(
    ("subjects", "prefix"),
    [
        ([b"md.a"], b"md.a"),
        ([b"md.a", b"md.b"], b"md."),
        ([b"md", b"md.b"], b"md"),
        ([b"a", b"b"], b""),
        ([b"a\0b", b"a\0c"], b"a"),
        ([b"\0b", b"\0b"], b""),
    ],
)
def test_a_common_prefix_holds_no_zero_byte(subjects, prefix):
    assert common_prefix(subjects) == prefix


@given(st.integers(0, len(ONE) - 1), st.integers(1, 255))
def test_any_changed_byte_is_found(place, change):
    frame = bytearray(ONE)
    frame[place] ^= change
    with pytest.raises(ProtocolError, match="corrupt"):
        parse(bytes(frame))


@each(
    "frame",
    [
        b"",
        b"\0",
        ONE[:-1],
        ONE[1:],
        ONE + ONE,
        ONE + b"x",
        b"x" + ONE,
        ONE[:20] + ONE,
        b"\0" * 100,
        b"\xff" * 100,
    ],
)
def test_what_is_torn_or_glued_together_is_refused(frame):
    with pytest.raises(ProtocolError):
        parse(frame)


@each(
    ("place", "value", "says"),
    [
        (5, b"OZ", "no head"),
        (7, b"\x02", "version 2"),
        (8, b"\x10", "flags"),
        (8, b"\x01", "flags"),
        (8, b"\x02", "flags"),
        (9, b"\0\0\0\x01", "says 1"),
        (9, b"\xff\xff\xff\xff", "says"),
        (41, b"\0\x00", "0 messages"),
        (41, b"\0\x02", "2 messages"),
        (4, b"x", "no head|cut short"),
    ],
)
def test_a_head_that_says_what_cannot_be_is_refused(place, value, says):
    frame = ONE[:place] + value + ONE[place + len(value) :]
    with pytest.raises(ProtocolError, match=says):
        read(resealed(frame))


@given(
    st.binary(max_size=80),
    st.sampled_from([0, CONTROL, RICH, BATCH, BATCH | RICH, 0xFF]),
    st.integers(0, 65_535),
)
def test_anything_behind_a_sound_head_decodes_or_is_refused(body, flags, count):
    frame = pack(b"a", Head(flags, ORIGIN, 0, 0, count), body)
    try:
        prefix, head, at = parse(frame)
        if head.flags & CONTROL:
            parse_control(frame, at)
        else:
            parse_messages(frame, prefix, at, head)
    except ProtocolError:
        pass


@each(
    "body",
    [
        b"",
        b"\xc1",
        b"\x90",
        msgpack.packb({}),
        msgpack.packb({"to": 1, "rate": 1, "age": 0}),
        bytes(range(100, 130)),
    ],
)
def test_a_record_that_is_no_such_map_is_refused(body):
    frame = pack(b"", Head(CONTROL, ORIGIN, 0, 0, 0), body)
    with pytest.raises(ProtocolError):
        parse_control(frame, parse(frame)[2])
