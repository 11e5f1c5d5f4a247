"""Order, losses and beginnings at a receiver, without sockets and clocks."""

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from oz.multicast.receiver import JOINING_NS, MAX_SENDERS, Loss, Messages, Receiver
from oz.wire.datagrams import Record, encode_messages, encode_record
from support.cases import each

A, B = b"a" * 16, b"b" * 16
SECOND = 1_000_000_000


def message(sequence, origin=A, epoch=1):
    return encode_messages([b"md.x", b"%d" % sequence, None], origin, epoch, sequence)


def batch(sequence, count, origin=A):
    numbers = range(sequence, sequence + count)
    flat = [part for number in numbers for part in (b"md.%d" % number, b"%d" % number, None)]
    return encode_messages(flat, origin, 1, sequence)


def record(sequence, origin=A, age=0.0, epoch=1, **more):
    return encode_record(Record(10_000, age, **more), origin, epoch, sequence)


def events(effects):
    """Return payloads as numbers, and losses as (first, count)."""
    found = []
    for effect in effects:
        if isinstance(effect, Messages):
            numbers = [int(payload) for payload in effect.flat[1::3]]
            assert numbers == [*range(effect.sequence, effect.sequence + len(numbers))]
            found += numbers
        else:
            found.append((effect.sequence, effect.count))
    return found


def read(receiver, *frames, at=10 * SECOND):
    return events([effect for frame in frames for effect in receiver.on_frame(frame, at)])


def receiver_at(joined, idle=None):
    """Return a receiver that joined at a second, and had nothing left to read at another."""
    made = Receiver(joined * SECOND)
    assert made.on_idle((joined if idle is None else idle) * SECOND) == []
    return made


@each(
    ("frames", "found"),
    [
        ((message(0), batch(1, 3), message(4)), [0, 1, 2, 3, 4]),
        ((message(0), message(3), batch(4, 2), batch(9, 2)), [0, (1, 2), 3, 4, 5, (6, 3), 9, 10]),
        ((message(0), record(4), message(4), record(4), record(5)), [0, (1, 3), 4]),
        ((message(0), message(0, B), message(2), message(1, B)), [0, 0, (1, 1), 2, 1]),
    ],
)
def test_messages_and_losses_come_in_order(frames, found):
    assert read(Receiver(0), *frames) == found


def test_an_old_record_does_not_change_the_state_of_its_publisher():
    made = Receiver(0)
    read(made, message(0), message(1), record(2), record(1, bye=True))
    assert not made.senders[A].has_left
    read(made, record(2, bye=True))
    assert made.senders[A].has_left


def test_repeats_and_old_messages_are_dropped():
    made = Receiver(0)
    assert read(made, message(0), message(2), message(1), message(2), message(3)) == [0, (1, 1), 2, 3]
    assert made.repeated == 2
    assert read(made, batch(2, 4)) == [4, 5]
    assert made.repeated == 4


def test_a_higher_epoch_is_a_loss_of_unknown_size():
    made = Receiver(0)
    assert read(made, message(0), message(1)) == [0, 1]
    assert made.on_frame(message(7, epoch=2), SECOND)[0] == Loss(A, 2, None, "restarted")
    # Frames of the old epoch are repeats.
    assert read(made, message(2), record(9), message(8, epoch=2)) == [8]
    assert made.repeated == 1


def test_messages_before_a_late_joiner_are_no_loss():
    made = receiver_at(10)
    assert read(made, message(100), record(101, age=60.0), record(101, age=60.0)) == [100]
    assert made.senders[A].first is None


def test_a_loss_before_the_first_message_is_reported_when_it_is_known():
    # The publisher began five seconds ago, and the subscriber has listened for eight.
    made = receiver_at(2, idle=10)
    assert read(made, message(3), record(4, age=5.0)) == [3]
    assert read(made, message(4), record(5, age=5.0), message(5)) == [4, (0, 3), 5]


def test_while_a_subscriber_joins_a_loss_has_no_count():
    made = receiver_at(10, idle=11)
    age = 1 - JOINING_NS / 2 / SECOND
    assert read(made, message(3), *[record(4, age=age)] * 3, at=11 * SECOND) == [3, (0, None)]


def test_a_late_joiner_that_reads_later_has_lost_nothing():
    # The publisher began two seconds before; five seconds of its messages wait.
    made = receiver_at(10)
    for number in range(25):
        assert read(made, message(500 + number), at=15 * SECOND) == [500 + number]
        assert read(made, record(501 + number, age=2 + number / 5), at=15 * SECOND) == []
    assert made.on_idle(15 * SECOND) == []
    assert read(made, record(525, age=7.0), at=15 * SECOND) == []
    assert read(made, record(525, age=7.2), at=round(15.2 * SECOND)) == []
    # It is known now, and stays so.
    assert read(made, message(526), at=16 * SECOND) == [(525, 1), 526]


def test_a_late_joiner_that_reads_too_slowly_has_lost_nothing():
    made = receiver_at(10)
    for number in range(25):
        at = round((15 + number / 4) * SECOND)
        frames = message(500 + number), record(501 + number, age=2 + number / 5)
        assert read(made, *frames, at=at) == [500 + number]


def test_records_that_pgm_held_back_are_no_loss_of_a_late_joiner():
    made = receiver_at(10, idle=15)
    # PGM repairs one for five seconds; the others wait behind it.
    for number in range(25):
        assert read(made, record(500, age=2 + number / 5), at=15 * SECOND) == []


@each("busy_for", [0.005, 0.45])
def test_a_record_with_too_high_an_age_does_not_hide_a_lost_beginning(busy_for):
    # The publisher began one millisecond after the subscriber, and its messages take longer than it thinks.
    made = receiver_at(10)
    losses = []
    for beat in range(5):
        age = max(0.2 * beat, busy_for)
        at = round((10.001 + 0.2 * beat) * SECOND)
        made.on_idle(at)
        losses += read(made, message(5 + beat), record(6 + beat, age=age), at=at)
    assert [loss for loss in losses if isinstance(loss, tuple)] == [(0, None)]


def test_a_late_joiner_that_receives_one_record_and_the_end_has_lost_nothing():
    made = receiver_at(10)
    assert read(made, message(3), record(4, age=9.0, bye=True), at=11 * SECOND) == [3]
    assert made.on_idle(11 * SECOND) == []
    assert made.senders[A].first is None


def test_a_publisher_that_left_too_early_leaves_a_gap_of_unknown_size():
    made = receiver_at(10)
    assert read(made, message(3), record(4, age=1.0, bye=True), at=20 * SECOND) == [3]
    assert events(made.on_idle(20 * SECOND)) == [(None, None)]
    assert made.on_idle(21 * SECOND) == []


def test_a_damaged_frame_is_dropped_and_missed():
    made = Receiver(0)
    assert read(made, message(0), message(1)[:-1] + b"?", message(2)) == [0, (1, 1), 2]
    assert made.malformed == 1


def test_publishers_are_forgotten_when_there_are_too_many():
    made = Receiver(0)
    for number in range(MAX_SENDERS + 50):
        read(made, message(0, number.to_bytes(16, "big")), at=number)
    assert len(made.senders) == MAX_SENDERS
    assert (50).to_bytes(16, "big") in made.senders


def test_an_announced_silence_holds_until_the_next_frame():
    made = Receiver(0)
    read(made, record(0, quiet=8.5))
    assert made.senders[A].quiet == 8.5
    read(made, message(0))
    assert made.senders[A].quiet == 0


def test_a_silent_publisher_is_a_gap_of_unknown_size_and_counted_later():
    made = Receiver(0)
    read(made, message(0), message(1))
    assert made.on_silence(A) == [Loss(A, None, None, "silent")]
    assert made.on_silence(B) == []
    assert read(made, message(5)) == [(2, 3), 5]


@given(
    st.lists(st.sampled_from(("keep", "keep", "keep", "lose", "damage", "twice", "late")), max_size=40),
    st.randoms(),
)
def test_delivered_plus_lost_equals_sent(fates, chance: random.Random):
    made = Receiver(0)
    sent = Counter()
    frames, held = [record(0), record(0, B)], []
    for fate in fates:
        origin, count = chance.choice((A, B)), chance.choice((1, 1, 2, 5))
        frame = batch(sent[origin], count, origin) if count > 1 else message(sent[origin], origin)
        sent[origin] += count
        damaged = frame[:-1] + bytes([frame[-1] ^ 1])
        frames += {"keep": [frame], "twice": [frame, frame], "damage": [damaged]}.get(fate, [])
        held += [frame] if fate == "late" else []
        if held and chance.random() < 0.3:
            frames.append(held.pop())
    frames += [*held, record(sent[A]), record(sent[B], B)]
    found = read(made, *frames)
    delivered = [item for item in found if isinstance(item, int)]
    assert len(delivered) + sum(item[1] for item in found if isinstance(item, tuple)) == sum(sent.values())
