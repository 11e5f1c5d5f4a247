"""Each cell of the table of a link, and its clocks, marks and frames."""

import pytest

import oz
from links.pair import NEVER, ORIGIN, Subscriber, batch
from oz.subscriber.link import (
    ENDED,
    MAX_ATTEMPT,
    Gap,
    ListeningClock,
    Marks,
    Messages,
    Replace,
)
from oz.wire import links
from oz.wire.links import Ack, Answer, Bye, Declare, Drops, Hello, Ping, StreamOptions, Welcome

EPOCH, OTHER_EPOCH = b"epoch of a test!", b"another epoch !!"


def welcome(attempt, epoch=EPOCH, first=0, applied=0, window=256, window_bytes=8 << 20, origin=ORIGIN):
    return links.encode_welcome(
        Welcome(origin, epoch, attempt, first, applied, window, window_bytes, 64 << 20)
    )


def answer(revision, refused=()):
    return links.encode_answer(Answer(revision, None if refused is None else list(refused)))


def ping(following, applied=1, streams=None):
    return links.encode_ping(Ping(following, applied, streams or {}))


def bye(following=0, streams=None, reason=links.CLOSED):
    return links.encode_bye(Bye(reason, links.PUBLISHER, following, streams or {}))


def greeting(**options):
    subscriber = Subscriber("a.*", **options)
    subscriber.link.connect(subscriber.now)
    subscriber.pull()
    return subscriber


def live(expected=0, **options):
    """Return a subscriber whose link is LIVE, has an answer and expects a sequence."""
    subscriber = greeting(**options)
    subscriber.read(welcome(subscriber.link.attempt, first=0))
    subscriber.read(answer(1))
    if expected:
        subscriber.read(batch(0, expected))
    subscriber.pull()
    return subscriber


def ended():
    subscriber = live()
    subscriber.read(bye())
    return subscriber


# batches


def test_withdrawn_batch_is_unwanted():
    subscriber = live()
    head = links.encode_head(links.WITHDRAWN, 1, 0, 3, 0, 0)
    assert subscriber.read(head) == []
    assert (subscriber.link.expected, subscriber.link.unwanted) == (3, 3)


@pytest.mark.parametrize("count", [1, 3])
def test_body_that_does_not_fit_its_head_is_a_gap(count):
    subscriber = live()
    subscriber.read(links.encode_head(0, 1, 0, count, 0, 0))
    assert subscriber.read(links.encode_body([b"a", b"", None, b"b", b"", None])) == [
        Gap(count, "malformed", 1)
    ]
    assert subscriber.link.expected == count
    assert [type(effect) for effect in subscriber.read(batch(count))] == [Messages]


def test_other_kinds_may_come_between_head_and_body():
    subscriber = live()
    subscriber.read(links.encode_head(0, 1, 0, 1, 0, 0))
    subscriber.read(ping(0))
    assert [type(effect) for effect in subscriber.read(links.encode_body([b"a.1", b"", None]))] == [Messages]


@pytest.mark.parametrize("frame", [b"", links.encode_head(0, 1, 9, 1, 0, 0)])
def test_probe_and_new_head_forget_a_head(frame):
    subscriber = live()
    subscriber.read(links.encode_head(0, 1, 0, 1, 0, 0))
    subscriber.read(frame)
    assert not any(
        isinstance(effect, Messages) for effect in subscriber.read(links.encode_body([b"a.1", b"", None]))
    )


# PING


@pytest.mark.parametrize("beats", [1, 2, links.MAX_BEATS])
def test_a_link_waits_for_the_ping_that_the_last_one_has_promised(beats):
    one = live(5)
    one.read(links.encode_ping(Ping(5, 1, {}, beats)))
    one.pull()
    assert one.tick(links.silent_after(beats) - 0.1) == []
    assert [type(effect) for effect in one.tick(0.2)] == [Replace]


def test_rare_pings_are_acknowledged_as_often():
    """Because a session without frames for `SLOW_AFTER` seconds counts as silent, rare PINGs do not delay ACKs."""
    one, acknowledged = live(5), 0
    for _ in range(2 * links.SLOW_PINGS // links.MAX_BEATS):
        one.read(links.encode_ping(Ping(5, 1, {}, links.MAX_BEATS)))
        acknowledged += len(one.pull())
    assert acknowledged == 2


def test_one_of_twenty_pings_without_news_is_acknowledged():
    one = live(5)
    answers = []
    for _ in range(2 * links.SLOW_PINGS):
        one.read(ping(5))
        answers.append(one.pull())
    rest = [[]] * (links.SLOW_PINGS - 1)
    assert answers == [[Ack(5, {})], *rest] * 2
    one.read(batch(5))
    one.pull()
    one.read(ping(6))
    assert one.pull() == [Ack(6, {})]


def test_ping_reports_drops_if_nothing_is_pending():
    subscriber = live(5)
    assert subscriber.read(ping(5, streams={1: Drops(1, 4, 0, 0, 0)})) == []
    assert subscriber.read(ping(3, streams={1: Drops(0, 4, 0, 0, 0)})) == []
    assert subscriber.read(ping(5, streams={1: Drops(0, 4, 1, 0, 0)})) == [Gap(5, "dropped", 1)]
    assert subscriber.read(ping(5, streams={1: Drops(0, 4, 1, 0, 0)})) == []


@pytest.mark.parametrize(("applied", "count"), [(1, 0), (0, 1)])
def test_ping_with_another_revision_declares_everything_once(applied, count):
    subscriber = live()
    subscriber.read(ping(0, applied))
    subscriber.read(ping(0, applied))
    assert [frame.base for frame in subscriber.pull() if isinstance(frame, Declare)] == [0] * count


def pings_without_effect(subscriber, make, count=4):
    """Read PINGs 1.5 s apart; return the kinds of the effects and of the frames for each."""
    found = []
    for _ in range(count):
        effects = subscriber.read(make())
        found.append([type(item) for item in (*effects, *subscriber.pull()) if not isinstance(item, Ack)])
        subscriber.now += links.PING_INTERVAL
    return found


def undeclared(subscriber):
    """Declare a subscription; return a function that returns a PING without it."""
    subscriber.subscriptions.add(oz.compile("b.*"))
    subscriber.link.declare()
    assert [(frame.base, frame.revision) for frame in subscriber.pull()] == [(1, 2)]
    return lambda: ping(subscriber.link.expected, applied=1)


def unacknowledged(subscriber):
    """Return a function that returns a PING with pending messages."""
    return lambda: ping(subscriber.link.expected, streams={1: Drops(3, 0, 0, 0, 0)})


@pytest.mark.parametrize("ignored", [undeclared, unacknowledged])
def test_publisher_that_repeats_welcome_is_not_replaced(ignored):
    subscriber = live(5)
    make = ignored(subscriber)
    for _ in range(20):
        found = pings_without_effect(subscriber, make, 2)
        assert found == [[], [Hello]]
        # It does not apply another declaration of everything either.
        assert subscriber.read(welcome(subscriber.link.attempt, first=5, applied=1)) == []
        assert subscriber.pull() == []


def test_pings_that_waited_for_the_program_do_not_replace_the_connection():
    subscriber = live(5)
    old = undeclared(subscriber)()
    assert all(subscriber.read(old) == [] for _ in range(20))
    assert not any(isinstance(frame, Hello) for frame in subscriber.pull())
    subscriber.read(answer(2))
    assert subscriber.link.is_answered


def test_link_waits_twice_as_long_after_each_replacement_by_a_declaration_without_answer():
    subscriber = live()
    make = undeclared(subscriber)
    counts = []
    for _ in range(3):
        found = pings_without_effect(subscriber, make, 20)
        counts.append(found.index([Replace]))
        subscriber.link.connect(subscriber.now)
        subscriber.read(welcome(subscriber.link.attempt, applied=1))
        subscriber.pull()
    assert counts == [3, 5, 10]
    subscriber.read(answer(2))
    subscriber.read(ping(0, applied=2))
    subscriber.subscriptions.add(oz.compile("c.*"))
    subscriber.link.declare()
    subscriber.pull()
    assert pings_without_effect(subscriber, lambda: ping(0, applied=2))[-1] == [Replace]


# ANSWER


def test_answer_nil_declares_everything_unless_that_is_under_way():
    subscriber = live()
    subscriber.subscriptions.add(oz.compile("b.*"))
    subscriber.link.declare()
    assert [(frame.base, frame.revision) for frame in subscriber.pull()] == [(1, 2)]
    subscriber.read(answer(0, None))
    subscriber.read(answer(0, None))
    assert [(frame.base, frame.revision) for frame in subscriber.pull()] == [(0, 2)]


# BYE


@pytest.mark.parametrize("reason", [links.LOST, links.LIMIT])
@pytest.mark.parametrize(("following", "known"), [(5, []), (7, [Gap(2, "closed")])])
def test_bye_of_a_publisher_that_goes_on_reports_an_unknown_loss(following, known, reason):
    subscriber = live(5)
    assert subscriber.read(bye(following, reason=reason)) == [*known, Gap(None, "lost")]
    assert subscriber.link.state == ENDED


# time


def test_no_welcome_for_ten_seconds_replaces_the_connection():
    subscriber = greeting()
    assert all(subscriber.tick(1.0) == [] for _ in range(9))
    assert [type(effect) for effect in subscriber.tick(1.0)] == [Replace]


def unknown_losses(subscriber):
    """Return the gaps of a link whose publisher is silent until the session ends."""
    gaps, ends = [], 0
    for _ in range(40):
        for effect in subscriber.tick(1.0):
            if isinstance(effect, Replace):
                subscriber.link.connect(subscriber.now)
            else:
                gaps.append(effect)
        ends += subscriber.link.state == ENDED
    assert ends
    return gaps


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_publisher_that_has_removed_the_last_subscription_can_lose_nothing(is_answered):
    subscriber = live(5)
    (entry,) = subscriber.subscriptions.by_sid.values()
    subscriber.subscriptions.remove(entry)
    subscriber.link.declare()
    if is_answered:
        subscriber.read(answer(2))
    assert subscriber.link.may_have_lost is not is_answered
    assert unknown_losses(subscriber) == ([] if is_answered else [Gap(None, "lost")])


def test_attempts_after_the_end_back_off():
    subscriber = ended()
    times = []
    for _ in range(400):
        for effect in subscriber.tick(0.5):
            assert isinstance(effect, Replace)
            times.append(subscriber.now)
    pauses = [round(after - before) for before, after in zip([100.0, *times], times, strict=False)]
    assert pauses[:7] == [1, 2, 4, 8, 16, 30, 30]
    session = subscriber.link.session
    subscriber.link.connect(subscriber.now)
    assert subscriber.link.session != session


def test_the_listening_clock_runs_inside_receive_after_an_empty_socket():
    clock = ListeningClock()
    clock.empty(1.0)
    assert clock.time(5.0) == 0.0
    clock.enter()
    assert clock.time(10.0) == 0.0
    clock.empty(10.0)
    assert clock.time(12.0) == 2.0
    clock.leave(13.0)
    assert clock.time(60.0) == 3.0
    clock.enter()
    assert clock.time(70.0) == 3.0
    for _ in range(1_000):
        clock.read(70.0)
    assert clock.time(71.0) == 4.0


# ACK


def test_ack_is_due_after_a_quarter_of_the_window():
    subscriber = greeting()
    subscriber.read(welcome(1, window=16))
    subscriber.read(answer(1))
    subscriber.pull()
    for sequence in range(3):
        subscriber.read(batch(sequence))
    assert subscriber.pull() == []
    subscriber.read(batch(3))
    assert subscriber.pull() == [Ack(4, {})]


def test_ack_is_due_after_a_quarter_of_the_bytes():
    subscriber = greeting()
    subscriber.read(welcome(1, window_bytes=80))
    subscriber.read(answer(1))
    subscriber.pull()
    subscriber.read(batch(0, 3))
    assert subscriber.pull() == [Ack(3, {})]


def test_ack_before_waiting_if_the_last_is_old():
    subscriber = live()
    subscriber.read(batch(0))
    subscriber.link.before_wait(subscriber.now)
    assert subscriber.pull() == [Ack(1, {})]
    subscriber.read(batch(1))
    subscriber.link.before_wait(subscriber.now + 0.01)
    assert subscriber.pull() == []
    subscriber.link.before_wait(subscriber.now + 0.03)
    assert subscriber.pull() == [Ack(2, {})]
    subscriber.link.before_wait(subscriber.now + 9)
    assert subscriber.pull() == []


def test_eagain_keeps_hello_declare_and_the_newest_ack():
    subscriber = live()
    subscriber.read(batch(0))
    subscriber.read(ping(1))
    first = links.decode_control(subscriber.link.next_frame())
    subscriber.read(batch(1))
    assert (first, links.decode_control(subscriber.link.next_frame())) == (Ack(1, {}), Ack(2, {}))
    subscriber.subscriptions.add(oz.compile("c"))
    subscriber.link.declare()
    assert [type(frame) for frame in subscriber.pull()] == [Ack, Declare]


def test_marks_are_the_lowest_sequence_that_is_not_handled():
    subscriber = live(options=StreamOptions(handled=True))
    subscriber.read(batch(0, 3))
    subscriber.read(ping(3))
    assert subscriber.pull() == [Ack(3, {1: 0})]
    for sequence, mark in ((1, 0), (0, 2), (2, 3)):
        subscriber.link.handled(EPOCH, 1, sequence)
        subscriber.now += 1
        subscriber.link.before_wait(subscriber.now)
        assert [frame.marks for frame in subscriber.pull()] == ([{1: mark}] if mark else [])
    subscriber.link.handled(NEVER, 1, 2)


def test_marks_are_sent_again_on_a_new_connection():
    one = live(options=StreamOptions(handled=True))
    one.read(batch(0, 3))
    one.link.handled(EPOCH, 1, 0)
    one.read(ping(3))
    assert one.pull() == [Ack(3, {1: 1})]
    one.read(b"")
    one.read(welcome(one.link.attempt, first=3, applied=1))
    one.pull()
    one.link.before_wait(one.now + 1)
    assert one.pull() == [Ack(3, {1: 1})]


def test_abandoned_messages_hold_the_mark_until_the_answer():
    subscriber = live(options=StreamOptions("g", handled=True, redeliver=True))
    subscriber.read(batch(0, 2))
    subscriber.subscriptions.remove(subscriber.subscriptions.by_sid[1])
    subscriber.link.declare()
    subscriber.link.abandon(EPOCH, 1, 0)
    subscriber.link.abandon(EPOCH, 1, 1)
    subscriber.read(ping(2))
    assert [type(frame) for frame in subscriber.pull()] == [Ack, Declare]
    subscriber.link.before_wait(subscriber.now + 1)
    assert subscriber.pull() == []
    subscriber.read(answer(2))
    subscriber.read(ping(2, 2))
    assert subscriber.pull()[-1] == Ack(2, {1: 2})


def test_marks_ignore_unknown_sequences():
    marks = Marks()
    marks.handled(3)
    marks.add(5, 2)
    marks.handled(9)
    marks.handled(4)
    assert marks.mark(7) == 5


def test_close_sends_the_last_ack_and_bye():
    subscriber = live()
    subscriber.read(batch(0))
    subscriber.link.close()
    assert subscriber.pull() == [Ack(1, {}), Bye(links.CLOSED, links.SUBSCRIBER, 1, {})]


def test_numbers_of_unknown_streams_are_ignored():
    subscriber = live()
    streams = dict.fromkeys((-1, 2, 2**40), Drops(0, 5, 0, 0, 0))
    assert subscriber.read(ping(0, streams=streams)) == []
    assert not subscriber.link.drops
    assert not subscriber.link.reasons
    assert subscriber.read(ping(0, streams={1: Drops(0, 5, 0, 0, 0)})) == [Gap(5, "dropped", 1)]


def test_probes_without_end_begin_a_new_session():
    subscriber = greeting()
    before, subscriber.link.attempt = subscriber.link.session, MAX_ATTEMPT
    assert subscriber.read(b"") == []
    (hello,) = subscriber.pull()
    assert (hello.attempt, hello.epoch) == (1, links.UNKNOWN_EPOCH)
    assert hello.session != before
