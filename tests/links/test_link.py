"""Each cell of the table of a link, and its clocks, marks and frames."""

import pytest

import oz
from links.pair import NEVER, ORIGIN, Subscriber, batch
from oz.subscriber.link import (
    ENDED,
    GREETING,
    LIVE,
    MAX_ATTEMPT,
    NEW,
    Gap,
    ListeningClock,
    Marks,
    Messages,
    Refused,
    Replace,
)
from oz.wire import links
from oz.wire.links import Ack, Answer, Bye, Declare, Drops, Hello, Ping, Refusal, StreamOptions, Welcome

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


def new(*texts):
    return Subscriber(*(texts or ("a.*",)))


def greeting(**options):
    one = Subscriber("a.*", **options)
    one.link.connect(one.now)
    one.pull()
    return one


def live(expected=0, **options):
    """Return a subscriber whose link is LIVE, has an answer and expects a sequence."""
    one = greeting(**options)
    one.read(welcome(one.link.attempt, first=0))
    one.read(answer(1))
    if expected:
        one.read(batch(0, expected))
    one.pull()
    return one


def greeting_again(expected=5):
    """Return a subscriber that was LIVE and says HELLO on a new connection."""
    one = live(expected)
    one.read(b"")
    one.pull()
    return one


def ended():
    one = live()
    one.read(bye())
    return one


MAKERS = {NEW: new, GREETING: greeting, LIVE: live, ENDED: ended}


# connections


def test_connect_sends_hello_and_all_subscriptions():
    one = new("a.*", "b.>")
    one.link.connect(one.now)
    hello, declare = one.pull()
    assert isinstance(hello, Hello)
    assert (hello.epoch, hello.attempt, hello.expected) == (links.UNKNOWN_EPOCH, 1, 0)
    assert (declare.base, declare.revision, declare.is_last) == (0, 2, True)
    assert [item.text for item in declare.items] == ["a.*", "b.>"]
    assert one.link.state == GREETING


def test_connect_without_subscriptions_sends_hello_only():
    one = Subscriber()
    one.link.connect(one.now)
    assert [type(frame) for frame in one.pull()] == [Hello]


def test_a_probe_after_the_end_takes_a_new_session_id():
    one = ended()
    session, attempt = one.link.session, one.link.attempt
    one.read(b"")
    (hello,) = one.pull()
    assert hello.session != session
    assert (hello.epoch, hello.attempt, hello.expected) == (links.UNKNOWN_EPOCH, attempt + 1, 0)


def test_hello_names_what_the_link_knows():
    one = live(7)
    one.read(b"")
    (hello,) = one.pull()
    assert (hello.epoch, hello.expected, hello.answered) == (EPOCH, 7, 1)


def test_hello_without_welcome_is_sent_again_with_the_same_attempt():
    one = greeting()
    assert one.tick(0.9) == []
    assert one.pull() == []
    one.tick(0.2)
    (hello,) = one.pull()
    assert hello.attempt == one.link.attempt == 1


@pytest.mark.parametrize("state", [NEW, LIVE, ENDED])
def test_hello_is_not_repeated_in_other_states(state):
    one = MAKERS[state]()
    one.tick(1.5)
    assert not any(isinstance(frame, Hello) for frame in one.pull())


# WELCOME


@pytest.mark.parametrize("make", [greeting_again, lambda: live(5)])
@pytest.mark.parametrize(("first", "lost"), [(5, 0), (3, 0), (9, 4)])
def test_welcome_of_the_known_epoch(make, first, lost):
    one = make()
    effects = one.read(welcome(one.link.attempt, first=first, applied=1))
    assert effects == ([Gap(lost, "lost")] if lost else [])
    assert (one.link.state, one.link.expected) == (LIVE, 5 + lost)


@pytest.mark.parametrize("make", [greeting_again, lambda: live(5)])
def test_gap_of_a_restart_names_the_publisher_that_sent_the_lost_messages(make):
    one = make()
    before, other = one.link.origin, bytes(16)
    found = one.read(welcome(one.link.attempt, OTHER_EPOCH, origin=other))
    assert found == [Gap(None, "restarted", origin=before)]
    assert one.link.origin == other


@pytest.mark.parametrize("make", [greeting_again, lambda: live(5)])
def test_welcome_of_another_epoch(make):
    one = make()
    assert one.read(welcome(one.link.attempt, OTHER_EPOCH, first=0)) == [Gap(None, "restarted")]
    link = one.link
    assert (link.state, link.epoch, link.expected, link.answered, link.drops) == (LIVE, OTHER_EPOCH, 0, 0, {})


@pytest.mark.parametrize(("applied", "is_declared"), [(1, False), (0, True), (7, True)])
def test_welcome_with_another_revision_declares_everything(applied, is_declared):
    one = greeting_again()
    one.read(welcome(one.link.attempt, applied=applied))
    declares = [frame for frame in one.pull() if isinstance(frame, Declare)]
    assert [(frame.base, frame.revision) for frame in declares] == [(0, 1)] * is_declared


# batches


def test_expected_sequence_is_delivered():
    one = live()
    (messages,) = one.read(batch(0, 2, position=7))
    assert isinstance(messages, Messages)
    assert (messages.stream, messages.sequence, list(messages.positions)) == (1, 0, [7, 8])
    assert messages.flat == [b"a.0", b"x", None, b"a.1", b"x", None]
    assert one.link.expected == 2


def test_withdrawn_batch_is_unwanted():
    one = live()
    head = links.encode_head(links.WITHDRAWN, 1, 0, 3, 0, 0)
    assert one.read(head) == []
    assert (one.link.expected, one.link.unwanted) == (3, 3)


@pytest.mark.parametrize("count", [1, 3])
def test_body_that_does_not_fit_its_head_is_a_gap(count):
    one = live()
    one.read(links.encode_head(0, 1, 0, count, 0, 0))
    assert one.read(links.encode_body([b"a", b"", None, b"b", b"", None])) == [Gap(count, "malformed", 1)]
    assert one.link.expected == count
    assert [type(effect) for effect in one.read(batch(count))] == [Messages]


def test_other_kinds_may_come_between_head_and_body():
    one = live()
    one.read(links.encode_head(0, 1, 0, 1, 0, 0))
    one.read(ping(0))
    assert [type(effect) for effect in one.read(links.encode_body([b"a.1", b"", None]))] == [Messages]


@pytest.mark.parametrize("frame", [b"", links.encode_head(0, 1, 9, 1, 0, 0)])
def test_probe_and_new_head_forget_a_head(frame):
    one = live()
    one.read(links.encode_head(0, 1, 0, 1, 0, 0))
    one.read(frame)
    assert not any(
        isinstance(effect, Messages) for effect in one.read(links.encode_body([b"a.1", b"", None]))
    )


def test_body_without_head_is_discarded():
    one = live()
    assert one.read(links.encode_body([b"a.1", b"", None])) == []


def test_drops_are_reported_before_the_messages_behind_them():
    one = live()
    assert [type(effect) for effect in one.read(batch(0, drops=0))] == [Messages]
    gap, messages = one.read(batch(1, drops=3))
    assert gap == Gap(3, "dropped", 1)
    assert isinstance(messages, Messages)
    assert [type(effect) for effect in one.read(batch(2, drops=3))] == [Messages]


def test_redelivered_messages_are_marked():
    one = live()
    (messages,) = one.read(batch(0, flags=links.REDELIVERED))
    assert messages.is_redelivered


# PING


@pytest.mark.parametrize("following", [5, 3])
def test_ping_makes_an_ack_due_at_once(following):
    one = live(5)
    one.read(ping(following))
    assert one.pull() == [Ack(5, {})]


def test_ping_reports_drops_if_nothing_is_pending():
    one = live(5)
    assert one.read(ping(5, streams={1: Drops(1, 4, 0, 0, 0)})) == []
    assert one.read(ping(3, streams={1: Drops(0, 4, 0, 0, 0)})) == []
    assert one.read(ping(5, streams={1: Drops(0, 4, 1, 0, 0)})) == [Gap(5, "dropped", 1)]
    assert one.read(ping(5, streams={1: Drops(0, 4, 1, 0, 0)})) == []


@pytest.mark.parametrize(("applied", "count"), [(1, 0), (0, 1)])
def test_ping_with_another_revision_declares_everything_once(applied, count):
    one = live()
    one.read(ping(0, applied))
    one.read(ping(0, applied))
    assert [frame.base for frame in one.pull() if isinstance(frame, Declare)] == [0] * count


# ANSWER


def test_answer_reports_refusals():
    one = live()
    refusal = Refusal(1, "denied")
    assert one.read(answer(1, [refusal])) == [Refused(1, [refusal])]
    assert one.link.is_answered


def test_answer_nil_declares_everything_unless_that_is_under_way():
    one = live()
    one.subscriptions.add(oz.compile("b.*"))
    one.link.declare()
    assert [(frame.base, frame.revision) for frame in one.pull()] == [(1, 2)]
    one.read(answer(0, None))
    one.read(answer(0, None))
    assert [(frame.base, frame.revision) for frame in one.pull()] == [(0, 2)]


# BYE


@pytest.mark.parametrize("reason", [links.LOST, links.LIMIT])
@pytest.mark.parametrize(("following", "known"), [(5, []), (7, [Gap(2, "closed")])])
def test_bye_of_a_publisher_that_goes_on_reports_an_unknown_loss(following, known, reason):
    one = live(5)
    assert one.read(bye(following, reason=reason)) == [*known, Gap(None, "lost")]
    assert one.link.state == ENDED


@pytest.mark.parametrize(("following", "lost"), [(5, 0), (4, 0), (8, 3)])
def test_bye_reports_what_was_lost_and_dropped(following, lost):
    one = live(5)
    effects = one.read(bye(following, {1: Drops(0, 2, 0, 0, 0)}))
    assert effects == [Gap(lost, "closed")] * (lost > 0) + [Gap(2, "dropped", 1)]
    assert one.link.state == ENDED


# time


@pytest.mark.parametrize("state", [GREETING, LIVE])
def test_a_silent_publisher_is_replaced(state):
    one = MAKERS[state]() if state == LIVE else greeting_again()
    epoch = one.link.epoch
    assert one.tick(3.4) == []
    assert [type(effect) for effect in one.tick(0.1)] == [Replace]
    assert (one.link.state, one.link.epoch) == (NEW, epoch)


def test_no_welcome_for_ten_seconds_replaces_the_connection():
    one = greeting()
    assert all(one.tick(1.0) == [] for _ in range(9))
    assert [type(effect) for effect in one.tick(1.0)] == [Replace]


def test_silence_beyond_resume_seconds_is_an_unknown_loss():
    one = live(5)
    gaps, ends = [], 0
    for _ in range(40):
        for effect in one.tick(1.0):
            if isinstance(effect, Replace):
                one.link.connect(one.now)
            else:
                gaps.append(effect)
        ends += one.link.state == ENDED
    assert gaps == [Gap(None, "lost")]
    assert ends


def test_attempts_after_the_end_back_off():
    one = ended()
    times = []
    for _ in range(400):
        for effect in one.tick(0.5):
            assert isinstance(effect, Replace)
            times.append(one.now)
    pauses = [round(after - before) for before, after in zip([100.0, *times], times, strict=False)]
    assert pauses[:7] == [1, 2, 4, 8, 16, 30, 30]
    session = one.link.session
    one.link.connect(one.now)
    assert one.link.session != session


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
    one = greeting()
    one.read(welcome(1, window=16))
    one.read(answer(1))
    one.pull()
    for sequence in range(3):
        one.read(batch(sequence))
    assert one.pull() == []
    one.read(batch(3))
    assert one.pull() == [Ack(4, {})]


def test_ack_is_due_after_a_quarter_of_the_bytes():
    one = greeting()
    one.read(welcome(1, window_bytes=80))
    one.read(answer(1))
    one.pull()
    one.read(batch(0, 3))
    assert one.pull() == [Ack(3, {})]


def test_ack_before_waiting_if_the_last_is_old():
    one = live()
    one.read(batch(0))
    one.link.before_wait(one.now)
    assert one.pull() == [Ack(1, {})]
    one.read(batch(1))
    one.link.before_wait(one.now + 0.01)
    assert one.pull() == []
    one.link.before_wait(one.now + 0.03)
    assert one.pull() == [Ack(2, {})]
    one.link.before_wait(one.now + 9)
    assert one.pull() == []


def test_ack_is_not_sent_before_welcome():
    one = live()
    one.read(batch(0))
    one.read(ping(1))
    one.read(b"")
    assert [type(frame) for frame in one.pull()] == [Hello]


def test_eagain_keeps_hello_declare_and_the_newest_ack():
    one = live()
    one.read(batch(0))
    one.read(ping(1))
    first = links.decode_control(one.link.next_frame())
    one.read(batch(1))
    assert (first, links.decode_control(one.link.next_frame())) == (Ack(1, {}), Ack(2, {}))
    one.subscriptions.add(oz.compile("c"))
    one.link.declare()
    assert [type(frame) for frame in one.pull()] == [Declare, Ack]


def test_marks_are_the_lowest_sequence_that_is_not_handled():
    one = live(options=StreamOptions(handled=True))
    one.read(batch(0, 3))
    one.read(ping(3))
    assert one.pull() == [Ack(3, {1: 0})]
    for sequence, mark in ((1, 0), (0, 2), (2, 3)):
        one.link.handled(EPOCH, 1, sequence)
        one.now += 1
        one.link.before_wait(one.now)
        assert [frame.marks for frame in one.pull()] == ([{1: mark}] if mark else [])
    one.link.handled(NEVER, 1, 2)


def test_abandoned_messages_hold_the_mark_until_the_answer():
    one = live(options=StreamOptions("g", handled=True, redeliver=True))
    one.read(batch(0, 2))
    one.subscriptions.remove(one.subscriptions.by_sid[1])
    one.link.declare()
    one.link.abandon(EPOCH, 1, 0)
    one.link.abandon(EPOCH, 1, 1)
    one.read(ping(2))
    assert one.pull()[-1] == Ack(2, {1: 0})
    one.read(answer(2))
    one.read(ping(2, 2))
    assert one.pull()[-1] == Ack(2, {1: 2})


def test_marks_ignore_unknown_sequences():
    marks = Marks()
    marks.handled(3)
    marks.add(5, 2)
    marks.handled(9)
    marks.handled(4)
    assert marks.mark(7) == 5


def test_close_sends_the_last_ack_and_bye():
    one = live()
    one.read(batch(0))
    one.link.close()
    assert one.pull() == [Ack(1, {}), Bye(links.CLOSED, links.SUBSCRIBER, 1, {})]


def test_malformed_frames_are_counted():
    one = live()
    for frame in (b"\xff", b"\x05", b"\x02\x01", b"\x06" + bytes(12) + b"\xc1"):
        assert one.read(frame) == []
    assert one.link.malformed == 4
    assert one.link.state == LIVE


def test_numbers_of_unknown_streams_are_ignored():
    subscriber = live()
    streams = dict.fromkeys((-1, 2, 2**40), Drops(0, 5, 0, 0, 0))
    assert subscriber.read(ping(0, streams=streams)) == []
    assert not subscriber.link.drops
    assert not subscriber.link.reasons
    assert subscriber.read(ping(0, streams={1: Drops(0, 5, 0, 0, 0)})) == [Gap(5, "dropped", 1)]


def test_probes_without_end_begin_a_new_session():
    one = greeting()
    before, one.link.attempt = one.link.session, MAX_ATTEMPT
    assert one.read(b"") == []
    (hello,) = one.pull()
    assert (hello.attempt, hello.epoch) == (1, links.UNKNOWN_EPOCH)
    assert hello.session != before
