"""Table tests of requests: each event in each state."""

import pytest

from oz.errors import NoResponders, PeerLost, Timeout, WouldBlock
from oz.node.requests import Content, Ended, Reply, Requests, Send

ASK = Content("jobs", b"1")


class Members:
    """Peers with a matching subscription, picked in order."""

    def __init__(self, *nodes):
        self.nodes, self.is_greeting, self.is_full = list(nodes), False, False

    def pick(self, content, excluded, now):
        if self.is_full:
            raise WouldBlock("full")
        return next((node for node in self.nodes if node not in excluded), None)

    def all(self, content, now):
        return self.nodes

    def name(self, node):
        return node.decode()


@pytest.fixture
def members():
    return Members(b"a", b"b", b"c")


@pytest.fixture
def requests(members):
    return Requests(members)


def error_of(effects):
    """Return the error of the only effect, which ends a request."""
    (effect,) = effects
    assert isinstance(effect, Ended)
    return effect.error


def test_reply_ends_a_request(requests):
    number, effects = requests.request(ASK, 0.0)
    assert effects == [Send(b"a", number, ASK)]
    assert requests.on_reply(b"a", number, "yes") == [Reply(number, "yes"), Ended(number, None)]
    assert len(requests) == 0
    assert requests.next_deadline() is None


def test_late_and_foreign_replies_are_ignored(requests):
    number, _ = requests.request(ASK, 0.0)
    assert requests.on_reply(b"b", number, "no") == []
    assert requests.on_reply(b"a", number + 1, "no") == []
    requests.on_reply(b"a", number, "yes")
    assert requests.on_reply(b"a", number, "again") == []
    assert requests.late == 3


def test_request_without_a_responder_fails_at_once(requests, members):
    members.nodes = []
    with pytest.raises(NoResponders, match=r"'jobs'.*wait_ready"):
        requests.request(ASK, 0.0)
    with pytest.raises(NoResponders):
        requests.request_many(ASK, 0.0)
    assert len(requests) == 0


def test_request_waits_while_a_link_is_greeting(requests, members):
    members.nodes, members.is_greeting = [], True
    number, effects = requests.request(ASK, 0.0)
    assert effects == []
    assert requests.changed(0.1) == []
    members.nodes = [b"b"]
    assert requests.changed(0.2) == [Send(b"b", number, ASK)]
    assert requests.changed(0.3) == []


def test_waiting_request_fails_when_no_link_is_greeting(requests, members):
    members.nodes, members.is_greeting = [], True
    requests.request(ASK, 0.0)
    members.is_greeting = False
    assert isinstance(error_of(requests.changed(0.1)), NoResponders)
    assert len(requests) == 0


def test_timeout_names_the_holder(requests, members):
    requests.request(ASK, 1.0, timeout=2.0)
    assert requests.next_deadline() == 3.0
    assert requests.tick(2.9) == []
    error = error_of(requests.tick(3.0))
    assert isinstance(error, Timeout)
    assert "'a'" in str(error)


def test_timeout_of_a_waiting_request_says_so(requests, members):
    members.nodes, members.is_greeting = [], True
    requests.request(ASK, 0.0)
    assert "no link" in str(error_of(requests.tick(1.0)))
    requests.request_many(ASK, 1.0)
    assert isinstance(error_of(requests.tick(2.0)), Timeout)


def test_request_without_timeout_has_no_deadline(requests):
    requests.request(ASK, 0.0, timeout=None)
    assert requests.next_deadline() is None


def test_lost_holder_ends_a_request_at_once(requests):
    requests.request(ASK, 0.0)
    assert requests.peer_lost(b"b", 0.1) == []
    error = error_of(requests.peer_lost(b"a", 0.1))
    assert isinstance(error, PeerLost)
    assert (error.subject, error.peer) == ("jobs", "a")
    assert "retries=1" in str(error)


def test_retries_go_to_other_members_within_one_timeout(requests):
    number, _ = requests.request(ASK, 0.0, retries=2)
    assert requests.peer_lost(b"a", 0.1) == [Send(b"b", number, ASK)]
    assert requests.on_reply(b"a", number, "late") == []
    assert requests.peer_lost(b"b", 0.2) == [Send(b"c", number, ASK)]
    assert requests.next_deadline() == 1.0
    assert isinstance(error_of(requests.peer_lost(b"c", 0.3)), PeerLost)


def test_retry_without_another_member_is_a_lost_peer(requests, members):
    members.nodes, members.is_greeting = [b"a"], True
    requests.request(ASK, 0.0, retries=5)
    assert isinstance(error_of(requests.peer_lost(b"a", 0.1)), PeerLost)


def test_full_session_is_an_error_of_the_call_or_of_the_retry(requests, members):
    requests.request(ASK, 0.0, retries=1)
    members.is_full = True
    with pytest.raises(WouldBlock):
        requests.request(ASK, 0.0)
    assert isinstance(error_of(requests.peer_lost(b"a", 0.1)), WouldBlock)
    assert len(requests) == 0


def test_request_many_ends_at_its_limit(requests):
    number, effects = requests.request_many(ASK, 0.0, limit=2)
    assert [effect.node for effect in effects] == [b"a", b"b", b"c"]
    assert requests.on_reply(b"c", number, 1) == [Reply(number, 1)]
    assert requests.on_reply(b"c", number, 2) == [Reply(number, 2), Ended(number, None)]


def test_request_many_ends_without_an_error_at_its_timeout(requests):
    number, _ = requests.request_many(ASK, 0.0)
    assert requests.on_reply(b"a", number, 1) == [Reply(number, 1)]
    assert requests.tick(1.0) == [Ended(number, None)]


def test_request_many_goes_on_until_all_holders_are_lost(requests):
    first, _ = requests.request_many(ASK, 0.0)
    second, _ = requests.request_many(ASK, 0.0)
    requests.on_reply(b"a", first, 1)
    assert requests.peer_lost(b"a", 0.1) == []
    assert requests.peer_lost(b"b", 0.1) == []
    ended, lost = requests.peer_lost(b"c", 0.1)
    assert ended == Ended(first, None)
    assert lost.number == second
    assert isinstance(lost.error, PeerLost)


def test_cancelled_request_is_forgotten(requests):
    number, _ = requests.request(ASK, 0.0)
    requests.cancel(number)
    requests.cancel(number)
    assert requests.on_reply(b"a", number, "late") == []
    assert requests.tick(1.0) == []


def test_number_of_requests_is_bounded(members):
    requests = Requests(members, max_requests=2)
    requests.request(ASK, 0.0)
    requests.request(ASK, 0.0)
    with pytest.raises(WouldBlock, match="2 requests"):
        requests.request(ASK, 0.0)


def test_deadlines_of_ended_requests_are_removed(requests):
    for _ in range(1_000):
        number, _ = requests.request(ASK, 0.0, timeout=1e6)
        requests.on_reply(b"a", number, "yes")
    assert len(requests._deadlines) <= 66
    number, _ = requests.request(ASK, 0.0, timeout=3.0)
    assert requests.next_deadline() == 3.0
