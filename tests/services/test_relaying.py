"""Each number of a publisher is passed on or reported lost once, also if the link breaks."""

from hypothesis import given
from hypothesis import strategies as st

from oz.services import relaying as bridge
from oz.services.relaying import Relaying
from support.cases import each

A, B = b"a" * 16, b"b" * 16


@each(
    "steps",
    [
        # Publishers do not disturb each other.
        [
            ("take", A, 7, 3, (0, 0)), ("take", B, 100, 1, (0, 0)), ("take", A, 10, 1, (0, 0)),
            ("take", A, 11, 0, (0, 0)),
        ],
        # A jump is a loss, and earlier numbers are skipped.
        [
            ("take", A, 0, 10, (0, 0)), ("take", A, 15, 5, (5, 0)), ("take", A, 18, 5, (0, 2)),
            ("take", A, 0, 4, (0, 4)),
        ],
        # A loss that a link reports counts once.
        [
            ("take", A, 0, 10, (0, 0)), ("lose", A, 10, 5, 5), ("lose", A, 10, 5, 0), ("lose", A, 12, 8, 5),
            ("take", A, 20, 1, (0, 0)),
        ],
        # Losses before the first message count too. A replacement link reports them again, and all later numbers.
        [("take", A, 5, 2, (0, 0)), ("lose", A, 0, 5, 5), ("lose", A, 0, 9, 2), ("lose", A, 0, 9, 0)],
        [("lose", A, 0, 3, 3)],
    ],
)  # fmt: skip
def test_each_number_is_passed_on_or_lost_once(steps):
    relay = Relaying()
    for call, *arguments, expected in steps:
        assert getattr(relay, call)(*arguments) == expected


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
def test_forwarded_plus_lost_equals_published(steps, tells):
    """A restarted link receives later messages, and reports all earlier messages as lost, or none."""
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
