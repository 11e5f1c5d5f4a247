"""Frames of links: golden bytes, bounds, and decoders that survive any bytes."""

import json
import random
import tracemalloc
from pathlib import Path

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oz.errors import ProtocolError
from oz.wire import links
from oz.wire.links import (
    Answer,
    Bye,
    Card,
    Declare,
    Drops,
    Head,
    Hello,
    Item,
    Ping,
    Refusal,
    StreamOptions,
    Welcome,
)

ROWS = [
    json.loads(line)
    for line in Path(__file__).with_name("vectors").joinpath("links.jsonl").read_text().splitlines()
]
FRAMES = [bytes.fromhex(row["hex"]) for row in ROWS]

ALL_KINDS = ("HELLO", "WELCOME", "DECLARE", "ANSWER", "BATCH", "PING", "ACK", "BYE", "JOINED", "CARD", "BODY")


def plain(value):
    """Return a decoded value in the form of the vectors."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if hasattr(value, "_fields"):
        return {name: plain(item) for name, item in zip(value._fields, value, strict=True)}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return value


def decode(kind, frame, count=1):
    if kind == "BATCH":
        return links.decode_head(frame)
    if kind == "JOINED":
        head = links.decode_head(frame)
        return head, links.decode_body(frame[links.HEAD_BYTES :], head.count)
    if kind == "BODY":
        return links.decode_body(frame, count)
    if kind == "CARD":
        return links.decode_card(frame)
    return links.decode_control(frame)


def encode(kind, value):
    if kind == "BATCH":
        return links.encode_head(*value)
    if kind == "JOINED":
        return links.join(links.encode_head(*value[0]), links.encode_body(value[1]))
    if kind == "ACK":
        return links.encode_ack(*value)
    return getattr(links, f"encode_{kind.lower()}")(value)


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_golden_bytes(row):
    kind, frame, fields = row["kind"], bytes.fromhex(row["hex"]), row["fields"]
    value = decode(kind, frame, fields.get("count", 1))
    if kind == "JOINED":
        assert {"head": plain(value[0]), "flat": plain(value[1])} == fields
    elif kind == "BODY":
        assert plain(value) == fields["flat"]
    else:
        assert plain(value) == fields
    assert encode(kind, value) == frame


def test_each_kind_has_golden_bytes():
    kinds = {row["kind"] for row in ROWS}
    assert kinds == set(ALL_KINDS)


def survives(frame):
    """Decode a frame in every way; ProtocolError is the only error."""
    for attempt in (links.decode_control, links.decode_head, links.decode_card):
        try:
            value = attempt(frame)
        except ProtocolError:
            continue
        if isinstance(value, Head):
            assert len(value.positions()) == value.count
    for count in (1, 2, links.MAX_COUNT):
        try:
            flat = links.decode_body(frame, count)
        except ProtocolError:
            continue
        assert len(flat) == 3 * count


@given(st.binary(max_size=200))
def test_decoders_survive_any_bytes(frame):
    survives(frame)


@given(st.sampled_from([1, 2, 3, 4, 5, 6, 7, 9, 10]), st.binary(max_size=120))
def test_decoders_survive_any_bytes_behind_each_kind(kind, rest):
    survives(bytes([kind]) + rest)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.sampled_from([(3, 10), (4, 5), (6, 13), (7, 9), (9, 11)]), VALUES)
def test_decoders_survive_any_structure(layout, value):
    kind, size = layout
    survives(bytes([kind, 1]) + bytes(size - 2) + msgpack.packb(value))
    survives(msgpack.packb(value))


def test_decoders_survive_mutations_of_valid_frames():
    choose = random.Random(1)
    for _ in range(20_000):
        frame = bytearray(choose.choice(FRAMES))
        for _ in range(choose.randint(1, 4)):
            action = choose.randrange(3)
            at = choose.randrange(len(frame))
            if action == 0:
                frame[at] = choose.choice(
                    (0, 1, 0x7F, 0x90, 0xC0, 0xDC, 0xDD, 0xDF, 0xFF, choose.randrange(256))
                )
            elif action == 1 and len(frame) > 1:
                del frame[at : at + choose.randint(1, 5)]
                frame = frame or bytearray(1)
            else:
                frame[at:at] = choose.randbytes(choose.randint(1, 5))
        survives(bytes(frame))


def test_nested_arrays_allocate_little():
    """Each array announces the largest allowed number of entries, and the arrays are nested as deep as possible."""
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    frame = bytes([links.DECLARE]) + bytes([0, 0, 0, 1]) + bytes(5) + b"\xdd\x00\x00\x08\x00" * 12_000
    for _ in range(20):
        with pytest.raises(ProtocolError):
            links.decode_control(frame)
        with pytest.raises(ProtocolError):
            links.decode_body(b"\xdd\x00\x00\x0c\x00" * 12_000, links.MAX_COUNT)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # KiB


def tree(leaf, width, size):
    """Return nested arrays of about `size` bytes."""
    head = bytes([0x90 | width])
    while len(leaf) * width < size:
        leaf = head + leaf * width
    return leaf


MAP = b"\x81\x00"
LARGE = [
    lambda: links.encode_ack(0)[:-1] + MAP + tree(MAP + b"\xc0", 5, 8 << 20),
    lambda: links.encode_ack(0)[:-1] + MAP + tree(MAP + b"\xc0", 5, 1 << 19),
    lambda: links.encode_ack(0)[:-1] + b"\xde\xff\xff" + (MAP + b"\xc0") * 65_535,
    lambda: links.encode_ping(Ping(0, 0, {}))[:-1] + MAP + tree(MAP + b"\xc0", 5, 1 << 19),
    lambda: links.encode_ping(Ping(0, 0, {}))[:-1] + MAP + tree(b"\x90", 5, 1 << 19),
    lambda: links.encode_bye(Bye(0, 0, 0, {}))[:-1] + MAP + tree(b"\x90", 5, 1 << 19),
    lambda: links.encode_answer(Answer(1, []))[:-1] + tree(MAP + b"\xc0", 5, 8 << 20),
    lambda: b"\x93\xc4\x01a\xc4\x01b" + MAP + tree(MAP + b"\xc0", 3, 8 << 20),
    lambda: b"\x93\xc4\x01a" + tree(MAP + b"\xc0", 3, 8 << 20) + b"\xc0",
    lambda: b"\x96" + (b"\xc4\x01a\xc6\x00\x10\x00\x00" + bytes(1 << 20) + b"\xc0") * 2,
]


@pytest.mark.parametrize("make_frame", LARGE)
def test_nested_values_allocate_little(make_frame):
    frame = make_frame()
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            links.decode_body(frame, 2 if frame[0] == 0x96 else 1) if links.is_body(
                frame
            ) else links.decode_control(frame)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_large_bodies_decode():
    flat = [b"a.b", bytes(3 << 20), {"headers": {"name": "value"}}]
    assert links.decode_body(links.encode_body(flat), 1) == flat
    flat[2] = None
    assert links.decode_body(links.encode_body(flat), 1) == flat
    with pytest.raises(ProtocolError):
        links.decode_body(links.encode_body(flat)[:-1], 1)
    with pytest.raises(ProtocolError):
        links.decode_body(links.encode_body(flat) + b"\xc0", 1)


def test_other_version_is_an_error_of_its_own():
    frame = bytearray(FRAMES[0])
    frame[1] = 9
    with pytest.raises(links.UnsupportedVersion, match="version 9") as caught:
        links.decode_control(bytes(frame))
    assert caught.value.version == 9


@pytest.mark.parametrize("count", [0, links.MAX_COUNT + 1])
def test_count_of_a_batch_is_bounded(count):
    with pytest.raises(ProtocolError, match="messages"):
        links.decode_head(links.encode_head(0, 0, 0, count, 0, 0))


def test_body_with_another_count_is_malformed():
    body = links.encode_body([b"a", b"1", None, b"b", b"2", None])
    assert len(links.decode_body(body, 2)) == 6
    for count in (1, 3):
        with pytest.raises(ProtocolError):
            links.decode_body(body, count)


@pytest.mark.parametrize("flat", [["a", b"", None], [b"a", "text", None], [b"a", b"", 7], [b"a", b"", []]])
def test_fields_of_a_message_have_their_types(flat):
    with pytest.raises(ProtocolError):
        links.decode_body(links.encode_body(flat), 1)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20, unique=True))
def test_positions_survive_a_round_trip(positions):
    positions.sort()
    head = Head(0, 0, 0, len(positions), 0, positions[0], links.encode_differences(positions))
    assert list(links.decode_head(links.encode_head(*head)).positions()) == positions


@given(
    st.lists(st.tuples(st.integers(1, 6), st.text(max_size=300)), max_size=60),
    st.lists(st.integers(0, 2**32), max_size=3_000),
)
def test_parts_of_a_declaration_hold_everything_once(patterns, removed):
    streams = {number: StreamOptions(group="g" * number) for number in range(1, 7)}
    items = [Item(sid, stream, "nats", text * 30) for sid, (stream, text) in enumerate(patterns)]
    parts = links.split_declaration(7, 6, streams, items, removed)
    decoded = [links.decode_control(part) for part in parts]
    assert all(len(part) <= links.MAX_PART for part in parts)
    assert [item for part in decoded for item in part.items] == items
    assert [sid for part in decoded for sid in part.removed] == removed
    assert [part.is_last for part in decoded] == [False] * (len(parts) - 1) + [True]
    assert [part.base for part in decoded] == [6] + [7] * (len(parts) - 1)
    for part in decoded:
        assert {item.stream for item in part.items} == set(part.streams)
        assert all(streams[number] == options for number, options in part.streams.items())


def test_large_answer_keeps_each_refusal():
    refused = [Refusal(sid, "r" * 300, "rule", "witness") for sid in range(2_000)]
    frame = links.encode_answer(Answer(1, refused))
    assert len(frame) <= links.MAX_PART
    assert [item.sid for item in links.decode_control(frame).refused] == list(range(2_000))


def test_part_of_a_declaration_is_bounded():
    frame = links.encode_declare(
        Declare(1, 0, True, {1: StreamOptions()}, [Item(1, 1, "nats", "x" * 70_000)], [])
    )
    with pytest.raises(ProtocolError, match="bytes"):
        links.decode_control(frame)


@pytest.mark.parametrize("unknown", [0, 3])
def test_losses_of_unknown_size_are_in_a_ping(unknown):
    ping = Ping(7, 2, {0: Drops(1, 2, 3, 4, 5, unknown)})
    frame = links.encode_ping(ping)
    assert links.decode_control(frame) == ping
    assert (len(frame) - len(links.encode_ping(Ping(7, 2, {0: Drops(1, 2, 3, 4, 5)})))) == bool(unknown)


CARD = Card(bytes(range(16)), "md", "pricing", "desk-7", 4711, ("tcp://10.0.0.7:5555",), "forwarder")


def card_with(**fields):
    """Return the bytes of `CARD` with other fields."""
    return msgpack.packb(CARD._asdict() | fields)


def test_card_survives_a_round_trip_and_ignores_unknown_fields():
    assert links.decode_card(links.encode_card(CARD)) == CARD
    assert links.decode_card(card_with(zone="east")) == CARD


WRONG_FIELDS = [
    {"node": bytes(15)}, {"node": "0123456789abcdef"}, {"bus": None}, {"name": b"pricing"}, {"name": "a\nb"},
    {"host": "h" * 513}, {"pid": -1}, {"pid": 2**32}, {"pid": "1"}, {"endpoints": "tcp://a:1"},
    {"endpoints": [7]}, {"endpoints": ["tcp://a:1"] * 65}, {"endpoints": ["tcp://a:1\0"]}, {"kind": "proxy"},
    {"kind": ["node"]}, {"zone": {}}, {"zone": "z" * links.MAX_CARD},
]  # fmt: skip


@pytest.mark.parametrize("fields", WRONG_FIELDS)
def test_fields_of_a_card_are_bounded(fields):
    with pytest.raises(ProtocolError):
        links.decode_card(card_with(**fields))
    if not fields.keys() - CARD._asdict():
        with pytest.raises(ValueError, match=r"field|card|array"):
            links.encode_card(CARD._replace(**fields))


def test_a_card_that_is_cut_or_longer_is_refused():
    card = links.encode_card(CARD)
    for wrong in (b"", card[:-1], card + b"\xc0", b"\xc0", b"\x80", bytes(1 << 20), b"\x91" * 16_000):
        with pytest.raises(ProtocolError):
            links.decode_card(wrong)


def test_nested_cards_allocate_little():
    tracemalloc.start()
    try:
        for leaf in (MAP + b"\xc0", b"\x90"):
            with pytest.raises(ProtocolError):
                links.decode_card(b"\x81\xa1x" + tree(leaf, 5, links.MAX_CARD // 6))
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


GREETINGS = [
    Hello(b"s" * 16, b"m" * 16, b"e" * 16, 1, 2, 3, 4, 5),
    Welcome(b"o" * 16, b"e" * 16, 1, 2, 3, 4, 5, 6),
]


@pytest.mark.parametrize("greeting", GREETINGS)
@given(card=st.binary(max_size=300))
def test_any_card_survives_in_a_greeting(greeting, card):
    greeting = greeting._replace(card=card)
    assert links.decode_control(encode(type(greeting).__name__, greeting)) == greeting


@pytest.mark.parametrize("greeting", GREETINGS)
def test_the_card_of_a_greeting_is_bounded(greeting):
    whole = greeting._replace(card=bytes(links.MAX_CARD))
    frame = encode(type(greeting).__name__, whole)
    assert links.decode_control(frame) == whole
    for wrong in (frame + b"\0", frame[:40]):
        with pytest.raises(ProtocolError):
            links.decode_control(wrong)


@pytest.mark.parametrize(
    "declare",
    [
        Declare(1, 0, True, {0: StreamOptions()}, [], []),
        Declare(1, 0, True, {1: StreamOptions()}, [Item(1, 0, "nats", "a.*")], []),
        Declare(1, 0, True, {1: StreamOptions()}, [Item(1, -1, "nats", "a.*")], []),
    ],
)
def test_a_declaration_of_the_direct_stream_is_malformed(declare):
    with pytest.raises(ProtocolError, match="stream"):
        links.decode_control(links.encode_declare(declare))


def test_a_frame_of_a_card_alone_is_unknown():
    with pytest.raises(ProtocolError, match="unknown"):
        links.decode_control(b"\x0b\x01" + bytes(20) + b"\x80")
