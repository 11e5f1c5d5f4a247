from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oz.protocol.lanes import Lanes

KEEPS = ["all", "latest", "drop_oldest", "drop_newest"]


def message(text):
    """A message by subject and number, such as "a1"."""
    return SimpleNamespace(subject=text[0], text=text)


def filled(lanes, *texts):
    """Put messages in; the lanes that were named, and how many messages were let go."""
    named, dropped = zip(*(lanes.put(message(text)) for text in texts), strict=True)
    return [lane for lane in named if lane is not None], sum(dropped)


def emptied(lanes, lane):
    taken = []
    while (one := lanes.take(lane)) is not None:
        taken.append(one.text)
    return taken


def two_subjects_apart(concurrency):
    """Subjects that do not share a lane: which ones do differs from run to run."""
    lane = [hash(subject) % concurrency for subject in "abcdefghijklmnopqrstuvwxyz"]
    other = next(place for place, one in enumerate(lane) if one != lane[0])
    return "a", "abcdefghijklmnopqrstuvwxyz"[other]


def test_a_lane_gives_messages_in_the_order_in_which_they_came():
    lanes = Lanes()
    named, dropped = filled(lanes, "a1", "b1", "a2")
    assert dropped == 0
    assert len(lanes) == 3
    assert emptied(lanes, named[0]) == ["a1", "b1", "a2"]


def test_a_lane_is_named_once_until_it_was_found_empty():
    lanes = Lanes()
    (lane,), _ = filled(lanes, "a1", "a2")
    assert lanes.take(lane).text == "a1"
    assert filled(lanes, "a3") == ([], 0)
    assert emptied(lanes, lane) == ["a2", "a3"]
    assert filled(lanes, "a4", "a5") == ([lane], 0)


def test_the_short_way_of_taking_gives_the_same_messages_and_then_raises():
    for keep in KEEPS:
        lanes = Lanes(keep)
        (lane,), _ = filled(lanes, "a1", "b1")
        assert [lane.pop().text, lane.pop().text] == ["a1", "b1"]
        with pytest.raises(IndexError):
            lane.pop()
        assert filled(lanes, "c1") == ([], 0), "still in the hands of its worker"
        assert emptied(lanes, lane) == ["c1"]


@pytest.mark.parametrize(
    ("keep", "limit", "left", "dropped"),
    [
        ("all", 10, ["a1", "b1", "a2", "b2", "a3"], 0),
        ("all", 2, ["a1", "b1"], 3),
        ("drop_newest", 2, ["a1", "b1"], 3),
        ("drop_oldest", 2, ["b2", "a3"], 3),
        ("latest", 10, ["a3", "b2"], 3),
        ("latest", 1, ["a3"], 4),
    ],
)
def test_what_is_left_when_too_many_wait(keep, limit, left, dropped):
    lanes = Lanes(keep, limit)
    (lane,), let_go = filled(lanes, "a1", "b1", "a2", "b2", "a3")
    assert (let_go, lanes.dropped) == (dropped, dropped)
    assert emptied(lanes, lane) == left


def test_as_many_lanes_as_may_be_handled_at_once_share_the_messages():
    lanes = Lanes(concurrency=3)
    named, _ = filled(lanes, "a1", "a2", "a3", "a4")
    assert set(named) == set(lanes.lanes)
    assert [lanes.take(lane).text for lane in named] == ["a1", "a2", "a3"]
    assert emptied(lanes, named[2]) == ["a4"]
    assert filled(lanes, "a5") == ([named[2]], 0)


def test_by_subject_the_messages_of_one_subject_stay_in_one_lane():
    lanes = Lanes(concurrency=4, order_by="subject")
    one, other = two_subjects_apart(4)
    (lane,), _ = filled(lanes, one + "1", one + "2")
    (beside,), _ = filled(lanes, other + "1")
    assert beside is not lane
    assert filled(lanes, one + "3") == ([], 0)
    assert emptied(lanes, beside) == [other + "1"]
    assert emptied(lanes, lane) == [one + "1", one + "2", one + "3"]


@pytest.mark.parametrize("keep", KEEPS)
def test_the_limit_is_for_all_lanes_together(keep):
    lanes = Lanes(keep, 2, concurrency=4, order_by="subject")
    one, other = two_subjects_apart(4)
    # The newer message of a subject takes no room with "latest", and the older one is let go all the same.
    _, dropped = filled(lanes, one + "1", one + "2", other + "1")
    assert (len(lanes), dropped, lanes.dropped) == (2, 1, 1)


def test_room_is_made_in_the_fullest_lane_when_there_is_none_in_its_own():
    lanes = Lanes("drop_oldest", 2, concurrency=4, order_by="subject")
    one, other = two_subjects_apart(4)
    (lane, beside), dropped = filled(lanes, one + "1", one + "2", other + "1")
    assert dropped == 1
    assert emptied(lanes, lane) == [one + "2"]
    assert emptied(lanes, beside) == [other + "1"]


def test_what_is_cleared_is_counted_and_room_again():
    lanes = Lanes(limit=2)
    (lane,), _ = filled(lanes, "a1", "a2")
    assert lanes.clear() == 2
    assert len(lanes) == 0
    assert filled(lanes, "a3", "a4", "a5") == ([], 1)
    assert emptied(lanes, lane) == ["a3", "a4"]


@pytest.mark.parametrize("keep", KEEPS)
def test_closed_lanes_ignore_what_comes(keep):
    lanes = Lanes(keep)
    filled(lanes, "a1", "b1")
    assert lanes.close() == 2
    assert filled(lanes, "a2") == ([], 0)
    assert len(lanes) == 0


def test_a_lane_that_was_left_is_named_again_with_the_next_message():
    lanes = Lanes()
    (lane,), _ = filled(lanes, "a1", "a2")
    lanes.leave(lane)
    assert filled(lanes, "a3") == ([lane], 0)
    assert emptied(lanes, lane) == ["a1", "a2", "a3"]


def test_what_can_be_handled_beside_a_lane_that_stands_still():
    ordered = Lanes(concurrency=4, order_by="subject")
    one, other = two_subjects_apart(4)
    (lane, _), _ = filled(ordered, one + "1", one + "2", other + "1")
    assert ordered.waiting_beside([]) == 3
    assert ordered.waiting_beside([lane]) == 1
    shared = Lanes(concurrency=2)
    (lane, beside), _ = filled(shared, "a1", "a2", "a3")
    assert shared.waiting_beside([lane]) == 3
    assert shared.waiting_beside([lane, beside]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"keep": "some"}, "keep='some'"),
        ({"limit": 0}, "limit of 0"),
        ({"concurrency": 0}, "concurrency=0"),
        ({"concurrency": 1025}, "concurrency=1025"),
        ({"order_by": "size"}, "order_by='size'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        Lanes(**arguments)


class Law:
    """Lanes, worked off by workers that do what they are told when they are told."""

    def __init__(self, keep, limit, concurrency, order_by):
        self.lanes = Lanes(keep, limit, concurrency, order_by)
        self.keep, self.limit = keep, limit
        self.in_order = concurrency == 1 or order_by == "subject"
        self.scheduled = []
        self.taken = []
        self.put = self.dropped = self.cleared = 0

    def step(self, do, subject):
        if do == "put":
            lane, dropped = self.lanes.put(SimpleNamespace(subject=subject, text=(subject, self.put)))
            self.put += 1
            self.dropped += dropped
            if lane is not None:
                assert lane not in self.scheduled
                self.scheduled.append(lane)
        elif do == "clear":
            self.cleared += self.lanes.clear()
        elif self.scheduled:
            lane = self.scheduled.pop(0)
            message = self.lanes.take(lane)
            if message is not None:
                self.taken.append(message.text)
                self.scheduled.append(lane)

    def check(self):
        assert len(self.lanes) <= self.limit
        assert self.put == len(self.taken) + self.dropped + self.cleared + len(self.lanes)
        assert self.lanes.dropped == self.dropped
        # Nothing waits for ever: whoever holds a message is in line.
        idle = [lane for lane in self.lanes.lanes if lane not in self.scheduled]
        assert not len(self.lanes) or not self.in_order or not any(len(lane.store) for lane in idle)
        assert not len(self.lanes) or self.scheduled


@given(
    keep=st.sampled_from(KEEPS),
    limit=st.integers(1, 8),
    concurrency=st.integers(1, 4),
    order_by=st.sampled_from([None, "subject"]),
    steps=st.lists(
        st.tuples(st.sampled_from(["put"] * 3 + ["take"] * 2 + ["clear"]), st.sampled_from("abcde"))
    ),
)
def test_every_message_is_accounted_for_and_comes_in_order(keep, limit, concurrency, order_by, steps):
    law = Law(keep, limit, concurrency, order_by)
    for do, subject in steps:
        law.step(do, subject)
        law.check()
    while law.scheduled:
        law.step("take", "")
    law.check()
    assert len(law.lanes) == 0
    assert max(Counter(law.taken).values(), default=1) == 1
    by_subject = {subject: [n for of, n in law.taken if of == subject] for subject in "abcde"}
    # Lanes in no order hand out in order too: it is their handlers that overtake each other.
    assert all(numbers == sorted(numbers) for numbers in by_subject.values())
