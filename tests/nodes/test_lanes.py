"""Queue of the messages that wait for a handler."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oz.node.lanes import OVERHEAD, Lanes
from oz.subscriber.message import Arrival, Message


def make_message(subject="s", payload=b"", *, time_ns=0, body=None):
    fields = (subject, payload, None, Arrival(None, time_ns), 0)
    return tuple.__new__(Message, fields if body is None else (*fields, None, body))


def make_lanes(concurrency=1, max_pending=10, max_bytes=1 << 20, overflow=None):
    lanes = Lanes(concurrency=concurrency, max_pending=max_pending, max_bytes=max_bytes, overflow=overflow)
    return SimpleNamespace(lanes=lanes, abandoned=lanes.removed)


def take_all(lane):
    found = []
    while lane.items:
        found.append(lane.take())
    return found


def test_a_lane_is_scheduled_once_until_it_is_empty():
    lanes = make_lanes().lanes
    (lane,) = lanes.put([make_message()])
    assert lanes.put([make_message()]) == []
    assert not lanes.release(lane)
    take_all(lane)
    assert not lanes.is_idle
    assert lanes.release(lane)
    assert lanes.is_idle
    assert lanes.put([make_message()]) == [lane]


@given(st.lists(st.integers(0, 20), max_size=50), st.integers(1, 5))
def test_messages_of_one_subject_stay_in_one_lane_and_in_order(subjects, concurrency):
    lanes = make_lanes(concurrency, max_pending=100).lanes
    messages = [make_message(f"s.{subject}", bytes([at])) for at, subject in enumerate(subjects)]
    scheduled = lanes.put(messages)
    assert len(scheduled) <= concurrency
    assert lanes.pending == len(messages)
    places = {}
    for lane in lanes.all:
        found = take_all(lane)
        assert [message.payload for message in found] == sorted(message.payload for message in found)
        for message in found:
            assert places.setdefault(message.subject, lane) is lane


@pytest.mark.parametrize("overflow", [None, "drop_newest"])
def test_a_full_queue_drops_the_newest(overflow):
    made = make_lanes(max_pending=3, overflow=overflow)
    messages = [make_message(payload=bytes([at])) for at in range(5)]
    made.lanes.put(messages)
    assert take_all(made.lanes.all[0]) == messages[:3]
    assert made.abandoned == messages[3:]
    assert made.lanes.dropped == 2


def test_a_full_queue_drops_the_oldest():
    made = make_lanes(max_pending=3, overflow="drop_oldest")
    messages = [make_message(payload=bytes([at])) for at in range(5)]
    made.lanes.put(messages)
    assert take_all(made.lanes.all[0]) == messages[2:]
    assert made.abandoned == messages[:2]


def test_a_full_queue_keeps_the_newest_of_each_subject():
    made = make_lanes(max_pending=3, overflow="conflate")
    a, b, c, newer, other = (make_message(subject) for subject in ("a", "b", "c", "b", "d"))
    made.lanes.put([a, b, c])
    assert made.lanes.put([newer]) == []
    assert made.abandoned == [b]
    made.lanes.put([other])
    assert made.abandoned == [b, a]
    assert take_all(made.lanes.all[0]) == [newer, c, other]
    assert made.lanes.all[0]._newest == {}
    assert made.lanes.dropped == 2


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 400), st.booleans()), max_size=80),
    st.sampled_from([None, "drop_newest", "drop_oldest", "conflate"]),
    st.integers(1, 3),
)
def test_each_message_is_taken_or_dropped_and_the_bounds_hold(steps, overflow, concurrency):
    made = make_lanes(concurrency, max_pending=5, max_bytes=1_000, overflow=overflow)
    lanes, taken, count = made.lanes, [], 0
    for subject, size, takes in steps:
        lanes.put([make_message(f"s.{subject}", bytes(size))])
        count += 1
        assert lanes.pending <= 5
        waiting = list(lanes._waiting())
        assert len(waiting) == 1 or sum(OVERHEAD + len(message.payload) for message in waiting) <= 1_000
        if takes:
            lane = lanes.all[subject % concurrency]
            if lane.items:
                taken.append(lane.take())
    for lane in lanes.all:
        taken += take_all(lane)
    assert lanes.dropped == len(made.abandoned)
    assert len(set(map(id, taken + made.abandoned))) == len(taken) + len(made.abandoned) == count


def test_bytes_of_encoded_payloads_count():
    made = make_lanes(max_bytes=10_000)
    made.lanes.put([make_message(payload={"decoded": 1}, body=bytes(4_000)) for _ in range(3)])
    assert len(made.abandoned) == 1
    take_all(made.lanes.all[0])
    made.lanes.put([make_message(body=bytes(9_000))])
    assert len(made.abandoned) == 1


def test_bytes_of_taken_messages_do_not_count():
    made = make_lanes(max_bytes=10_000)
    made.lanes.put([make_message(payload=bytes(4_000)) for _ in range(2)])
    made.lanes.all[0].take()
    made.lanes.put([make_message(payload=bytes(4_000))])
    assert made.abandoned == []


def test_the_end_of_a_subscription_abandons_its_messages():
    made = make_lanes(3)
    messages = [make_message(f"s.{at}") for at in range(5)]
    made.lanes.put(messages)
    made.lanes.clear()
    assert made.lanes.pending == made.lanes.dropped == 0
    assert set(map(id, made.abandoned)) == set(map(id, messages))


@pytest.mark.parametrize("overflow", [None, "conflate"])
def test_a_late_handler_is_slow(overflow):
    lanes = make_lanes(2, overflow=overflow).lanes
    assert lanes.slowness(0) is None
    lanes.put([make_message("s", time_ns=0), make_message("s", time_ns=10**9)])
    assert lanes.slowness(999_000_000) is None
    assert lanes.slowness(1_500_000_000) == (1.5, 0)


def test_dropped_messages_are_reported_once():
    lanes = make_lanes(max_pending=1).lanes
    lanes.put([make_message(), make_message()])
    assert lanes.slowness(1) == (1e-9, 1)
    assert lanes.slowness(1) is None
