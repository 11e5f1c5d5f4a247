"""Positions on the wire: what is packed comes back, and whatever else comes is bounded."""

from hypothesis import given
from hypothesis import strategies as st

import oz
from oz.wire.batch import MESSAGES, RICH, head_end, head_start, pack_array, read_lone
from oz.wire.keys import stream_key
from oz.wire.positions import (
    LAST_POSITION,
    check_positions,
    pack_differences,
    parse_positions,
)
from support.cases import each
from support.wire_frames import ORIGIN

KEY = stream_key(b"\xaa" * 16)
positions = st.integers(0, 2**62)
several = st.lists(positions, min_size=1, max_size=20)


@given(several | st.builds(lambda first, count: range(first, first + count), positions, st.integers(1, 300)))
def test_positions_come_back_as_they_were(numbers):
    width, differences = pack_differences(numbers)
    check_positions(numbers[0], width, len(numbers))
    assert len(differences) == width * (len(numbers) - 1)
    found = parse_positions(b"x" + differences, 1, numbers[0], width, len(numbers))
    assert list(found) == list(numbers)


@each(
    ("numbers", "width"),
    [
        ([5], 0),
        ([5, 6, 7], 0),
        ([5, 5], 1),
        ([0, 127], 1),
        ([0, 128], 2),
        ([128, 0], 1),
        ([129, 0], 2),
        ([0, 2**15], 4),
        ([0, 2**31], 8),
        ([5, 7, 8, 9, 1000], 2),
    ],
)
def test_differences_are_as_wide_as_the_widest(numbers, width):
    assert pack_differences(numbers)[0] == width


@given(
    st.integers(0, LAST_POSITION), st.sampled_from((0, 1, 2, 4, 8)), st.integers(1, 9), st.binary(max_size=80)
)
def test_whatever_stands_there_is_read_as_positions_or_malformed(first, width, count, data):
    try:
        check_positions(first, width, count)
        found = parse_positions(data, 0, first, width, count)
    except oz.ProtocolError:
        return
    assert len(found) == count
    assert found[0] == first
    assert all(0 <= one <= LAST_POSITION for one in found)


@each("extras", [None, {"reply_to": "r"}])
def test_of_a_lone_message_with_a_position_each_byte_counts(extras):
    payload = b"one" if extras is None else [b"one", extras]
    flags = MESSAGES if extras is None else RICH
    start = head_start(KEY, flags, ORIGIN, 1)
    body = pack_array([b"a.b", payload])
    frame = start + head_end(7, 1, 41) + body
    assert read_lone(frame) == (KEY, ORIGIN, 1, 7, b"a.b", b"one", extras, 41)
    for size in range(len(frame)):
        assert read_lone(frame[:size]) is None
    assert read_lone(frame + b"\0") is None
    # Not alone, or with differences, of which it can have none.
    assert read_lone(start + head_end(7, 2, 41) + body) is None
    assert read_lone(start + head_end(7, 1, 41, 1) + body) is None
