"""Attacks of a node with a trusted key and few rights, which says and asks for what it likes."""

from dataclasses import replace

import pytest
import zmq

import oz
from oz.protocol.node.presence import PREFIX, to_text
from oz.security.identity import make_uuid_of
from oz.sync.node_engine import ThreadedNode
from oz.transport.node.opening import node_settings
from oz.wire.codec import Introduction
from oz.wire.declared import declare
from oz.wire.discovery import Announce, Goodbye, pack
from oz.wire.keys import Declaration, stream_key
from support.meeting import meet
from support.waiting import DEADLINE, until

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")

MARKER = b"for others only"


@pytest.fixture
def victim(make, feed):
    return meet(make("other", peers=feed.endpoint), feed)


@pytest.fixture
def evil(node_ring, directory):
    """Make a node that does what its engine can, and not what nodes let their users do."""
    made = []

    def make(name="evil", uuid=None, **options):
        settings = node_settings(
            name=name,
            # It would hear what it says itself.
            echo=False,
            security=node_ring.security("desk"),
            directory=directory / name,
            **options,
        )
        made.append(Evil(settings if uuid is None else replace(settings, uuid=uuid)))
        return made[-1]

    yield make
    for one in made:
        one.shell.close(drain=False, timeout=1.0)


class Evil:
    def __init__(self, settings):
        self.shell = ThreadedNode(settings).open()
        self.engine = self.shell.engine
        self.heard = []

    @property
    def endpoint(self):
        return self.engine.endpoint

    @property
    def publisher(self):
        return self.engine.sockets.main

    def is_up(self, name):
        return name in [one.name for one in self.engine.membership.up]

    def ask_for(self, text, dialect="nats"):
        sub, pattern = self.engine.sockets.sub, oz.compile(text, dialect)
        self.shell.call(lambda: sub.subscribe(pattern, handler=self.heard.append))

    def denials(self):
        return self.shell.call(self.engine.sockets.sub.denials)

    def say(self, subject, value):
        engine = self.publisher.engine
        return engine.sender.publish(engine.socket, subject, value)


def test_nobody_has_the_inbox_of_another_nor_what_nodes_say_to_each_other(feed, victim, evil):
    attacker = evil(peers=feed.endpoint)
    until(lambda: attacker.is_up("feed"))
    patterns = [
        ("_INBOX.>", "nats"),
        (f"_INBOX.{victim.uuid.hex()}.>", "nats"),
        (f"_OZ.NAMING.{victim.uuid.hex()}", "nats"),
        ("_OZ.>", "nats"),
        (r"_.*", "regex"),
        (r"(_INBOX|x)\..*", "regex"),
        (f"_INBOX.{victim.uuid.hex()}*", "redis"),
    ]
    for text, dialect in patterns:
        attacker.ask_for(text, dialect)
    until(lambda: len(attacker.denials()) >= len(patterns))
    feed.subscribe("svc.x", handler=lambda message: message.reply(1))
    victim.wait_for_subscribers(1, "svc.x", timeout=DEADLINE)
    with pytest.raises(oz.Timeout):
        # The victim has no right to ask, so ask for it: the answer is on the wire all the same.
        victim.request("svc.x", 0, timeout=0.1)
    own = attacker.engine.settings.uuid.hex()
    assert [one.subject for one in attacker.heard if own not in one.subject] == []


def test_an_announcement_is_believed_only_from_its_own_key(feed, victim, evil):
    attacker = evil("other", uuid=victim.uuid, peers=feed.endpoint)
    until(lambda: attacker.denials())
    assert [one.uuid for one in feed.peers] == [victim.uuid]
    assert feed.peers[0].key == victim.announcement.key
    meet(victim, feed)


def test_nobody_is_announced_by_the_holder_of_another_key(feed, evil, node_ring):
    attacker = evil(peers=feed.endpoint)
    until(lambda: attacker.is_up("feed"))
    key = node_ring.public("other")
    ghost = replace(feed.announcement, name="ghost", uuid=make_uuid_of(key, bytes), key=key)
    attacker.ask_for(f"{PREFIX}{to_text(ghost)}")
    until(lambda: attacker.denials())
    assert [one.name for one in feed.peers] == ["evil"]


def test_nobody_speaks_in_the_name_of_another(make, feed, evil, node_ring):
    """The victim listens to the attacker, whom its user has named, as to the node of a trusted key."""
    other = make_uuid_of(node_ring.public("feed"), bytes)
    attacker = evil(uuid=other, bind="tcp://127.0.0.1:*")
    with make("other", peers=attacker.endpoint) as victim:
        # It may publish these, in its own name.
        notes = victim.subscribe("notes.>")
        until(lambda: attacker.publisher.interest("notes.x"))
        until(lambda: attacker.say("notes.x", "forged") or victim.stats.denied)
        assert notes.waiting == 0
        assert victim.peers == []


def test_a_reply_needs_a_right_whatever_inbox_it_comes_to(feed, evil, victim):
    attacker = evil(peers=feed.endpoint)
    until(lambda: attacker.is_up("feed"))
    denied = feed.stats.denied
    attacker.say(f"_INBOX.{feed.uuid.hex()}.1{'7' * 39}", "forged")
    # By the default nobody may reply, asked or not.
    until(lambda: feed.stats.late_replies or feed.stats.denied > denied)
    assert feed.stats.late_replies == 0


def test_nobody_has_an_answer_sent_to_another(feed, victim, evil):
    attacker = evil(peers=feed.endpoint)
    until(lambda: attacker.is_up("feed"))
    asked = []
    feed.subscribe("svc.x", handler=asked.append)
    until(lambda: attacker.publisher.interest("svc.x"))
    inbox = f"_INBOX.{victim.uuid.hex()}.1{'7' * 39}"
    attacker.publisher.send_request("svc.x", 0, None, None, inbox)
    until(lambda: feed.stats.denied)
    attacker.publisher.send_request("svc.x", 1, None, None, f"{attacker.engine.requests.prefix}1{'7' * 39}")
    until(lambda: [one.payload for one in asked] == [1])


def test_nobody_is_introduced_under_another_s_uuid(feed, victim, evil):
    attacker = evil(peers=feed.endpoint, bind="tcp://127.0.0.1:*")
    until(lambda: attacker.is_up("feed") and "evil" in [one.name for one in feed.peers])
    lie = replace(
        victim.announcement, endpoints=(attacker.endpoint,), key=attacker.engine.sockets.announcement.key
    )
    attacker.say(f"_OZ.NAMING.{feed.uuid.hex()}", Introduction(to_text(lie)))
    until(lambda: feed.stats.refused_introductions)
    meet(victim, feed)


def test_a_name_server_believes_of_a_node_only_its_own_key(make, server, node_ring):
    victim = make("feed", nameserver=server.endpoint, bind="tcp://127.0.0.1:*")
    forged = replace(victim.announcement, name="forged", key=node_ring.public("desk"))
    key = node_ring.public("other")
    ghost = replace(forged, uuid=make_uuid_of(key, bytes), key=key)
    with zmq.Context() as context, node_ring.equip(context.socket(zmq.DEALER), "desk", "ns") as dealer:
        dealer.linger = 0
        dealer.connect(server.endpoint)
        for said in (
            Announce(ghost, False),
            Announce(replace(ghost, key=node_ring.public("desk")), False),
            Announce(forged, False),
            Goodbye(victim.uuid),
        ):
            dealer.send(pack(said))
        until(lambda: server.stats.refused == 4)
    assert [one.name for one in server.nodes] == ["feed"]


@pytest.mark.parametrize("wants_last_value", [False, True])
def test_what_is_denied_is_not_on_the_wire(make, node_ring, wants_last_value):
    """A plain socket with the key reads all that comes to it, inside its own encryption."""
    feed = make("feed", bind="tcp://127.0.0.1:*", last_value=True, codec=Plain())
    feed.publish("md.secret.x", MARKER)
    stream = bytes(range(16))
    patterns = [
        [oz.compile("md.secret.>")],
        [oz.compile("_OZ.>")],
        [oz.compile("md.*.x")],
        [oz.compile("md.eu")],
    ]
    with zmq.Context() as context, node_ring.equip(context.socket(zmq.XSUB), "desk", "feed") as socket:
        socket.linger = 0
        socket.connect(feed.endpoint)
        socket.send(b"\x01")
        socket.send(b"\x01_")
        for number, asked in enumerate(patterns, 1):
            declared = tuple(map(declare, asked))
            chunk = Declaration(stream, number, wants_last_value=wants_last_value, patterns=declared)
            socket.send(b"\x01" + chunk.encode())
        socket.send(b"\x01" + stream_key(stream))
        read = []

        def has_come():
            feed.publish("md.secret.x", MARKER)
            feed.publish("md.eu", b"granted")
            while socket.poll(0):
                read.append(socket.recv())
            return any(b"granted" in frame for frame in read)

        until(has_come)
    assert not [frame for frame in read if MARKER in frame]


class Plain:
    @staticmethod
    def encode(value):
        return bytes(value)

    @staticmethod
    def decode(payload):
        return payload
