import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oz
from oz.protocol.prefix_counts import ALL_PLAIN
from oz.protocol.publisher.lifetimes import GRACE, WITHDRAWAL_DELAY
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.wire.declared import declare
from oz.wire.keys import (
    OWN,
    pattern_key,
    stream_key,
)
from protocol.publisher.routed import LATER, NAME, ORIGIN, come, go, key, wanted_by
from support.cases import each
from support.sizes import size


def test_a_declared_pattern_is_served_on_the_key_of_its_stream(router):
    (answer,) = come(router, key(1, "a.*"))
    # A proxy may have dropped the key of the stream itself.
    assert answer.wanted == (stream_key(NAME),)
    come(router, stream_key(NAME))
    (stream,) = wanted_by(router, b"a.b")
    assert (stream.key, stream.listeners, list(stream.chunks)) == (stream_key(NAME), 1, [1])
    assert not wanted_by(router, b"b.a")
    assert stream in router.to_answer


def test_a_cut_stream_counts_on_for_the_time_of_grace(router):
    keys = key(1, "a.*"), key(2, "b"), stream_key(NAME)
    come(router, *keys)
    (stream,) = wanted_by(router, b"a.b")
    go(router, *keys, now=10.0)
    assert stream.vanished_at == 10.0
    assert stream not in router.to_answer
    router.expire(10 + GRACE - 0.1)
    assert wanted_by(router, b"a.b") == wanted_by(router, b"b") == [stream]
    router.expire(10 + GRACE)
    assert stream.is_gone
    assert not wanted_by(router, b"a.b")
    assert not router.streams


def test_a_stream_that_returns_is_the_same(router):
    keys = key(1, "a.*"), stream_key(NAME)
    come(router, *keys)
    (stream,) = wanted_by(router, b"a.b")
    go(router, *keys, now=10.0)
    come(router, *keys, now=11.0)
    router.expire(11 + LATER)
    assert wanted_by(router, b"a.b") == [stream]
    assert stream.vanished_at is None


def test_a_stream_that_returns_too_late_has_a_later_epoch(router):
    keys = key(1, "a.*"), stream_key(NAME)
    come(router, *keys)
    (before,) = wanted_by(router, b"a.b")
    go(router, *keys)
    router.expire(LATER)
    come(router, *keys, now=LATER)
    (after,) = wanted_by(router, b"a.b")
    assert after is not before
    assert after.joined > before.joined


def test_what_did_not_come_back_is_served_for_a_while_but_is_not_said_to_be_live(router):
    """A proxy may have dropped it: its subscriber must declare it again, and misses nothing until then."""
    keys = key(1, "a"), key(2, "b"), stream_key(NAME)
    come(router, *keys)
    go(router, *keys, now=1.0)
    come(router, keys[0], keys[2], now=2.0)
    (stream,) = wanted_by(router, b"b")
    assert list(stream.chunks) == [1]
    router.expire(2 + WITHDRAWAL_DELAY)
    come(router, key(3, "b"), now=4.0)
    router.expire(4 + LATER)
    assert wanted_by(router, b"a") == wanted_by(router, b"b") == [stream]
    assert list(stream.chunks) == [1, 3]
    assert not stream.ending


def test_what_did_not_come_back_and_was_not_declared_again_ends(router):
    keys = key(1, "a"), key(2, "b"), stream_key(NAME)
    come(router, *keys)
    go(router, *keys, now=1.0)
    come(router, keys[0], keys[2], now=2.0)
    router.expire(2 + LATER)
    assert wanted_by(router, b"a")
    assert not wanted_by(router, b"b")


def test_a_chunk_that_is_taken_back_ends_soon(router):
    come(router, key(1, "a"), key(2, "b"), stream_key(NAME))
    go(router, key(1, "a"), now=5.0)
    router.expire(5 + WITHDRAWAL_DELAY - 0.1)
    assert wanted_by(router, b"a")
    router.expire(5 + WITHDRAWAL_DELAY)
    assert not wanted_by(router, b"a")
    assert wanted_by(router, b"b")


def test_a_pattern_that_moves_to_another_chunk_is_served_throughout(router):
    come(router, key(1, "a", "b"), stream_key(NAME))
    come(router, key(2, "a"))
    go(router, key(1, "a", "b"))
    router.expire(LATER)
    assert wanted_by(router, b"a")
    assert not wanted_by(router, b"b")


def test_what_two_connections_declare_stands_while_one_does(router):
    keys = key(1, "a"), stream_key(NAME)
    come(router, *keys, *keys)
    (stream,) = wanted_by(router, b"a")
    assert stream.listeners == 2
    go(router, *keys)
    router.expire(LATER)
    assert wanted_by(router, b"a") == [stream]
    assert stream.vanished_at is None
    go(router, *keys, now=LATER)
    router.expire(2 * LATER)
    assert not router.streams


ENDS = [(0, 0), (0, 1), (0, 2)]
BEGINS = [(1, 0), (1, 1), (1, 2)]


@each("places", [*itertools.combinations(range(6), 3)])
def test_a_connection_that_ends_while_the_next_begins_takes_nothing_from_it(places):
    """Whatever comes of the one between what comes of the other; libzmq keeps the order of each."""
    router = Router(ORIGIN, PublisherStats())
    keys = key(1, "a"), key(2, "b"), stream_key(NAME)
    come(router, *keys)
    old, new = iter(ENDS), iter(BEGINS)
    for at in range(6):
        comes, number = next(old if at in places else new)
        (come if comes else go)(router, keys[number], now=1.0 + at / 1000)
    for now in (2.0 + WITHDRAWAL_DELAY, 2 + LATER):
        router.expire(now)
        assert wanted_by(router, b"a")
        assert wanted_by(router, b"b")
    go(router, *keys, now=3 * LATER)
    router.expire(5 * LATER)
    assert not router.streams


def test_a_stream_whose_key_is_taken_back_is_cut_though_declarations_were_not(router):
    """A proxy that loses many subscribers at once does not pass on all that they take back."""
    come(router, key(1, "a"), key(2, "b"), stream_key(NAME))
    (stream,) = wanted_by(router, b"a")
    go(router, key(1, "a"), stream_key(NAME), now=1.0)
    assert stream.vanished_at == 1.0
    router.expire(1 + LATER)
    assert not router.streams
    assert not go(router, key(2, "b"))[0].dropped


def test_a_stream_of_which_only_declarations_came_is_served(router):
    come(router, key(1, "a"), key(2, "b"))
    (stream,) = wanted_by(router, b"a")
    go(router, key(1, "a"))
    assert stream.vanished_at is None
    go(router, key(2, "b"))
    assert stream.vanished_at is not None


@pytest.mark.parametrize(
    "delivery", [{}, {"group": "g"}, {"is_shared": True}, {"overflow": "conflate", "limit": 5}]
)
def test_a_goodbye_ends_everything_at_once(router, delivery):
    come(router, key(1, "a", **delivery), key(2, "b", **delivery), stream_key(NAME))
    come(router, key(3, leaving=True, **delivery))
    # All patterns are gone.
    assert not wanted_by(router, b"a")
    # Still there to be answered, until the key goes.
    assert list(router.streams[stream_key(NAME)].chunks) == [3]
    go(router, stream_key(NAME))
    assert stream_key(NAME) not in router.streams
    go(router, key(1, "a", **delivery), key(2, "b", **delivery), key(3, leaving=True, **delivery))
    router.expire(LATER)
    assert not router.streams


def test_a_loss_is_counted_for_shared_patterns_and_not_for_those_who_declare_them_too(router):
    come(router, key(1, "a.*", is_shared=True), stream_key(NAME), pattern_key(declare(oz.compile("a.*"))))
    assert [one.is_shared for one in router.streams.values()] == [False, True]
    assert [one.is_shared for one in router.counted()] == [True]


def test_no_loss_is_counted_for_who_listens_on_a_key_and_asks_for_nothing(router):
    come(router, stream_key(NAME))
    assert len(router.streams) == 1
    assert not router.counted()


def test_a_shared_pattern_ends_with_those_who_asked_for_it(router):
    shared = pattern_key(declare(oz.compile("a.*")))
    keys = key(1, "a.*", is_shared=True), shared, stream_key(NAME)
    come(router, *keys)
    go(router, *keys)
    router.expire(GRACE - 1)
    assert wanted_by(router, b"a.b")
    router.expire(LATER)
    assert not router.streams
    assert not router.interest.pattern_count


def test_a_greeting_changes_no_interest(router):
    come(router, key(1, "a"), stream_key(NAME))
    router.interest.has_changed = False
    come(router, key(2), now=1.0)
    go(router, key(2), now=2.0)
    router.expire(LATER)
    assert not router.interest.has_changed


def test_a_stream_that_begins_to_listen_after_its_patterns_have_come_is_news(router):
    found = []
    for one in (key(1, "a"), stream_key(NAME), stream_key(NAME)):
        router.interest.has_changed = False
        come(router, one)
        found.append(router.interest.has_changed)
    assert found == [True, True, False]


def test_a_greeting_of_somebody_unknown_is_answered_with_itself(router):
    (answer,) = come(router, key(7))
    (stream,) = router.to_answer
    assert answer.wanted == (stream_key(NAME),)
    assert list(stream.chunks) == [7]


def test_the_empty_prefix_is_replaced_by_all_that_may_begin_a_subject(router):
    (answer,) = come(router, b"")
    assert answer.wanted == ALL_PLAIN
    assert not any(OWN.startswith(one) for one in ALL_PLAIN)
    assert go(router, b"")[0].dropped == ALL_PLAIN


def test_a_zero_byte_is_replaced_by_what_may_follow_it(router):
    (answer,) = come(router, b"\x00")
    assert len(answer.wanted) == 255
    assert all(len(one) == 2 and one != OWN for one in answer.wanted)
    assert go(router, b"\x00")[0].dropped == answer.wanted


def test_single_bytes_outlive_the_empty_prefix_and_the_other_way_round(router):
    come(router, b"", b"a", b"\x00", b"\x00a")
    assert not go(router, b"a")[0].dropped
    come(router, b"a")
    dropped = go(router, b"")[0].dropped
    assert b"a" not in dropped
    assert b"\x00b" not in dropped
    assert b"b" in dropped
    assert b"\x00a" not in go(router, b"\x00")[0].dropped
    assert go(router, b"\x00a")[0].dropped == (b"\x00a",)


events = st.lists(
    st.tuples(
        st.sampled_from(["declare", "take back", "listen", "cut", "leave", "wait", "greet"]),
        st.integers(0, 2),
        st.integers(0, 3),
    ),
    max_size=60,
)


DELIVERIES = ({}, {"group": "g"}, {"is_shared": True})


@settings(max_examples=size(25, 6_000))
@given(events)
def test_once_everybody_is_gone_nothing_is_left(history):
    """Whatever was declared, over however many connections, and whatever a proxy dropped of it."""
    router, now = Router(ORIGIN, PublisherStats()), 0.0
    held = {who: [] for who in range(3)}
    for place, (what, who, which) in enumerate(history):
        now += 0.1
        name, delivery = b"%016d" % who, DELIVERIES[who]
        keys = held[who]
        declared = key(which + 1, f"p.{which}", "p.*", name=name, **delivery)
        if what == "declare":
            keys.append(declared)
            come(router, declared, now=now)
            if who == 2:
                keys += (shared := [pattern_key(declare(oz.compile(one))) for one in (f"p.{which}", "p.*")])
                come(router, *shared, now=now)
        elif what == "greet":
            keys.append(key(100 + place, name=name, **delivery))
            come(router, keys[-1], now=now)
        elif what == "take back" and declared in keys:
            keys.remove(declared)
            go(router, declared, now=now)
        elif what == "listen":
            keys.append(stream_key(name))
            come(router, keys[-1], now=now)
        elif what == "leave":
            keys.append(key(200 + place, name=name, leaving=True, **delivery))
            come(router, keys[-1], now=now)
        elif what == "cut":
            go(router, *sorted(keys), now=now)
            keys.clear()
        elif what == "wait":
            now += 10 * which
            router.expire(now)
    for keys in held.values():
        go(router, *sorted(keys), now=now)
    for _ in range(3):
        now += LATER
        router.expire(now)
    assert not router.streams
    assert not router.interest.pattern_count
    assert not router.lifetimes.vanished
    assert not router.lifetimes.withdrawn
    assert not router.interest.groups
    assert not router.to_answer
    assert not wanted_by(router, b"p.1")
    assert len(router.interest.index) == 0
