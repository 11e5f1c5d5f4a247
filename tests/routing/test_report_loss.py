"""A publisher that passes on what others publish can say what was lost before it came there."""

import pytest

import oz
from support.waiting import DEADLINE, until


@pytest.fixture
def publisher():
    with oz.Publisher("tcp://127.0.0.1:*") as made:
        yield made


def subscriber(publisher, gaps, **options):
    made = oz.Subscriber(publisher.endpoint, filtering="publisher", on_gap=gaps.append)
    made.subscribe("a.>", **options)
    made.wait_ready(timeout=DEADLINE)
    return made


def take_nothing(sub):
    """Have a subscriber look at what has come: no messages."""
    with pytest.raises(oz.Timeout):
        sub.receive(timeout=0.02)
    return True


def test_subscribers_find_so_many_missing_before_the_next_message(publisher):
    gaps = []
    with subscriber(publisher, gaps) as sub:
        publisher.publish("a.b", b"1")
        publisher.report_loss(3)
        publisher.publish("a.b", b"2")
        first, second = (sub.receive(timeout=DEADLINE) for _ in range(2))
    assert (first.sequence, second.sequence) == (0, 4)
    assert (first.gap, second.gap) == (0, 3)
    assert [gap.count for gap in gaps] == [3]
    assert sub.stats.lost == 3


def test_they_are_told_at_once_though_nothing_more_is_published(publisher):
    gaps = []
    with subscriber(publisher, gaps) as sub:
        publisher.report_loss(2)
        until(lambda: take_nothing(sub) and gaps)
    assert [gap.count for gap in gaps] == [2]


def test_whoever_comes_later_is_told_nothing(publisher):
    publisher.report_loss(5)
    gaps = []
    with subscriber(publisher, gaps) as sub:
        publisher.publish("a.b")
        assert sub.receive(timeout=DEADLINE).sequence == 0
    assert gaps == []


def test_one_member_of_a_group_is_told_for_all(publisher):
    gaps = []
    with subscriber(publisher, gaps, group="g") as one, subscriber(publisher, gaps, group="g") as other:
        publisher.report_loss(4)
        until(lambda: take_nothing(one) and take_nothing(other) and gaps)
        for sub in (one, other):
            with pytest.raises(oz.Timeout):
                sub.receive(timeout=0.5)
    assert [gap.count for gap in gaps] == [4]


def test_that_nobody_knows_how_many_is_told_as_just_that(publisher):
    gaps = []
    with subscriber(publisher, gaps) as sub:
        publisher.publish("a.b")
        sub.receive(timeout=DEADLINE)
        publisher.report_loss(None)
        publisher.publish("a.b")
        sub.receive(timeout=DEADLINE)
    assert [gap.count for gap in gaps] == [None]


@pytest.mark.parametrize("count", [-1, 2**62 + 1])
def test_a_count_that_makes_no_sense_is_refused(publisher, count):
    with pytest.raises(ValueError, match="count is from 0"):
        publisher.report_loss(count)


def test_a_closed_publisher_reports_nothing(publisher):
    publisher.close()
    with pytest.raises(oz.ClosedError):
        publisher.report_loss(1)
