"""How many peers that were never heard are dialled at once, and in a second, on a virtual clock."""

import pytest

from oz.protocol.node.dialling import FOR_NEWCOMERS, LONGEST_DIAL, MOST_UNHEARD, Call, DialQueue
from oz.security.limits import Limits


def call(number, *, is_again=False):
    return Call(f"tcp://127.0.0.1:{number}", f"node {number}", b"%016d" % number, is_again)


@pytest.fixture
def heard():
    return set()


@pytest.fixture
def queue(heard):
    return DialQueue(heard.__contains__, Limits(dials=5, dial_rate=20))


def fill(queue, count, first=1, **changes):
    calls = [call(first + at, **changes) for at in range(count)]
    for one in calls:
        queue.put(one)
    return calls


def test_so_many_are_dialled_at_once_until_they_are_heard_or_given_up(queue, heard):
    calls = fill(queue, 12)
    assert queue.begin(0.0) == ([], calls[:5])
    assert queue.begin(1.0) == ([], [])
    heard.update(one.origin for one in calls[:2])
    assert queue.begin(1.0) == ([], calls[5:7])
    assert queue.begin(LONGEST_DIAL - 0.1) == ([], [])
    assert queue.begin(LONGEST_DIAL) == ([], calls[7:10])
    assert len(queue) == 2


def test_so_many_are_dialled_in_a_second_however_soon_they_are_heard(queue, heard):
    calls = fill(queue, 50)
    heard.update(one.origin for one in calls)
    dialled = [one for at in range(10) for one in queue.begin(at / 10)[1]]
    assert dialled == calls[:20]
    assert queue.begin(1.0)[1] == calls[20:25]


def test_who_was_dialled_in_vain_leaves_room_for_those_who_were_not(queue):
    again = fill(queue, 9, is_again=True)
    assert queue.begin(0.0)[1] == again[: 5 - FOR_NEWCOMERS]
    new = fill(queue, 9, first=100)
    assert queue.begin(0.1)[1] == new[:FOR_NEWCOMERS]


def test_connections_to_those_who_say_nothing_are_bounded(queue):
    calls, now, ended = fill(queue, 2 * MOST_UNHEARD), 0.0, []
    while len(queue):
        now += LONGEST_DIAL
        ended += queue.begin(now)[0]
    assert ended == [one.endpoint for one in calls[:MOST_UNHEARD]]


def test_one_that_is_dropped_is_not_dialled_and_one_that_waits_keeps_its_place(queue):
    calls = fill(queue, 8)
    queue.begin(0.0)
    queue.put(calls[5])
    assert calls[6].endpoint in queue
    assert queue.drop(calls[6].endpoint)
    assert not queue.drop(calls[0].endpoint)
    assert queue.next_deadline() == pytest.approx(0.05)
    assert queue.begin(LONGEST_DIAL)[1] == [calls[5], calls[7]]
    assert queue.next_deadline() is None


def test_a_connection_that_stands_leaves_room_for_another_before_its_peer_is_heard(queue):
    fill(queue, 7)
    _, begun = queue.begin(0.0)
    assert queue.begin(0.5)[1] == []
    queue.note_admitted(begun[0].endpoint)
    assert len(queue.begin(0.6)[1]) == 1
