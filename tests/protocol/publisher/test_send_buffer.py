from types import SimpleNamespace

import pytest

from oz.protocol.conflating import LIMIT
from oz.protocol.publisher.send_buffer import send_buffer_of
from oz.wire.keys import DeliveryOptions


def stream(overflow, limit=3, sequence=100):
    return SimpleNamespace(
        delivery=DeliveryOptions(overflow=overflow, limit=limit), send_buffer=None, sequence=sequence
    )


def items(*texts):
    return [part for text in texts for part in (text[:1], text)]


def positions(*texts):
    return [int.from_bytes(text.encode(), "big") for text in texts]


def put(stream, *texts):
    return send_buffer_of(stream).put(stream, items(*texts), positions(*texts))


def held(sequence, *texts):
    """What is taken: the sequence of the first, the messages, and the position that each came with."""
    return sequence, items(*texts), positions(*texts)


def test_only_two_overflows_hold_anything_back():
    assert send_buffer_of(stream(None)) is None
    assert send_buffer_of(stream("drop_newest")) is None
    one = stream("conflate")
    assert send_buffer_of(one) is send_buffer_of(one) is one.send_buffer


def test_the_newest_are_numbered_so_that_those_that_went_are_a_gap():
    one = stream("drop_oldest")
    send_buffer = send_buffer_of(one)
    assert not send_buffer
    assert put(one, "a1", "b1") == 0
    assert send_buffer.take(one, 9) == held(100, "a1", "b1")
    assert put(one, "a2", "b2", "a3") == 2
    assert one.sequence == 105
    assert send_buffer.take(one, 2) == held(102, "a2", "b2")
    send_buffer.drop(one, 2)
    assert send_buffer.take(one, 9) == held(104, "a3")
    send_buffer.drop(one, 1)
    assert not send_buffer
    assert send_buffer.take(one, 9) == held(105)


def test_more_at_once_than_are_held_are_counted_too():
    one = stream("drop_oldest", limit=2)
    assert put(one, "a1", "a2", "a3", "a4") == 2
    assert send_buffer_of(one).take(one, 9) == held(102, "a3", "a4")


def test_the_latest_are_numbered_only_when_they_are_given():
    one = stream("conflate")
    send_buffer = send_buffer_of(one)
    assert put(one, "a1", "b1", "a2") == 0
    assert put(one, "b2") == 0
    assert one.sequence == 100
    assert send_buffer.take(one, 9) == held(100, "a2", "b2")
    send_buffer.drop(one, 1)
    put(one, "a3")
    assert send_buffer.take(one, 9) == held(101, "b2", "a3")
    send_buffer.drop(one, 2)
    assert not send_buffer
    assert one.sequence == 103


def test_beyond_the_bound_the_subject_that_came_up_first_is_missed_and_numbered():
    one = stream("conflate", limit=2)
    send_buffer = send_buffer_of(one)
    assert put(one, "a1", "b1", "c1", "a2", "d1") == 2
    assert one.sequence == 102
    assert send_buffer.take(one, 9) == held(102, "c1", "d1")


@pytest.mark.parametrize("overflow", ["conflate", "drop_oldest"])
def test_without_a_bound_there_is_one(overflow):
    one = stream(overflow, limit=0)
    count = LIMIT + 5
    pairs = [part for number in range(count) for part in (b"%d" % number, b"")]
    assert send_buffer_of(one).put(one, pairs, range(count)) == 5
