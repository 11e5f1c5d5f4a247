"""A message that comes by itself takes a short way, which must say the same as the long one."""

import pickle
import random

import pytest

import oz
from oz.protocol.messages import LoneMessage, RichMessage
from oz.protocol.subscriber.contradictions import Doubt, StreamPlace
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.wire.batch import (
    CONTROL,
    LAST_VALUES,
    MESSAGES,
    RICH,
    head_end,
    head_start,
    pack_array,
    pack_control,
)
from oz.wire.codec import find_codec
from oz.wire.keys import DeliveryOptions
from support.calls import count_calls
from support.sizes import size

OWNER = "_INBOX." + "ab" * 16


@pytest.fixture
def decoder():
    streams = Streams(lambda count: bytes(range(count)))
    subscription = Subscribed([oz.compile(f"{OWNER}.>", "nats")], None, lambda one: None)
    streams.add(subscription, DeliveryOptions(), last_value=False)
    return BatchDecoder(streams, find_codec("json"))


def take(decoder, sequence, payload, flags=MESSAGES):
    (key,) = decoder.streams.by_key
    frame = head_start(key, flags, b"o" * 16, 1) + head_end(sequence, 1)
    body = pack_array([f"{OWNER}.{sequence}".encode(), payload])
    lone = decoder.accept([frame + body], 5)
    return decoder.waiting.popleft() if lone is None and decoder.waiting else lone


def shown(message):
    return (message.subject, message.payload, message.body, message.frames, message.sequence, message.time_ns)


def test_a_lone_message_is_decoded_and_says_what_one_with_extras_says(decoder):
    take(decoder, 0, b"0")
    lone = take(decoder, 1, b'{"a": 1}')
    rich = take(decoder, 2, [b'{"a": 1}', {}], RICH)
    assert (type(lone), type(rich)) == (LoneMessage, RichMessage)
    assert shown(lone)[1:3] == shown(rich)[1:3] == ({"a": 1}, b'{"a": 1}')
    assert shown(lone) == (
        f"{OWNER}.1",
        {"a": 1},
        b'{"a": 1}',
        [f"{OWNER}.1".encode(), b'{"a": 1}'],
        1,
        5,
    )
    assert [shown(pickle.loads(pickle.dumps(one))) for one in (lone, rich)] == [shown(lone), shown(rich)]


def test_a_lone_payload_that_does_not_decode_is_counted_once_and_makes_no_gap(decoder):
    take(decoder, 0, b"0")
    assert take(decoder, 1, b"{") is None
    after = take(decoder, 2, b"2")
    assert (after.payload, after.gap) == (2, 0)
    stats = decoder.stats
    assert (stats.received, stats.delivered, stats.malformed, stats.lost) == (3, 2, 1, 0)


def test_first_message_of_one_in_place_of_another_is_told_to_follow_a_loss_also_when_it_comes_alone():
    gaps = []
    streams = Streams(lambda count: bytes(range(count)))
    subscription = Subscribed([oz.compile(f"{OWNER}.>", "nats")], None, lambda one: None)
    streams.add(subscription, DeliveryOptions(), last_value=False)
    decoder = BatchDecoder(streams, find_codec("json"), on_gap=gaps.append)
    take(decoder, 0, b"0")
    assert type(take(decoder, 1, b"1")) is LoneMessage
    decoder.losses.lose_track(b"o" * 16, None, is_in_place=True)
    assert [gap.count for gap in gaps] == [None]
    assert take(decoder, 2, b"2").payload == 2
    assert [gap.count for gap in gaps] == [None, None]
    assert type(take(decoder, 3, b"3")) is LoneMessage
    assert len(gaps) == 2


def test_answers_drive_no_other_subjects_out_of_memory(decoder):
    for sequence in range(100):
        assert take(decoder, sequence, b"1").payload == 1
    (stream,) = decoder.streams.by_key.values()
    assert not stream.table.routes


FIELDS = [
    {},
    {"reply_to": "r"},
    {"headers": {"n": 1, "t": "x"}, "reply_to": "r", "id": b"i"},
    {"id": [b"series", 7], "of_another_version": [1]},
]


def test_a_lone_message_with_extras_says_what_it_says_in_a_batch(decoder):
    take(decoder, 0, b"0")
    for sequence, fields in enumerate(FIELDS, 1):
        said = []
        # Behind others that wait in line a lone frame is taken as a batch.
        for is_alone in (True, False):
            if not is_alone:
                decoder.waiting.append(None)
            one = take(decoder, 2 * sequence - is_alone, [b'{"a": 1}', fields], RICH)
            if not is_alone:
                assert one is None
                one = decoder.waiting.pop()
            said.append((type(one), one.payload, one.body, one.extras, one.gap, one.time_ns, one.origin))
            assert one.sequence == 2 * sequence - is_alone
        assert said[0] == said[1]
        assert not decoder.waiting
    assert (decoder.stats.received, decoder.stats.delivered) == (2 * len(FIELDS) + 1,) * 2


def test_lone_extras_that_are_malformed_are_counted_and_their_message_is_missing(decoder):
    take(decoder, 0, b"0")
    for fields in ([], {"headers": 1}, {"reply_to": 1}):
        assert take(decoder, 1, [b"1", fields], RICH) is None
    assert take(decoder, 2, [b"2", {}], RICH).gap == 1
    assert (decoder.stats.malformed, decoder.stats.lost) == (3, 1)


# heartbeats -----------------------------------------------------------------------------------------------


def heartbeat(decoder, sequence, *, epoch=1, body=b""):
    (key,) = decoder.streams.by_key
    return head_start(key, CONTROL, b"o" * 16, epoch) + head_end(sequence, 0) + body


def held(value):
    """Show what an object of the machines holds."""
    if isinstance(value, list):
        return [held(one) for one in value]
    if isinstance(value, (Doubt, StreamPlace)):
        return {name: held(getattr(value, name)) for name in value.__slots__}
    return value


def state(decoder):
    """Show all that is known of publishers, but for how it is known."""
    (stream,) = decoder.streams.by_key.values()
    sources = {
        origin: {name: held(getattr(one, name)) for name in one.__slots__ if name != "heartbeat"}
        for origin, one in stream.sources.items()
    }
    return sources, decoder.stats, decoder.streams.due_at


def test_heartbeat_that_says_nothing_new_is_known_by_its_bytes(decoder):
    frame = heartbeat(decoder, 0)
    first = count_calls(lambda: decoder.accept([frame], 5))
    again = count_calls(lambda: decoder.accept([bytes(bytearray(frame))], 6))
    assert again <= 3 < first
    (stream,) = decoder.streams.by_key.values()
    assert stream.sources[b"o" * 16].heard_at == 6


@pytest.mark.parametrize(("silence", "is_looked_at"), [(1_999_999_999, False), (2_000_000_000, True)])
def test_a_publisher_that_says_the_same_after_two_seconds_of_silence_is_looked_at_anew(
    decoder, silence, is_looked_at
):
    frame = heartbeat(decoder, 0)
    decoder.accept([frame], 5)
    decoder.streams.renew(1_000.0)
    before = decoder.streams.next_deadline()
    decoder.accept([frame], 5 + silence)
    assert (decoder.streams.next_deadline() < before) is is_looked_at


@pytest.mark.sized
@pytest.mark.parametrize("seed", range(size(5, 200)))
def test_heartbeats_known_by_their_bytes_leave_behind_what_the_others_do(decoder, seed):
    streams = Streams(lambda count: bytes(range(count)))
    subscription = Subscribed([oz.compile(f"{OWNER}.>", "nats")], None, lambda one: None)
    streams.add(subscription, DeliveryOptions(), last_value=False)
    other = BatchDecoder(streams, find_codec("json"))
    drawn, now = random.Random(seed), 5
    decoder.streams.renew(1_000.0), streams.renew(1_000.0)
    for _ in range(200):
        now += drawn.choice([1, 1_000_000_000, 3_000_000_000])
        epoch, sequence = drawn.choice([1, 1, 1, 2, 3]), drawn.choice([0, 0, 0, 1, 2, 7])
        body = drawn.choice(
            [b"", b"", b"", pack_control(live=[1], refused={}, paths=1), pack_control(bye=True)]
        )
        frame = heartbeat(decoder, sequence, epoch=epoch, body=body)
        if drawn.random() < 0.1:
            for one in (decoder, other):
                one.streams.renew(1_000.0 + now)
        decoder.accept([frame], now)
        # As if it had never heard this one before.
        (stream,) = streams.by_key.values()
        for source in stream.sources.values():
            source.heartbeat = b""
        other.accept([frame], now)
        assert state(decoder) == state(other)


@pytest.mark.parametrize("is_next", [True, False])
def test_what_a_slower_path_brings_behind_a_goodbye_is_not_delivered_again(decoder, is_next):
    (key,) = decoder.streams.by_key
    assert take(decoder, 0, b"0").payload == 0
    assert take(decoder, 1, b"1").payload == 1
    goodbye = (
        head_start(key, CONTROL, b"o" * 16, 1) + head_end(2 if is_next else 3, 0) + pack_control(bye=True)
    )
    decoder.accept([goodbye], 6)
    for sequence in range(3):
        assert take(decoder, sequence, b"%d" % sequence) is None
    # What the goodbye showed to be missing was reported, and is no message any more.
    assert (decoder.stats.lost, decoder.stats.delivered, decoder.stats.filtered) == (int(not is_next), 2, 3)


def test_what_a_slower_path_brings_of_an_earlier_epoch_behind_a_goodbye_is_not_delivered_again(decoder):
    (key,) = decoder.streams.by_key
    assert take(decoder, 0, b"0").payload == 0
    for epoch, body in ((2, b""), (2, pack_control(bye=True))):
        decoder.accept([head_start(key, CONTROL, b"o" * 16, epoch) + head_end(0, 0) + body], 7)
    assert take(decoder, 0, b"0") is None
    assert take(decoder, 1, b"1") is None
    assert decoder.stats.delivered == 1


def test_who_only_says_goodbye_shuts_out_no_earlier_epoch(decoder):
    (key,) = decoder.streams.by_key
    goodbye = head_start(key, CONTROL, b"o" * 16, 2**32 - 1) + head_end(0, 0) + pack_control(bye=True)
    decoder.accept([goodbye], 7)
    assert take(decoder, 0, b"0").payload == 0


def test_last_values_that_somebody_else_asked_for_are_passed_over(decoder):
    (key,) = decoder.streams.by_key
    head = head_start(key, LAST_VALUES, b"o" * 16, 1) + head_end(0, 1)
    decoder.accept([head + (1).to_bytes(4, "big") + pack_array([f"{OWNER}.0".encode(), b"0"])], 7)
    assert not decoder.waiting
    assert decoder.stats.filtered == 1
