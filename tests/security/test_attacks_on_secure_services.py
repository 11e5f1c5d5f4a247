"""Attacks of a trusted key with few rights on gateways, forwarders, recorders and replays."""

from contextlib import ExitStack, suppress

import pytest
import zmq

import oz
from oz.services import gateway as gateway_module
from oz.services.forwarder import Forwarder
from oz.services.gateway import Gateway
from oz.services.link import Relayed
from support.keyring import Keyring
from support.waiting import DEADLINE, Thread, until

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")

HUB = 'publish = { allow = [">"] }\nsubscribe = { allow = [">"] }'
DESK = 'subscribe = { allow = ["md.>"], deny = ["md.secret.>"] }\npublish = { allow = ["notes.>"] }'
SUBJECTS = ("orders.1", "md.secret.x", "_INBOX.x", "md.eu")
PREFIXES = (b"", b"m", b"md.", b"md.s", b"md.secret.x", b"orders", b"_", b"\xff")
PATTERNS = [
    (">", "nats"),
    ("md.*.x", "nats"),
    ("orders.>", "nats"),
    ("*", "redis"),
    (r"(md|orders)\..*", "regex"),
    ("", "zmq"),
    ("md.secret", "zmq"),
]


@pytest.fixture
def ring(tmp_path):
    made = Keyring(tmp_path, "hub", "desk")
    made.permit(hub=HUB, desk=DESK)
    return made


class Attacker:
    """Asks for all that it may not have, by plain sockets and by oz's, beside the little that it may."""

    def __init__(self, ring, endpoint, stack):
        self._security = ring.security("desk")
        self.seen = []
        context = stack.enter_context(zmq.Context())
        self._plain = ring.equip(stack.enter_context(context.socket(zmq.SUB)), "desk", "hub")
        self._plain.linger = 0
        for prefix in PREFIXES:
            self._plain.subscribe(prefix)
        self._plain.connect(endpoint)
        self._subscribers = []
        for filtering in ("prefix", "publisher"):
            for text, dialect in PATTERNS:
                made = oz.Subscriber(endpoint, filtering=filtering, security=self._security)
                self._subscribers.append(stack.enter_context(made))
                made.subscribe(text, dialect=dialect)
        # What such a publisher publishes may be anything, so that no prefix is granted.
        made.subscribe("md.eu")

    def look(self):
        """Take in what has come, and tell whether what is granted has."""
        while self._plain.poll(0):
            self.seen.append(self._plain.recv_multipart()[0])
        for one in self._subscribers:
            with suppress(oz.Timeout, oz.PermissionDenied):
                self.seen.append(one.receive(timeout=0.001).subject.encode())
        return b"md.eu" in self.seen


def test_nothing_that_is_denied_comes_through_a_replay(ring, tmp_path):
    pytest.importorskip("pyarrow")
    from oz.journal import Journal, Writer
    from oz.services.replayer import replay

    writer = Writer(str(tmp_path / "recorded"))
    writer.append([(subject, b"recorded") for subject in SUBJECTS])
    writer.close()
    options = {"dialect": "zmq", "security": ring.security("hub", permissions=True)}
    with ExitStack() as stack, oz.Publisher("tcp://127.0.0.1:*", **options) as publisher:
        attacker = Attacker(ring, publisher.endpoint, stack)
        while not attacker.look():
            replay(Journal(str(tmp_path / "recorded")), publisher)
        assert set(attacker.seen) == {b"md.eu"}


@pytest.fixture
def made_gateway(ring, monkeypatch):
    monkeypatch.setattr(gateway_module, "require_pgm", lambda: None)
    with Gateway(
        receive="epgm://127.0.0.1;239.192.1.1:5555",
        send="epgm://127.0.0.1;239.192.1.1:5556",
        subscribers="tcp://127.0.0.1:*",
        publishers="tcp://127.0.0.1:*",
        security=ring.security("hub", permissions=True),
    ) as made:
        yield made


def test_nothing_that_is_denied_comes_down_from_a_gateway(ring, made_gateway):
    [endpoint] = made_gateway.subscribers_at
    numbers = iter(range(1_000_000))
    with ExitStack() as stack:
        attacker = Attacker(ring, endpoint, stack)
        while not attacker.look():
            for subject in SUBJECTS:
                made_gateway._pass_down(Relayed(b"o" * 16, next(numbers), subject.encode(), b""))
        assert set(attacker.seen) == {b"md.eu"}


def test_nothing_that_a_key_may_not_publish_is_multicast_or_echoed_by_a_gateway(ring, made_gateway):
    handed = []
    with ExitStack() as stack:
        options = {"security": ring.security("desk"), "dialect": "zmq"}
        attacker = stack.enter_context(oz.Publisher(connect=made_gateway.publishers_at[0], **options))
        endpoint, hub = made_gateway.subscribers_at[0], ring.security("hub")
        echoed = stack.enter_context(oz.Subscriber(endpoint, filtering="publisher", security=hub))
        echoed.subscribe(">")
        made_gateway.publisher.wait_for_subscribers(timeout=DEADLINE)
        [source] = made_gateway.sources
        while "notes.1" not in handed:
            for subject in (*SUBJECTS, "notes.1"):
                attacker.publish(subject, b"forged")
            with suppress(oz.Timeout):
                for message in source.receive_many(timeout=0):
                    handed.append(made_gateway._numbered(message).subject.decode())
        assert set(handed) == {"notes.1"}
        assert source.stats.denied
        assert echoed.receive(timeout=DEADLINE).subject == "notes.1"


def test_an_import_filter_lets_nothing_through_however_it_is_asked_for(node_ring, make, directory):
    everything = '["md.>", "orders.>", "_INBOX.>", "_OZ.FORWARDER.>"]'
    bridge = f"publish = {{ allow = {everything} }}\nsubscribe = {{ allow = {everything} }}"
    node_ring.make("bridge")
    node_ring.trust("bridge")
    rights = 'subscribe = { allow = [">"] }\npublish = { allow = [">"] }'
    node_ring.permit(feed=rights, desk=rights, bridge=bridge, other="")
    legs = [
        {"bus": "a", "directory": directory / "bus"},
        {"bus": "b", "directory": directory / "bus", "allow": ["md.>"]},
    ]
    with Forwarder(legs, security=node_ring.security("bridge", permissions=True)) as made:
        running = Thread(made.run)
        feed = make("feed", bus="a", directory=directory / "bus")
        attacker = make("desk", bus="b", directory=directory / "bus")
        seen = []
        for text, dialect in PATTERNS:
            pattern = oz.compile(text, dialect)
            attacker.subscribe(pattern, handler=lambda message: seen.append(message.subject))
        feed.wait_for_subscribers(1, "md.eu", timeout=DEADLINE)
        until(lambda: feed.publish("orders.1", 1) or feed.publish("md.eu", 1) or "md.eu" in seen)
        assert set(seen) == {"md.eu"}
        assert not feed.interest("orders.1")
        made.stop()
        running.outcome()


def test_a_recorder_is_refused_what_its_key_may_not_read(ring, tmp_path):
    pytest.importorskip("pyarrow")
    from oz.services.recorder import Recorder

    with oz.Publisher("tcp://127.0.0.1:*", security=ring.security("hub", permissions=True)) as publisher:
        options = {"filtering": "publisher", "security": ring.security("desk")}
        recorder = Recorder(tmp_path / "recorded", [">"], source=publisher.endpoint, subscriber=options)
        with recorder, pytest.raises(oz.PermissionDenied):
            recorder.run()
