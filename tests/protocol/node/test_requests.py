"""Requests, when they are over, and the replies that nobody waits for any more."""

import os
from types import SimpleNamespace

import pytest

import oz
from oz.protocol.node.request_client import RequestClient
from oz.protocol.node.requests import SECRET_DIGITS, Request, Requests, owner
from oz.protocol.node.subscription import NodeStats
from oz.wire.codec import Failure
from support.cases import each


def reply(inbox, payload=b""):
    return SimpleNamespace(subject=inbox, payload=payload)


def asked(requests, timeout=None, limit=None, wake=lambda: None):
    """Make a request at the time 100, and begin it."""
    request = Request("svc", timeout, limit, 100.0, wake)
    return request, requests.begin(request)


def answers(request, now=100.0):
    """Take out what has come."""
    return [one.payload for one in iter(lambda: request.next_answer(now), None)]


def test_a_failure_in_the_inbox_raises_reply_error():
    requests = Requests(bytes(16))
    request, inbox = asked(requests, limit=1)
    requests.take(reply(f"{inbox}.other", b""))
    assert (answers(request), requests.late) == ([], 1)
    requests.take(reply(inbox, Failure("ValueError", "bad size", "pricing")))
    with pytest.raises(oz.ReplyError, match="handler of pricing raised ValueError at 'svc': bad size"):
        request.next_answer(100.0)
    assert request.is_over


def test_reply_to_a_number_without_its_secret_is_refused():
    refused = []
    requests = Requests(bytes(16), lambda size: b"\x07" * size, refused.append)
    request, inbox = asked(requests)
    number, secret = inbox[:-SECRET_DIGITS], int.from_bytes(b"\x07" * 16, "big")
    assert int(inbox[-SECRET_DIGITS:]) == secret
    for other in (secret + 1, 0):
        requests.take(reply(f"{number}{other:0{SECRET_DIGITS}d}"))
    requests.take(reply(number))
    requests.take(reply("\udcff" * (len(inbox) + 1)))
    requests.take(reply(inbox[:-1] + "\udcff"))
    assert (answers(request), len(refused), requests.late) == ([], 3, 2)
    requests.take(reply(inbox, b"a"))
    assert answers(request) == [b"a"]


@each(
    "subject",
    [
        "orders.new", "", "_INBOX", f"_INBOX.{'0' * 32}", f"_INBOX.{'0' * 32}.", f"_INBOX.{'0' * 32}.>",
        f"_INBOX.{'0' * 32}.1.failed", f"_INBOX.{'0' * 31}.1", f"_INBOX.{'0' * 32}.{'1' * 61}",
        f"_INBOX.{'0' * 32}.1\n", f"_INBOX.{'0' * 32}.\u0661", b"\xff",
    ],
)  # fmt: skip
def test_only_inboxes_have_owners(subject):
    assert owner(subject) is None
    assert owner(f"_INBOX.{'0' * 32}.1") == owner(f"_INBOX.{'0' * 32}.{'1' * 60}".encode()) == bytes(16)


def test_answers_come_first_and_then_what_was_raised_with_the_others_as_notes():
    requests = Requests(bytes(16))
    request, inbox = asked(requests, timeout=1.0)
    for number in range(13):
        requests.take(reply(inbox, Failure("ValueError", str(number), "pricing")))
    requests.take(reply(inbox, b"x"))
    assert request.next_answer(500.0).payload == b"x"
    with pytest.raises(oz.ReplyError, match="'svc': 0") as caught:
        request.next_answer(500.0)
    assert (len(caught.value.__notes__), caught.value.__notes__[-1]) == (11, "and 2 more")


def test_a_request_is_over_at_its_limit_or_its_deadline():
    requests = Requests(bytes(16))
    request, inbox = asked(requests, limit=2)
    for payload in b"abc":
        requests.take(reply(inbox, payload))
    assert (request.next_deadline(), answers(request), request.is_over) == (None, [*b"ab"], True)
    request, inbox = asked(requests, timeout=1.0)
    assert (request.next_deadline(), answers(request, 100.9), request.is_over) == (101.0, [], False)
    requests.take(reply(inbox, b"a"))
    assert (answers(request, 101.0), request.is_over) == ([b"a"], True)
    with pytest.raises(oz.Timeout, match=r"no answer to 'svc' in 0\.5 s"):
        asked(requests, timeout=0.5)[0].next_answer(100.5)


def test_a_node_that_closes_wakes_those_who_wait_and_those_who_begin_later():
    woken, requests = [], Requests(bytes(16))
    before, inbox = asked(requests, wake=lambda: woken.append("before"))
    requests.take(reply(inbox, b"a"))
    requests.close()
    after, _ = asked(requests, wake=lambda: woken.append("after"))
    assert woken == ["before", "before", "after"]
    assert before.next_answer(100.0).payload == b"a"
    for request in (before, after):
        with pytest.raises(oz.ClosedError):
            request.next_answer(100.0)


class Peers:
    """What a client asks of its node: a publisher, and who is there."""

    def __init__(self, known, refusals=0):
        self.known, self.refusals, self.sent = known, refusals, []
        self.expected, self.gone, self.most = 0, 0, []

    def interest(self, subject):
        return self.known is True

    def expect_others(self, most):
        self.expected += 1
        self.most.append(most)

    def go(self):
        self.gone += 1

    def send_request(self, subject, payload, headers, key, reply_to):
        self.sent.append((subject, payload, headers, key, reply_to))
        return iter([0.01] * self.refusals) if self.refusals else None

    def client(self):
        stats, requests = NodeStats(), Requests(bytes(16))
        parts = (lambda _: self, lambda _: self.known, lambda subject: oz.NoResponders(subject))
        return RequestClient(requests, stats, *parts), requests, stats


held = []
"""Who asks holds its request."""


def begun(client):
    held.append(Request("svc", 1.0, 1, 100.0, lambda: None))
    return client.begin(held[-1], "svc", b"x", None, None)


def test_a_request_goes_out_at_once_where_somebody_may_answer():
    peers = Peers(True)
    client, requests, stats = peers.client()
    assert begun(client) is None
    ((*sent, inbox),) = peers.sent
    assert sent == ["svc", b"x", None, None]
    assert owner(inbox) == bytes(16)
    assert (len(requests), stats.requests) == (1, 1)


def test_of_many_that_are_asked_again_half_go_before_the_others():
    peers = Peers(True)
    client, requests, _ = peers.client()
    for _ in range(40):
        begun(client)
    inboxes = [inbox for *_, inbox in peers.sent]
    for inbox in inboxes:
        requests.take(reply(inbox, b"x"))
    for inbox in inboxes[:-1]:
        begun(client)
        client.end_and_go(inbox)
    # Of 41 that wait, the one that ends among them.
    assert set(peers.most) == {20}


def test_a_request_waits_for_peers_that_have_not_had_their_say_and_then_says_that_nobody_answers():
    peers = Peers(None)
    client, requests, _ = peers.client()
    steps = begun(client)
    missing = next(steps)
    assert missing() is not None
    peers.known = False
    assert missing() is None
    with pytest.raises(oz.NoResponders):
        next(steps)
    assert len(requests) == 0


def test_a_request_that_is_given_up_while_it_waits_for_room_has_ended():
    client, requests, _ = Peers(True, refusals=2).client()
    steps = begun(client)
    assert (next(steps), len(requests)) == (0.01, 1)
    steps.close()
    assert len(requests) == 0


def test_what_was_not_read_and_what_comes_after_the_end_is_late():
    requests = Requests(bytes(16))
    request, inbox = asked(requests)
    for _ in range(3):
        requests.take(reply(inbox))
    assert request.next_answer(100.0) is not None
    assert (len(requests), requests.late) == (1, 0)
    requests.end(inbox)
    requests.end(inbox)
    assert (len(requests), requests.late) == (0, 2)
    requests.take(reply(inbox))
    assert requests.late == 3


def test_of_a_request_that_is_gone_before_its_end_nothing_stays():
    requests = Requests(bytes(16))
    request, inbox = asked(requests, limit=1)
    requests.take(reply(inbox))
    assert (len(requests), len(requests.answered)) == (1, 1)
    # As when a signal handler raises right before the end.
    del request
    assert (len(requests), len(requests.answered)) == (0, 0)
    requests.take(reply(inbox))
    assert requests.late == 1


def test_a_reply_that_comes_while_another_thread_ends_the_request_is_late():
    requests = Requests(bytes(16))
    # As when it ends between the look for who waits and the end of `take`.
    _held, inbox = asked(requests, wake=lambda: requests.end(inbox))
    requests.take(reply(inbox))
    assert (len(requests), requests.late) == (0, 1)


def test_what_is_asked_while_others_have_answers_and_go_on_waits_for_them_and_goes_with_the_last():
    peers = Peers(True)
    client, requests, _ = peers.client()
    inboxes = []
    for _ in range(3):
        begun(client)
        inboxes.append(peers.sent[-1][-1])
    assert (peers.expected, peers.gone) == (0, 0)
    for inbox in inboxes:
        requests.take(reply(inbox))
    client.end_and_go(inboxes[0])
    begun(client)
    assert (peers.expected, peers.gone) == (1, 0)
    client.end_and_go(inboxes[1])
    assert peers.gone == 0
    client.end_and_go(inboxes[2])
    assert peers.gone == 1
    # Nobody else is about to ask any more.
    begun(client)
    client.end_and_go(peers.sent[-1][-1])
    assert (peers.expected, peers.gone) == (1, 1)


def test_a_request_for_several_answers_that_has_some_makes_no_other_wait():
    peers = Peers(True)
    client, requests, _ = peers.client()
    many = Request("svc", 60.0, None, 100.0, lambda: None)
    client.begin(many, "svc", b"x", None, None)
    requests.take(reply(many.inbox))
    begun(client)
    assert (len(requests), peers.expected) == (2, 0)


def test_an_answer_that_another_thread_has_given_up_makes_no_other_wait():
    requests = Requests(bytes(16))
    _, inbox = asked(requests, limit=1, wake=lambda: requests.end(inbox))
    requests.take(reply(inbox))
    assert not requests.answered


def test_each_inbox_has_a_secret_of_its_own_also_where_many_are_drawn_at_once():
    draws = []
    requests = Requests(bytes(16), lambda size: draws.append(size) or os.urandom(size))
    secrets = {asked(requests)[1][-SECRET_DIGITS:] for _ in range(200)}
    assert len(secrets) == 200
    assert len(draws) < 20
