import logging

import oz
from oz.protocol.subscriber.receiver import PrefixReceiver
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.wire.codec import MsgpackCodec
from support.cases import each

HOSTILE = "(a|aa)+$"
SUBJECT = b"a" * 60 + b"b"


def receiver(*patterns, dialect="nats", codec=None):
    made = PrefixReceiver(codec)
    for text in patterns:
        made.table.add(Subscribed([oz.compile(text, dialect)], None, lambda one: None))
    return made


def test_a_message_has_its_subject_as_text_and_its_frames_as_they_came():
    message = receiver("a.*").accept([b"a.b", b"one", b"two"], 5)
    assert (message.subject, message.payload, message.frames) == ("a.b", b"one", [b"a.b", b"one", b"two"])
    assert message.time_ns == 5
    assert [one.patterns[0].text for one in message.subscriptions] == ["a.*"]


@each("frames", [[b"a.b"], [b"a.b", b""]])
def test_no_payload_is_an_empty_one(frames):
    assert receiver("a.*").accept(frames, 0).payload == b""


def test_what_no_pattern_matches_is_counted_filtered():
    taken = receiver("a.*.c")
    assert taken.accept([b"a.b.d", b""], 0) is None
    assert taken.accept([b"", b""], 0) is None
    assert (taken.stats.received, taken.stats.delivered, taken.stats.filtered) == (2, 0, 2)


def test_literals_are_exact():
    taken = receiver("foo")
    assert [taken.accept([one], 0) is not None for one in (b"foo", b"foobar", b"foo.bar")] == [
        True,
        False,
        False,
    ]


def test_a_subject_that_is_not_utf_8_is_malformed_to_text_and_bytes_to_redis(caplog):
    text = receiver(">")
    assert text.accept([b"a.\xff", b""], 0) is None
    assert text.accept([b"b.\xff", b""], 0) is None
    assert (text.stats.malformed, text.stats.filtered) == (2, 0)
    assert len(caplog.records) == 1
    message = receiver("a.*", dialect="redis").accept([b"a.\xff", b""], 0)
    assert (message.subject, message.subject_bytes) == ("a.\udcff", b"a.\xff")


def test_payloads_go_through_the_codec_and_bad_ones_are_counted_and_logged_once(caplog):
    taken = receiver(">", codec=MsgpackCodec())
    assert taken.accept([b"a", b"\x93\x01\x02\x03"], 0).payload == [1, 2, 3]
    for bad in (b"\xc1", b"", b"\x01\x01"):
        assert taken.accept([b"a", bad], 0) is None
    assert (taken.stats.delivered, taken.stats.malformed) == (1, 3)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_hostile_pattern_is_counted_and_logged_by_name(caplog):
    taken = receiver(HOSTILE, dialect="regex")
    assert taken.accept([SUBJECT, b""], 0) is None
    assert (taken.stats.timed_out, taken.stats.filtered, taken.stats.delivered) == (1, 0, 0)
    assert HOSTILE in caplog.text


def test_others_get_the_message_that_a_hostile_pattern_gave_up_on():
    taken = receiver(HOSTILE, "a+b", dialect="regex")
    message = taken.accept([SUBJECT, b""], 0)
    assert [one.patterns[0].text for one in message.subscriptions] == ["a+b"]
    assert taken.stats.timed_out == 1
