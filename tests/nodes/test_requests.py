"""Requests and their holders: waiting, losses, error replies, timeouts. `test_request_laws.py` has the laws."""

from types import SimpleNamespace

import pytest

from oz.errors import NoResponders, PeerLost, ReplyError, Timeout, WouldBlock
from oz.node.requests import Content, Requests, Send, inbox_node

ASK = Content("jobs", b"jobs", b"1")
NODE = bytes(range(16))


def make_stream(member, *, redelivers=False, group="workers"):
    return SimpleNamespace(session=SimpleNamespace(member=member), redelivers=redelivers, group=group)


class Members:
    """Streams of peers that match: the plain ones, and the first member of a group, receive a request."""

    def __init__(self, *nodes):
        self.streams, self.is_greeting, self.is_full = [make_stream(node) for node in nodes], False, False

    def all(self, content, excluded, now):
        if self.is_full:
            raise WouldBlock("full")
        found = [stream for stream in self.streams if stream.session.member not in excluded]
        return [item for item in found if item.group is None] + [item for item in found if item.group][:1]

    def leave_group(self):
        """Make all subscriptions plain ones."""
        for stream in self.streams:
            stream.group = None

    def name(self, node):
        return node.decode()


@pytest.fixture
def members():
    return Members(b"a", b"b", b"c")


@pytest.fixture
def requests(members):
    return Requests(NODE, members)


def begin(requests, *, timeout=1.0, retries=0):
    """Return a request that one stream holds, and this stream."""
    request, (send,) = requests.request(ASK, 0.0, timeout=timeout, retries=retries)
    assert send.request is request
    return request, send.stream


def end_session(requests, stream, now=0.1):
    return requests.session_ended(stream.session, now)


def test_another_member_may_answer_a_redelivered_request(requests, members):
    members.streams = [make_stream(b"a", redelivers=True)]
    request, _ = begin(requests)
    assert requests.on_reply(b"b", request.reply_to, "yes") == [request]


def test_a_request_waits_while_a_link_is_greeting(requests, members):
    streams, members.streams, members.is_greeting = members.streams, [], True
    request, effects = requests.request(ASK, 0.0)
    assert effects == []
    assert requests.changed(0.1) == []
    members.streams = streams
    assert requests.changed(0.2) == [Send(streams[0], request)]
    assert requests.changed(0.3) == []


def test_a_request_with_a_route_does_not_wait(requests, members):
    members.streams, members.is_greeting = [], True
    with pytest.raises(NoResponders):
        requests.request(ASK._replace(route=object()), 0.0)


def test_a_waiting_request_fails_when_no_link_is_greeting(requests, members):
    members.streams, members.is_greeting = [], True
    request, _ = requests.request(ASK, 0.0)
    members.is_greeting = False
    assert requests.tick(0.1) == [request]
    assert isinstance(request.error, NoResponders)
    assert len(requests) == 0


def test_a_timeout_names_the_holder(requests):
    request, _ = requests.request(ASK, 1.0, timeout=2.0)
    assert requests.next_deadline() == 3.0
    assert requests.tick(2.9) == []
    assert requests.tick(3.0) == [request]
    assert isinstance(request.error, Timeout)
    assert "'a'" in str(request.error)


def test_the_timeout_of_a_waiting_request_says_so(requests, members):
    members.streams, members.is_greeting = [], True
    request, _ = requests.request(ASK, 0.0)
    many, _ = requests.request(ASK, 1.0, is_many=True)
    assert requests.tick(1.0) == [request]
    assert "no peer has announced a subscription" in str(request.error)
    assert requests.tick(2.0) == [many]
    assert isinstance(many.error, Timeout)


def test_a_full_stream_is_an_error_of_the_call_or_of_the_retry(requests, members):
    request, stream = begin(requests, retries=1)
    members.is_full = True
    with pytest.raises(WouldBlock):
        requests.request(ASK, 0.0)
    assert end_session(requests, stream) == [request]
    assert isinstance(request.error, WouldBlock)
    assert len(requests) == 0


def test_a_request_fails_that_its_only_stream_does_not_accept(requests, members):
    request, _ = begin(requests)
    members.leave_group()
    many, _ = requests.request(ASK, 0.0, is_many=True)
    assert requests.fail(many, WouldBlock("full")) == []
    assert requests.fail(request, WouldBlock("full")) == [request]
    assert requests.fail(request, WouldBlock("full")) == []
    assert isinstance(request.error, WouldBlock)


def test_an_observer_receives_a_request_beside_its_holder(requests, members):
    members.streams.insert(0, make_stream(b"o", group=None))
    request, effects = requests.request(ASK, 0.0, retries=1)
    assert [effect.stream.session.member for effect in effects] == [b"o", b"a"]
    # The observer is no holder whose loss matters, and none that receives the request twice.
    first, second = members.streams[1], members.streams[2]
    assert end_session(requests, first) == [Send(second, request)]
    assert end_session(requests, members.streams[0]) == []
    assert end_session(requests, second) == [request]
    assert isinstance(request.error, PeerLost)
    assert request.error.peer == "b"


def test_an_error_reply_counts_if_no_other_holder_is_left(requests, members):
    members.leave_group()
    request, _ = requests.request(ASK, 0.0)
    error = ReplyError("no", subject="jobs", kind="ValueError", node="a")
    assert requests.on_reply(b"a", request.reply_to, error) == []
    assert requests.on_reply(b"b", request.reply_to, "yes") == [request]
    assert request.error is None
    assert list(request.replies) == ["yes"]
    failed, _ = requests.request(ASK, 0.0)
    for node in (b"a", b"b"):
        assert requests.on_reply(node, failed.reply_to, error) == []
    assert requests.on_reply(b"c", failed.reply_to, error) == [failed]
    assert failed.error is error


def test_an_error_of_an_observer_leaves_the_other_streams_of_its_node(requests, members):
    members.streams[:] = [make_stream(b"a", group=None), make_stream(b"a")]
    error = ReplyError("no", subject="jobs", kind="ValueError", node="a")
    request, _ = requests.request(ASK, 0.0)
    assert requests.on_reply(b"a", request.reply_to, error) == []
    assert requests.on_reply(b"a", request.reply_to, "yes") == [request]
    assert (request.error, list(request.replies)) == (None, ["yes"])
    failed, _ = requests.request(ASK, 0.0)
    assert requests.on_reply(b"a", failed.reply_to, error) == []
    assert requests.on_reply(b"a", failed.reply_to, error) == [failed]
    assert failed.error is error


def test_a_timeout_or_a_loss_behind_an_error_reply_is_that_error(requests, members):
    members.leave_group()
    error = ReplyError("no", subject="jobs", kind="ValueError", node="a")
    first, _ = requests.request(ASK, 0.0)
    requests.on_reply(b"a", first.reply_to, error)
    assert requests.tick(1.0) == [first]
    assert first.error is error
    second, _ = requests.request(ASK, 1.0)
    requests.on_reply(b"a", second.reply_to, error)
    end_session(requests, members.streams[1])
    end_session(requests, members.streams[2])
    assert second.error is error


def test_request_many_ends_without_an_error_at_its_timeout(requests):
    request, _ = requests.request(ASK, 0.0, is_many=True)
    requests.on_reply(b"a", request.reply_to, 1)
    assert requests.tick(1.0) == [request]
    assert request.error is None


def test_request_many_goes_on_until_all_holders_are_lost(requests, members):
    members.leave_group()
    first, _ = requests.request(ASK, 0.0, is_many=True)
    second, _ = requests.request(ASK, 0.0, is_many=True)
    requests.on_reply(b"a", first.reply_to, 1)
    a, b, c = members.streams
    assert end_session(requests, a) == []
    assert end_session(requests, b) == []
    assert end_session(requests, c) == [first, second]
    assert first.error is None
    assert isinstance(second.error, PeerLost)


def test_deadlines_of_ended_requests_are_removed(requests):
    for _ in range(1_000):
        request, _ = begin(requests, timeout=1e6)
        requests.on_reply(b"a", request.reply_to, "yes")
    assert len(requests._deadlines) <= 66
    begin(requests, timeout=3.0)
    assert requests.next_deadline() == 3.0


def test_the_node_of_an_inbox_is_read_from_its_subject(requests):
    request, _ = begin(requests)
    assert inbox_node(request.reply_to) == NODE
    for other in ("jobs", "_INBOX.", "_INBOX.1.2", "_INBOX." + 32 * "g" + ".1", "_INBOX." + 16 * " a" + ".1"):
        assert inbox_node(other) is None
    assert inbox_node("_INBOX." + NODE.hex()) is None
