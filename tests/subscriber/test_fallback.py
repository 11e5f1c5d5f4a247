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
    """Return a state machine: in a state, or in ASKING with a plain connection, or after its handshake."""
    fallback = Fallback(100.0)
    if name in (OPEN, REACHED, PREFIX):
        assert fallback.refused(100.0)
    if name in (REACHED, PREFIX):
        fallback.handshake_done(100.0)
    if name == PREFIX:
        assert fallback.refused(101.0)
    if name == MOVING:
        fallback.has_delivered = True
        fallback.move(REVISION)
    if name == LINK:
        fallback.serve()
    assert fallback.state == (ASKING if name in (OPEN, REACHED) else name)
    return fallback


@pytest.mark.parametrize("is_opened", [False, True])
def test_a_link_has_time_to_answer_twice(is_opened):
    fallback, within = state(ASKING), STANDING_WITHIN if is_opened else ANSWER_WITHIN
    for start, after in ((100.0, ASKING), (300.0, PREFIX)):
        if is_opened:
            fallback.connection_opened()
        assert fallback.deadline == start + within
        assert not fallback.tick(start + within - 0.01)
        assert fallback.tick(start + within)
        assert (fallback.state, fallback.has_plain) == (after, True)
        # Without a publisher at the endpoint there is nothing to decide.
        assert fallback.deadline == float("inf")
        assert not fallback.tick(200.0)
        if after == ASKING:
            fallback.handshake_done(300.0)


@pytest.mark.parametrize(
    ("before", "event", "after", "has_plain"),
    [
        (ASKING, "refused", ASKING, True),
        (ASKING, "serve", LINK, False),
        (ASKING, "ended", ASKING, True),
        (OPEN, "refused", ASKING, True),
        (OPEN, "connection_ended", ASKING, True),
        (OPEN, "ended", ASKING, True),
        (REACHED, "refused", PREFIX, True),
        (REACHED, "connection_ended", ASKING, True),
        (REACHED, "ended", PREFIX, True),
        (REACHED, "serve", LINK, False),
        (PREFIX, "refused", PREFIX, True),
        (PREFIX, "connection_ended", ASKING, True),
        (PREFIX, "serve", LINK, False),
        (PREFIX, "ended", PREFIX, True),
        (MOVING, "ended", ASKING, True),
        (MOVING, "refused", MOVING, False),
        (MOVING, "connection_ended", MOVING, False),
        (MOVING, "serve", LINK, False),
        (LINK, "refused", LINK, False),
        (LINK, "connection_ended", LINK, False),
        (LINK, "ended", ASKING, True),
    ],
)
def test_transitions(before, event, after, has_plain):
    fallback = state(before)
    getattr(fallback, event)(*[101.0] * (event == "refused"))
    assert (fallback.state, fallback.has_plain) == (after, has_plain)


def test_a_refusal_just_after_the_handshake_does_not_count():
    fallback = state(REACHED)
    assert not fallback.refused(100.0 + BINDS_WITHIN / 2)
    assert fallback.refused(100.0 + BINDS_WITHIN)
    assert fallback.state == PREFIX


@pytest.mark.parametrize("before", [ASKING, OPEN, REACHED, PREFIX, LINK])
def test_an_answer_ends_only_a_move(before):
    fallback = state(before)
    assert fallback.answered(REVISION) is False
    assert fallback.state == state(before).state


def test_a_move_ends_with_the_answer_of_its_revision():
    fallback = state(MOVING)
    assert fallback.answered(REVISION - 1) is False
    assert fallback.state == MOVING
    assert fallback.answered(REVISION) is True
    assert (fallback.state, fallback.has_delivered) == (LINK, False)


def test_a_new_plain_connection_keeps_that_another_has_delivered():
    fallback = state(PREFIX)
    fallback.has_delivered = True
    assert fallback.connection_ended() is True
    assert fallback.has_delivered
