"""Nodes with keys: who is a peer, and what a peer may do."""

import pytest
import zmq

from oz.errors import ConfigurationError, NoResponders, PermissionDenied, Timeout
from oz.node import engine
from support.keyring import Keyring
from support.waiting import until

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")


@pytest.fixture
def ring(tmp_path):
    return Keyring(tmp_path, "first", "second", "third")


@pytest.fixture
def keyed(make, ring):
    """Create a node with the key of its name."""

    def create(name, *, key=None, permissions=False, **options):
        return make(name, security=ring.security(key or name, permissions=permissions), **options)

    return create


def names(node):
    return [one.name for one in node.peers]


def kinds(events):
    return [one.kind for one in events]


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_nodes_with_trusted_keys_exchange_messages(keyed, directory, transport):
    options = [{}, {}, {}]
    if transport == "tcp":
        options = [{"directory": f"{directory}/{at}"} for at in range(3)]
    first = keyed("first", bind="tcp://127.0.0.1:*", **options[0])
    others = [
        keyed(name, connect=first.endpoint, **options[at]) for at, name in ((1, "second"), (2, "third"))
    ]
    for one in (first, *others):
        one.wait_ready(count=2, timeout=40)
    inboxes = [one.subscribe("a") for one in (first, *others)]
    for one in (first, *others):
        one.wait_ready()
    others[0].publish("a", 1)
    assert [got.receive(timeout=20).payload for got in inboxes] == [1, 1, 1]
    first.subscribe("double", lambda message: 2 * message.payload)
    others[1].wait_ready(subscriber="double")
    assert others[1].request("double", 21, timeout=20).payload == 42


def test_a_node_without_key_is_no_peer(make, keyed, directory):
    first, second = keyed("first", bind="tcp://127.0.0.1:*"), keyed("second")
    events = []
    stranger = make("stranger", connect=first.endpoint, on_event=events.append)
    first.wait_ready("second", timeout=40)
    second.wait_ready("first", timeout=40)
    with pytest.raises(Timeout):
        stranger.wait_ready(count=1, timeout=1)
    assert names(first) == ["second"]


def test_a_node_whose_key_is_not_trusted_is_no_peer(keyed, ring, directory):
    ring.make("stranger")
    events, refused = [], []
    first = keyed("first", bind="tcp://127.0.0.1:*", directory=f"{directory}/1", on_event=events.append)
    stranger = keyed("stranger", connect=first.endpoint, directory=f"{directory}/2", on_event=refused.append)
    until(lambda: "denied" in kinds(refused))
    with pytest.raises(Timeout):
        stranger.wait_ready("first", timeout=0)
    assert names(first) == names(stranger) == []
    ring.trust("stranger")
    stranger.wait_ready("first", timeout=40)


def test_a_node_cannot_have_the_id_of_another_key(keyed, ring, directory, monkeypatch):
    victim = keyed("first", bind="tcp://127.0.0.1:*", directory=f"{directory}/1")
    own = engine.make_uuid_of
    # The thief has a trusted key, and the id of a node with another key.
    monkeypatch.setattr(engine, "make_uuid_of", lambda key, random: own(ring.public("first"), random))
    thief = keyed("third", connect=victim.endpoint, directory=f"{directory}/3")
    monkeypatch.undo()
    thief.subscribe("secret")
    second = keyed("second", connect=victim.endpoint, directory=f"{directory}/2")
    second.wait_ready("first", timeout=40)
    with pytest.raises(Timeout):
        thief.wait_ready(count=1, timeout=1)
    assert names(victim) == ["second"]
    assert not victim.has_subscribers("secret")


def test_peers_are_held_to_the_permissions(keyed, ring):
    ring.permit(
        first='publish = { allow = ["md.>"] }\nsubscribe = { allow = ["svc.>"] }\nreply = { allow = ["svc.price"] }',
        second='subscribe = { allow = ["md.>"] }\nrequest = { allow = ["svc.price", "svc.other"] }',
    )
    events = []
    first = keyed("first", permissions=True)
    second = keyed("second", permissions=True, on_event=events.append)
    handled = []
    first.subscribe("svc.>", lambda message: handled.append(message.subject) or "reply")
    first.wait_ready("second", timeout=40)
    second.wait_ready(subscriber="svc.price", timeout=40)
    got, denied = second.subscribe("md.>"), second.subscribe("private.>")
    until(lambda: first.has_subscribers("md.a"))
    first.publish("md.a", 1)
    first.publish("private.a", 2)
    assert got.receive(timeout=20).payload == 1
    with pytest.raises(PermissionDenied) as raised:
        denied.receive(timeout=20)
    assert "users.second.subscribe.allow[0]" in raised.value.rule
    assert raised.value.subject.startswith("private.")
    with pytest.raises(Timeout):
        denied.receive(timeout=0)
    until(lambda: "private.>" in [one.about for one in events if one.kind == "denied"])
    assert second.request("svc.price", timeout=20).payload == "reply"
    with pytest.raises(PermissionDenied, match=r"no rule|does not cover"):
        second.request("svc.secret", timeout=60)
    with pytest.raises(Timeout):
        second.request("svc.other", timeout=0.5)
    # The second one was handled, and its reply was not allowed.
    assert handled == ["svc.price", "svc.other"]
    assert second.stats.denied == 1
    assert first.stats.denied >= 1
    with pytest.raises(NoResponders):
        second.request("nothing", timeout=20)


def test_security_may_be_the_path_of_a_file(make, keyed, ring):
    ring.permit("allow")
    ring.configure("second")
    first, second = keyed("first"), make("second", security=ring.file("second"))
    first.wait_ready("second", timeout=40)
    second.wait_ready("first", timeout=40)


def test_wrong_security_is_refused(make):
    with pytest.raises((TypeError, ConfigurationError)):
        make("first", security=5)
