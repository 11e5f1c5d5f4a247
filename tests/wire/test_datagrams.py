"""Frames of multicast messages: golden bytes, damage, and decoders that survive any bytes."""

import json
import struct
import zlib
from pathlib import Path

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oz.errors import ProtocolError
from oz.wire import datagrams
from oz.wire.datagrams import (
    BATCH,
    CONTROL,
    OVERHEAD,
    Head,
    Record,
    common_prefix,
    decode,
    encode,
    encode_messages,
    encode_record,
)
from support.cases import each

ORIGIN = bytes(range(0xA0, 0xB0))
SUBJECTS = st.binary(min_size=1, max_size=20)
EXTRAS = st.none() | st.fixed_dictionaries(
    {"headers": st.dictionaries(st.text(max_size=5), st.integers(0, 9))}
)
ONE = encode_messages([b"md.x", b"12:00", None], ORIGIN, 7, 41)


def resealed(frame):
    return frame[:-4] + struct.pack("<I", zlib.crc32(frame[:-4]))


@given(SUBJECTS, st.binary(max_size=300), EXTRAS, st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
def test_one_message_comes_back(subject, payload, extras, sequence, epoch):
    frame = encode_messages([subject, payload, extras], ORIGIN, epoch, sequence)
    head, flat = decode(frame)
    assert flat == [subject, payload, extras]
    assert head[1:] == (ORIGIN, epoch, sequence, 1)
    if extras is None and 0 not in subject:
        assert len(frame) == len(subject) + OVERHEAD + len(payload)
        assert frame.startswith(subject + b"\0")


@given(st.lists(st.tuples(SUBJECTS, st.binary(max_size=50), EXTRAS), min_size=1, max_size=20))
def test_a_batch_comes_back(messages):
    flat = [part for message in messages for part in message]
    head, found = decode(encode_messages(flat, ORIGIN, 0, 3))
    assert found == flat
    assert (head.sequence, head.count) == (3, len(messages))


@each("record", [Record(1, 0.0), Record(10_000, 2.5, bye=True), Record(5, 1, quiet=8.5)])
def test_a_record_comes_back(record):
    head, found = decode(encode_record(record, ORIGIN, 3, 9))
    assert (head, found) == (Head(CONTROL, ORIGIN, 3, 9, 0), record)


@given(st.lists(SUBJECTS, min_size=1))
def test_the_prefix_is_common_to_all_subjects(subjects):
    prefix = common_prefix(subjects)
    assert all(subject.startswith(prefix) for subject in subjects)
    assert 0 not in prefix


@each(
    "damage",
    [
        lambda frame: frame[:-3], lambda frame: frame + b"x", lambda frame: frame[:8] + b"?" + frame[9:],
        lambda frame: frame[10:] + frame[:10], lambda frame: b"", lambda frame: frame + frame
    ],
)  # fmt: skip
def test_a_damaged_frame_has_a_wrong_checksum(damage):
    with pytest.raises(ProtocolError, match="checksum"):
        decode(damage(ONE))


@each(
    ("change", "says"),
    [
        ((6, b"!"), "no head"),
        ((7, b"\x01"), "version 1"),
        ((8, b"\x04"), "flags 0x04"),
        ((8, b"\x01"), "flags 0x01"),
        ((12, b"\xff"), "its head says"),
        ((42, b"\x02"), "and 2 messages"),
    ],
)
def test_a_wrong_head_is_refused(change, says):
    at, byte = change
    frame = ONE[:at] + byte + ONE[at + 1 :]
    with pytest.raises(ProtocolError, match=says):
        decode(resealed(frame))


@each("body", [b"\xc1", msgpack.packb([b"x"]), msgpack.packb([b"x", 7, None]), msgpack.packb({}), b""])
def test_a_body_that_does_not_decode_is_refused(body):
    with pytest.raises(ProtocolError):
        decode(encode(b"md.", Head(BATCH, ORIGIN, 1, 1, 1), body))


@each(
    "fields",
    [
        [],
        {},
        {"rate": 1},
        {"rate": 1.5, "age": 0},
        {"rate": 1, "age": -1},
        {"rate": 1, "age": float("nan")},
        *({"rate": 1, "age": 0, "quiet": quiet} for quiet in (-1, 3_601, float("nan"), "8", None, True)),
        {"rate": 1, "age": 0, "more": "x" * 5000},
    ],
)
def test_a_record_that_does_not_decode_is_refused(fields):
    with pytest.raises(ProtocolError):
        decode(encode(b"", Head(CONTROL, ORIGIN, 1, 1, 0), msgpack.packb(fields)))


def test_further_fields_of_a_record_are_ignored():
    body = msgpack.packb({"rate": 1, "age": 0, "later": [1]})
    assert decode(encode(b"", Head(CONTROL, ORIGIN, 1, 1, 0), body))[1] == Record(1, 0)


@given(st.binary(max_size=200))
def test_any_bytes_with_a_right_checksum_are_read_or_refused(body):
    frame = resealed(b"a\0oz\x02" + body + bytes(4))
    try:
        decode(frame)
    except ProtocolError:
        return
    assert frame[4:5] == bytes([datagrams.VERSION])


ROWS = Path(__file__).with_name("vectors").joinpath("datagrams.jsonl").read_text("ascii").splitlines()


@each("row", map(json.loads, ROWS))
def test_vectors(row):
    frame, value = bytes.fromhex(row["hex"]), row["value"]
    head, content = decode(frame)
    origin = bytes.fromhex(value["origin"])
    assert head == Head(value["flags"], origin, value["epoch"], value["sequence"], value["count"])
    if "record" in value:
        assert content == Record(**value["record"])
        assert encode_record(content, origin, head.epoch, head.sequence) == frame
        return
    flat = []
    for item in value["messages"]:
        flat += (item["subject"].encode(), item["payload"].encode(), item["extras"])
    assert content == flat
    assert encode_messages(flat, origin, head.epoch, head.sequence) == frame
