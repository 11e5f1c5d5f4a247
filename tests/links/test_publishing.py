"""Batches, groups, interest and last values of a publisher."""

from hypothesis import given
from hypothesis import strategies as st

import oz
from links.pair import Publisher
from oz.publisher.batching import QUIET, Batcher, split
from oz.publisher.groups import Group
from oz.subjects.index.patterns import PatternIndex
from oz.wire import links
from oz.wire.links import StreamOptions


def session_of(publisher, number, options, text="a.*"):
    route = b"route %d" % number
    session = publisher.hello(route, b"%016d" % number, member=b"member%010d" % number)
    publisher.declare(text, options=options, route=route)
    publisher.pull(session)
    return session


def published(publisher, count, key=None):
    for number in range(count):
        publisher.sessions.publish(f"a.{number}", b"", key=key)
    publisher.sessions.flush()


# batches


@given(st.lists(st.tuples(st.lists(st.sampled_from("abc"), unique=True), st.integers(0, 400)), max_size=60))
def test_each_stream_gets_its_messages_once_and_in_order(messages):
    batcher = Batcher(batch=7, body_bytes=600, alone_bytes=300)
    for number, (streams, size) in enumerate(messages):
        batcher.add(tuple(sorted(streams)), b"s%d" % number, b"x" * size)
    arrived = {name: [] for name in "abc"}
    for streams, body in batcher.flush():
        assert body.count == 1 or (body.size <= 600 and body.count <= 7)
        assert links.decode_body(body.frame, body.count) == body.flat()
        for name in streams:
            arrived[name] += list(zip(body.positions, body.flat()[::3], strict=True))
    for name, found in arrived.items():
        assert found == [(at, b"s%d" % at) for at, (streams, _) in enumerate(messages) if name in streams]
    assert batcher.waiting == []


def test_equal_recipients_share_a_body():
    batcher = Batcher()
    for number in range(10):
        batcher.add(("a", "b"), b"s", b"%d" % number)
    ((streams, body),) = batcher.flush()
    assert (streams, body.count, body.differences) == (("a", "b"), 10, b"")


def test_a_body_ends_where_positions_do_not_rise():
    bodies = list(split([b"a", b"", None] * 4, [5, 9, 9, 2**33 + 9]))
    assert [list(body.positions) for body in bodies] == [[5, 9], [9], [2**33 + 9]]


def test_a_quiet_publisher_sends_at_once():
    batcher = Batcher(batch=3, batch_delay=0.5)
    batcher.sent(9.9, 10.0)
    batcher.add(("a",), b"s", b"")
    pause = QUIET + 0.1 / 4
    assert not batcher.is_due(10.0 + pause * 0.9)
    assert batcher.is_due(10.0 + pause * 1.1)
    batcher.unmatched = 9
    assert not batcher.is_due(10.0 + pause * 9)
    batcher.add(("a",), b"s", b"")
    assert not batcher.is_due(10.4)
    assert batcher.deadline() == 10.5
    assert batcher.is_due(10.5)
    batcher.add(("a",), b"s", b"")
    assert batcher.is_due(10.0)


# groups


def test_round_robin_passes_over_members_without_room():
    publisher = Publisher()
    slow = session_of(publisher, 1, StreamOptions("g", prefetch=2))
    fast = session_of(publisher, 2, StreamOptions("g"))
    published(publisher, 20)
    assert (slow.following, fast.following) == (2, 18)


def test_silent_members_get_no_new_messages():
    publisher = Publisher()
    silent = session_of(publisher, 1, StreamOptions("g"))
    other = session_of(publisher, 2, StreamOptions("g"))
    published(publisher, 2)
    publisher.pull(silent), publisher.pull(other)
    publisher.now += 5
    publisher.ack(1, route=b"route 2")
    published(publisher, 10)
    assert (silent.following, other.following) == (1, 11)


def test_members_that_were_idle_get_new_messages():
    publisher = Publisher()
    members = [session_of(publisher, number, StreamOptions("g")) for number in range(2)]
    publisher.now += 20
    publisher.ack(0, route=b"route 1")
    publisher.publish(*["a.1"] * 10)
    assert [one.following for one in members] == [5, 5]
    publisher.now += 5
    publisher.ack(0, route=b"route 1")
    publisher.publish(*["a.1"] * 10)
    assert sorted(one.following for one in members) == [5, 15]


def test_sticky_keys_keep_their_member_while_it_is_down():
    publisher = Publisher()
    members = [session_of(publisher, number, StreamOptions("g", "sticky")) for number in range(3)]
    published(publisher, 4, key=b"key")
    (owner,) = [member for member in members if member.following]
    publisher.sessions.unreachable(owner, publisher.now)
    published(publisher, 4, key=b"key")
    assert owner.following == 8
    publisher.sessions.end(owner, publisher.now)
    published(publisher, 4, key=b"key")
    assert [member.following for member in members if member is not owner].count(4) == 1


def test_a_group_without_members_is_forgotten():
    publisher = Publisher()
    member = session_of(publisher, 1, StreamOptions("g", "sticky"))
    publisher.sessions.end(member, publisher.now)
    assert publisher.sessions.interest.groups == {}
    assert Group("g", "failover").pick((), b"", 0.0) is None


# interest


def test_routes_are_cached_until_the_interest_changes():
    publisher = Publisher()
    session_of(publisher, 1, StreamOptions())
    interest = publisher.sessions.interest
    route = interest.find("a.1", b"a.1")
    assert interest.find("a.1", b"a.1") is route
    assert interest.find("b.1", b"b.1") is None
    session_of(publisher, 2, StreamOptions())
    assert len(interest.find("a.1", b"a.1").plain) == 2


def test_a_pattern_that_exceeds_its_time_three_times_is_suspended(monkeypatch):
    publisher = Publisher()
    session = session_of(publisher, 1, StreamOptions())
    pattern = oz.compile("a.*")
    monkeypatch.setattr(PatternIndex, "_find", lambda index, raw: ((), (pattern,)))
    for number in range(3):
        publisher.sessions.publish(f"a.{number}", b"")
    (answer,) = publisher.pull(session)
    assert "suspended" in answer.refused[0].reason
