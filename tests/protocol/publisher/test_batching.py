import pytest

from oz.message import Extras
from oz.protocol.publisher import batching
from oz.protocol.publisher.batching import sticky_key
from oz.protocol.publisher.interest import Recipients
from oz.wire.batch import parse_body
from oz.wire.extras import rich
from oz.wire.keys import DeliveryOptions
from support.cases import each


class Stream:
    def __init__(self, **delivery):
        self.delivery = DeliveryOptions(**delivery)


class Picking:
    """A choice that goes round, and remembers by what."""

    def __init__(self, *members):
        self.members = members
        self.keys = []

    def now(self, _):
        return self

    def pick(self, key):
        self.keys.append(key)
        return self.members[(len(self.keys) - 1) % len(self.members)]


FIRST = 1_000
"""The position of the first message."""


def split(accumulated):
    return batching.split(accumulated, FIRST)


def recipients(*streams, choices=()):
    return Recipients(is_plain=False, streams=streams, choices=tuple(choices))


def accumulated(*triples):
    return [part for one in triples for part in one]


def bodies(batches):
    """What each stream gets, as a receiver reads it."""
    return {batch.stream: parse_body(batch.body, 0, batch.count) for batch in batches}


def test_one_set_of_recipients_is_packed_once_for_all_its_streams():
    streams = [Stream(), Stream()]
    everybody = recipients(*streams)
    batches = split(accumulated((everybody, b"a", b"1"), (everybody, b"b", b"2")))
    assert bodies(batches) == {one: [b"a", b"1", b"b", b"2"] for one in streams}
    assert batches[0].body is batches[1].body
    assert [batch.items for batch in batches] == [None, None]


@pytest.mark.parametrize("count", [1, 7, 8, 20, 40_000])
def test_each_stream_gets_its_messages_in_the_order_of_publishing(count):
    one, two, both = Stream(), Stream(), Stream()
    recipient_sets = [recipients(one, both), recipients(two, both)]
    sent = [(recipient_sets[n // 3 % 2], b"%d" % n, b"p%d" % n) for n in range(count)]
    got = bodies(split(accumulated(*sent)))
    for stream in (one, two, both):
        expected = [part for who, *pair in sent if stream in who.streams for part in pair]
        assert got.get(stream, []) == expected


@each("count", [1, 7, 40])
def test_a_message_has_the_same_position_on_each_stream(count):
    one, two, member = Stream(), Stream(overflow="conflate", limit=5), Stream(group="g")
    recipient_sets = [
        recipients(one, two),
        recipients(two, choices=[Picking(member)]),
        recipients(),
        recipients(one),
    ]
    sent = [(recipient_sets[n // 2 % 4], b"%d" % n, b"") for n in range(count)]
    for batch in split(accumulated(*sent)):
        subjects = parse_body(batch.body, 0, batch.count)[::2]
        assert list(batch.positions) == [FIRST + int(subject) for subject in subjects]


def test_positions_of_what_all_get_take_no_room():
    (batch, _) = split(accumulated(*[(recipients(Stream(), Stream()), b"a", b"1")]))
    assert batch.positions == range(FIRST, FIRST + 1)


def test_a_message_goes_to_one_member_of_each_group_and_to_all_streams():
    alone, members = Stream(), [Stream(group="g"), Stream(group="g")]
    choices = [Picking(*members), Picking(Stream(group="h"))]
    everybody = recipients(alone, choices=choices)
    sent = [(everybody, b"%d" % n, b"p") for n in range(4)]
    batches = split(accumulated(*sent))
    got = bodies(batches)
    assert got[alone] == [b"0", b"p", b"1", b"p", b"2", b"p", b"3", b"p"]
    assert got[members[0]] == [b"0", b"p", b"2", b"p"]
    assert got[members[1]] == [b"1", b"p", b"3", b"p"]
    assert got[choices[1].members[0]] == got[alone]
    by_stream = {batch.stream: batch for batch in batches}
    assert by_stream[alone].items is None
    assert by_stream[members[0]].items == [b"0", b"p", b"2", b"p"]


def test_sticky_goes_by_the_key_or_else_the_subject():
    message = rich(b"p", Extras(headers={"h": 1}, key=b"key"))
    assert sticky_key(b"a", message) == b"key"
    assert sticky_key(b"a", rich(b"p")) == sticky_key(b"a", b"p") == b"a"
    choice = Picking(Stream(group="g"))
    batches = split(
        accumulated((recipients(choices=[choice]), b"a", message), (recipients(choices=[choice]), b"b", b"q"))
    )
    assert choice.keys == [b"key", b"b"]
    # The key stays here.
    assert bodies(batches)[choice.members[0]] == [b"a", [b"p", {"headers": {"h": 1}}], b"b", b"q"]


def test_what_may_have_to_be_held_back_is_kept_as_it_was():
    held = Stream(overflow="conflate", limit=5)
    (batch,) = split(accumulated((recipients(held), b"a", b"1"), (recipients(held), b"b", rich(b"2"))))
    assert batch.items == [b"a", b"1", b"b", [b"2", {}]]
    assert batch.count == 2
