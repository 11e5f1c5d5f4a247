"""Forwarders join buses, over real sockets."""

import signal
import threading

import pytest

from oz.errors import ConfigurationError, NoResponders, ReplyError
from oz.node.roster import Roster
from oz.services.bridge import Forwarder
from oz.wire.extras import FORWARDER_ID
from oz.wire.links import FORWARDER as FORWARDER_KIND
from support.waiting import DEADLINE, until


class Collected:
    """Handler that keeps payloads."""

    def __init__(self):
        self.payloads = []
        self._lock = threading.Lock()

    def __call__(self, message):
        with self._lock:
            self.payloads.append(message.payload)

    def wait(self, count):
        until(lambda: len(self.payloads) >= count, timeout=2 * DEADLINE)
        return self.payloads


@pytest.fixture
def on(make):
    """Return a factory of nodes that find each other, and forwarders, in one directory."""
    return lambda name, bus, **options: make(name, bus=bus, near="shared", **options)


@pytest.fixture
def join(serve, directory):
    """Run a forwarder between buses in a thread."""

    def joined(*buses, **options):
        return serve(
            Forwarder(
                [{"bus": bus, "directory": f"{directory}/shared", **options.get(bus, {})} for bus in buses]
            )
        )

    return joined


def reach(publisher, subject):
    """Wait until a subject has a subscriber on the bus of a node, which may be a forwarder."""
    publisher.wait_ready(subscriber=subject, timeout=DEADLINE)


def route_of(node, subject):
    """Return the route of a subject at the publisher of a node."""
    return node._node.publisher.find_route(subject, subject.encode())


def members(node, group):
    """Return the ids of the forwarders in a group at the publisher of a node, with whether they stand by."""
    publisher = node._node.publisher
    with publisher.lock:
        found = publisher._sessions.interest.groups.get(group)
        return {
            item.session.member[-FORWARDER_ID:].hex(): item.session.is_standby
            for item in (found.members if found else ())
            if item.session.is_up
        }


def test_a_message_crosses_two_forwarders_once_with_all_its_fields(on, join):
    near, far = on("near", "lan"), on("far", "wan")
    sides = join("lan", "wan"), join("lan", "wan")
    got = far.subscribe("md.*.spot")
    reach(near, "md.eur.spot")
    position = -1
    until(lambda: len(route_of(near, "md.eur.spot").plain) == 2)
    for number in range(3):
        near.publish("md.eur.spot", {"price": number}, headers={"a": 1, "b": b"\0"}, id=(b"series", number))
        message = got.receive(timeout=DEADLINE)
        assert (message.subject, message.payload) == ("md.eur.spot", {"price": number})
        assert (dict(message.headers), message.id) == ({"a": 1, "b": b"\0"}, (b"series", number))
        assert message.origin == near._node.id
        assert position < (position := message.position) < 2**62
    until(lambda: [side.stats.received for side in sides] == [3, 3] and far.stats.repeated == 3)
    assert got.pending == 0


def test_only_subscribed_messages_cross(on, join):
    near, far = on("near", "lan"), on("far", "wan")
    forwarder = join("lan", "wan")
    got = far.subscribe("a.*")
    reach(near, "a.1")
    near.publish("b.1", 0)
    near.publish("a.1", 1)
    assert got.receive(timeout=DEADLINE).payload == 1
    assert (near.stats.unmatched, forwarder.stats.received, forwarder.stats.interests) == (1, 1, 1)
    got.unsubscribe()
    until(lambda: not near.has_subscribers("a.1"))
    assert forwarder.stats.interests == 0


def test_requests_cross(on, join):
    near, far = on("near", "lan"), on("far", "wan")
    join("lan", "wan")

    def fail(message):
        raise ValueError("no such thing")

    far.subscribe("svc.add", lambda message: message.payload + 1)
    far.subscribe("svc.fail", fail)
    far.subscribe("svc.headers", lambda message: message.reply(dict(message.headers), headers={"b": 2}))
    for subject in ("svc.add", "svc.fail", "svc.headers"):
        reach(near, subject)
    assert [near.request("svc.add", number, timeout=DEADLINE).payload for number in range(50)] == list(
        range(1, 51)
    )
    with pytest.raises(ReplyError) as raised:
        near.request("svc.fail", timeout=DEADLINE)
    assert (raised.value.kind, raised.value.text) == ("ValueError", "no such thing")
    reply = near.request("svc.headers", headers={"a": 1}, timeout=DEADLINE)
    assert (reply.payload, dict(reply.headers)) == ({"a": 1}, {"b": 2})
    with pytest.raises(NoResponders):
        near.request("svc.none", timeout=DEADLINE)


def test_a_request_to_all_reaches_responders_of_all_buses(on, join):
    near = on("near", "lan")
    join("lan", "wan", "dmz")
    for bus in ("lan", "wan", "dmz"):
        on(f"on {bus}", bus).subscribe("who", lambda message, bus=bus: bus)
    near.wait_ready("on lan", timeout=DEADLINE)
    reach(near, "who")
    # The responder on the own bus, and two buses behind one subscription of the forwarder.
    until(lambda: sorted(item.payload for item in near.request_many("who", limit=3)) == ["dmz", "lan", "wan"])


def test_allow_bounds_what_enters_a_bus(on, join):
    near, far = on("near", "lan"), on("far", "wan")
    forwarder = join("lan", "wan", wan={"allow": ["md.>", "news.*"]})
    got = far.subscribe([">", "secret.>"])
    back = near.subscribe("secret.>")
    reach(near, "md.1")
    # Both the subscription of this node and that of the forwarder.
    until(lambda: len(route_of(far, "secret.1").plain) == 2)
    for subject in ("secret.1", "news.1", "md.1"):
        near.publish(subject, subject)
    assert [got.receive(timeout=DEADLINE).payload for _ in range(2)] == ["news.1", "md.1"]
    far.publish("secret.2", "out")
    assert [back.receive(timeout=DEADLINE).payload for _ in range(2)] == ["secret.1", "out"]
    # It did not subscribe to more than may enter.
    assert forwarder.stats.received == 3


def test_a_group_and_a_subscription_beside_it_receive_a_request_once(on, join):
    near, workers = on("near", "lan"), [on(f"worker{number}", "wan") for number in range(3)]
    join("lan", "wan"), join("lan", "wan")
    asked, watched = Collected(), Collected()

    def answer(message):
        asked(message)
        return message.payload

    for worker in workers:
        worker.subscribe("svc", answer, group="workers")
    workers[0].subscribe("svc", watched)
    until(lambda: near._node.publisher.count_subscribers("svc") == 2)
    until(lambda: sorted(members(near, "workers").values()) == [False, True])
    for number in range(30):
        assert near.request("svc", number, timeout=DEADLINE).payload == number
    assert sorted(watched.wait(30)) == list(range(30))
    assert sorted(asked.payloads) == list(range(30))


@pytest.mark.parametrize("cut", [("wan",), ("lan", "wan")])
def test_a_partition_between_two_forwarders_repeats_no_job_and_loses_none(on, join, monkeypatch, cut):
    refusal = Roster._refusal

    def refuse(self, card):
        is_cut = card.kind == self.card.kind == FORWARDER_KIND and card.bus in cut
        return "cut" if is_cut else refusal(self, card)

    monkeypatch.setattr(Roster, "_refusal", refuse)
    near, far = on("near", "lan"), on("far", "wan")
    workers, done = [on(f"worker{number}", "wan") for number in range(3)], Collected()
    for worker in workers:
        worker.subscribe("job", done, group="workers")
    pair = join("lan", "wan"), join("lan", "wan")
    # Neither stands by.
    until(lambda: list(members(near, "workers").values()) == [False, False])
    far.wait_ready("worker0", "worker1", "worker2", timeout=DEADLINE)
    # Each forwarder knows that the other one is on the bus that it does not reach it on, so that it does not serve it.
    ids = {side._engine.id.hex() for side in pair}
    until(lambda: not members(far, "workers").keys() & ids)
    for number in range(300):
        near.publish("job", number)
        far.publish("job", -number - 1)
    assert sorted(done.wait(600)) == list(range(-300, 300))
    assert sum(side.stats.passed for side in pair) == 300
    assert all(side.stats.passed for side in pair)


def test_losses_are_reported_by_origin(on, start_forwarder):
    """A forwarder that is stopped for a while loses messages at their publisher."""
    near, losses = on("near", "lan", high_water_mark=10, resume_bytes=10_000), []
    far = on("far", "wan", on_event=lambda event: losses.append(event) if event.kind == "loss" else None)
    got = Collected()
    far.subscribe("a", got)
    _, process = start_forwarder()
    reach(near, "a")
    process.send_signal(signal.SIGSTOP)
    for number in range(5_000):
        near.publish("a", (number, b"x" * 1_000))
    process.send_signal(signal.SIGCONT)
    until(lambda: len(got.payloads) + far.stats.lost == 5_000, timeout=2 * DEADLINE)
    assert near.stats.dropped["full"] == far.stats.lost > 0
    until(lambda: sum(loss.count for loss in losses) == far.stats.lost)
    assert {loss.about for loss in losses} == {near._node.id.hex()}


def test_messages_cross_a_chain(on, join):
    near, far = on("near", "a"), on("far", "c")
    join("a", "b"), join("b", "c")
    got = far.subscribe("x.>")
    reach(near, "x.1")
    near.publish("x.1", 1)
    message = got.receive(timeout=DEADLINE)
    assert (message.payload, message.origin) == (1, near._node.id)
    assert len(message._extras.forwarded.via) == 2 * FORWARDER_ID
    far.subscribe("svc", lambda message: message.payload * 2)
    reach(near, "svc")
    assert near.request("svc", 4, timeout=DEADLINE).payload == 8
    got.unsubscribe()
    until(lambda: not near.has_subscribers("x.1"))


def test_a_ring_delivers_each_message_once(on, join):
    nodes = [on(f"on {bus}", bus) for bus in "abc"]
    rings = [join("a", "b"), join("b", "c"), join("c", "a")]
    boxes = [node.subscribe("x") for node in nodes]
    for node in nodes:
        until(lambda node=node: node._node.publisher.count_subscribers("x") == 3)
    for number in range(100):
        nodes[0].publish("x", number)
    for got in boxes:
        assert [got.receive(timeout=DEADLINE).payload for _ in range(100)] == list(range(100))
    nodes[0].publish("x", "end")
    for got in boxes:
        assert got.receive(timeout=DEADLINE).payload == "end"
    assert sum(ring.stats.passed for ring in rings) <= 4 * 101


@pytest.mark.parametrize(
    ("legs", "words"),
    [
        ([{"bus": "a"}], "two legs"),
        ([{"bus": "a"}, {"bus": "b"}, {"bus": "a"}], "leg 3: bus = 'a': another leg joins the same bus"),
        ([{"bus": "a"}, {}], "needs the name of its bus"),
        ([{"bus": "a"}, {"bus": "b", "nameserver": "tcp://a:1"}], "no such setting"),
    ],
)
def test_wrong_legs_are_refused(legs, words):
    with pytest.raises(ConfigurationError, match=words):
        Forwarder(legs)
