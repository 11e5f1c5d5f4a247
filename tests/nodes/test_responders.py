"""Choice of the stream that receives a request."""

from collections import Counter

import pytest

from oz.errors import WouldBlock
from oz.node.requests import Content
from oz.node.responders import StreamResponders
from oz.publisher.groups import Group
from oz.publisher.routing import Route

ASK = Content("jobs", b"jobs")


class Session:
    def __init__(self, name):
        self.member, self.is_up, self.has_ended, self.is_heard = name.encode(), True, False, True

    def is_responsive(self, now):
        return self.is_up and self.is_heard


class Stream:
    def __init__(self, session, group):
        self.session, self.group = session, group
        self.pending, self.limit, self.load, self.prefetch = 0, 10, 0, 64


class Peers:
    """Sessions and streams of peers, and the responders over them."""

    def __init__(self):
        self.streams, self.route, self.groups = [], None, {}
        self.responders = StreamResponders(lambda subject, raw: self.route, lambda: False, bytes.decode)

    def add(self, session, group=None, policy="round_robin"):
        if group is not None:
            group = self.groups.setdefault(group, Group(group, policy))
        stream = Stream(session, group)
        self.streams.append(stream)
        self.route = Route(b"jobs", self.streams, {})
        return stream

    def pick(self, excluded=(), content=ASK):
        return self.responders.pick(content, excluded, 0.0)

    def count(self, times):
        return Counter(self.pick().session.member.decode() for _ in range(times))


@pytest.fixture
def peers():
    return Peers()


def test_no_subscription_is_no_stream(peers):
    assert peers.pick() is None
    assert peers.responders.all(ASK, 0.0) == ()


def test_sessions_take_turns(peers):
    for name in "abc":
        peers.add(Session(name))
    assert peers.count(30) == {"a": 10, "b": 10, "c": 10}


def test_a_session_with_several_subscriptions_has_one_share(peers):
    a, b = Session("a"), Session("b")
    for _ in range(3):
        peers.add(a)
    peers.add(b)
    assert peers.count(20) == {"a": 10, "b": 10}


def test_members_of_a_group_and_plain_streams_take_turns(peers):
    peers.add(Session("a"))
    first = peers.add(Session("b"), "workers")
    second = peers.add(Session("c"), "workers")
    assert peers.count(30) == {"a": 10, "b": 10, "c": 10}
    # The session lowers the load when the messages are acknowledged.
    assert (first.load, second.load) == (10, 10)


def test_a_failover_group_is_one_choice(peers):
    first = peers.add(Session("a"), "one", "failover")
    second = peers.add(Session("b"), "one", "failover")
    peers.add(Session("c"))
    assert peers.count(10) == {"a": 5, "c": 5}
    assert (first.load, second.load) == (5, 0)
    first.session.is_up = False
    assert peers.count(10) == {"b": 5, "c": 5}


def test_a_sticky_group_keeps_a_key(peers):
    for name in "abcd":
        peers.add(Session(name), "keyed", "sticky")
    owners = set()
    for key in (b"k1", b"k2", b"k3", b"k4", b"k5", b"k6"):
        asked = ASK._replace(key=key)
        found = {peers.pick(content=asked).session.member for _ in range(5)}
        assert len(found) == 1
        owners |= found
    assert len(owners) > 1


@pytest.mark.parametrize("policy", ["round_robin", "failover", "sticky", None])
def test_an_excluded_peer_receives_nothing(peers, policy):
    for name in "abc":
        peers.add(Session(name), policy and "workers", policy)
    assert {peers.pick([b"a", b"c"]).session.member for _ in range(5)} == {b"b"}
    assert peers.pick([b"a", b"b", b"c"]) is None


def test_a_session_with_a_backlog_or_without_news_comes_last(peers):
    slow, silent, fast = (peers.add(Session(name)) for name in "abc")
    slow.pending = 5
    silent.session.is_heard = False
    assert peers.count(10) == {"c": 10}
    fast.session.is_up = False
    assert set(peers.count(10)) <= {"a", "b"}


def test_a_session_that_is_down_receives_requests_if_no_other_is_up(peers):
    stream = peers.add(Session("a"))
    stream.session.is_up = False
    assert peers.pick() is stream
    stream.session.has_ended = True
    assert peers.pick() is None


def test_full_streams_refuse_a_request(peers):
    first, second = peers.add(Session("a")), peers.add(Session("b"), "workers")
    first.pending = 10
    assert peers.pick() is second
    second.pending = 10
    load = second.load
    with pytest.raises(WouldBlock, match="'jobs'"):
        peers.pick()
    with pytest.raises(WouldBlock, match="'jobs'"):
        peers.responders.all(ASK, 0.0)
    assert second.load == load


def test_all_streams_and_one_member_of_each_group(peers):
    plain = [peers.add(Session(name)) for name in "ab"]
    group = [peers.add(Session(name), "workers") for name in "cd"]
    full = peers.add(Session("e"))
    full.pending = 10
    for _ in range(4):
        found = peers.responders.all(ASK, 0.0)
        assert len(found) == 3
        assert set(map(id, plain)) < set(map(id, found))
    assert [one.load for one in group] == [2, 2]


def test_choices_follow_a_change_of_the_interest(peers):
    peers.add(Session("a"))
    assert peers.count(2) == {"a": 2}
    peers.add(Session("b"))
    assert peers.count(4) == {"a": 2, "b": 2}
    peers.route = None
    assert peers.pick() is None


def test_the_cache_of_choices_is_bounded(peers):
    peers.add(Session("a"))
    for number in range(3_000):
        peers.pick(content=Content(f"jobs.{number}", b""))
    assert len(peers.responders._choices) <= 1_024
