from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oz.protocol.node.handler_queue import HandlerQueue
from support.cases import each

OVERFLOWS = [None, "conflate", "drop_oldest", "drop_newest"]


def message(text):
    """A message by subject and number, such as "a1"."""
    return SimpleNamespace(subject=text[0], text=text)


def filled(handler_queue, *texts):
    """Put messages in; the partitions that were named, and how many messages were dropped."""
    named, dropped = zip(*(handler_queue.put(message(text)) for text in texts), strict=True)
    return [partition for partition in named if partition is not None], sum(dropped)


def emptied(handler_queue, partition):
    taken = []
    while (one := handler_queue.take(partition)) is not None:
        taken.append(one.text)
    return taken


def two_subjects_apart(concurrency):
    """Subjects that do not share a partition: which ones do differs from run to run."""
    partition = [hash(subject) % concurrency for subject in "abcdefghijklmnopqrstuvwxyz"]
    other = next(place for place, one in enumerate(partition) if one != partition[0])
    return "a", "abcdefghijklmnopqrstuvwxyz"[other]


def test_a_partition_gives_messages_in_the_order_in_which_they_came():
    handler_queue = HandlerQueue()
    named, dropped = filled(handler_queue, "a1", "b1", "a2")
    assert dropped == 0
    assert len(handler_queue) == 3
    assert emptied(handler_queue, named[0]) == ["a1", "b1", "a2"]


def test_a_partition_is_named_once_until_it_was_found_empty():
    handler_queue = HandlerQueue()
    (partition,), _ = filled(handler_queue, "a1", "a2")
    assert handler_queue.take(partition).text == "a1"
    assert filled(handler_queue, "a3") == ([], 0)
    assert emptied(handler_queue, partition) == ["a2", "a3"]
    assert filled(handler_queue, "a4", "a5") == ([partition], 0)


def test_the_short_way_of_taking_gives_the_same_messages_and_then_raises():
    for overflow in OVERFLOWS:
        handler_queue = HandlerQueue(overflow)
        (partition,), _ = filled(handler_queue, "a1", "b1")
        assert [partition.pop().text, partition.pop().text] == ["a1", "b1"]
        with pytest.raises(IndexError):
            partition.pop()
        assert filled(handler_queue, "c1") == ([], 0), "still in the hands of its worker"
        assert emptied(handler_queue, partition) == ["c1"]


@each(
    ("overflow", "limit", "left", "dropped"),
    [
        (None, 10, ["a1", "b1", "a2", "b2", "a3"], 0),
        (None, 2, ["a1", "b1"], 3),
        ("drop_newest", 2, ["a1", "b1"], 3),
        ("drop_oldest", 2, ["b2", "a3"], 3),
        ("conflate", 10, ["a3", "b2"], 3),
        ("conflate", 1, ["a3"], 4),
    ],
)
def test_what_is_left_when_too_many_wait(overflow, limit, left, dropped):
    handler_queue = HandlerQueue(overflow, limit)
    (partition,), dropped = filled(handler_queue, "a1", "b1", "a2", "b2", "a3")
    assert (dropped, handler_queue.dropped) == (dropped, dropped)
    assert emptied(handler_queue, partition) == left


def test_as_many_partitions_as_may_be_handled_at_once_share_the_messages():
    handler_queue = HandlerQueue(concurrency=3)
    named, _ = filled(handler_queue, "a1", "a2", "a3", "a4")
    assert set(named) == set(handler_queue.partitions)
    assert [handler_queue.take(partition).text for partition in named] == ["a1", "a2", "a3"]
    assert emptied(handler_queue, named[2]) == ["a4"]
    assert filled(handler_queue, "a5") == ([named[2]], 0)


def test_by_subject_the_messages_of_one_subject_stay_in_one_partition():
    handler_queue = HandlerQueue(concurrency=4, order_by="subject")
    one, other = two_subjects_apart(4)
    (partition,), _ = filled(handler_queue, one + "1", one + "2")
    (beside,), _ = filled(handler_queue, other + "1")
    assert beside is not partition
    assert filled(handler_queue, one + "3") == ([], 0)
    assert emptied(handler_queue, beside) == [other + "1"]
    assert emptied(handler_queue, partition) == [one + "1", one + "2", one + "3"]


@each("overflow", OVERFLOWS)
def test_the_limit_is_for_all_partitions_together(overflow):
    handler_queue = HandlerQueue(overflow, 2, concurrency=4, order_by="subject")
    one, other = two_subjects_apart(4)
    # The newer message of a subject takes no room with "conflate", and the older one is dropped all the same.
    _, dropped = filled(handler_queue, one + "1", one + "2", other + "1")
    assert (len(handler_queue), dropped, handler_queue.dropped) == (2, 1, 1)


def test_room_is_made_in_the_fullest_partition_when_there_is_none_in_its_own():
    handler_queue = HandlerQueue("drop_oldest", 2, concurrency=4, order_by="subject")
    one, other = two_subjects_apart(4)
    (partition, beside), dropped = filled(handler_queue, one + "1", one + "2", other + "1")
    assert dropped == 1
    assert emptied(handler_queue, partition) == [one + "2"]
    assert emptied(handler_queue, beside) == [other + "1"]


def test_what_is_cleared_is_counted_and_room_again():
    handler_queue = HandlerQueue(limit=2)
    (partition,), _ = filled(handler_queue, "a1", "a2")
    assert handler_queue.clear() == 2
    assert len(handler_queue) == 0
    assert filled(handler_queue, "a3", "a4", "a5") == ([], 1)
    assert emptied(handler_queue, partition) == ["a3", "a4"]


@each("overflow", OVERFLOWS)
def test_closed_partitions_ignore_what_comes(overflow):
    handler_queue = HandlerQueue(overflow)
    filled(handler_queue, "a1", "b1")
    assert handler_queue.close() == 2
    assert filled(handler_queue, "a2") == ([], 0)
    assert len(handler_queue) == 0


def test_a_partition_that_was_left_is_named_again_with_the_next_message():
    handler_queue = HandlerQueue()
    (partition,), _ = filled(handler_queue, "a1", "a2")
    handler_queue.leave(partition)
    assert filled(handler_queue, "a3") == ([partition], 0)
    assert emptied(handler_queue, partition) == ["a1", "a2", "a3"]


def test_what_can_be_handled_beside_a_partition_that_stands_still():
    ordered = HandlerQueue(concurrency=4, order_by="subject")
    one, other = two_subjects_apart(4)
    (partition, _), _ = filled(ordered, one + "1", one + "2", other + "1")
    assert ordered.waiting_beside([]) == 3
    assert ordered.waiting_beside([partition]) == 1
    shared = HandlerQueue(concurrency=2)
    (partition, beside), _ = filled(shared, "a1", "a2", "a3")
    assert shared.waiting_beside([partition]) == 3
    assert shared.waiting_beside([partition, beside]) == 0


@each(
    ("arguments", "said"),
    [
        ({"overflow": "some"}, "overflow='some'"),
        ({"limit": 0}, "limit of 0"),
        ({"concurrency": 0}, "concurrency=0"),
        ({"concurrency": 1025}, "concurrency=1025"),
        ({"order_by": "size"}, "order_by='size'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        HandlerQueue(**arguments)


class Law:
    """A handler queue, worked off by workers that do what they are told when they are told."""

    def __init__(self, overflow, limit, concurrency, order_by):
        self.handler_queue = HandlerQueue(overflow, limit, concurrency, order_by)
        self.overflow, self.limit = overflow, limit
        self.in_order = concurrency == 1 or order_by == "subject"
        self.scheduled = []
        self.taken = []
        self.put = self.dropped = self.cleared = 0

    def step(self, do, subject):
        if do == "put":
            partition, dropped = self.handler_queue.put(
                SimpleNamespace(subject=subject, text=(subject, self.put))
            )
            self.put += 1
            self.dropped += dropped
            if partition is not None:
                assert partition not in self.scheduled
                self.scheduled.append(partition)
        elif do == "clear":
            self.cleared += self.handler_queue.clear()
        elif self.scheduled:
            partition = self.scheduled.pop(0)
            message = self.handler_queue.take(partition)
            if message is not None:
                self.taken.append(message.text)
                self.scheduled.append(partition)

    def check(self):
        assert len(self.handler_queue) <= self.limit
        assert self.put == len(self.taken) + self.dropped + self.cleared + len(self.handler_queue)
        assert self.handler_queue.dropped == self.dropped
        # Nothing waits for ever: whoever holds a message is in line.
        idle = [partition for partition in self.handler_queue.partitions if partition not in self.scheduled]
        assert (
            not len(self.handler_queue)
            or not self.in_order
            or not any(len(partition.store) for partition in idle)
        )
        assert not len(self.handler_queue) or self.scheduled


@given(
    overflow=st.sampled_from(OVERFLOWS),
    limit=st.integers(1, 8),
    concurrency=st.integers(1, 4),
    order_by=st.sampled_from([None, "subject"]),
    steps=st.lists(
        st.tuples(st.sampled_from(["put"] * 3 + ["take"] * 2 + ["clear"]), st.sampled_from("abcde"))
    ),
)
def test_every_message_is_accounted_for_and_comes_in_order(overflow, limit, concurrency, order_by, steps):
    law = Law(overflow, limit, concurrency, order_by)
    for do, subject in steps:
        law.step(do, subject)
        law.check()
    while law.scheduled:
        law.step("take", "")
    law.check()
    assert len(law.handler_queue) == 0
    assert max(Counter(law.taken).values(), default=1) == 1
    by_subject = {subject: [n for of, n in law.taken if of == subject] for subject in "abcde"}
    # Partitions in no order hand out in order too: it is their handlers that overtake each other.
    assert all(numbers == sorted(numbers) for numbers in by_subject.values())
