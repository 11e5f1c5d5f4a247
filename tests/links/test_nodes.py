"""Features of sessions that nodes use: cards, admission, events, the direct stream, responders."""

import pytest

from links.pair import MEMBER, ORIGIN, OTHER_ROUTE, ROUTE, SESSION, Publisher, ids
from oz.publisher import direct
from oz.publisher.session import FULL
from oz.subscriber.link import Link
from oz.subscriber.subscriptions import Subscriptions
from oz.wire import links
from oz.wire.links import Bye, StreamOptions, Welcome

OTHER_SESSION, OTHER_MEMBER = b"another session.", b"another member.."
SMALL = {"window": 2}


def node(**settings):
    """Return a publisher and the session of a node, without subscriptions."""
    publisher = Publisher(**settings)
    session = publisher.hello(card=b"card")
    publisher.pull(session)
    return publisher, session


def send(publisher, session, count=1, payload=b"x"):
    """Send direct messages; return how many the stream accepted."""
    sessions, accepted = publisher.sessions, 0
    for _ in range(count):
        stream = sessions.direct_stream(session)
        if stream.has_space(len(payload)):
            sessions.batcher.add(stream.alone, b"_INBOX.1", payload)
            sessions.flush()
            accepted += 1
    return accepted


def log_events(publisher):
    """Return a list that receives the name and the state of each session with an event."""
    events = []
    publisher.sessions.on_session = lambda session, event: events.append((session.id, event, session.state))
    return events


# cards


@pytest.mark.parametrize("attempt", [1, 2])
def test_the_last_hello_has_the_card(attempt):
    publisher, session = node()
    publisher.sessions.card = b"later"
    publisher.hello(attempt=attempt, epoch=session.epoch, card=b"another")
    assert session.card == b"another"
    assert publisher.sessions.of_node(MEMBER) is session
    assert publisher.pull(session)[0].card == b"later"
    publisher.hello(attempt=attempt, epoch=session.epoch)
    assert publisher.sessions.of_node(MEMBER) is None


def test_the_first_session_of_a_node_that_is_up_is_taken():
    publisher, first = node()
    second = publisher.hello(OTHER_ROUTE, OTHER_SESSION, card=b"card")
    assert publisher.sessions.of_node(MEMBER) is first
    publisher.sessions.unreachable(first, publisher.now)
    assert publisher.sessions.of_node(MEMBER) is second
    publisher.sessions.end(second, publisher.now)
    assert publisher.sessions.of_node(MEMBER) is first
    publisher.sessions.end(first, publisher.now)
    assert publisher.sessions.of_node(MEMBER) is None
    assert not publisher.sessions.by_node


# admission


def refuse(publisher, reason=links.OTHER_BUS):
    asked = []

    def admit(hello, user):
        asked.append((hello.session, hello.card, user))
        return reason if hello.card == b"card" else None

    publisher.sessions.admit = admit
    return asked


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_session_that_is_not_admitted_any_more_ends(attempt):
    publisher, session = node()
    send(publisher, session, 3)
    refuse(publisher, links.OWN_ID)
    publisher.hello(attempt=attempt, epoch=session.epoch, card=b"card")
    assert session.state == "ended"
    assert publisher.replies() == [(ROUTE, Bye(links.OWN_ID, links.PUBLISHER, 3, {}))]
    assert publisher.sessions.given_up == 3


def test_a_stale_hello_is_not_asked_about():
    publisher, session = node()
    asked = refuse(publisher)
    publisher.hello(OTHER_ROUTE, attempt=1, card=b"card")
    assert session.state == "up"
    assert asked == publisher.replies() == []


# events


def test_events_of_a_session_come_in_order():
    publisher = Publisher(resume_seconds=5.0)
    events = log_events(publisher)
    session = publisher.hello()
    publisher.declare()
    publisher.declare(revision=1)  # Answered again, and not applied.
    publisher.sessions.unreachable(session, publisher.now)
    publisher.sessions.unreachable(session, publisher.now)
    publisher.hello(OTHER_ROUTE, attempt=2, epoch=session.epoch)
    publisher.hello(OTHER_ROUTE, attempt=2, epoch=session.epoch)
    publisher.sessions.unreachable(session, publisher.now)
    for _ in range(7):
        publisher.tick(1.0)
    publisher.sessions.unreachable(session, publisher.now)
    assert events == [
        (SESSION, "up", "up"),
        (SESSION, "declared", "up"),
        (SESSION, "down", "down"),
        (SESSION, "up", "up"),
        (SESSION, "down", "down"),
        (SESSION, "ended", "ended"),
    ]


def test_a_session_that_another_one_replaces_ends_first():
    publisher = Publisher()
    events = log_events(publisher)
    publisher.hello()
    publisher.hello(attempt=2, epoch=b"an unknown epoch")
    publisher.hello(session=OTHER_SESSION)
    publisher.read(links.encode_bye(Bye(links.CLOSED, links.SUBSCRIBER, 0, {})))
    assert events == [
        (SESSION, "up", "up"),
        (SESSION, "ended", "ended"),
        (SESSION, "up", "up"),
        (SESSION, "ended", "ended"),
        (OTHER_SESSION, "up", "up"),
        (OTHER_SESSION, "ended", "ended"),
    ]


# the direct stream


def test_direct_messages_are_numbered_with_the_others_and_need_no_declaration():
    publisher, session = node()
    publisher.declare()
    publisher.pull(session)
    send(publisher, session)
    publisher.publish("a.1")
    send(publisher, session)
    found = publisher.pull(session)
    assert [item[:4] for item in found] == [(0, 0, 1, 0), (1, 1, 1, 0), (0, 2, 1, 0)]
    publisher.ack(3)
    assert (session.bytes, session.pending, session.is_idle) == (0, 0, True)


@pytest.mark.parametrize("stream", [0, -1])
def test_a_declaration_of_the_direct_stream_is_rejected(stream):
    publisher, session = node()
    publisher.declare(stream=stream)
    assert publisher.sessions.rejected == 1
    assert (session.streams, session.patterns) == ({}, {})


@pytest.mark.parametrize("state", ["up", "down"])
def test_a_full_direct_stream_refuses(state, monkeypatch):
    monkeypatch.setattr(direct, "MAX_DIRECT", 5)
    publisher, session = node(on_full="block", **SMALL)
    if state == "down":
        publisher.sessions.unreachable(session, publisher.now)
    assert send(publisher, session, 20) == 7
    stream = session.streams[links.DIRECT]
    assert (session.following, stream.pending, stream.dropped) == (2, 5, 0)
    # `publish` does not wait for it.
    assert not stream.is_nearly_full


def test_direct_messages_have_the_bound_of_their_session_in_bytes():
    publisher, session = node(pending_bytes=10_000, window=2)
    accepted = send(publisher, session, 100, bytes(1_000))
    assert 5 < accepted < 12
    assert session.bytes < 10_000


def test_direct_messages_count_for_the_limit_of_memory():
    publisher, session = node(total_bytes=20_000, window=1)
    other = publisher.hello(OTHER_ROUTE, OTHER_SESSION, member=OTHER_MEMBER)
    publisher.declare(route=OTHER_ROUTE)
    publisher.publish(*["a.1"] * 16, payload=bytes(1_000))
    assert other.streams[1].dropped == 0
    send(publisher, session, 10, bytes(1_000))
    assert other.streams[1].drops[FULL] > 0
    assert session.streams[links.DIRECT].dropped == 0


def test_a_publisher_that_closes_drops_no_direct_messages():
    publisher, session = node(**SMALL)
    send(publisher, session, 5)
    publisher.sessions.close()
    *_, bye = publisher.pull(session)
    assert (type(bye), bye.streams[links.DIRECT].dropped) == (Bye, 0)
    assert publisher.sessions.unacknowledged() == 5
    assert publisher.sessions.drops == [0, 0, 0, 0]


def test_losses_before_the_publisher_do_not_concern_direct_messages():
    publisher, session = node()
    send(publisher, session)
    stream = session.streams[links.DIRECT]
    stream.count_lost(3)
    stream.count_lost(None)
    assert (stream.dropped, stream.unknown) == (0, 0)


def test_ending_a_node_ends_its_sessions_with_bye():
    publisher, first = node()
    second = publisher.hello(OTHER_ROUTE, OTHER_SESSION, card=b"card")
    third = publisher.hello(b"third route", b"third session...", member=OTHER_MEMBER, card=b"card")
    publisher.sessions.end_node(MEMBER)
    publisher.sessions.end_node(MEMBER)
    assert [item.state for item in (first, second, third)] == ["ended", "ended", "up"]
    byes = [(item, Bye(links.LOST, links.PUBLISHER, 0, {})) for item in (ROUTE, OTHER_ROUTE)]
    assert publisher.replies() == byes


# responders


def test_responders_are_the_streams_and_groups_of_nodes():
    publisher, first = node()
    publisher.declare("a.*")
    second = publisher.hello(OTHER_ROUTE, OTHER_SESSION, member=OTHER_MEMBER)
    publisher.declare("a.>", route=OTHER_ROUTE)
    publisher.declare("a.1", 2, 1, 2, OTHER_ROUTE, StreamOptions("g"), 2)
    publisher.declare("a.1", 2, 1, 2, options=StreamOptions("g"), stream=2)

    def responders(subject):
        route = publisher.sessions.responders(subject, subject.encode())
        if route is None:
            return None
        plain = [stream.session for stream in route.plain]
        return plain, [
            (group.name, [member.session for member in members]) for group, members in route.groups
        ]

    assert responders("a.1") == ([first], [("g", [first])])
    assert responders("a.2") == ([first], [])
    assert responders("a.b.c") is None
    assert responders("b") is None
    publisher.hello(OTHER_ROUTE, OTHER_SESSION, second.epoch, member=OTHER_MEMBER, card=b"card")
    assert responders("a.1") == ([first, second], [("g", [second, first])])
    publisher.sessions.end(first, publisher.now)
    assert responders("a.1") == ([second], [("g", [second])])


# links


def test_a_link_sends_its_current_card_and_has_the_card_of_the_publisher():
    cards = [b"first", b"second"]
    link = Link(MEMBER, Subscriptions(), ids(b"session"), own_card=lambda: cards[0])
    link.connect(0.0)
    assert links.decode_control(link.next_frame()).card == b"first"
    del cards[0]
    link.on_frame(b"", 0.0)
    hello = links.decode_control(link.next_frame())
    assert (hello.attempt, hello.card, link.card) == (2, b"second", b"")
    for number, card in enumerate((b"one", b"two", b"")):
        link.on_frame(
            links.encode_welcome(Welcome(ORIGIN, bytes([number]) * 16, 2, 0, 0, 1, 1, 1, card)), 0.0
        )
        assert link.card == card
