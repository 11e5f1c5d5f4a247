import random
from base64 import urlsafe_b64encode
from contextlib import suppress
from dataclasses import astuple, replace
from itertools import accumulate

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oz
from oz.errors import ProtocolError
from oz.wire.announcement import MAX_ENDPOINTS, MAX_HOST_ID, MAX_TEXT
from oz.wire.discovery import (
    MAX_REPLY,
    MAX_REQUEST,
    MAX_ROSTER,
    ROSTER_SIZE,
    Alive,
    Announce,
    Announcement,
    Ask,
    Goodbye,
    Joined,
    Left,
    Lost,
    Roster,
    Welcome,
    pack,
    pack_announcement,
    pack_rosters,
    unpack_announcement,
    unpack_reply,
    unpack_request,
)
from oz.wire.keys import MAX_PATTERN
from support.announcing import PRICING, announcement
from support.cases import each
from support.wire_frames import spoil
from support.wire_vectors import rows

UNPACK = {"server": unpack_request, "node": unpack_reply}
LARGEST = Announcement(
    uuid=b"u" * 16,
    name="n" * MAX_TEXT,
    bus="b" * MAX_TEXT,
    host="h" * MAX_TEXT,
    host_id=b"i" * MAX_HOST_ID,
    pid=2**32 - 1,
    endpoints=("tcp://" + "a" * (MAX_TEXT - 12) + ":65535",) * MAX_ENDPOINTS,
    local_endpoint="ipc://" + "x" * (MAX_TEXT - 6),
    version="v" * MAX_TEXT,
    started_ns=2**63 - 1,
    key="k" * 40,
)

texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=60)
names = texts.filter(bool)
uuids = st.binary(min_size=16, max_size=16)
hosts = st.from_regex(r"[a-z0-9.\-]{1,40}|\[[0-9a-f:]{2,39}\]", fullmatch=True)
announcements = st.builds(
    Announcement,
    uuid=uuids,
    name=names,
    bus=names,
    host=texts,
    host_id=st.binary(max_size=MAX_HOST_ID),
    pid=st.integers(0, 2**32 - 1),
    endpoints=st.lists(
        st.builds("tcp://{}:{}".format, hosts, st.integers(1, 65_535)), max_size=MAX_ENDPOINTS
    ).map(tuple),
    local_endpoint=st.none() | names.map("ipc://{}".format),
    version=texts,
    started_ns=st.integers(0, 2**63 - 1),
    key=st.none() | st.from_regex(r"[0-9a-zA-Z.:+=^!/*?&<>()@%$#{}-]{40}", fullmatch=True),
)
seconds = st.floats(0.001, 3600)
requests = (
    st.builds(Announce, announcements, st.booleans())
    | st.builds(Goodbye, uuids)
    | st.builds(Ask, st.none() | names)
)
replies = (
    st.builds(Welcome, uuids, texts, seconds, seconds)
    | st.builds(Joined, announcements)
    | st.builds(Left, uuids)
    | st.builds(Lost, uuids)
    | st.just(Alive())
)


def plain(value):
    """A message as the vectors write it."""
    if isinstance(value, Announcement):
        return {
            name: plain(getattr(value, name))
            for name in value.__slots__
            # One without a key is what it was before there were any.
            if name != "key" or value.key is not None
        }
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "_fields"):
        fields = {name: plain(one) for name, one in value._asdict().items()}
        return {"kind": type(value).__name__.lower(), **fields}
    return [plain(one) for one in value] if isinstance(value, tuple) else value


@each("row", rows("discovery"))
def test_vectors(row):
    frame, unpack = bytes.fromhex(row["hex"]), UNPACK[row["to"]]
    if "value" not in row:
        with pytest.raises(ProtocolError):
            unpack(frame)
        return
    message = unpack(frame)
    assert plain(message) == row["value"]
    assert pack(message) == frame or "further" in row["name"]


@given(requests)
def test_what_a_name_server_is_told_comes_back_as_it_was(request):
    frame = pack(request)
    assert unpack_request(frame) == request
    with pytest.raises(ProtocolError):
        unpack_reply(frame)


@given(replies)
def test_what_a_name_server_says_comes_back_as_it_was(reply):
    frame = pack(reply)
    assert unpack_reply(frame) == reply
    with pytest.raises(ProtocolError):
        unpack_request(frame)


@given(announcements)
def test_an_announcement_comes_back_as_it_was(one):
    assert unpack_announcement(pack_announcement(one)) == one


@each("count", [0, 1, MAX_ROSTER, MAX_ROSTER + 1, 3 * MAX_ROSTER])
def test_a_roster_comes_in_as_few_parts_as_it_takes(count):
    nodes = [announcement(number) for number in range(count)]
    parts = [unpack_reply(frame) for frame in pack_rosters([pack_announcement(one) for one in nodes])]
    sizes = [sum(len(pack_announcement(one)) for one in part.announcements) for part in parts]
    assert max(sizes) <= ROSTER_SIZE
    assert all(size > ROSTER_SIZE - 100 for size in sizes[:-1])
    assert [part.is_last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert [one for part in parts for one in part.announcements] == nodes
    lengths = [len(part.announcements) for part in parts]
    assert [part.first for part in parts] == [0, *accumulate(lengths[:-1])]
    assert {part.total for part in parts} == {count}


@given(st.lists(announcements, max_size=3), st.integers(0, 1000), st.integers(1, 1000))
def test_a_part_of_a_roster_comes_back_as_it_was(nodes, first, more):
    part = Roster(tuple(nodes), first, first + len(nodes) + more) if nodes else Roster((), first, first)
    assert unpack_reply(pack(part)) == part


def test_the_largest_messages_are_within_the_limits():
    assert len(pack(Announce(LARGEST, True))) <= MAX_REQUEST
    roster = pack(Roster((LARGEST,) * MAX_ROSTER, 0, MAX_ROSTER))
    assert len(roster) <= MAX_REPLY
    assert unpack_reply(roster).announcements[-1] == LARGEST


def test_the_largest_announcement_is_a_subject_that_can_be_asked_for():
    presence = "_OZ.PEER." + urlsafe_b64encode(pack_announcement(LARGEST)).rstrip(b"=").decode()
    assert len(oz.compile(presence).text) <= MAX_PATTERN


def test_a_message_that_is_too_long_is_not_even_unpacked():
    frame = pack(Ask("md"))
    longer = frame[:-1] + b"x" * (MAX_REQUEST + 1 - len(frame)) + frame[-1:]
    with pytest.raises(ProtocolError, match="8193 bytes"):
        unpack_request(longer)
    with pytest.raises(ProtocolError, match=f"at most {MAX_REPLY}"):
        unpack_reply(bytes(MAX_REPLY + 1))


@each(
    ("changes", "says"),
    [
        ({"uuid": b"short"}, "16 bytes"),
        ({"name": ""}, "name of a node"),
        ({"name": "é" * 128}, "256"),
        ({"name": b"bytes"}, "is text"),
        ({"name": "a\x7fb"}, "control characters"),
        ({"bus": ""}, "name of a bus"),
        ({"host_id": "text"}, "id of a host"),
        ({"pid": 2**32}, "a pid"),
        ({"pid": True}, "a pid"),
        ({"started_ns": -1}, "start of a node"),
        ({"endpoints": ["tcp://a:1"]}, "are a tuple"),
        ({"endpoints": ("tcp://a:1",) * 17}, "at most 16 endpoints"),
        ({"endpoints": ("tcp://a b:1",)}, "no endpoint like"),
        ({"endpoints": ("ipc:///tmp/x",)}, "no endpoint like"),
        ({"local_endpoint": "inproc://x"}, "no endpoint like ipc"),
        ({"local_endpoint": "ipc://"}, "no endpoint like ipc"),
    ],
)
def test_an_announcement_out_of_bounds_is_not_made(changes, says):
    with pytest.raises(ValueError, match=says):
        replace(PRICING, **changes)


# whatever the bytes ------------------------------------------------------------------------------------


def read_all_ways(data):
    for unpack in (unpack_request, unpack_reply, unpack_announcement):
        with suppress(ProtocolError):
            unpack(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_are_a_protocol_error(data):
    read_all_ways(data)
    for lead in (b"\x92\x01", b"\x93\x01\x01", b"\x95\x01\x0c", b"\x9b\x01\xc4\x10" + b"u" * 16):
        read_all_ways(lead + data)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | texts
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=20,
)


@given(st.sampled_from([*range(1, 4), *range(11, 17)]), st.lists(values, max_size=5))
def test_any_values_are_read_or_are_a_protocol_error(kind, rest):
    read_all_ways(msgpack.packb([1, kind, *rest]))


@given(st.integers(0, 10), values, st.booleans())
def test_an_announcement_with_any_value_in_it_is_read_or_is_a_protocol_error(place, value, has_heard):
    fields = [1, *astuple(PRICING)]
    fields[place] = value
    read_all_ways(msgpack.packb([1, 1, fields, has_heard]))
    read_all_ways(msgpack.packb([1, 12, 0, 1, [fields]]))
    read_all_ways(msgpack.packb(fields))


def test_spoiled_messages_are_read_or_are_a_protocol_error():
    rng = random.Random(8)
    frames = [bytes.fromhex(row["hex"]) for row in rows("discovery") if "value" in row]
    errors = 0
    for number in range(20_000):
        try:
            UNPACK["server" if number % 2 else "node"](spoil(rng, rng.choice(frames), frames))
        except ProtocolError:
            errors += 1
    assert 0 < errors < 20_000, "both must have come up"


@each("depth", [10, 900, 5_000])
def test_deeply_nested_values_are_a_protocol_error(depth):
    deep = b"\x91" * depth + b"\xc0"
    fields = [msgpack.packb(one) for one in (1, *astuple(PRICING))]
    for frame in (
        deep,
        b"\x93\x01" + deep + b"\xc0",
        b"\x93\x01\x02" + deep,
        b"\x93\x01\x03" + deep,
        *(
            b"\x94\x01\x01\x9b" + b"".join([*fields[:place], deep, *fields[place + 1 :]]) + b"\xc3"
            for place in range(11)
        ),
    ):
        with pytest.raises(ProtocolError):
            unpack_request(frame)
    with pytest.raises(ProtocolError):
        unpack_reply(b"\x95\x01\x0c\x00\x01" + deep)
