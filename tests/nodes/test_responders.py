"""Choice of the stream that receives a request."""

from collections import Counter
from contextlib import nullcontext

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
        self.is_standby = False

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
        self.cached = None
        self.responders = StreamResponders(
            lambda subject, raw: self.route,
            lambda: False,
            bytes.decode,
            nullcontext(),
            lambda subject: self.cached,
        )

    def add(self, session, group=None, policy="round_robin"):
        if group is not None:
            group = self.groups.setdefault(group, Group(group, policy))
        stream = Stream(session, group)
        self.streams.append(stream)
        self.route = Route(b"jobs", self.streams, {})
        return stream

    def find(self, excluded=(), content=ASK):
        """Return the streams that receive a request."""
        return self.responders.all(content, excluded, 0.0)

    def names(self, excluded=(), content=ASK):
        """Return the names of their peers."""
        return [item.session.member.decode() for item in self.find(excluded, content)]


@pytest.fixture
def peers():
    return Peers()


def test_a_request_with_a_route_ignores_the_cache(peers):
    one, _ = peers.add(Session("a")), peers.add(Session("b"))
    peers.cached = peers.route
    route = Route(b"jobs", [one], {})
    assert peers.find(content=ASK._replace(route=route)) == [one]
    assert peers.find(content=ASK._replace(route=Route(ASK.raw, [], {}))) == []


def test_all_plain_streams_and_one_member_of_each_group(peers):
    for name in "ab":
        peers.add(Session(name))
    group = [peers.add(Session(name), "workers") for name in "cd"]
    full = peers.add(Session("e"))
    full.pending = 10
    found = [peers.names() for _ in range(4)]
    assert all(item[:2] == ["a", "b"] for item in found)
    assert Counter(item[2] for item in found) == {"c": 2, "d": 2}
    # The session lowers the load when the messages are acknowledged.
    assert [item.load for item in group] == [2, 2]


def test_a_failover_group_has_one_member_at_a_time(peers):
    first = peers.add(Session("a"), "one", "failover")
    second = peers.add(Session("b"), "one", "failover")
    assert [peers.names() for _ in range(5)] == [["a"]] * 5
    assert (first.load, second.load) == (5, 0)
    first.session.is_up = False
    assert peers.names() == ["b"]


def test_a_sticky_group_keeps_a_key(peers):
    for name in "abcd":
        peers.add(Session(name), "keyed", "sticky")
    owners = set()
    for key in (b"k1", b"k2", b"k3", b"k4", b"k5", b"k6"):
        asked = ASK._replace(key=key)
        found = {tuple(peers.names(content=asked)) for _ in range(5)}
        assert len(found) == 1
        owners |= found
    assert len(owners) > 1


@pytest.mark.parametrize("policy", ["round_robin", "failover", "sticky", None])
def test_an_excluded_peer_receives_nothing(peers, policy):
    for name in "abc":
        peers.add(Session(name), policy and "workers", policy)
    assert [peers.names([b"a", b"c"]) for _ in range(5)] == [["b"]] * 5
    assert peers.names([b"a", b"b", b"c"]) == []


def test_a_session_that_has_ended_receives_nothing(peers):
    stream = peers.add(Session("a"))
    stream.session.is_up = False
    assert peers.names() == ["a"]
    stream.session.has_ended = True
    assert peers.names() == []


def test_a_full_group_refuses_a_request_although_an_observer_has_space(peers):
    peers.add(Session("observer"))
    member, other = peers.add(Session("a"), "workers"), peers.add(Session("b"), "others")
    member.pending = 10
    assert peers.names() == ["observer", "b"]
    other.pending = 10
    with pytest.raises(WouldBlock, match="'jobs'"):
        peers.find()
    assert (member.load, other.load) == (0, 1)


def test_a_full_member_of_a_group_is_passed_over(peers):
    full, other = (peers.add(Session(name), "workers") for name in "ab")
    full.pending, full.load = 10, 10
    assert [peers.names() for _ in range(4)] == [["b"]] * 4
    assert other.load == 4
