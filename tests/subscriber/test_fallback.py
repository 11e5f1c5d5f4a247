"""Each cell of the table of `filtering="auto"`, without sockets."""

import pytest

from oz.subscriber.fallback import ANSWER_WITHIN, ASKING, LINK, MOVING, PREFIX, STANDING_WITHIN, Fallback


def state(name, has_delivered=False):
    one = Fallback(100.0)
    if name in (PREFIX, MOVING):
        one.refused()
        one.has_delivered = has_delivered
    if name == MOVING:
        one.welcomed()
    if name == LINK:
        one.answered()
    assert one.state == name
    return one


@pytest.mark.parametrize("stands", [False, True])
def test_the_plain_connection_opens_when_the_time_is_over(stands):
    one, within = state(ASKING), STANDING_WITHIN if stands else ANSWER_WITHIN
    if stands:
        one.stands()
    assert one.deadline == 100.0 + within
    assert not one.tick(100.0 + within - 0.01)
    assert one.tick(100.0 + within)
    assert (one.state, one.has_plain) == (PREFIX, True)
    assert not one.tick(200.0)


@pytest.mark.parametrize(
    ("before", "event", "after", "has_plain"),
    [
        (ASKING, "refused", PREFIX, True),
        (ASKING, "welcomed", ASKING, False),
        (ASKING, "answered", LINK, False),
        (ASKING, "ended", PREFIX, True),
        (ASKING, "duplicate", LINK, False),
        (PREFIX, "refused", PREFIX, True),
        (PREFIX, "welcomed", MOVING, True),
        (PREFIX, "ended", PREFIX, True),
        (PREFIX, "duplicate", LINK, False),
        (MOVING, "answered", LINK, False),
        (MOVING, "ended", PREFIX, True),
        (MOVING, "refused", MOVING, True),
        (MOVING, "duplicate", LINK, False),
        (LINK, "refused", LINK, False),
        (LINK, "welcomed", LINK, False),
        (LINK, "answered", LINK, False),
        (LINK, "ended", PREFIX, True),
    ],
)
def test_transitions(before, event, after, has_plain):
    one = state(before)
    getattr(one, event)()
    assert (one.state, one.has_plain) == (after, has_plain)


@pytest.mark.parametrize(
    ("before", "has_delivered", "is_moved"),
    [(ASKING, False, False), (MOVING, False, False), (MOVING, True, True), (LINK, True, False)],
)
def test_only_a_plain_connection_that_delivered_makes_a_gap(before, has_delivered, is_moved):
    assert state(before, has_delivered).answered() is is_moved


def test_a_plain_connection_that_opens_again_has_delivered_nothing():
    one = state(MOVING, has_delivered=True)
    one.answered()
    one.ended()
    one.welcomed()
    assert one.answered() is False
