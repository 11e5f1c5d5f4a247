import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oz
from oz.protocol.declared import declare
from oz.protocol.node.reserved_subjects import ReservedIndex
from oz.protocol.prefix_counts import ALL_PLAIN
from oz.protocol.publisher import lifetimes
from oz.protocol.publisher import router as routing
from oz.protocol.publisher.batching import split
from oz.protocol.publisher.interest import PLAIN, ROUTED
from oz.protocol.publisher.lifetimes import GRACE, WITHDRAWAL_DELAY
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.security.limits import Limits
from oz.wire.keys import (
    DECLARATION,
    OWN,
    STREAM,
    Declaration,
    Declared,
    DeliveryOptions,
    pattern_key,
    stream_key,
)
from support.cases import each
from support.sizes import size

ORIGIN = bytes(16)
NAME = b"n" * 16
LATER = GRACE + WITHDRAWAL_DELAY + 1


@pytest.fixture
def router():
    return Router(ORIGIN, PublisherStats())


def key(number, *texts, name=NAME, leaving=False, last_value=False, **delivery):
    patterns = tuple(declare(oz.compile(text)) for text in texts)
    return Declaration(name, number, DeliveryOptions(**delivery), last_value, leaving, patterns).encode()


def come(router, *keys, now=0.0):
    return [router.learn(b"\x01" + one, now) for one in keys]


def go(router, *keys, now=0.0):
    return [router.learn(b"\x00" + one, now) for one in keys]


def wanted_by(router, subject):
    recipients = router.find(subject, subject)
    return [*recipients.streams, *(one for choice in recipients.choices for one in choice.members)]


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


def test_a_member_of_a_group_that_is_cut_off_is_forgotten_at_once(router):
    keys = key(1, "a", group="g"), stream_key(NAME)
    come(router, *keys)
    go(router, *keys)
    assert not router.streams
    assert not router.interest.groups


def test_a_member_of_a_group_that_returns_counts_on_where_it_stood(router):
    """It may have heard nothing before it was cut off, and would not know that it missed something."""
    keys = key(1, "a", group="g"), stream_key(NAME)
    come(router, *keys)
    (before,) = wanted_by(router, b"a")
    before.sequence = 20
    go(router, *keys, now=1.0)
    router.lifetimes.count_lost(before, 2)
    router.expire(0.9 + GRACE)
    come(router, *keys, now=0.9 + GRACE)
    (after,) = wanted_by(router, b"a")
    assert (after.epoch, after.sequence) == (before.epoch, 22)
    assert after.joined > before.joined


def test_a_member_of_a_group_that_returns_too_late_has_a_later_epoch(router):
    keys = key(1, "a", group="g"), stream_key(NAME)
    come(router, *keys)
    (before,) = wanted_by(router, b"a")
    before.sequence = 20
    go(router, *keys, now=1.0)
    router.expire(1 + GRACE)
    come(router, *keys, now=1 + GRACE)
    (after,) = wanted_by(router, b"a")
    assert after.epoch > before.epoch
    assert after.sequence == 0


def test_a_count_that_begins_anew_holds_for_members_that_are_away_too(router):
    keys = key(1, "a", group="g"), stream_key(NAME)
    come(router, *keys, key(1, "b", name=b"m" * 16))
    (before,) = wanted_by(router, b"a")
    go(router, *keys, now=1.0)
    router.renumber(router.streams[stream_key(b"m" * 16)])
    come(router, *keys, now=2.0)
    (after,) = wanted_by(router, b"a")
    assert after.epoch > before.epoch


def test_what_a_member_is_remembered_by_is_bounded(router, monkeypatch):
    monkeypatch.setattr(lifetimes, "VANISHED_KEPT", 2)
    for letter in b"abc":
        name = bytes([letter]) * 16
        keys = key(1, "a", group="g", name=name), stream_key(name)
        come(router, *keys)
        wanted_by(router, b"a")[0].sequence = letter
        go(router, *keys, now=1.0)
    for letter in b"abc":
        name = bytes([letter]) * 16
        come(router, key(1, "a", group="g", name=name), stream_key(name), now=2.0)
    assert [one.sequence for one in wanted_by(router, b"a")] == [0, *b"bc"]


def test_streams_that_vanished_are_bounded(router, monkeypatch):
    monkeypatch.setattr(lifetimes, "VANISHED_KEPT", 10)
    names = [b"%016d" % number for number in range(25)]
    for place, name in enumerate(names):
        keys = key(1, "a", name=name), stream_key(name)
        come(router, *keys, now=float(place))
        go(router, *keys, now=float(place))
    assert [one.name for one in wanted_by(router, b"a")] == names[-10:]
    assert len(router.streams) == len(router.lifetimes.vanished) == 10


def test_a_shared_pattern_is_one_stream_for_all_who_ask(router):
    shared = pattern_key(declare(oz.compile("a.*")))
    for name in (b"x" * 16, b"y" * 16):
        delivery = {"name": name, "is_shared": True}
        answer, *_ = come(router, key(1, "a.*", **delivery), shared, stream_key(name))
        assert answer.wanted == (stream_key(name), shared)
    (stream,) = wanted_by(router, b"a.b")
    assert stream.key == shared
    go(router, key(1, "a.*", name=b"x" * 16, is_shared=True), shared, stream_key(b"x" * 16))
    router.expire(LATER)
    assert wanted_by(router, b"a.b") == [stream]


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


def test_what_is_refused_is_named_and_forgotten_when_taken_back(router):
    bad = Declaration(NAME, 1, patterns=(declare(oz.compile("a")), declare(oz.compile("b")))).encode()
    bad = bad.replace(b"\x00\x01b", b"\x00\x01.")
    come(router, bad, bad)
    (stream,) = router.streams.values()
    assert list(stream.refused) == [1]
    assert not stream.chunks
    assert not wanted_by(router, b"a")
    go(router, bad)
    assert not stream.refused


def test_patterns_beyond_the_limit_are_refused_whole():
    router = Router(ORIGIN, PublisherStats(), limits=Limits(all_patterns=3))
    come(router, key(1, "a", "b"), key(2, "c", "d"), key(3, "e"))
    (stream,) = router.streams.values()
    assert list(stream.chunks) == [1, 3]
    assert "2 patterns" in stream.refused[2]


def test_declarations_beyond_the_limit_are_malformed_until_one_is_taken_back(router, monkeypatch):
    monkeypatch.setattr(routing, "MAX_CHUNKS", 2)
    come(router, stream_key(NAME), key(1, "a"), key(2, "b"))
    assert come(router, key(3, "c")) == [((), ())]
    assert router.stats.malformed == 1
    (stream,) = router.streams.values()
    assert list(stream.chunks) == [1, 2]
    go(router, key(2, "b"))
    router.expire(LATER)
    assert not wanted_by(router, b"b")
    come(router, key(3, "c"))
    assert list(stream.chunks) == [1, 3]
    assert router.stats.malformed == 1


def test_shared_patterns_beyond_the_limit_are_refused_whole():
    router = Router(ORIGIN, PublisherStats(), limits=Limits(all_patterns=2))
    come(router, key(1, "a", "b", is_shared=True))
    assert list(router.streams[stream_key(NAME)].refused) == [1]
    assert router.stats.malformed == 0


@pytest.mark.parametrize(
    "bad", [OWN, OWN + b"X", STREAM, STREAM + bytes(15), DECLARATION, DECLARATION + bytes(20), OWN + b"P\x01"]
)
def test_a_malformed_key_is_counted_and_skipped(router, bad):
    assert come(router, bad) == go(router, bad) == [((), ())]
    assert router.stats.malformed >= 1
    assert not router.streams


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


def test_a_pattern_of_a_dialect_that_is_not_known_is_refused_with_its_number(router):
    come(router, Declaration(NAME, 1, patterns=(declare(oz.compile("a")), Declared(99, b"a"))).encode())
    (stream,) = router.streams.values()
    assert "dialect number 99" in stream.refused[1]
    come(router, pattern_key(Declared(99, b"a")))
    assert router.stats.malformed == 1


def test_a_message_on_its_way_goes_to_no_member_that_was_told_that_nothing_more_comes(router):
    """Its recipients were looked up before the member's interest ended, and are used after that."""
    leaving, staying = key(1, "job.*", group="g"), key(1, "job.*", name=b"m" * 16, group="g")
    other = key(2, "other", group="g")
    come(router, leaving, stream_key(NAME), staying, stream_key(b"m" * 16))
    before = router.find(b"job.a", b"job.a")
    go(router, leaving)
    come(router, other)
    batches = split([part for number in range(4) for part in (before, b"job.a", b"%d" % number)], 0)
    assert [(batch.stream.name, batch.count) for batch in batches] == [(b"m" * 16, 4)]


def test_a_message_on_its_way_to_a_group_that_nobody_is_left_of_goes_to_whom_it_was_meant_for(router):
    declared = key(1, "job.*", group="g")
    come(router, declared, key(2, "other", group="g"), stream_key(NAME))
    before = router.find(b"job.a", b"job.a")
    go(router, declared)
    (batch,) = split([before, b"job.a", b"1"], 0)
    assert batch.stream.name == NAME


def test_the_policy_of_a_member_that_says_goodbye_ends_with_it(router):
    names = [b"a" * 16, b"b" * 16, b"c" * 16]
    for name, policy in zip(names, ("failover", "round_robin", "round_robin"), strict=True):
        come(router, key(1, "job.*", name=name, group="g", policy=policy), stream_key(name))
    come(router, key(2, name=names[0], group="g", policy="failover", leaving=True))
    (choice,) = router.find(b"job.a", b"job.a").choices
    assert [choice.pick(b"").name for _ in range(4)] == [names[1], names[2]] * 2


def test_who_wants_the_inboxes_of_a_node_is_known_from_the_last_until_an_interest_comes_or_goes():
    router = Router(ORIGIN, PublisherStats(), index=ReservedIndex(cache_size=0))
    owner = b"_INBOX." + b"ab" * 16
    inboxes = [owner + b".%d" % number for number in range(3)]
    assert [wanted_by(router, one) for one in inboxes] == [[], [], []]
    asked, other = key(1, f"{owner.decode()}.>"), key(1, f"{owner.decode()}.1", name=b"o" * 16)
    come(router, asked)
    assert [len(wanted_by(router, one)) for one in inboxes] == [1, 1, 1]
    assert wanted_by(router, b"_INBOX." + b"cd" * 16 + b".1") == []
    # A plain subscription, which no index knows of.
    come(router, inboxes[1])
    assert [router.find(one, one).kind for one in inboxes] == [ROUTED, PLAIN | ROUTED, ROUTED]
    go(router, inboxes[1])
    assert [router.find(one, one).kind for one in inboxes] == [ROUTED] * 3
    come(router, other)
    assert [len(wanted_by(router, one)) for one in inboxes] == [1, 2, 1]
