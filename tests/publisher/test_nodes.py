"""Engine of a publisher as a node uses it: links only, direct messages, responders, events of sessions."""

import os
from collections import Counter
from contextlib import ExitStack

import pytest
import zmq

import oz
from oz.options import Limits, Options
from oz.publisher.engine import Engine
from oz.publisher.thread import PublisherThread
from oz.transport.endpoints import EndpointError
from oz.wire import links
from publisher.scripted import Peer
from support.fault_proxy import FaultProxy
from support.keyring import Keyring
from support.waiting import Thread, until


def events_of(made, peer):
    """Return the events of the sessions of a peer. A link may greet again on the connection that it waits for."""
    found = []
    for member, event in made.events:
        if member == peer.member and not (event == "up" and {"up", "declared"}.intersection(found[-1:])):
            found.append(event)
    return found


CARD = links.encode_card(links.Card(bytes(range(16)), "md", "pricing"))


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def engine(stack):
    """Return a function that creates engines with a thread, bound for links only."""

    def create(endpoint="tcp://127.0.0.1:*", **arguments):
        made = Engine(**arguments)
        made.events = []
        made.on_session = lambda session, event: made.events.append((session.member, event))
        if endpoint is not None:
            made.bind_links(endpoint)
        thread = PublisherThread(made)

        def close():
            thread.stop()
            made.finish(0.0)
            made.end_context()

        stack.callback(close)
        return made

    return create


@pytest.fixture
def join(stack):
    """Return a function that connects scripted subscribers with a card to an engine or an endpoint."""

    def join(where, *texts, ready=True, card=CARD, **options):
        endpoint = where if isinstance(where, str) else where.link_endpoints[0]
        peer = Peer(endpoint, *texts, card=card, **options)
        stack.callback(peer.close)
        return peer.until(lambda: peer.link.state == "live") if ready else peer

    return join


@pytest.fixture
def proxy(stack):
    def proxy(engine):
        return stack.enter_context(FaultProxy(engine.link_endpoints[0]))

    return proxy


# endpoints and cards


def test_an_endpoint_for_links_has_no_plain_subscribers_and_no_other_port(engine, join):
    made = engine()
    [endpoint] = made.endpoints
    assert made.link_endpoints == (endpoint,)
    assert not endpoint.endswith(("*", ":0"))
    join(endpoint, "a.*").ready()
    assert made.count_subscribers("a.1") == 1


def test_an_endpoint_for_links_may_be_unbound(engine, join, tmp_path):
    made = engine(endpoint=None)
    endpoint = made.bind_links(f"ipc://{tmp_path}/one.sock")
    other = made.bind_links(b"tcp://127.0.0.1:*")
    assert (endpoint, made.endpoints) == (f"ipc://{tmp_path}/one.sock", (endpoint, other))
    join(endpoint)
    made.unbind(endpoint)
    assert made.link_endpoints == (other,)
    assert not os.path.exists(f"{tmp_path}/one.sock")
    join(other)
    with pytest.raises(EndpointError):
        made.unbind(endpoint)


def test_an_endpoint_for_links_works_over_inproc(engine, join):
    context = zmq.Context()
    made = engine("inproc://node", context=context)
    peer = join("inproc://node", "a.*", context=context).ready()
    assert made.direct(peer.member, "b", b"1")
    peer.until(lambda: peer.direct)
    made.abort()
    peer.close()
    context.term()


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1", "inproc://own", "tcp://256.0.0.1:1"])
def test_endpoints_that_links_cannot_have_are_refused(engine, endpoint):
    made = engine(endpoint=None)
    with pytest.raises((EndpointError, oz.ConfigurationError)):
        made.bind_links(endpoint)
    assert made.endpoints == ()


def test_a_taken_endpoint_is_an_error(engine):
    with pytest.raises(EndpointError):
        engine(endpoint=None).bind_links(engine().endpoints[0])


def test_welcome_has_the_origin_and_the_card_of_now(engine, join):
    made = engine(origin=b"o" * 16, card=b"first")
    peer = join(made)
    assert (peer.link.origin, peer.link.card, made.card) == (b"o" * 16, b"first", b"first")
    made.card = CARD
    peer = join(made)
    assert links.decode_card(peer.link.card) == links.decode_card(CARD)
    with pytest.raises(ValueError, match="card"):
        made.card = bytes(links.MAX_CARD + 1)
    with pytest.raises(ValueError, match="card"):
        Engine(card=bytes(links.MAX_CARD + 1))


def test_a_plain_publisher_has_no_card(stack, join):
    publisher = stack.enter_context(oz.Publisher("tcp://127.0.0.1:*"))
    peer = join(publisher)
    assert peer.link.card == b""
    assert publisher._engine.direct(peer.member, "a", b"1")
    peer.until(lambda: peer.direct)


# direct messages


def test_direct_messages_arrive_at_one_node_with_their_extras(engine, join):
    made = engine()
    peers = [join(made, ">") for _ in range(3)]
    extras = {"headers": {"status": 1}, "reply_to": "x"}
    assert made.direct(peers[1].member, "_INBOX.1", b"one", extras) is True
    assert made.direct(peers[1].member, "_INBOX.é", b"", None) is True
    peers[1].until(lambda: len(peers[1].direct) == 2)
    assert peers[1].direct == [("_INBOX.1", b"one", extras), ("_INBOX.é", b"", None)]
    made.send_in(made.responders("a", b"a").plain[0], b"a", b"end", None)
    peers[0].receive(1)
    assert [one.direct for one in peers] == [[], peers[1].direct, []]
    assert peers[1].messages == []
    assert (made.stats().sent, made.stats().dropped["full"]) == (1, 0)


def test_a_direct_message_is_sent_without_the_attending_side(stack, join):
    made = Engine()
    stack.callback(made.end_context)
    stack.callback(made.finish, 0.0)
    made.bind_links("tcp://127.0.0.1:*")
    peer = join(made, ready=False)
    peer.until(lambda: made.attend() or peer.link.state == "live")
    assert made.direct(peer.member, "a", b"1")
    peer.until(lambda: peer.direct)


@pytest.mark.parametrize("size", [60_000, 70_000, 3 << 20])
def test_large_direct_messages_arrive(engine, join, size):
    made = engine()
    peer = join(made)
    assert made.direct(peer.member, "a", bytes(size))
    peer.until(lambda: peer.direct)
    assert peer.direct == [("a", bytes(size), None)]


def test_a_message_that_the_node_does_not_accept_is_an_error_and_ends_nothing(engine, join):
    made = engine()
    peer = join(made, "a", largest_frame=2 << 20).ready()
    for payload, extras, error in ((bytes(2 << 20), None, ValueError), (b"", {"x": object()}, TypeError),
                                   ("text", None, TypeError)):  # fmt: skip
        with pytest.raises(error):
            made.direct(peer.member, "a", payload, extras)
    assert made.direct(peer.member, "a", b"1")
    peer.until(lambda: peer.direct)
    assert events_of(made, peer) == ["up", "declared"]


def test_without_a_session_there_is_no_direct_message(engine, join):
    made = engine()
    plain = join(made, card=b"")
    assert made.direct(bytes(16), "a", b"1") is None
    assert made.direct(plain.member, "a", b"1") is None
    peer = join(made)
    peer.leave()
    until(lambda: (peer.member, "ended") in made.events)
    assert made.direct(peer.member, "a", b"1") is None


@pytest.mark.parametrize("how", ["rst", "fin"])
def test_cuts_lose_and_repeat_no_direct_message(engine, join, proxy, how):
    count = 4_000
    made = engine()
    way = proxy(made)
    peer = join(way.endpoint, "a").ready()

    def send():
        for number in range(count):
            assert made.direct(peer.member, f"n.{number}", b"%d" % number)
            if number % 100 == 0:
                made.send_in(made.responders("a", b"a").plain[0], b"a", b"%d" % number, None)
            if number % 1_000 == 500:
                way.cut(how)

    thread = Thread(send)
    peer.until(lambda: len(peer.direct) >= count and len(peer.messages) >= count // 100)
    thread.outcome()
    assert peer.direct == [(f"n.{number}", b"%d" % number, None) for number in range(count)]
    assert peer.payloads == [b"%d" % number for number in range(0, count, 100)]
    assert peer.gaps == []
    assert made.stats().given_up == 0
    assert Counter(event for _, event in made.events)["up"] > 1


@pytest.mark.parametrize("state", ["up", "down"])
def test_a_full_direct_stream_is_false_until_the_node_reads(engine, join, proxy, state):
    made = engine()
    way = proxy(made)
    peer = join(way.endpoint)
    if state == "up":
        peer.is_acking = False
    else:
        way.pass_on_to("tcp://127.0.0.1:1")
        way.cut()
        until(lambda: (peer.member, "down") in made.events)
    sent = 0
    while made.direct(peer.member, "a", b"%d" % sent):
        sent += 1
    assert sent == 10_000 + 256
    assert made.direct(peer.member, "a", b"") is False
    peer.is_acking = True
    way.pass_on_to(made.link_endpoints[0])
    peer.until(lambda: len(peer.direct) == sent)
    assert [payload for _, payload, _ in peer.direct] == [b"%d" % number for number in range(sent)]
    assert made.direct(peer.member, "a", b"")
    assert made.stats().dropped["full"] == 0


def test_the_bytes_of_a_session_bound_direct_messages(engine, join):
    made = engine(options=Options(pending_bytes=1 << 20))
    peer = join(made)
    peer.is_acking = False
    sent = 0
    while made.direct(peer.member, "a", bytes(1_000)):
        sent += 1
    assert 1_000 < sent < 1_050


def test_direct_messages_pass_a_stream_that_blocks(engine, join):
    made = engine(on_full="block", options=Options(high_water_mark=10, send_timeout=0.1))
    peer = join(made, "a").ready()
    peer.is_acking = False
    stream = made.responders("a", b"a").plain[0]
    while made.send_in(stream, b"a", b"", None):
        pass
    until(lambda: made.is_pressed)
    assert made.direct(peer.member, "x", b"")
    peer.is_acking = True
    peer.until(lambda: peer.direct)


def test_direct_messages_of_a_session_that_ends_are_given_up(engine, join):
    made = engine()
    peer = join(made)
    peer.is_acking = False
    for _ in range(1_000):
        made.direct(peer.member, "a", b"")
    made.end_session(peer.member)
    assert made.stats().given_up == 1_000
    assert made.events[-1] == (peer.member, "ended")
    peer.until(lambda: peer.link.ending == links.LOST)


# requests


def test_a_message_goes_into_one_stream_behind_the_messages_that_wait(engine, join):
    made = engine()
    peers = [join(made, "a.*").ready() for _ in range(2)]
    route = made.responders("a.1", b"a.1")
    assert {stream.session.member for stream in route.plain} == {one.member for one in peers}
    stream = next(one for one in route.plain if one.session.member == peers[0].member)
    made.hold("test")
    assert made.offer(made.prepare("a.1", b"all"))
    assert made.send_in(stream, b"a.1", b"one", {"reply_to": "x"})
    made.release("test")
    assert made.offer(made.prepare("a.1", b"end"))
    assert peers[0].receive(3) == [b"all", b"one", b"end"]
    assert peers[0].messages[1] == ("a.1", b"one", {"reply_to": "x"})
    assert peers[1].receive(2) == [b"all", b"end"]


@pytest.mark.parametrize("on_full", ["drop", "block"])
def test_a_full_stream_refuses_a_message(engine, join, on_full):
    made = engine(on_full=on_full, options=Options(high_water_mark=100))
    peer = join(made, "a").ready()
    peer.is_acking = False
    stream = made.responders("a", b"a").plain[0]
    sent = 0
    while made.send_in(stream, b"a", b"%d" % sent, None):
        sent += 1
    # The window has 256 batches, and the first ones may have several messages.
    assert sent >= 356
    assert made.stats().dropped["full"] == 0
    peer.is_acking = True
    assert peer.receive(sent) == [b"%d" % number for number in range(sent)]


def test_messages_that_wait_fill_a_stream_too(engine, join):
    made = engine(options=Options(high_water_mark=100))
    peer = join(made, "a").ready()
    peer.is_acking = False
    stream = made.responders("a", b"a").plain[0]
    # The window has 256 batches, and the first ones may have several messages.
    while stream.pending < 99:
        assert made.send_in(stream, b"a", b"", None)
        made.flush()
    made.hold("test")
    made.offer(made.prepare("a", b"last"))
    assert not made.send_in(stream, b"a", b"", None)
    made.release("test")
    assert made.stats().dropped["full"] == 0
    peer.is_acking = True
    assert peer.receive(356)[-1] == b"last"


def test_a_refused_message_does_not_count_at_its_member(engine, join):
    made = engine()
    peer = join(made, "a", group="workers").ready()
    [(group, members)] = made.responders("a", b"a").groups
    member = group.pick(members, b"a", 0.0)
    assert member.load == 1
    made.end_session(peer.member)
    assert not made.send_in(member, b"a", b"", None)
    assert member.load == 0


def test_a_stream_whose_session_has_ended_refuses_a_message(engine, join):
    made = engine()
    peer = join(made, "a").ready()
    stream = made.responders("a", b"a").plain[0]
    made.end_session(peer.member)
    assert not made.send_in(stream, b"a", b"", None)
    assert made.responders("a", b"a") is None
    assert made.stats().given_up == 0


def test_plain_subscribers_of_links_are_no_responders(engine, join):
    made = engine()
    join(made, "a", card=b"").ready()
    assert made.responders("a", b"a") is None
    peer = join(made, "a").ready()
    assert [one.session.member for one in made.responders("a", b"a").plain] == [peer.member]


# events and admission


def test_events_of_sessions_come_in_order(engine, join, proxy):
    made = engine()
    way = proxy(made)
    peer = join(way.endpoint, "a").ready()
    way.pass_on_to("tcp://127.0.0.1:1")
    way.cut()
    until(lambda: "down" in events_of(made, peer))
    way.pass_on_to(made.link_endpoints[0])
    peer.until(lambda: events_of(made, peer)[-1] == "up")
    peer.subscribe("b")
    peer.until(lambda: events_of(made, peer)[-1] == "declared")
    peer.leave()
    peer.until(lambda: events_of(made, peer)[-1] == "ended")
    assert events_of(made, peer) == ["up", "declared", "down", "up", "declared", "ended"]


def test_a_node_of_another_bus_is_refused(engine, join):
    made = engine()

    def admit(hello, user):
        try:
            card = links.decode_card(hello.card)
        except oz.ProtocolError:
            return links.MALFORMED
        return None if card.bus == "md" else links.OTHER_BUS

    made.admit = admit
    other = links.encode_card(links.Card(b"n" * 16, "other", "pricing"))
    for card, reason in ((other, links.OTHER_BUS), (b"", links.MALFORMED), (b"\xc1" * 16_384, links.MALFORMED),
                         (b"\x91" * 1_000, links.MALFORMED)):  # fmt: skip
        peer = join(made, "a", ready=False, card=card)
        peer.until(lambda peer=peer: peer.link.state == "ended")
        assert peer.link.ending == reason
    good = join(made, "a").ready()
    assert {member for member, _ in made.events} == {good.member}
    assert [one.member for one in made.sessions()] == [good.member]


def test_hooks_survive_an_exception_inside_the_machine(engine, join, monkeypatch):
    made = engine(card=b"card")
    peer = join(made, "a").ready()
    stream = made.responders("a", b"a").plain[0]
    admitted = []
    made.admit = lambda hello, user: admitted.append(hello.member)

    def fail(stream, body):
        raise KeyboardInterrupt

    monkeypatch.setattr(stream.session, "offer", fail)
    with pytest.raises(KeyboardInterrupt):
        made.direct(peer.member, "a", b"")
    assert made.events[-1] == (peer.member, "ended")
    assert not made.send_in(stream, b"a", b"", None)
    peer.until(lambda: events_of(made, peer)[2:] == ["ended", "up", "declared"])
    assert (admitted[-1], peer.link.card) == (peer.member, b"card")
    assert made.direct(peer.member, "a", b"again")
    peer.until(lambda: peer.direct)


# hostile peers


def greeting(attempt=1, card=CARD, session=None, member=b"m" * 16):
    hello = links.Hello(session or os.urandom(16), member, bytes(16), attempt, 0, 0, 64 << 20, 256)
    return links.encode_hello(hello._replace(card=b"")) + card


@pytest.mark.parametrize("size", [links.MAX_CARD + 1, (1 << 20) - 100])
def test_cards_that_are_too_large_are_counted(engine, join, size):
    made = engine()
    peer = join(made, ready=False)
    for _ in range(10):
        peer._send(greeting(card=bytes(size)))
    peer.until(lambda: made.stats().rejected == 10)
    peer.until(lambda: peer.link.state == "live")
    assert len(made.sessions()) == 1


def test_a_flood_of_greetings_with_cards_keeps_one_session_for_each_connection(engine, join):
    made = engine()
    peer = join(made, ready=False)
    for number in range(2_000):
        until(lambda number=number: peer.offers(greeting(card=bytes([number % 256]) * links.MAX_CARD)))
    until(lambda: Counter(event for _, event in made.events)["ended"] >= 1_999)
    assert len(made.sessions()) == len(made._sessions.by_node[b"m" * 16]) == 1
    good = join(made, "a").ready()
    assert made.direct(good.member, "a", b"1")
    good.until(lambda: good.direct)


def test_many_sessions_of_one_node_have_the_bound_of_all_sessions(engine, join):
    made = engine(options=Options(limits=Limits(peers=20)))
    peers = [join(made, ready=False, member=b"m" * 16) for _ in range(25)]
    for peer in peers:
        peer.until(lambda peer=peer: peer.link.state in ("live", "ended"))
    assert sum(peer.link.ending == links.LIMIT for peer in peers) == 5
    assert len(made._sessions.by_node[b"m" * 16]) == 20
    made.end_session(b"m" * 16)
    assert made._sessions.by_node == {}


# keys


@pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")
def test_nodes_with_keys_exchange_cards_and_direct_messages(engine, stack, tmp_path):
    ring = Keyring(tmp_path, "feed", "desk", "other")
    made = engine(security=ring.security("feed"), card=CARD)
    users = []
    made.admit = lambda hello, user: users.append(user)
    subscriber = stack.enter_context(oz.Subscriber(security=ring.security("desk"), filtering="publisher"))
    subscriber._engine.card = CARD
    received = []
    subscriber._engine.dispatcher.on_direct = lambda link, found: received.extend(found)
    subscriber._engine.dial(made.endpoints[0])
    subscriber.subscribe("a")
    subscriber.wait_ready()
    [session] = made.sessions()
    assert made.direct(session.member, "_INBOX.1", b"1")
    until(lambda: subscriber.run(timeout=0.01) is not None and received)
    assert received == [("_INBOX.1", b"1", None)]
    [place] = subscriber._engine.places.values()
    assert (place.link.card, session.card, set(users)) == (CARD, CARD, {session.user})
    assert session.user is not None
