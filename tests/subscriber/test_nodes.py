"""Engine of a subscriber as a node uses it: exact endpoints, cards, direct messages, events of links."""

import os

import pytest
import zmq

import oz
from oz.errors import Timeout
from oz.subscriber.connections import Connections
from oz.subscriber.engine import Engine
from oz.transport.endpoints import EndpointError
from oz.wire import links
from oz.wire.links import Welcome
from subscriber.publishing import LinkPublisher
from subscriber.test_hostile_publishers import Attacker
from support.fault_proxy import FaultProxy
from support.waiting import Thread, until

CARD = links.encode_card(links.Card(bytes(range(16)), "md", "pricing"))


@pytest.fixture
def proxy(publisher):
    with FaultProxy(publisher.link_endpoint) as one:
        yield one


@pytest.fixture
def attacker():
    one = Attacker()
    yield one
    one.close()


def node(make, *endpoints, **options):
    """Return a subscriber that dials endpoints as a node does, and records what the hooks receive."""
    sub = make(**options)
    sub.events, sub.direct = [], []
    engine = sub._engine
    engine.card = CARD
    engine.on_link = lambda place, event: sub.events.append((place.endpoint, event, place.link.ending))
    engine.dispatcher.on_direct = lambda link, found: sub.direct.extend(found)
    for endpoint in endpoints:
        engine.dial(endpoint)
    return sub


def turns(sub, condition):
    """Let a subscriber attend until a condition holds."""
    until(lambda: sub.run(timeout=0.01) is not None and condition())


def is_live(sub, at=0):
    return sub.publishers[at].mode == "link"


def send(publisher, *numbers, payload=None, extras=None):
    """Send a direct message for each number to all nodes of a publisher."""

    def call():
        sessions = publisher.sessions
        for number in numbers:
            flat = [b"_INBOX.%d" % number, b"%d" % number if payload is None else payload, extras]
            for session in [*sessions.by_id.values()]:
                assert sessions.send_direct(session, links.encode_body(flat))
        publisher._pump()

    publisher.do(call)


def session_of(publisher):
    (session,) = publisher.do(lambda: list(publisher.sessions.by_id.values()))
    return session


# endpoints


def test_a_link_is_dialled_at_exactly_the_endpoint(make, publisher):
    sub = node(make, publisher.link_endpoint)
    sub.subscribe("a")
    sub.wait_ready()
    publisher.publish("a", payload=b"1")
    assert sub.receive(timeout=10).payload == b"1"
    assert [one.endpoint for one in sub.publishers] == [publisher.link_endpoint]
    # It is there already.
    sub._engine.dial(publisher.link_endpoint)
    assert len(sub.publishers) == 1


@pytest.mark.parametrize("scheme", ["ipc", "inproc"])
def test_links_are_dialled_over_other_transports(make, publish, tmp_path, scheme):
    endpoint = f"ipc://{tmp_path}/a" if scheme == "ipc" else f"inproc://dialled-{os.urandom(4).hex()}"
    publisher = publish(endpoint)
    sub = node(make, publisher.link_endpoint)
    turns(sub, lambda: is_live(sub))
    send(publisher, 1)
    turns(sub, lambda: sub.direct)


@pytest.mark.parametrize("filtering", ["auto", "publisher", "prefix"])
def test_a_link_that_was_dialled_never_falls_back(make, publish, filtering):
    publisher = publish(has_plain=True)
    sub = node(make, publisher.endpoint, filtering=filtering)
    sub.subscribe("a")
    with pytest.raises(Timeout, match="nothing answers"):
        sub.wait_ready(timeout=1.0)
    (place,) = sub._engine.places.values()
    assert place.plain is None
    assert place.fallback is None


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1", "tcp://127.0.0.1:*", "md"])
def test_endpoints_that_a_link_cannot_have_are_refused(make, endpoint):
    sub = node(make)
    with pytest.raises(EndpointError):
        sub._engine.dial(endpoint)
    assert sub.publishers == []


def test_multicast_has_no_links(make, monkeypatch):
    monkeypatch.setattr("oz.subscriber.connections.check", lambda endpoint, own_context: None)
    monkeypatch.setattr("oz.subscriber.connections.check_destination", lambda endpoint: None)
    with pytest.raises(EndpointError, match="no links"):
        node(make, "epgm://lo;239.192.1.1:5555")


def test_disconnect_says_bye_and_leaves_no_trace(make, publisher):
    sub = node(make)
    for number in range(3):
        sub._engine.dial(publisher.link_endpoint)
        turns(sub, lambda: is_live(sub))
        publisher.raw.append((session_of(publisher).route, b"\x05"))
        publisher.do(publisher._pump)
        turns(sub, lambda number=number: sub.stats.malformed == number + 1)
        sub._engine.disconnect(publisher.link_endpoint)
        publisher.wait_for(lambda sessions: not sessions.by_id)
    assert [event for _, event, _ in sub.events] == ["live", "answered"] * 3
    assert sub.stats.malformed == 3
    assert not sub._engine._place_of


def test_a_closed_subscriber_dials_nothing(make, publisher):
    sub = node(make)
    sub.close()
    with pytest.raises(oz.ClosedError):
        sub._engine.dial(publisher.link_endpoint)


# cards


def test_hello_has_the_member_and_the_card_of_now(make, publisher, proxy):
    publisher.sessions.card = b"of the publisher"
    sub = node(make, proxy.endpoint)
    turns(sub, lambda: is_live(sub))
    session = session_of(publisher)
    assert (session.card, sub._engine.places[proxy.endpoint].link.card) == (CARD, b"of the publisher")
    sub._engine.card = b"another"
    proxy.cut()
    turns(sub, lambda: session.card == b"another")
    with pytest.raises(ValueError, match="card"):
        sub._engine.card = bytes(links.MAX_CARD + 1)
    assert sub._engine.card == b"another"


def test_a_subscriber_without_a_card_is_no_node(make, publisher):
    sub = make(publisher.endpoint, filtering="publisher")
    sub.wait_ready()
    assert session_of(publisher).card == b""


def test_an_engine_has_the_member_that_it_was_given(publisher):
    options = oz.options.Options()
    made = {"context": None, "filtering": "publisher", "decode": None, "link_endpoints": None, "on_gap": None}
    engine = Engine(**made, options=options, runs_handlers=True, member=b"m" * 16, card=CARD)
    engine.dial(publisher.link_endpoint)
    try:
        publisher.wait_for(lambda sessions: sessions.of_node(b"m" * 16) is not None)
    finally:
        engine.close()
    with pytest.raises(ValueError, match="card"):
        Engine(**made, options=options, runs_handlers=True, card=bytes(links.MAX_CARD + 1))


# direct messages


def test_direct_messages_arrive_in_order_beside_others(make, publisher):
    sub = node(make, publisher.link_endpoint)
    sub.subscribe(">")
    sub.wait_ready()
    for number in range(200):
        send(publisher, number, extras={"headers": {"n": number}} if number % 2 else None)
        publisher.publish("a", payload=b"%d" % number)
        if number % 3 == 0:
            assert sub.receive(timeout=10).subject == "a"
    received = [int(sub.receive(timeout=10).payload) for _ in range(200 - 67)]
    assert received == list(range(67, 200))
    turns(sub, lambda: len(sub.direct) == 200)
    assert sub.direct == [
        (f"_INBOX.{number}", b"%d" % number, {"headers": {"n": number}} if number % 2 else None)
        for number in range(200)
    ]
    stats = sub.stats
    assert (stats.received, stats.delivered, stats.unwanted) == (400, 400, 0)


@pytest.mark.parametrize("size", [10, 60_000, 200_000, 3 << 20])
def test_direct_messages_of_any_size_arrive(make, publisher, size):
    sub = node(make, publisher.link_endpoint)
    turns(sub, lambda: is_live(sub))
    send(publisher, 1, payload=bytes(size))
    turns(sub, lambda: sub.direct)
    assert sub.direct == [("_INBOX.1", bytes(size), None)]


@pytest.mark.parametrize("how", ["rst", "fin"])
def test_cuts_lose_and_repeat_no_direct_message(make, publisher, proxy, how):
    gaps = []
    sub = node(make, proxy.endpoint, on_gap=gaps.append)
    turns(sub, lambda: is_live(sub))
    total = 4_000

    def work():
        for first in range(0, total, 50):
            send(publisher, *range(first, first + 50))
            if first % 1_000 == 500:
                proxy.cut(how)

    thread = Thread(work)
    turns(sub, lambda: len(sub.direct) >= total)
    thread.outcome()
    turns(sub, publisher.is_acknowledged)
    assert [int(payload) for _, payload, _ in sub.direct] == list(range(total))
    assert gaps == []


def test_direct_messages_are_unwanted_without_a_receiver(make, publisher):
    gaps = []
    sub = make(publisher.endpoint, filtering="publisher", on_gap=gaps.append)
    sub.subscribe("a")
    sub.wait_ready()
    send(publisher, *range(1_000))
    publisher.publish("a")
    assert sub.receive(timeout=10).subject == "a"
    turns(sub, lambda: sub.stats.unwanted == 1_000)
    assert (sub.stats.received, sub.stats.delivered, gaps) == (1_001, 1, [])
    turns(sub, publisher.is_acknowledged)


def test_a_program_that_waits_for_one_message_lets_direct_messages_through(make, publisher):
    sub = node(make, publisher.link_endpoint)
    sub.subscribe("a")
    sub.wait_ready()
    for number in range(50):
        publisher.publish("a", payload=b"%d" % number)
        send(publisher, number)
        assert sub.receive(timeout=10).payload == b"%d" % number
    turns(sub, lambda: len(sub.direct) == 50)
    assert [int(payload) for _, payload, _ in sub.direct] == list(range(50))


def test_an_interruption_repeats_no_direct_message(make, publisher, monkeypatch):
    """The exception of a signal handler comes after the delivery of a frame, which is read again."""
    sub = node(make, publisher.link_endpoint)
    turns(sub, lambda: is_live(sub))
    interrupted = []
    report = Connections._report

    def interrupt(self, place, link):
        report(self, place, link)
        if sub.direct and not interrupted:
            interrupted.append(True)
            place.reported = link.state
            raise KeyboardInterrupt

    monkeypatch.setattr(Connections, "_report", interrupt)
    place = sub._engine.places[publisher.link_endpoint]
    sub._engine.dispatcher.on_direct = lambda link, found: (
        sub.direct.extend(found),
        setattr(place, "reported", "unknown"),
    )
    send(publisher, 1, 2, 3)
    with pytest.raises(KeyboardInterrupt):
        turns(sub, lambda: len(sub.direct) == 3)
    turns(sub, lambda: len(sub.direct) == 3)
    turns(sub, publisher.is_acknowledged)
    assert [int(payload) for _, payload, _ in sub.direct] == [1, 2, 3]


def test_a_frame_that_was_not_delivered_is_delivered_after_an_interruption(make, publisher):
    sub = node(make, publisher.link_endpoint)
    turns(sub, lambda: is_live(sub))
    deliver, interrupted = sub._engine.dispatcher.on_direct, []

    def interrupt(link, found):
        if not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt
        deliver(link, found)

    sub._engine.dispatcher.on_direct = interrupt
    send(publisher, 1, 2)
    with pytest.raises(KeyboardInterrupt):
        turns(sub, lambda: sub.direct)
    turns(sub, lambda: len(sub.direct) == 2)
    assert [int(payload) for _, payload, _ in sub.direct] == [1, 2]


# events


def events(sub):
    return [event for _, event, _ in sub.events]


def test_events_of_a_link_come_in_order(make, publisher, proxy):
    sub = node(make)
    sub.subscribe("a")
    sub._engine.dial(proxy.endpoint)
    turns(sub, lambda: events(sub) == ["live", "answered"])
    sub.subscribe("b")
    turns(sub, lambda: events(sub)[2:] == ["answered"])
    proxy.cut()
    # The link resumes, and the publisher has the subscriptions.
    turns(sub, lambda: events(sub)[3:] == ["silent", "live", "answered"])
    publisher.close()
    turns(sub, lambda: events(sub)[6:] == ["ended"])
    assert sub.events[-1] == (proxy.endpoint, "ended", links.CLOSED)


def test_a_link_without_subscriptions_is_answered_at_once(make, publisher):
    sub = node(make, publisher.link_endpoint)
    turns(sub, lambda: events(sub))
    assert events(sub) == ["live", "answered"]


def test_a_publisher_that_stops_is_silent(make, publisher):
    sub = node(make, publisher.link_endpoint)
    turns(sub, lambda: is_live(sub))
    publisher.stall()
    turns(sub, lambda: events(sub)[2:] == ["silent"])
    publisher.resume()
    turns(sub, lambda: events(sub)[3:] == ["live", "answered"])


def test_a_publisher_that_restarts_is_live_again(make, publisher, proxy):
    sub = node(make)
    sub.subscribe("a")
    sub._engine.dial(proxy.endpoint)
    turns(sub, lambda: events(sub) == ["live", "answered"])
    with LinkPublisher() as other:
        proxy.pass_on_to(other.link_endpoint)
        proxy.cut()
        turns(sub, lambda: events(sub)[2:] == ["silent", "live", "answered"])
        assert sub._engine.places[proxy.endpoint].link.origin == other.origin


@pytest.mark.parametrize("reason", [links.OTHER_BUS, links.OWN_ID])
def test_a_refused_node_is_told_the_reason(make, publisher, reason):
    publisher.sessions.admit = lambda hello, user: reason if hello.card == CARD else None
    sub = node(make, publisher.link_endpoint)
    turns(sub, lambda: sub.events)
    assert sub.events == [(publisher.link_endpoint, "ended", reason)]
    with pytest.raises(Timeout, match="another bus" if reason == links.OTHER_BUS else "this node itself"):
        sub.wait_ready(timeout=0)
    plain = make(publisher.endpoint, filtering="publisher")
    plain.wait_ready()


def test_a_second_way_to_a_publisher_is_left(make, publisher, proxy, caplog):
    sub = node(make, publisher.link_endpoint)
    turns(sub, lambda: is_live(sub))
    sub._engine.dial(proxy.endpoint)
    turns(sub, lambda: events(sub)[2:] == ["live", "answered", "silent"])
    assert sub.events[-1] == (proxy.endpoint, "silent", None)
    assert sub._engine.places[proxy.endpoint].is_twin
    assert "same publisher" not in caplog.text
    publisher.wait_for(lambda sessions: len(sessions.by_id) == 1)


# hostile publishers


def test_direct_messages_that_nobody_expects_are_counted(make, attacker, publisher):
    gaps = []
    sub = make([attacker.endpoint, publisher.endpoint], filtering="publisher", on_gap=gaps.append)
    sub.subscribe("a")
    publisher.wait_for_patterns()
    attacker.greet(sub)
    content = links.encode_body([b"a", b"x", {"headers": {"deep": [[[[]]]]}}])
    for number in range(500):
        attacker.send(links.join(links.encode_head(0, links.DIRECT, number, 1, 0, number), content))
    malformed = links.encode_body([b"a", "no bytes", None])
    attacker.send(links.join(links.encode_head(0, links.DIRECT, 500, 1, 0, 0), malformed))
    attacker.send(links.join(links.encode_head(0, links.DIRECT, 501, 1, 10**9, 0), content))
    turns(sub, lambda: sub.stats.unwanted == 501)
    publisher.publish("a", payload=b"honest")
    assert sub.receive(timeout=10).payload == b"honest"
    engine = sub._engine
    # A frame and its message.
    assert (sub.stats.malformed, len(engine.dispatcher._routes)) == (2, 1)
    assert not any(place.gaps for place in engine.places.values())
    assert {gap.reason for gap in gaps} == {"malformed", "dropped"}


@pytest.mark.parametrize("card", [bytes(links.MAX_CARD + 1), bytes(1 << 20)])
def test_a_welcome_with_a_card_that_is_too_large_is_malformed(make, attacker, publisher, card):
    sub = node(make, f"tcp://127.0.0.1:{attacker.port}")
    sub.subscribe("a")
    sub._engine.dial(publisher.link_endpoint)
    hello = attacker.read_hello(sub)
    welcome = Welcome(b"o" * 16, b"e" * 16, hello.attempt, 0, 0, 256, 8 << 20, 1 << 20)
    attacker.send(links.encode_welcome(welcome._replace(card=card)))
    turns(sub, lambda: sub.stats.malformed == 1)
    assert not is_live(sub)
    publisher.publish("a", payload=b"honest")
    assert sub.receive(timeout=10).payload == b"honest"


def test_cards_of_a_flood_of_welcomes_replace_each_other(make, attacker):
    sub = node(make, f"tcp://127.0.0.1:{attacker.port}")
    hello = attacker.read_hello(sub)
    for number in range(1_000):
        epoch, card = number.to_bytes(16), bytes([number % 256]) * links.MAX_CARD
        frame = links.encode_welcome(
            Welcome(b"o" * 16, epoch, hello.attempt, 0, 0, 256, 8 << 20, 1 << 20, card)
        )
        while True:
            try:
                attacker.router.send_multipart([attacker.route, frame], zmq.NOBLOCK)
                break
            except zmq.Again:
                sub.run(timeout=0.01)
    link = sub._engine.places[f"tcp://127.0.0.1:{attacker.port}"].link
    turns(sub, lambda: link.card == bytes([999 % 256]) * links.MAX_CARD)
    # Each WELCOME with another epoch begins a session.
    assert events(sub).count("live") == 1_000
