"""Members of groups at a router: who is forgotten, who counts on, and whom a message on its way goes to."""

import oz
from oz.protocol.publisher import lifetimes
from oz.protocol.publisher.batching import split
from oz.protocol.publisher.lifetimes import GRACE
from oz.wire.declared import declare
from oz.wire.keys import (
    pattern_key,
    stream_key,
)
from protocol.publisher.routed import LATER, NAME, come, go, key, wanted_by


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


def test_a_message_on_its_way_goes_to_no_member_that_was_told_that_nothing_more_comes(router):
    """Its recipients were looked up before the member's interest ended, and are used after that."""
    leaving, staying = key(1, "job.*", group="g"), key(1, "job.*", name=b"m" * 16, group="g")
    other = key(2, "other", group="g")
    come(router, leaving, stream_key(NAME), staying, stream_key(b"m" * 16))
    before = router.find(b"job.a")
    go(router, leaving)
    come(router, other)
    batches = split([part for number in range(4) for part in (before, b"job.a", b"%d" % number)], 0)
    assert [(batch.stream.name, batch.count) for batch in batches] == [(b"m" * 16, 4)]


def test_a_message_on_its_way_to_a_group_that_nobody_is_left_of_goes_to_whom_it_was_meant_for(router):
    declared = key(1, "job.*", group="g")
    come(router, declared, key(2, "other", group="g"), stream_key(NAME))
    before = router.find(b"job.a")
    go(router, declared)
    (batch,) = split([before, b"job.a", b"1"], 0)
    assert batch.stream.name == NAME


def test_the_policy_of_a_member_that_says_goodbye_ends_with_it(router):
    names = [b"a" * 16, b"b" * 16, b"c" * 16]
    for name, policy in zip(names, ("failover", "round_robin", "round_robin"), strict=True):
        come(router, key(1, "job.*", name=name, group="g", policy=policy), stream_key(name))
    come(router, key(2, name=names[0], group="g", policy="failover", leaving=True))
    (choice,) = router.find(b"job.a").choices
    assert [choice.pick(b"").name for _ in range(4)] == [names[1], names[2]] * 2
