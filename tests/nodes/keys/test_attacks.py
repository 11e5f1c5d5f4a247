"""Attacks of a trusted key with few rights: sockets that send forged frames, and nodes that break the protocol."""

import os

import msgpack
import pytest
import zmq

from oz.errors import Timeout
from oz.node import engine
from oz.security.identity import make_uuid_of
from oz.wire import links
from oz.wire.links import Card, Declare, Hello, Item
from support.keyring import Keyring
from support.waiting import DEADLINE, Thread, until

RIGHTS = {
    "first": 'subscribe = { allow = ["svc.>"] }\nreply = { allow = ["svc.>"] }',
    "second": 'request = { allow = ["svc.>"] }',
    "evil": 'publish = { allow = ["md.>"] }\nsubscribe = { allow = ["md.>", "svc.>"] }\n'
    'request = { allow = ["svc.>"] }\nreply = { allow_responses = { count = 1, seconds = 30.0 } }',
}


@pytest.fixture
def ring(tmp_path):
    made = Keyring(tmp_path, "first", "second", "evil")
    made.permit(**RIGHTS)
    return made


@pytest.fixture
def keyed(make, ring):
    """Create a node with the key of its name."""

    def create(name, *, permissions=True, **options):
        return make(name, security=ring.security(name, permissions=permissions), **options)

    return create


def id_of(node):
    return node._node.id


class Socket:
    """DEALER with the key of `evil` at the endpoint of `first`."""

    def __init__(self, ring, endpoint):
        self._context = zmq.Context()
        self.socket = ring.equip(self._context.socket(zmq.DEALER), "evil", "first")
        self.socket.linger = 0
        self.socket.connect(endpoint)
        self.session = make_uuid_of(ring.public("evil"), os.urandom)

    def hello(self, member, attempt=1, card=b""):
        hello = Hello(self.session, member, links.UNKNOWN_EPOCH, attempt, 0, 0, 64 << 20, 256, card)
        self.socket.send(links.encode_hello(hello))

    def declare(self, text, dialect="nats"):
        items = [Item(1, 1, dialect, text)]
        self.socket.send(links.encode_declare(Declare(1, 0, True, {1: links.DEFAULT_OPTIONS}, items, [])))

    def control(self, kind):
        """Return the next control message of a kind."""

        def read():
            while self.socket.poll(0):
                frame = self.socket.recv()
                if frame and frame[0] == kind:
                    return links.decode_control(frame)
            return None

        return until(read)

    def close(self):
        self._context.destroy(0)


@pytest.fixture
def attack(ring):
    made = []

    def create(endpoint):
        made.append(Socket(ring, endpoint))
        return made[-1]

    yield create
    for item in made:
        item.close()


def card(node, name="evil"):
    return links.encode_card(Card(node, "test", name, "host", 1, ("tcp://127.0.0.1:9",)))


def test_nobody_gets_a_session_with_the_card_of_another_key(keyed, attack):
    first = keyed("first", bind="tcp://127.0.0.1:*")
    second = keyed("second", connect=first.endpoint)
    first.wait_ready("second", timeout=DEADLINE)
    one = attack(first.endpoint)
    one.hello(id_of(second), card=card(id_of(second), "second"))
    assert one.control(links.BYE).reason == links.KEY_REFUSED
    assert [peer.id for peer in first.peers] == [id_of(second).hex()]


def test_a_session_does_not_become_that_of_another_node(keyed, ring, attack):
    first = keyed("first", bind="tcp://127.0.0.1:*")
    second = keyed("second", connect=first.endpoint)
    first.wait_ready("second", timeout=DEADLINE)
    one, own = attack(first.endpoint), make_uuid_of(ring.public("evil"), os.urandom)
    # A session without a card needs no proof, and the card of the second HELLO is true.
    one.hello(id_of(second))
    one.control(links.WELCOME)
    one.hello(own, attempt=2, card=card(own))
    assert one.control(links.BYE).reason == links.MALFORMED
    assert first._node.publisher._sessions.by_node.keys() <= {id_of(first), id_of(second)}


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("_INBOX.>", "nats"), ("_INBOX.{victim}.>", "nats"), ("_OZ.>", "nats"), ("secret.>", "nats"),
        ("_.*", "regex"), ("(_INBOX|x)[.].*", "regex"), ("_INBOX.{victim}*", "redis"),
    ],
)  # fmt: skip
def test_a_socket_gets_no_subjects_of_others(keyed, attack, text, dialect):
    first = keyed("first", bind="tcp://127.0.0.1:*")
    second = keyed("second", connect=first.endpoint)
    first.wait_ready("second", timeout=DEADLINE)
    one = attack(first.endpoint)
    one.hello(make_uuid_of("evil", os.urandom))
    one.control(links.WELCOME)
    one.declare(text.replace("{victim}", id_of(second).hex()), dialect)
    assert [refused.sid for refused in one.control(links.ANSWER).refused] == [1]


@pytest.mark.parametrize("has_permissions", [True, False])
def test_nobody_has_a_reply_sent_to_another(keyed, has_permissions):
    first = keyed("first", bind="tcp://127.0.0.1:*", permissions=has_permissions)
    second = keyed("second", connect=first.endpoint)
    evil = keyed("evil", connect=first.endpoint)
    handled = []

    def handle(message):
        handled.append(message.payload)
        return message.payload

    first.subscribe("svc.slow", lambda message: None)
    first.subscribe("svc.x", handle)
    for item in (second, evil):
        first.wait_ready(item.name, timeout=DEADLINE)
        item.wait_ready(subscriber="svc.x", timeout=DEADLINE)
    requests = evil._node.exchange._requests
    own, requests._inbox = requests._inbox, f"_INBOX.{id_of(second).hex()}."
    with pytest.raises(Timeout):
        evil.request("svc.x", "forged", timeout=0.5)
    requests._inbox = own
    assert evil.request("svc.x", "own", timeout=40).payload == "own"
    assert handled == (["own"] if has_permissions else ["forged", "own"])
    # It would be a late reply.
    assert second.request("svc.x", "true", timeout=40).payload == "true"
    assert second.stats.late_replies == 0


def test_a_reply_comes_from_the_node_that_was_asked(keyed):
    first = keyed("first", bind="tcp://127.0.0.1:*")
    evil = keyed("evil", connect=first.endpoint)
    second = keyed("second", connect=first.endpoint)
    inbox = first.subscribe("svc.x")
    for item in (first, evil, second):
        item.wait_ready(count=2, timeout=DEADLINE)
    second.wait_ready(subscriber="svc.x", timeout=DEADLINE)
    asking = Thread(lambda: second.request("svc.x", "question", timeout=40))
    question = inbox.receive(timeout=DEADLINE)
    reply(evil, question, b"\xa6forged")
    until(lambda: second.stats.late_replies)
    reply(first, question, b"\xa4true")
    assert asking.outcome().payload == "true"


def reply(node, question, payload):
    node._node.exchange.send_reply(question.reply_to, payload, None)


def test_replies_come_as_often_as_the_file_says(keyed, ring):
    evil = keyed("evil", bind="tcp://127.0.0.1:*")
    second = keyed("second", connect=evil.endpoint)

    def twice(message):
        message.reply(1)
        return 2

    evil.subscribe("svc.x", twice)
    evil.wait_ready("second", timeout=DEADLINE)
    second.wait_ready(subscriber="svc.x", timeout=DEADLINE)
    assert [item.payload for item in second.request_many("svc.x", timeout=1)] == [1]
    assert second.stats.denied == 1


def test_introductions_come_from_the_key_of_the_peer_only(keyed, monkeypatch):
    # The id of the node does not belong to its key.
    own = engine.make_uuid_of
    monkeypatch.setattr(engine, "make_uuid_of", lambda key, random: own("another key", random))
    evil = keyed("evil", bind="tcp://127.0.0.1:*", echo=False)
    monkeypatch.undo()
    # Without this the link ends before a message can come.
    proofs = engine.proofs
    monkeypatch.setattr(proofs, "card_of_link", lambda link, *_: proofs.decode_card(link.card))
    first = keyed("first", connect=evil.endpoint)
    introduction = msgpack.packb([(b"a ghost of a bus", ["tcp://127.0.0.1:9"])])

    def is_denied():
        evil._node.publisher.direct(id_of(first), engine.INTRODUCTION, introduction, None)
        return first.stats.denied

    until(is_denied)
    assert b"a ghost of a bus" not in first._node.roster.by_id
    assert "tcp://127.0.0.1:9" not in first._node.subscriber.places


def test_node_with_the_id_of_another_key_is_no_peer(keyed, ring, directory, monkeypatch):
    victim = keyed("first", bind="tcp://127.0.0.1:*", directory=f"{directory}/1")
    # The thief has a trusted key, and the id of a node with another key.
    own = engine.make_uuid_of
    monkeypatch.setattr(engine, "make_uuid_of", lambda key, random: own(ring.public("first"), random))
    thief = keyed("evil", bind="tcp://127.0.0.1:*", connect=victim.endpoint, directory=f"{directory}/3")
    monkeypatch.undo()
    thief.subscribe("secret")
    second = keyed("second", connect=[victim.endpoint, thief.endpoint], directory=f"{directory}/2")
    second.wait_ready("first", timeout=DEADLINE)
    with pytest.raises(Timeout):
        thief.wait_ready(count=1, timeout=1)
    assert [peer.name for peer in victim.peers] == ["second"]
    assert [peer.name for peer in second.peers] == ["first"]
    assert not victim.has_subscribers("secret")
