"""Each cell of the table of `filtering="auto"`, without sockets."""

import pytest

from oz.subscriber.fallback import (
    ANSWER_WITHIN,
    ASKING,
    BINDS_WITHIN,
    LINK,
    MOVING,
    PREFIX,
    STANDING_WITHIN,
    Fallback,
)

OPEN, REACHED = "asking with a plain connection", "asking again"
REVISION = 7


def state(name):
    """Return a machine: in a state, or in ASKING with a plain connection, or after its handshake."""
    one = Fallback(100.0)
    if name in (OPEN, REACHED, PREFIX):
        assert one.refused(100.0)
    if name in (REACHED, PREFIX):
        one.reached(100.0)
    if name == PREFIX:
        assert one.refused(101.0)
    if name == MOVING:
        one.has_delivered = True
        one.move(REVISION)
    if name == LINK:
        one.serve()
    assert one.state == (ASKING if name in (OPEN, REACHED) else name)
    return one


@pytest.mark.parametrize("stands", [False, True])
def test_a_link_has_time_to_answer_twice(stands):
    one, within = state(ASKING), STANDING_WITHIN if stands else ANSWER_WITHIN
    for start, after in ((100.0, ASKING), (300.0, PREFIX)):
        if stands:
            one.stands()
        assert one.deadline == start + within
        assert not one.tick(start + within - 0.01)
        assert one.tick(start + within)
        assert (one.state, one.has_plain) == (after, True)
        # Without a publisher at the endpoint there is nothing to decide.
        assert one.deadline == float("inf")
        assert not one.tick(200.0)
        if after == ASKING:
            one.reached(300.0)


@pytest.mark.parametrize(
    ("before", "event", "after", "has_plain"),
    [
        (ASKING, "refused", ASKING, True),
        (ASKING, "serve", LINK, False),
        (ASKING, "ended", ASKING, True),
        (ASKING, "duplicate", LINK, False),
        (OPEN, "refused", ASKING, True),
        (OPEN, "unreached", ASKING, True),
        (OPEN, "ended", ASKING, True),
        (REACHED, "refused", PREFIX, True),
        (REACHED, "unreached", ASKING, True),
        (REACHED, "ended", PREFIX, True),
        (REACHED, "serve", LINK, False),
        (PREFIX, "refused", PREFIX, True),
        (PREFIX, "unreached", ASKING, True),
        (PREFIX, "serve", LINK, False),
        (PREFIX, "ended", PREFIX, True),
        (PREFIX, "duplicate", LINK, False),
        (MOVING, "ended", ASKING, True),
        (MOVING, "refused", MOVING, False),
        (MOVING, "unreached", MOVING, False),
        (MOVING, "duplicate", LINK, False),
        (LINK, "refused", LINK, False),
        (LINK, "unreached", LINK, False),
        (LINK, "ended", ASKING, True),
    ],
)
def test_transitions(before, event, after, has_plain):
    one = state(before)
    getattr(one, event)(*[101.0] * (event == "refused"))
    assert (one.state, one.has_plain) == (after, has_plain)


def test_a_refusal_just_after_the_handshake_does_not_count():
    one = state(REACHED)
    assert not one.refused(100.0 + BINDS_WITHIN / 2)
    assert one.refused(100.0 + BINDS_WITHIN)
    assert one.state == PREFIX


@pytest.mark.parametrize("before", [ASKING, OPEN, REACHED, PREFIX, LINK])
def test_an_answer_ends_only_a_move(before):
    one = state(before)
    assert one.answered(REVISION) is False
    assert one.state == state(before).state


def test_a_move_ends_with_the_answer_of_its_revision():
    one = state(MOVING)
    assert one.answered(REVISION - 1) is False
    assert one.state == MOVING
    assert one.answered(REVISION) is True
    assert (one.state, one.has_delivered) == (LINK, False)


def test_a_new_plain_connection_keeps_that_another_has_delivered():
    one = state(PREFIX)
    one.has_delivered = True
    assert one.unreached() is True
    assert one.has_delivered
