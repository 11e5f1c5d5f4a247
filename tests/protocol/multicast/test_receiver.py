import itertools
import random
from collections import Counter

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from oz.protocol.multicast.receiver import JOINING, MulticastReceiver
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.security.limits import DEFAULT_LIMITS, Limits
from oz.subjects.pattern import compile
from oz.wire.batch import CONTROL, Head
from oz.wire.datagram import BATCH, pack, pack_batch
from support.cases import each

A, B = b"a" * 16, b"b" * 16
SECOND = 1_000_000_000


def receiver(pattern="md.>", on_gap=None, limits=DEFAULT_LIMITS, **options):
    made = MulticastReceiver(Streams(bytes, **options), None, on_gap, limits)
    made.table.add(Subscribed((compile(pattern),), None, lambda _: None, None))
    return made


def message(sequence, origin=A, subject=b"md.x", epoch=1):
    return pack(subject, Head(0, origin, epoch, sequence, 1), b"%d" % sequence)


def batch(sequence, count, origin=A):
    subjects = [b"md.%d" % number for number in range(sequence, sequence + count)]
    prefix, body = pack_batch(subjects, [b"%d" % number for number in range(sequence, sequence + count)])
    return pack(prefix, Head(BATCH, origin, 1, sequence, count), body)


def record(sequence, origin=A, age=0.0, **more):
    body = msgpack.packb({"to": "239.192.1.1:5555", "rate": 10_000, "age": age, **more})
    return pack(b"", Head(CONTROL, origin, 1, sequence, 0), body)


def take(made, *frames, at=10 * SECOND):
    """What comes of frames, and what is told of each message."""
    taken = []
    for frame in frames:
        lone = made.accept([frame], at)
        taken += [lone] if lone is not None else []
        while (one := made.next()) is not None:
            taken.append(one)
    return [(int(one.payload), one.gap) for one in taken]


def test_messages_come_one_by_one_and_in_batches():
    made = receiver()
    assert take(made, message(0), batch(1, 3), message(4)) == [(n, 0) for n in range(5)]
    assert (made.stats.received, made.stats.delivered, made.stats.lost) == (5, 5, 0)


def test_a_loss_is_counted_and_shows_at_the_next_message():
    gaps = []
    made = receiver(on_gap=gaps.append)
    assert take(made, message(0), message(3), batch(4, 2), batch(9, 2)) == [
        (0, 0),
        (3, 2),
        (4, 0),
        (5, 0),
        (9, 3),
        (10, 0),
    ]
    assert [(gap.origin, gap.sequence, gap.count) for gap in gaps] == [(A, 1, 2), (A, 6, 3)]
    assert made.stats.lost == 5


def test_what_no_pattern_wants_fills_no_gap_and_makes_none():
    made = receiver("md.x")
    assert take(made, message(0), message(1, subject=b"other"), message(2)) == [(0, 0), (2, 0)]
    assert (made.stats.received, made.stats.filtered, made.stats.lost) == (3, 1, 0)


def test_a_heartbeat_tells_of_a_lost_tail():
    gaps = []
    made = receiver(on_gap=gaps.append)
    assert take(made, message(0), record(4), message(4)) == [(0, 0), (4, 3)]
    assert [gap.count for gap in gaps] == [3]


def test_what_comes_again_or_too_late_is_passed_over():
    made = receiver()
    assert take(made, message(0), message(2), message(1), message(2), message(3)) == [(0, 0), (2, 1), (3, 0)]
    assert made.stats.lost == 1


def test_what_a_late_joiner_missed_is_no_loss():
    made = receiver()
    made.joined_at = 10 * SECOND
    assert take(made, message(100), record(101, age=60.0)) == [(100, 0)]
    assert made.stats.lost == 0


def listening(joined, on_gap=None, idle=None):
    """A subscriber that has joined at a second, and has had nothing left to read at another."""
    made = receiver(on_gap=on_gap)
    made.joined_at = joined * SECOND
    made.note_idle((joined if idle is None else idle) * SECOND)
    return made


def test_what_was_lost_before_anything_was_heard_is_told_once_that_is_known():
    gaps = []
    # The publisher began five seconds ago, and this subscriber has listened for eight.
    made = listening(2, gaps.append, idle=10)
    assert take(made, message(3), record(4, age=5.0)) == [(3, 0)]
    assert take(made, message(4), record(5, age=5.0), message(5)) == [(4, 0), (5, 3)]
    assert [(gap.sequence, gap.count) for gap in gaps] == [(0, 3)]


def test_while_a_subscriber_may_still_be_joining_a_loss_is_told_and_not_counted():
    gaps = []
    made = listening(10, gaps.append, idle=11)
    age = 1 - JOINING / 2
    take(made, message(3), record(4, age=age), record(4, age=age), record(4, age=age), at=11 * SECOND)
    assert made.stats.lost == 0
    assert [gap.count for gap in gaps] == [None]


def test_a_late_joiner_that_reads_later_still_has_lost_nothing():
    gaps = []
    # The publisher began two seconds before; five seconds of its messages wait.
    made = listening(10, gaps.append)
    for number in range(25):
        take(made, message(500 + number), record(501 + number, age=2 + number / 5), at=15 * SECOND)
    made.note_idle(15 * SECOND)
    take(made, record(525, age=7.0), at=15 * SECOND)
    take(made, record(525, age=7.2), at=round(15.2 * SECOND))
    assert (made.stats.lost, gaps) == (0, [])
    # It is known, and stays so.
    take(made, message(526), at=16 * SECOND)
    assert [gap.count for gap in gaps] == [1]


def test_a_late_joiner_that_reads_too_slowly_has_lost_nothing():
    gaps = []
    made = listening(10, gaps.append)
    for number in range(25):
        at = round((15 + number / 4) * SECOND)
        take(made, message(500 + number), record(501 + number, age=2 + number / 5), at=at)
    assert (made.stats.lost, gaps) == (0, [])


def test_records_that_pgm_has_held_back_do_not_make_a_late_joiner_lose_anything():
    gaps = []
    made = listening(10, gaps.append, idle=15)
    # It repairs one for five seconds; those behind it wait.
    for number in range(25):
        take(made, record(500, age=2 + number / 5), at=15 * SECOND)
    assert (made.stats.lost, gaps) == (0, [])


@each("busy_for", [0.005, 0.45])
def test_a_record_that_makes_its_publisher_too_old_does_not_hide_a_missed_beginning(busy_for):
    gaps = []
    # The publisher began one millisecond behind this subscriber, and thinks that what it sends takes longer.
    made = listening(10, gaps.append)
    for beat in range(5):
        age = max(0.2 * beat, busy_for)
        at = round((10.001 + 0.2 * beat) * SECOND)
        made.note_idle(at)
        take(made, message(5 + beat), record(6 + beat, age=age), at=at)
    assert [gap.count for gap in gaps] == [None]


def test_a_late_joiner_that_hears_one_record_and_its_publishers_end_has_lost_nothing():
    gaps = []
    made = listening(10, gaps.append)
    take(made, message(3), record(4, age=9.0, bye=True), at=11 * SECOND)
    made.note_idle(11 * SECOND)
    assert (gaps, made.senders[A].first) == ([], None)


def test_who_has_left_before_it_is_known_whether_anything_was_lost_leaves_a_gap_without_a_count():
    gaps = []
    made = listening(10, gaps.append)
    take(made, message(3), record(4, age=1.0, bye=True), at=20 * SECOND)
    assert gaps == []
    made.note_idle(20 * SECOND)
    made.note_idle(21 * SECOND)
    assert [gap.count for gap in gaps] == [None]
    assert made.stats.lost == 0


def test_a_goodbye_whose_number_is_not_believed_is_no_end():
    made = receiver()
    take(made, message(0), message(1))
    take(made, record(10**9, bye=True))
    assert not made.senders[A].has_left
    take(made, record(2, bye=True))
    assert made.senders[A].has_left


def test_two_publishers_are_counted_apart():
    gaps = []
    made = receiver(on_gap=gaps.append)
    take(made, message(0), message(0, B), message(2), message(1, B))
    assert [(gap.origin, gap.count) for gap in gaps] == [(A, 1)]


def test_a_publisher_that_restarts_is_another_one():
    made = receiver()
    made.joined_at = 10 * SECOND
    assert take(made, message(7), record(8, bye=True), message(0, B), message(1, B)) == [
        (7, 0),
        (0, 0),
        (1, 0),
    ]
    assert made.stats.lost == 0
    assert [made.senders[origin].has_left for origin in (A, B)] == [True, False]


@each(
    "damage",
    [
        lambda frame: frame[:-3],
        lambda frame: frame + b"x",
        lambda frame: frame[:8] + b"?" + frame[9:],
        lambda frame: frame[10:] + frame[:10],
        lambda frame: b"",
    ],
)
def test_a_damaged_frame_is_dropped_counted_and_found_missing(damage):
    made = receiver()
    assert take(made, message(0), damage(message(1)), message(2)) == [(0, 0), (2, 1)]
    stats = made.stats
    assert (stats.malformed, made.corrupt, stats.received, stats.lost) == (1, 1, 2, 1)


@each("body", [b"\xc1", msgpack.packb([b"x"]), msgpack.packb([b"x", 7]), msgpack.packb({})])
def test_a_sound_frame_with_a_body_that_means_nothing_is_dropped(body):
    made = receiver()
    frame = pack(b"md.", Head(BATCH, A, 1, 1, 1), body)
    assert take(made, message(0), frame, message(2)) == [(0, 0), (2, 1)]
    assert (made.stats.malformed, made.corrupt) == (1, 0)


def test_repeats_are_dropped_by_their_ids():
    made = receiver(dedupe=True)
    prefix, body = pack_batch([b"md.x", b"md.x"], [[b"1", {"id": b"same"}], [b"2", {"id": b"same"}]])
    frame = pack(prefix, Head(BATCH | 0x02, A, 1, 0, 2), body)
    assert take(made, frame) == [(1, 0)]
    assert made.stats.repeated == 1


@given(
    st.lists(st.sampled_from(("keep", "keep", "keep", "lose", "damage", "twice", "late")), max_size=40),
    st.randoms(),
)
def test_whatever_happens_delivered_and_lost_are_what_was_sent(fates, chance: random.Random):
    gaps = Counter()
    made = receiver(on_gap=lambda gap: gaps.update({gap.origin: gap.count}))
    sent = Counter()
    frames, held = [record(0), record(0, B)], []
    for fate in fates:
        origin, count = chance.choice((A, B)), chance.choice((1, 1, 2, 5))
        frame = batch(sent[origin], count, origin) if count > 1 else message(sent[origin], origin)
        sent[origin] += count
        kept = {
            "keep": [frame],
            "twice": [frame, frame],
            "damage": [frame[:-1] + b"?"],
            "lose": [],
            "late": [],
        }[fate]
        if fate == "damage" and frame.endswith(b"?"):
            kept = []
        held += [frame] if fate == "late" else []
        frames += kept
        if held and chance.random() < 0.3:
            frames.append(held.pop())
    frames += [*held, record(sent[A]), record(sent[B], B)]
    delivered = take(made, *frames)
    assert len(delivered) + sum(gaps.values()) == sum(sent.values())
    assert made.stats.received + made.stats.lost >= sum(sent.values())
    assert sum(gap for _, gap in delivered) <= made.stats.lost == sum(gaps.values())


def test_publishers_are_forgotten_when_there_are_too_many():
    made = receiver(limits=Limits(sources=10))
    for number in itertools.islice(itertools.count(), 50):
        take(made, message(0, number.to_bytes(16, "big")), at=number)
    assert len(made.senders) == 10


def test_a_silence_that_was_announced_holds_until_something_comes():
    made = receiver()
    take(made, record(0, quiet=8.5), at=10 * SECOND)
    heard = made.senders[A]
    assert (heard.quiet, heard.quiet_at) == (8.5, heard.heard_at)
    take(made, message(0), at=12 * SECOND)
    assert heard.quiet_at != heard.heard_at
    take(made, record(1), at=13 * SECOND)
    assert heard.quiet == 0


@each("quiet", [-1, 3_601, float("nan"), float("inf"), "8", None, True])
def test_a_silence_that_is_none_is_malformed(quiet):
    made = receiver()
    take(made, record(0, quiet=quiet))
    assert made.stats.malformed == 1


def test_a_publisher_that_fell_silent_is_a_gap_without_a_count_and_no_known_loss():
    gaps = []
    made = receiver(on_gap=gaps.append)
    take(made, message(0), message(1))
    made.doubt(A)
    made.doubt(B)
    assert [(gap.origin, gap.count, gap.sequence) for gap in gaps] == [(A, None, None)]
    # Once it is heard again, what was lost is known.
    assert take(made, message(5)) == [(5, 3)]
    assert [(gap.count, gap.sequence) for gap in gaps[1:]] == [(3, 2)]
    assert made.stats.lost == 3


def test_without_a_callback_doubt_is_logged_and_a_loss_after_it_too(caplog):
    made = receiver()
    take(made, message(0))
    made.doubt(A)
    assert "may be missing" in caplog.text
    assert "were lost" not in caplog.text
    take(made, message(5))
    assert "4 messages" in caplog.text
