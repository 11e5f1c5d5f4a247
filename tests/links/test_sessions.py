"""Each cell of the table of a session, and of the table of HELLO."""

import time
import weakref
from itertools import count, pairwise

import pytest

from links.pair import NEVER, OTHER_ROUTE, ROUTE, Publisher
from oz.publisher.last_values import LastValues
from oz.publisher.sessions import CROWD
from oz.wire import links
from oz.wire.links import DEFAULT_OPTIONS, Answer, Bye, Declare, Item, StreamOptions

SMALL = {"window": 2, "high_water_mark": 3}


def up(options=DEFAULT_OPTIONS, **settings):
    """Return a publisher and a session that is UP and has one subscription to a.*."""
    publisher = Publisher(**settings)
    session = publisher.hello()
    publisher.declare(options=options)
    publisher.pull(session)
    return publisher, session


def down():
    publisher, session = up()
    publisher.sessions.unreachable(session, publisher.now)
    return publisher, session


def kinds(found):
    return [
        type(item).__name__ if not isinstance(item, tuple) or hasattr(item, "_fields") else "batch"
        for item in found
    ]


# HELLO


@pytest.mark.parametrize(
    ("epoch", "expected"), [(links.UNKNOWN_EPOCH, 0), (NEVER, 0), ("own", 99), ("own", 0)]
)
def test_hello_that_does_not_fit_ends_the_session_and_creates_another(epoch, expected):
    publisher, session = up()
    publisher.publish("a.1", "a.2")
    publisher.pull(session)
    publisher.ack(1)
    if epoch == "own":
        epoch = session.epoch
    other = publisher.hello(epoch=epoch, attempt=2, expected=expected)
    assert session.state == "ended"
    assert other.epoch not in (session.epoch, links.UNKNOWN_EPOCH)
    assert kinds(publisher.pull(other)) == ["Welcome"]
    assert publisher.sessions.given_up == 1


# HELLO by attempt and route


def test_hello_of_the_same_attempt_counts_from_the_same_route_only():
    publisher, session = up()
    publisher.hello(OTHER_ROUTE, epoch=session.epoch)
    assert publisher.pull(session) == []
    publisher.hello(ROUTE, epoch=session.epoch)
    assert kinds(publisher.pull(session)) == ["Welcome"]


def test_another_version_is_refused():
    publisher = Publisher()
    publisher.read(bytes([links.HELLO, 9]) + bytes(50))
    assert publisher.replies() == [(ROUTE, Bye(links.OTHER_VERSION, links.PUBLISHER, 0, {}))]


def test_a_session_of_another_key_is_refused():
    publisher = Publisher()
    session = publisher.hello(user="alice")
    publisher.hello(OTHER_ROUTE, attempt=2, user="bob")
    assert publisher.replies() == [(OTHER_ROUTE, Bye(links.KEY_REFUSED, links.PUBLISHER, 0, {}))]
    assert session.route == ROUTE
    publisher.read(links.encode_bye(Bye(0, links.SUBSCRIBER, 0, {})), ROUTE, "bob")
    # The routing id belongs to another key now: the session goes on with a connection of its own key.
    assert session.state == "down"
    publisher.hello(OTHER_ROUTE, attempt=2, user="alice")
    assert session.state == "up"


@pytest.mark.parametrize(
    ("settings", "users"), [({"peers": 1}, (None, None)), ({"peers_of_key": 1}, ("al", "al"))]
)
def test_sessions_are_bounded(settings, users):
    publisher = Publisher(**settings)
    publisher.hello(user=users[0])
    publisher.hello(OTHER_ROUTE, b"another session!", user=users[1])
    assert publisher.replies() == [(OTHER_ROUTE, Bye(links.LIMIT, links.PUBLISHER, 0, {}))]
    assert len(publisher.sessions.by_id) == 1


# DECLARE


@pytest.mark.parametrize(
    ("revision", "base", "answer", "served"),
    [
        (2, 0, Answer(2, []), ["b.1"]),
        (2, 1, Answer(2, []), ["a.1", "b.1"]),
        (1, 0, Answer(1, []), ["a.1"]),
        (8, 7, Answer(1, None), ["a.1"]),
    ],
)
def test_a_declaration_counts_on_the_applied_revision_only(revision, base, answer, served):
    publisher, session = up()
    publisher.declare("b.*", revision=revision, base=base, sid=2)
    assert publisher.pull(session) == [answer]
    assert [item for item in ("a.1", "b.1") if publisher.sessions.publish(item, b"")] == served


def test_a_session_counts_when_its_declaration_is_complete():
    publisher = Publisher()
    publisher.hello()
    assert publisher.sessions.count(None, b"") == 0
    part = Declare(1, 0, False, {1: StreamOptions()}, [Item(1, 1, "nats", "a.*")], [])
    publisher.read(links.encode_declare(part))
    assert publisher.sessions.count(None, b"") == 0
    assert publisher.sessions.count("a.1", b"a.1") == 1
    publisher.declare("b.*", revision=1, base=1, sid=2)
    assert publisher.sessions.count(None, b"") == 1


def test_hello_discards_a_declaration_that_is_not_complete():
    publisher, session = up()
    part = Declare(2, 0, False, {1: StreamOptions()}, [Item(2, 1, "nats", "b.*")], [])
    publisher.read(links.encode_declare(part))
    publisher.hello(attempt=2, epoch=session.epoch)
    rest = Declare(2, 2, True, {1: StreamOptions()}, [Item(3, 1, "nats", "c.*")], [])
    publisher.read(links.encode_declare(rest))
    assert session.applied == 1
    publisher.declare("c.*", revision=2, base=0, sid=3)
    assert session.applied == 2
    assert [publisher.sessions.publish(item, b"") for item in ("a.1", "b.1", "c.1")] == [False, False, True]


def test_messages_before_a_declaration_go_out_before_its_answer_counts():
    publisher, session = up()
    publisher.sessions.publish("a.1", b"")
    publisher.declare(None, revision=2, base=1, removed=[1])
    assert session.following == 1
    assert sorted(kinds(publisher.pull(session))) == ["Answer", "batch"]


def test_a_member_with_another_policy_is_refused():
    publisher, _ = up(StreamOptions("g", "sticky"))
    other = publisher.hello(OTHER_ROUTE, b"another session!")
    publisher.declare(route=OTHER_ROUTE, options=StreamOptions("g", "failover"))
    (answer,) = publisher.pull(other)[1:]
    assert "policy 'sticky'" in answer.refused[0].reason


# ACK


def test_a_hundred_invalid_acks_end_the_session():
    publisher, session = up()
    for _ in range(99):
        publisher.ack(9)
    assert session.state == "up"
    publisher.ack(9)
    assert session.state == "ended"
    assert publisher.replies()[0][1].reason == links.MALFORMED


def test_frames_of_an_earlier_route_are_discarded_after_the_session_has_resumed():
    publisher, session = up()
    publisher.publish("a.1")
    publisher.pull(session)
    publisher.hello(OTHER_ROUTE, epoch=session.epoch, attempt=2)
    publisher.pull(session)
    publisher.ack(1)
    publisher.declare("b.*", revision=2, base=1, sid=2)
    publisher.read(links.encode_bye(Bye(0, links.SUBSCRIBER, 0, {})))
    assert (session.acked, session.applied, session.state) == (0, 1, "up")
    publisher.ack(1, route=OTHER_ROUTE)
    assert session.acked == 1


# message matches


@pytest.mark.parametrize(
    ("overflow", "arrives", "drops"),
    [
        ("drop_newest", ["a.0", "a.1", "a.2", "a.3", "a.4"], [0, 0, 0, 0, 0]),
        ("drop_oldest", ["a.0", "a.1", "a.6", "a.7", "a.8"], [0, 0, 4, 4, 4]),
        ("conflate", ["a.0", "a.1", "a.6", "a.7", "a.8"], [0, 0, 4, 4, 4]),
    ],
)
def test_overflow_policies(overflow, arrives, drops):
    publisher, session = up(StreamOptions(overflow=overflow), **SMALL)
    publisher.publish(*[f"a.{number}" for number in range(9)])
    found = publisher.pull(session)
    while session.batches:
        publisher.ack(session.sent)
        found += publisher.pull(session)
    assert [item for batch in found for item in batch[5]] == arrives
    expanded = [batch[3] for batch in found for _ in batch[5]]
    assert expanded == drops
    publisher.publish("a.9")
    assert publisher.pull(session)[0][3] == 4


def test_conflate_keeps_the_newest_of_each_subject():
    publisher, session = up(StreamOptions(overflow="conflate"), **SMALL)
    publisher.publish("a.0", "a.0", "a.1", "a.2", "a.1", "a.1")
    assert session.streams[1].drops == [0, 2, 0, 0]
    publisher.pull(session)
    publisher.ack(2)
    assert publisher.pull(session) == [(1, 2, 2, 2, 0, ["a.2", "a.1"])]


def test_total_bytes_bound_all_sessions():
    publisher = Publisher(pending_bytes=100_000, total_bytes=5_000, window_bytes=1_000)
    for number in range(4):
        publisher.hello(b"route%d" % number, b"%d" % number * 16)
        publisher.declare(route=b"route%d" % number)
    publisher.publish(*["a.1"] * 100, payload=b"x" * 100)
    assert sum(session.bytes for session in publisher.sessions.by_id.values()) <= 5_000 + 4 * 120


# EAGAIN and EHOSTUNREACH


def test_head_and_body_are_sent_again_together():
    publisher, session = up()
    publisher.publish("a.1", payload=b"x" * 70_000)
    frames = session.next_frames()
    assert len(frames) == 2
    assert session.next_frames() == frames


# time


def test_a_crowd_of_idle_sessions_has_fewer_pings():
    """Each PING has the longest time until the next PING, and no idle session waits longer."""
    publisher, session = up()
    for number in range(4 * CROWD):
        publisher.hello(session=b"%16d" % number, route=b"%5d" % number)
    seen = []
    for _ in range(20):
        publisher.tick(links.PING_INTERVAL)
        seen.append(publisher.pull(session))
    pings = [(turn, found[0].beats) for turn, found in enumerate(seen) if found]
    assert pings[0][0] == 0, "the first PING of a connection comes at once"
    assert len(pings) <= 7
    for (turn, beats), (following, _) in pairwise(pings):
        assert following - turn <= beats == links.MAX_BEATS


def test_a_session_of_a_crowd_that_has_messages_has_each_ping():
    publisher, session = up()
    for number in range(4 * CROWD):
        publisher.hello(session=b"%16d" % number, route=b"%5d" % number)
    publisher.publish("a.1")
    publisher.pull(session)
    for _ in range(10):
        publisher.tick(links.PING_INTERVAL)
        assert kinds(publisher.pull(session)) == ["Ping"]


def test_publishers_of_a_host_send_their_pings_together():
    deadlines = set()
    for began in (100.6, 101.0, 101.9):
        publisher = Publisher()
        publisher.now = began
        publisher.hello()
        deadlines.add(publisher.sessions.next_deadline())
        publisher.hello(session=b"another session!", route=OTHER_ROUTE)
        deadlines.add(publisher.sessions.next_deadline())
    assert deadlines == {102.0}


def test_a_new_session_does_not_delay_the_pings_of_others():
    publisher, session = up()
    publisher.now += 2 * links.PING_INTERVAL
    publisher.hello(session=b"another session!", route=OTHER_ROUTE)
    publisher.tick(0.0)
    assert kinds(publisher.pull(session)) == ["Ping"]


def test_ping_counts_what_the_socket_has_accepted():
    publisher, session = up(**SMALL)
    publisher.publish("a.1", "a.2", "a.3")
    publisher.tick(1.0)
    (ping,) = publisher.pull(session, limit=1)
    assert (ping.following, ping.streams[1].pending) == (0, 3)


def test_ping_to_a_session_that_is_silent_for_a_minute_is_slow():
    publisher, session = up()
    pings = 0
    for _ in range(180):
        publisher.tick(1.0)
        pings += len(publisher.pull(session))
    assert 60 / links.PING_INTERVAL + 3 <= pings <= 60 / links.PING_INTERVAL + 5
    publisher.ack(0)
    publisher.pull(session)
    publisher.tick(links.PING_INTERVAL)
    assert kinds(publisher.pull(session)) == ["Ping"]


def test_an_accepted_ping_stops_the_clock_of_a_session_that_is_down():
    publisher, session = down()
    publisher.tick(1.0)
    assert kinds(publisher.pull(session)) == ["Ping"]
    publisher.publish("a.1")
    assert publisher.pull(session) == []
    for _ in range(100):
        publisher.tick(1.0)
        publisher.pull(session)
    assert session.state == "down"


# end


def test_close_counts_backlogs_as_dropped_and_sends_bye():
    publisher, session = up(**SMALL)
    publisher.publish("a.1", "a.2", "a.3")
    publisher.sessions.close()
    found = publisher.pull(session)
    (bye,) = [item for item in found if isinstance(item, Bye)]
    assert (bye.reason, bye.role, bye.following) == (links.CLOSED, links.PUBLISHER, 2)
    assert bye.streams[1].full == 1


@pytest.mark.parametrize(
    ("waiting", "began", "waited", "until"),
    [
        ("unacknowledged", 0, 0, 1),
        ("unacknowledged", 0, 2, None),
        ("unacknowledged", 2, 2.5, 3),
        ("unsent", 0, 5, 6),
        ("unsent", 0, 29.5, 30),
        ("unsent", 0, 30, None),
        ("down", -5, 0.5, 1),
        ("down", -5, 1.5, None),
        ("unhandled", 0, 1000, 1001),
        ("handled", 0, 0, None),
    ],
)
def test_close_waits_for_acknowledgements(waiting, began, waited, until):
    """`until`: seconds after which a `close` that began at a time, and has waited, gives the session up."""
    is_handled = waiting in ("unhandled", "handled")
    options = StreamOptions("g", handled=True) if is_handled else DEFAULT_OPTIONS
    publisher, session = up(options, resume_seconds=30.0, **(SMALL if waiting == "unsent" else {}))
    publisher.publish("a.1", "a.2", "a.3")
    publisher.pull(session)
    if waiting == "down":
        publisher.sessions.unreachable(session, publisher.now)
    if is_handled:
        publisher.ack(3, {1: 1})
        assert publisher.sessions.unacknowledged() == 2
    if waiting == "handled":
        publisher.ack(3, {1: 3})
    now = publisher.now
    found = publisher.sessions.acknowledging_until(now + began, now + waited)
    assert found == (None if until is None else now + until)


# hostile peers


def declaration(first, count, revision=1, base=0):
    items = [Item(first + number, 1, "nats", f"a.{number}") for number in range(count)]
    return links.encode_declare(Declare(revision, base, True, {1: DEFAULT_OPTIONS}, items, []))


def test_a_session_with_many_patterns_does_not_delay_another():
    publisher = Publisher()
    large = publisher.hello()
    small = publisher.hello(OTHER_ROUTE, b"another session!")
    publisher.sessions.on_frame(ROUTE, declaration(0, 1_000), publisher.now)
    publisher.sessions.on_frame(OTHER_ROUTE, declaration(0, 1), publisher.now)
    assert publisher.sessions.work(10)
    assert small.applied == 1
    assert large.applied == 0


def test_declarations_that_wait_have_a_bound():
    publisher = Publisher(declare_bytes=100_000)
    session = publisher.hello()
    other = publisher.hello(OTHER_ROUTE, b"another session!")
    frame = declaration(0, 1_000)
    for _ in range(100_000 // (len(frame) + 64)):
        publisher.sessions.on_frame(ROUTE, frame, publisher.now)
    assert session.state == "up"
    publisher.sessions.on_frame(ROUTE, frame, publisher.now)
    assert session.state == "ended"
    assert publisher.replies() == [(ROUTE, Bye(links.LIMIT, links.PUBLISHER, 0, {}))]
    while publisher.sessions.work(10):
        pass
    assert session.declare_bytes == 0
    assert other.state == "up"


def test_all_declarations_that_wait_have_a_bound():
    publisher = Publisher(total_declare_bytes=100_000)
    large = publisher.hello()
    small = publisher.hello(OTHER_ROUTE, b"another session!")
    frame = declaration(0, 1_000)
    while publisher.sessions.by_id and large.state == "up":
        assert large.declare_bytes < 100_000
        publisher.sessions.on_frame(ROUTE, frame, publisher.now)
        publisher.sessions.on_frame(OTHER_ROUTE, declaration(0, 1), publisher.now)
    assert small.state == "up"
    assert publisher.replies() == [(ROUTE, Bye(links.LIMIT, links.PUBLISHER, 0, {}))]


@pytest.mark.parametrize("end", ["HELLO that resumes", "HELLO of a new session", "BYE"])
def test_declarations_of_an_ended_connection_are_freed(end):
    publisher = Publisher()
    session = publisher.hello()
    for _ in range(10):
        publisher.sessions.on_frame(ROUTE, declaration(0, 1_000), publisher.now)
    publisher.sessions.work(5)
    if end == "HELLO that resumes":
        publisher.hello(epoch=session.epoch, attempt=2)
    elif end == "HELLO of a new session":
        publisher.hello(session=b"another session!")
    else:
        publisher.sessions.on_frame(ROUTE, links.encode_bye(Bye(0, links.SUBSCRIBER, 0, {})), publisher.now)
    assert not session.declarations
    assert session.declare_bytes == 0
    while publisher.sessions.work(10):
        pass
    assert session.applied == 0


def test_answers_to_a_peer_that_does_not_read_have_a_bound():
    publisher = Publisher()
    session = publisher.hello()
    publisher.declare("a..b")
    for _ in range(100):
        publisher.hello()
        publisher.declare("a..b")
        publisher.declare(None, revision=5, base=4)
    # WELCOME, ANSWER, and the ANSWER to an unknown base.
    assert kinds(publisher.pull(session)) == ["Welcome", "Answer", "Answer"]


def test_a_declaration_without_end_has_a_bound():
    publisher = Publisher()
    session = publisher.hello()
    for number in range(20):
        items = [Item(1_000 * number + item, 1, "nats", "a..b") for item in range(1_000)]
        base = 1 if number else 0
        publisher.read(links.encode_declare(Declare(1, base, False, {1: DEFAULT_OPTIONS}, items, [])))
    assert session.part == 1
    assert len(session.mentioned) <= links.MAX_ENTRIES


def test_slow_patterns_of_a_session_are_passed_over():
    publisher = Publisher()
    interest, ticks = publisher.sessions.interest, count()
    # Each match of a regex takes half a millisecond.
    interest._limit._clock = lambda: next(ticks) * 0.0005
    session = publisher.hello()
    other = publisher.hello(OTHER_ROUTE, b"another session!")
    items = [Item(number, 1, "regex", f"^(a|b{number})+z$") for number in range(50)]
    publisher.read(links.encode_declare(Declare(1, 0, True, {1: DEFAULT_OPTIONS}, items, [])))
    item = Item(1, 1, "regex", "^(a|c)+$")
    publisher.read(links.encode_declare(Declare(1, 0, True, {1: DEFAULT_OPTIONS}, [item], [])), OTHER_ROUTE)
    for _ in range(3):
        before = next(ticks)
        assert [element.session for element in interest.find("aa", b"aa").plain] == [other]
        assert next(ticks) - before < 30
    assert len(session.refused) == 8
    assert other.refused == {}
    for _ in range(30):
        assert interest.find("aa", b"aa").plain
    # The remaining patterns are slow, but few.
    assert len(session.patterns) - len(session.refused) == 2
    before = next(ticks)
    assert interest.find("aa", b"aa").plain
    assert next(ticks) == before + 1


SLOW = "^(.|..|...)+[x-z]$"  # It backtracks for more than 50 ms on the subjects below.


def test_last_values_are_compared_in_steps_and_a_slow_pattern_is_refused():
    publisher = Publisher(LastValues())
    for number in range(1_000):
        publisher.sessions.publish(f"md.us.equity.AAPL.nasdaq.trade.{number}", b"x")
    session = publisher.hello()
    items = [Item(1, 1, "regex", SLOW, True), Item(2, 1, "nats", "md.>", True)]
    frame = links.encode_declare(Declare(1, 0, True, {1: DEFAULT_OPTIONS}, items, []))
    publisher.sessions.on_frame(ROUTE, frame, publisher.now)
    steps = 0
    while publisher.sessions.work(1):
        # A value of a new subject is compared too.
        publisher.sessions.publish(f"md.new.{steps}", b"x")
        steps += 1
    assert steps >= 1 + 1_000 // 256
    assert list(session.refused) == [1]
    publisher.sessions.flush()
    found = [batch[5] for batch in publisher.pull(session) if isinstance(batch, tuple) and len(batch) == 6]
    subjects = [subject for batch in found for subject in batch if not isinstance(batch, bytes)]
    assert len(subjects) == len(set(subjects)) == 1_000 + steps


def test_a_slow_pattern_does_not_hold_up_the_end_of_another():
    publisher, session = up(HANDLED)
    item = Item(2, 1, "regex", SLOW)
    publisher.read(links.encode_declare(Declare(2, 1, True, {1: HANDLED}, [item], [])))
    for number in range(100):
        publisher.publish(f"a.us-equity-AAPL-nasdaq-trade-{number}")
    assert len(session.batches) == 100
    publisher.pull(session)
    began = time.process_time()
    publisher.declare(None, revision=3, base=2, removed=[1])
    assert time.process_time() - began < 2.0


def test_refused_subscriptions_have_a_bound():
    publisher = Publisher()
    session = publisher.hello()
    for revision in range(1, 5):
        items = [Item(1_000 * revision + number, 1, "nats", "a..b") for number in range(1_000)]
        publisher.read(
            links.encode_declare(Declare(revision, revision - 1, True, {1: DEFAULT_OPTIONS}, items, []))
        )
    assert session.applied == 4
    assert len(session.refused) == links.MAX_ENTRIES


def test_streams_without_messages_end_with_their_last_subscription():
    publisher = Publisher()
    session = publisher.hello()
    streams = dict.fromkeys(range(1, 101), DEFAULT_OPTIONS)
    publisher.read(links.encode_declare(Declare(1, 0, True, streams, [], [])))
    assert not session.streams
    publisher.read(links.encode_declare(Declare(2, 1, True, streams, [Item(1, 8, "nats", "a..b")], [])))
    assert not session.streams
    publisher.declare("a.*", revision=3, base=2, sid=2, stream=9)
    publisher.declare("b.*", revision=4, base=3, sid=3, stream=10)
    publisher.sessions.publish("b.1", b"x")
    publisher.declare(None, revision=5, base=4, removed=[2, 3])
    assert list(session.streams) == [10]
    publisher.declare("a.*", revision=6, base=5, sid=4, stream=9, options=StreamOptions("g"))
    publisher.publish("a.1")
    assert publisher.pull(session)[-2:] == [(10, 0, 1, 0, 0, ["b.1"]), (9, 1, 1, 0, 0, ["a.1"])]


def test_an_ended_session_is_freed_before_its_next_ping():
    publisher = Publisher()
    session = weakref.ref(publisher.hello())
    publisher.hello(session=b"another session!")
    assert session() is None
    publisher.tick(1.0)
    (other,) = publisher.sessions.by_id.values()
    assert kinds(publisher.pull(other)) == ["Welcome", "Ping"]


# redelivery

HANDLED = StreamOptions("g", handled=True, redeliver=True)


def two_members(options=HANDLED):
    publisher, first = up(options)
    second = publisher.hello(OTHER_ROUTE, b"another session!", member=b"another member !")
    publisher.declare(options=options, route=OTHER_ROUTE)
    publisher.pull(second)
    return publisher, first, second


def test_close_waits_a_second_for_messages_that_no_other_member_can_receive():
    publisher, first, second = two_members(HANDLED)
    publisher.publish("a.1", "a.2")
    for session in (first, second):
        publisher.pull(session)
        publisher.sessions.unreachable(session, publisher.now)
    now = publisher.now
    assert publisher.sessions.acknowledging_until(now, now + 0.5) == now + 1
    assert publisher.sessions.acknowledging_until(now, now + 1) is None
    assert publisher.sessions.unacknowledged() == 2


def remove(publisher):
    publisher.declare(None, revision=3, base=2, removed=[1])


def replace_by_nothing(publisher):
    publisher.declare(None, revision=3, base=0)


def replace_while_drained(publisher):
    publisher.declare(None, revision=3, base=0, removed=[-1])


def leave(publisher):
    publisher.read(links.encode_bye(Bye(0, links.SUBSCRIBER, 2, {})))


@pytest.mark.parametrize(
    ("change", "moved"), [(remove, 1), (replace_by_nothing, 1), (replace_while_drained, 0), (leave, 1)]
)
def test_drained_member_keeps_its_messages_until_it_ends(change, moved):
    publisher, first, second = two_members()
    publisher.publish("a.1", "a.2", "a.3", "a.4")
    publisher.pull(first), publisher.pull(second)
    publisher.ack(2, {1: 0})
    publisher.declare(None, revision=2, base=1, removed=[-1])
    publisher.ack(2, {1: 1})
    publisher.publish("a.5")
    # It receives no new message.
    assert [batch[4] for batch in publisher.pull(second)] == [0]
    change(publisher)
    assert [batch[4] for batch in publisher.pull(second)] == [links.REDELIVERED] * moved


def test_messages_of_a_drained_member_move_to_a_member_that_joined_later():
    publisher, first = up(HANDLED)
    publisher.publish("a.1")
    publisher.pull(first)
    publisher.declare(None, revision=2, base=1, removed=[-1])
    second = publisher.hello(OTHER_ROUTE, b"another session!", member=b"another member !")
    publisher.declare(options=HANDLED, route=OTHER_ROUTE)
    publisher.pull(second)
    leave(publisher)
    assert [batch[4] for batch in publisher.pull(second)] == [links.REDELIVERED]


def test_backlog_of_a_drained_member_moves():
    publisher, first, second = two_members()
    first.window = 1
    publisher.publish("a.1", "a.2", "a.3", "a.4")
    publisher.pull(first), publisher.pull(second)
    assert (len(first.batches), first.streams[1].pending) == (1, 1)
    publisher.declare(None, revision=2, base=1, removed=[-1])
    assert [batch[4] for batch in publisher.pull(second)] == [links.REDELIVERED]
    assert (len(first.batches), first.streams[1].pending) == (1, 0)


def test_drained_subscriptions_have_a_bound():
    publisher, first, _ = two_members()
    for sid in range(1, links.MAX_STREAMS + 10):
        revision = 2 * sid
        publisher.declare(None, revision=revision, base=revision - 1, removed=[-sid])
        publisher.declare(revision=revision + 1, base=revision, sid=sid + 1, options=HANDLED)
    assert len(first.drained) == links.MAX_STREAMS


def test_messages_of_members_that_leave_go_first_and_are_not_dropped_for_new_ones():
    options = StreamOptions("g", overflow="drop_oldest", max_pending=8, redeliver=True)
    publisher, first, second = two_members(options)
    third = publisher.hello(b"route three", b"third session of", member=b"third member of ")
    publisher.declare(route=b"route three", options=options)
    publisher.pull(third)
    first.window = second.window = third.window = 1
    publisher.publish(*[f"a.{number}" for number in range(9)])
    for session, route in ((first, ROUTE), (second, OTHER_ROUTE)):
        publisher.pull(session)
        publisher.read(links.encode_bye(Bye(0, links.SUBSCRIBER, 0, {})), route)
    publisher.publish("a.9", "a.10")
    found = publisher.pull(third)
    while third.batches:
        publisher.ack(third.sent, route=b"route three")
        found += publisher.pull(third)
    flags = [item[4] for item in found for _ in item[5]]
    assert flags == [0] + [links.REDELIVERED] * 6 + [0] * 2
    assert [item[5] for item in found][-1][-1] == "a.10"
    assert sum(third.streams[1].drops) == 2


def test_conflated_messages_of_a_member_move():
    publisher, first, second = two_members(StreamOptions("g", "failover", "conflate", redeliver=True))
    first.window = 1
    publisher.publish("a.1", "a.2", "a.3")
    publisher.read(links.encode_bye(Bye(0, links.SUBSCRIBER, 0, {})))
    assert [batch[5] for batch in publisher.pull(second)] == [["a.1", "a.2", "a.3"]]


def test_headers_of_conflated_messages_count():
    publisher, session = up(
        StreamOptions(overflow="conflate"), window=1, body_bytes=10_000, pending_bytes=50_000
    )
    for number in range(100):
        publisher.sessions.publish(f"a.{number}", b"x", {"headers": {"h": "x" * 1_000}})
        publisher.sessions.flush()
        assert session.bytes <= 50_000
    while (frames := session.next_frames()) is not None:
        session.confirm_sent()
        assert sum(map(len, frames)) < 12_000
        publisher.ack(session.sent)
    assert session.bytes == 0
    assert 40 < session.streams[1].numbered < 50


def test_a_pattern_does_not_protect_messages_from_before_its_subscription():
    publisher, first, second = two_members(StreamOptions("g", "failover", handled=True, redeliver=True))
    publisher.publish("a.1")
    publisher.declare("a.*", revision=2, base=1, sid=2, options=first.streams[1].options)
    publisher.publish("a.2")
    publisher.pull(first)
    publisher.ack(2, {1: 0})
    publisher.declare(None, revision=3, base=2, removed=[1])
    assert [batch[5] for batch in publisher.pull(second)] == [["a.1"]]


# last values


def test_last_values_do_not_replace_conflated_messages():
    options = StreamOptions(overflow="conflate")
    publisher = Publisher(LastValues(), window=1)
    session = publisher.hello()
    publisher.declare(options=options)
    publisher.publish("a.0", "a.1")
    for sid in (2, 3):
        publisher.declare(revision=sid, base=sid - 1, sid=sid, options=options, last_value=True)
    found = []
    while (frames := session.next_frames()) is not None:
        session.confirm_sent()
        if frames[0][0] == links.JOINED:
            flat = links.decode_body(frames[0][links.HEAD_BYTES :], links.decode_head(frames[0]).count)
            found += [
                (subject, (extras or {}).get(links.SID))
                for subject, extras in zip(flat[::3], flat[2::3], strict=True)
            ]
        publisher.ack(session.sent)
    assert found == [(b"a.0", None), (b"a.1", None), (b"a.0", 2), (b"a.1", 2), (b"a.0", 3), (b"a.1", 3)]


def test_last_values_are_bounded():
    values = LastValues(subjects=3, size=100)
    for number in range(10):
        values.put(number, b"a.%d" % number, b"x" * number, None)
    assert len(values) == 3
    values.put(11, b"large", b"x" * 90, None)
    assert len(values) == 1
    assert values.bytes == 95
    values.put(12, b"too large", b"x" * 200, None)
    assert len(values) == 0


def test_a_lone_message_with_extras_is_one_frame_or_waits_for_the_batch():
    publisher, session = up(joined_bytes=100)
    publisher.sessions.ready.clear()
    extras = {"reply_to": "inbox"}
    found = {}
    for size in range(40, 85):
        payload = bytes(size)
        body = links.encode_body((b"a.1", payload, extras))
        found[len(body)] = publisher.sessions.publish_alone(
            session.streams[1], b"a.1", payload, extras, publisher.now
        )
        if found[len(body)] is not None:
            session.confirm_sent()
            assert found[len(body)].endswith(body)
    assert found[99] is not None
    assert found[100] is None
