"""Each number of a publisher is passed on or reported lost once, also if the link breaks."""

from hypothesis import given
from hypothesis import strategies as st

from oz.services import relaying as bridge
from oz.services.relaying import Relaying

A, B = b"a" * 16, b"b" * 16


def test_what_comes_in_order_is_complete():
    relay = Relaying()
    assert relay.take(A, 7, 3) == (0, 0)
    assert relay.take(A, 10, 1) == (0, 0)
    assert relay.take(A, 11, 0) == (0, 0)


def test_a_jump_is_a_loss_and_what_came_before_is_skipped():
    relay = Relaying()
    relay.take(A, 0, 10)
    assert relay.take(A, 15, 5) == (5, 0)
    assert relay.take(A, 18, 5) == (0, 2)
    assert relay.take(A, 0, 4) == (0, 4)


def test_publishers_do_not_disturb_each_other():
    relay = Relaying()
    relay.take(A, 0, 10)
    assert relay.take(B, 100, 1) == (0, 0)
    assert relay.take(A, 10, 1) == (0, 0)


def test_a_loss_that_a_link_tells_of_counts_once():
    relay = Relaying()
    relay.take(A, 0, 10)
    assert relay.lose(A, 10, 5) == 5
    assert relay.lose(A, 10, 5) == 0
    assert relay.lose(A, 12, 8) == 5
    assert relay.take(A, 20, 1) == (0, 0)


def test_what_was_lost_before_the_first_message_that_came_counts_too():
    relay = Relaying()
    relay.take(A, 5, 2)
    assert relay.lose(A, 0, 5) == 5
    # A replacement link reports these losses again, and all later numbers.
    assert relay.lose(A, 0, 9) == 2
    assert relay.lose(A, 0, 9) == 0


def test_the_first_that_is_heard_of_a_publisher_may_be_a_loss():
    assert Relaying().lose(A, 0, 3) == 3


def test_only_so_many_publishers_are_remembered(monkeypatch):
    monkeypatch.setattr(bridge, "MAX_PUBLISHERS", 2)
    relay = Relaying()
    for origin in (A, B, A, b"c" * 16):
        relay.take(origin, 0, 1)
    # B was the oldest, so that its account begins again.
    assert relay.take(B, 50, 1) == (0, 0)


@given(
    st.lists(st.tuples(st.sampled_from(["come", "drop", "restart"]), st.integers(1, 5)), max_size=40),
    st.booleans(),
)
def test_passed_on_and_lost_come_to_what_was_published(steps, tells):
    """A link that restarts hears from then on, and reports all before as lost, or nothing."""
    relay, number, passed, lost, is_new = Relaying(), 0, 0, 0, False
    relay.take(A, 0, 0)
    for what, count in steps:
        if what == "restart":
            is_new = True
        elif what == "drop":
            number += count
        else:
            if is_new and tells:
                lost += relay.lose(A, 0, number)
            is_new = False
            more, seen = relay.take(A, number, count)
            lost += more
            passed += count - seen
            number += count
    lost += relay.take(A, number, 0)[0]
    assert passed + lost == number
