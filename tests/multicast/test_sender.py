"""Numbers, frames and records of a sender, without sockets and clocks."""

from oz.multicast.sender import BEAT, FAREWELL, Sender
from oz.options import Multicast
from oz.wire.datagrams import Record, decode

ORIGIN = b"o" * 16


def sender(**options):
    made = Sender(ORIGIN, Multicast(**options), epoch=7)
    made.attach()
    return made


def flat(count, size=10, extras=None):
    return [part for number in range(count) for part in (b"md.%d" % number, bytes(size), extras)]


def sent(made, now=0.0):
    """Send all frames; return their heads and contents."""
    found = []
    while made.frames:
        found.append(decode(made.frames[0].data))
        made.sent(now)
    return found


def test_messages_are_numbered_and_packed_into_packets():
    made = sender(mtu=1500)
    made.add(flat(100, size=100), 1.0)
    frames = sent(made)
    assert [head.sequence for head, _ in frames] == [
        sum(h.count for h, _ in frames[:n]) for n in range(len(frames))
    ]
    assert sum(head.count for head, _ in frames) == 100
    assert 8 <= len(frames) <= 12
    made.add(flat(1), 1.0)
    ((head, _),) = sent(made)
    assert (head.origin, head.epoch, head.sequence) == (ORIGIN, 7, 100)


def test_a_frame_fits_one_packet():
    made = sender(mtu=1500)
    made.add(flat(300, size=57), 0.0)
    assert max(len(frame.data) for frame in made.frames) <= 1500 - 54


def test_a_dropped_message_keeps_its_number():
    made = sender()
    made.add(flat(3), 0.0)
    assert made.pending == 3
    assert made.drop() == 3
    made.add(flat(1), 0.0)
    ((head, _),) = sent(made)
    assert head.sequence == 3


def test_lost_messages_are_numbered_or_begin_an_epoch():
    made = sender()
    made.skip(5, 0.0)
    made.add(flat(1), 0.0)
    made.skip(None, 0.0)
    made.add(flat(1), 0.0)
    assert [(head.epoch, head.sequence) for head, _ in sent(made)] == [(7, 5), (8, 6)]


def test_an_interrupted_sender_begins_an_epoch():
    made = sender()
    made.add(flat(2), 0.0)
    made.recover(0.0)
    assert (len(made.frames), made.epoch) == (0, 8)


def test_records_are_due_while_there_is_an_endpoint():
    made = Sender(ORIGIN, Multicast(), epoch=7)
    made.beat(0.0)
    assert not made.frames
    made.attach()
    made.beat(0.0)
    assert [content for _, content in sent(made)] == [Record(10_000, 0.0)]
    made.beat(BEAT / 2)
    assert not made.frames
    made.add(flat(2), 1.0)
    # Frames that wait are newer than a record.
    made.beat(1.0)
    assert len(made.frames) == 1
    sent(made, 1.0)
    made.beat(3.0)
    ((head, record),) = sent(made)
    assert (head.sequence, head.count, record.age) == (2, 0, 2.0)


def test_the_age_counts_the_frames_that_are_not_sent_yet():
    made = sender(rate_kbps=1_000)
    made.add([b"md.x", bytes(125_000), None], 10.0)
    sent(made, 10.0)
    made.beat(10.0)
    ((_, record),) = sent(made)
    assert 1.0 < record.age < 1.3


def test_a_large_message_is_announced():
    made = sender(rate_kbps=1_000)
    made.add([b"md.x", bytes(250_000), None], 0.0)
    (_, record), (head, _) = sent(made)
    assert 2.0 < record.quiet < 3.0
    assert head.count == 1
    made.add(flat(1), 0.0)
    assert len(made.frames) == 1


def test_a_message_with_extras_is_a_frame_of_its_own():
    made = sender()
    made.add([*flat(2), *flat(1, extras={"id": b"i"}), *flat(2)], 0.0)
    assert [frame.count for frame in made.frames] == [2, 1, 2]


def test_a_replacement_continues_the_sequence():
    made = Sender(ORIGIN, Multicast(), epoch=7)
    made.resume(41, 5.0, 100.0)
    made.attach()
    made.beat(100.0)
    ((head, record),) = sent(made)
    assert (head.sequence, record.age) == (41, 5.0)


def test_a_publisher_that_leaves_says_bye_and_stays_for_repairs():
    made = sender(rate_kbps=1_000)
    made.add([b"md.x", bytes(125_000), None], 10.0)
    made.leave(10.0)
    sent(made, 10.0)
    assert 14.0 < made.stays_until < 14.4
    until = made.stays_until
    made.beat(10.5)
    ((_, record),) = sent(made, 10.5)
    assert record.bye
    assert made.stays_until == until
    idle = sender()
    idle.leave(5.0)
    assert idle.stays_until == 5.0 + FAREWELL
