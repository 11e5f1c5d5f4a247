"""What came in one frame, as columns, and the messages that are made of it."""

import pytest

import oz
from oz.message import Extras
from oz.protocol.messages import Arrival, RichMessage, RoutedMessage
from oz.protocol.subscriber.columns import BatchColumns
from oz.protocol.subscriber.subscriptions import Subscribed, SubscriptionTable
from support.cases import each

ORIGIN = b"o" * 16


def columns(payloads, *attached, subjects=None):
    table = SubscriptionTable()
    table.add(Subscribed([oz.compile("a.*")], None, lambda _: None))
    names = subjects or [b"a.%d" % number for number in range(len(payloads))]
    return BatchColumns(names, payloads, list(attached), table)


def arrival():
    return Arrival(ORIGIN, 7, 1, 3, 0)


def made(found):
    """Make all messages one by one."""
    shared = arrival()
    rows = zip(found.routes, found.payloads, strict=True)
    return [
        found.message(place, route, body[0] if isinstance(body, list) else body, shared)
        for place, (route, body) in enumerate(rows)
    ]


def test_extras_several_frames_and_large_payloads_are_found():
    found = columns(
        [[b"x", {"headers": {"h": 1}, "id": [b"s", 2]}], [[b"y", b"z"], {}], None, b"w"], b"large"
    )
    first, second, third, fourth = made(found)
    assert first.extras == Extras(headers={"h": 1}, message_id=(b"s", 2))
    assert (second.body, second.frames) == ([b"y", b"z"], [b"a.1", b"y", b"z"])
    assert [type(one) for one in (first, second, third, fourth)] == [RichMessage] * 2 + [RoutedMessage] * 2
    assert (third.payload, fourth.payload) == (b"large", b"w")


@each(
    "payloads", [[1], [None], [[b"x"]], [[b"x", {"headers": 1}]], [[[], {}]], [[[b"x", 1], {}]], [[None, {}]]]
)
def test_a_malformed_payload_is_refused(payloads):
    with pytest.raises(oz.ProtocolError):
        columns(payloads)


@each("subject", [1, [], b"\x001S"])
def test_a_subject_that_is_none_is_refused(subject):
    with pytest.raises(oz.ProtocolError):
        columns([b"x"], subjects=[subject])
