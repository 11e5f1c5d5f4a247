from types import SimpleNamespace

import pytest

from oz.protocol.publisher.send_buffer import send_buffer_of
from oz.protocol.subscriber import receive_buffer
from oz.wire.keys import DeliveryOptions


def stream(overflow, limit=3, sequence=100):
    return SimpleNamespace(
        delivery=DeliveryOptions(overflow=overflow, limit=limit), send_buffer=None, sequence=sequence
    )


def items(*texts):
    return [part for text in texts for part in (text[:1], text)]


def test_only_two_overflows_hold_anything_back():
    assert send_buffer_of(stream(None)) is None
    assert send_buffer_of(stream("drop_newest")) is None
    one = stream("conflate")
    assert send_buffer_of(one) is send_buffer_of(one) is one.send_buffer


def test_the_newest_are_numbered_so_that_those_that_went_are_a_gap():
    one = stream("drop_oldest")
    send_buffer = send_buffer_of(one)
    assert not send_buffer
    assert send_buffer.put(one, items("a1", "b1")) == 0
    assert send_buffer.take(one, 9) == (100, items("a1", "b1"))
    assert send_buffer.put(one, items("a2", "b2", "a3")) == 2
    assert one.sequence == 105
    assert send_buffer.take(one, 2) == (102, items("a2", "b2"))
    send_buffer.drop(one, 2)
    assert send_buffer.take(one, 9) == (104, items("a3"))
    send_buffer.drop(one, 1)
    assert not send_buffer
    assert send_buffer.take(one, 9) == (105, [])


def test_more_at_once_than_are_held_are_counted_too():
    one = stream("drop_oldest", limit=2)
    assert send_buffer_of(one).put(one, items("a1", "a2", "a3", "a4")) == 2
    assert send_buffer_of(one).take(one, 9) == (102, items("a3", "a4"))


def test_the_latest_are_numbered_only_when_they_are_given():
    one = stream("conflate")
    send_buffer = send_buffer_of(one)
    assert send_buffer.put(one, items("a1", "b1", "a2")) == 0
    assert send_buffer.put(one, items("b2")) == 0
    assert one.sequence == 100
    assert send_buffer.take(one, 9) == (100, items("a2", "b2"))
    send_buffer.drop(one, 1)
    send_buffer.put(one, items("a3"))
    assert send_buffer.take(one, 9) == (101, items("b2", "a3"))
    send_buffer.drop(one, 2)
    assert not send_buffer
    assert one.sequence == 103


def test_beyond_the_bound_the_subject_that_came_up_first_is_missed_and_numbered():
    one = stream("conflate", limit=2)
    send_buffer = send_buffer_of(one)
    assert send_buffer.put(one, items("a1", "b1", "c1", "a2", "d1")) == 2
    assert one.sequence == 102
    assert send_buffer.take(one, 9) == (102, items("c1", "d1"))


@pytest.mark.parametrize("overflow", ["conflate", "drop_oldest"])
def test_without_a_bound_there_is_one(overflow):
    one = stream(overflow, limit=0)
    count = receive_buffer.LIMIT + 5
    pairs = [part for number in range(count) for part in (b"%d" % number, b"")]
    assert send_buffer_of(one).put(one, pairs) == 5
