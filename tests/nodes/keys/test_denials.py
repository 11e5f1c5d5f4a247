"""How a node learns that a peer denies a subscription, a publication or a request."""

import pytest

from oz.errors import PermissionDenied, Timeout
from support.keyring import Keyring
from support.waiting import DEADLINE, until

FIRST = """subscribe = { allow = ["svc.>", "notes.>"] }
reply = { allow_responses = { count = 1, seconds = 60.0 } }"""
SECOND = """publish = { allow = ["notes.allowed"] }
subscribe = { allow = ["md.>", "svc.secret"], deny = ["md.secret.>"] }
request = { allow = ["svc.*"], deny = ["svc.secret"] }"""


@pytest.fixture
def events():
    return []


@pytest.fixture
def denied():
    """Events of the node that denies."""
    return []


@pytest.fixture
def pair(make, tmp_path, events, denied):
    ring = Keyring(tmp_path, "first", "second")
    ring.permit(first=FIRST, second=SECOND)
    first = make("first", security=ring.security("first", permissions=True), on_event=denied.append)
    # Without a file of its own, so that its publications and requests reach the first node.
    second = make("second", security=ring.security("second"), on_event=events.append)
    first.wait_ready("second", timeout=DEADLINE)
    second.wait_ready("first", timeout=DEADLINE)
    return first, second


def test_a_wait_for_subscribers_names_the_denied_subscription_and_no_missing_peer(pair):
    first, second = pair
    second.subscribe("md.>")
    # The node has denied the subscription before it answers.
    with pytest.raises(PermissionDenied):
        second.wait_ready("first", timeout=DEADLINE)
    for call in (
        lambda: first.wait_for_subscribers("md.eu.x", timeout=0.05),
        lambda: first.wait_ready(subscriber="md.eu.x", timeout=0.05),
    ):
        with pytest.raises(Timeout) as raised:
            call()
        assert "may not subscribe: users.second.subscribe.deny[0]" in str(raised.value)
        assert "; peers that are up: second" in str(raised.value)
        assert "Check that the missing peer" not in str(raised.value)
    with pytest.raises(Timeout, match="Check that the missing peer"):
        first.wait_for_subscribers("other", timeout=0.05)


def test_a_denied_publication_is_an_event_and_wait_ready_raises_it_once(pair, events):
    first, second = pair
    got = first.subscribe("notes.>")
    first.wait_ready("second", timeout=DEADLINE)
    for number in range(3):
        second.publish("notes.other", number)
    second.publish("notes.allowed", "yes")
    assert got.receive(timeout=DEADLINE).payload == "yes"
    until(lambda: [item for item in events if item.kind == "denied"])
    (event,) = [item for item in events if item.kind == "denied"]
    assert event.about == "notes.other"
    assert "users.second.publish.allow[0]" in event.text
    with pytest.raises(PermissionDenied) as raised:
        second.wait_ready("first", timeout=40)
    assert raised.value.subject == "notes.other"
    assert "users.second.publish.allow[0]" in raised.value.rule
    assert "peer 'first' denies the publication on 'notes.other'" in str(raised.value)
    second.wait_ready("first", timeout=DEADLINE)
    assert first.stats.denied == 3


def test_a_node_that_denies_messages_has_an_event_for_each_subject(pair, denied):
    first, second = pair
    first.subscribe("notes.>")
    first.subscribe("svc.>", handler=lambda message: message.payload)
    second.wait_ready("first", subscriber="svc.secret", timeout=DEADLINE)
    first.wait_ready("second", timeout=DEADLINE)
    for _ in range(3):
        second.publish("notes.other")
        with pytest.raises(PermissionDenied):
            second.request("svc.secret", timeout=60)
    until(lambda: first.stats.denied == 6)
    second.publish("notes.last")
    texts = until(
        lambda: (
            [item for item in denied if item.about == "notes.last"]
            and [item.text for item in denied if item.kind == "denied"]
        )
    )
    assert len(texts) == 3
    assert texts[0].startswith("peer 'second' may not publish 'notes.other': ")
    assert "users.second.publish.allow[0]" in texts[0]
    assert texts[1].startswith("peer 'second' may not send requests to 'svc.secret': ")


def test_a_request_whose_reply_is_denied_raises_permission_denied(make, tmp_path):
    ring = Keyring(tmp_path, "first", "second")
    ring.permit(
        first='subscribe = { allow = ["svc.>"] }\nreply = { deny = ["svc.x"] }',
        second='request = { allow = ["svc.*"] }',
    )
    first, second = (make(one, security=ring.security(one, permissions=True)) for one in ("first", "second"))
    first.subscribe("svc.x", lambda message: "reply")
    first.wait_ready("second", timeout=DEADLINE)
    second.wait_ready("first", subscriber="svc.x", timeout=DEADLINE)
    with pytest.raises(PermissionDenied, match=r"may not reply to the request for 'svc\.x'"):
        second.request("svc.x", timeout=40)
    with pytest.raises(PermissionDenied, match="may not reply"):
        list(second.request_many("svc.x", timeout=40))
