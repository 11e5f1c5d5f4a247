"""Delivery and order."""

from contextlib import suppress

from contract.adapter import errors
from contract.promises import cases, promise
from support.waiting import until

COUNT = 200


def _numbers(count=COUNT):
    return [b"%d" % number for number in range(count)]


@promise("Each matching message arrives once, in the order of publishing.")
def test_each_matching_message_arrives_once_in_order(pair):
    got = pair.subscribe("tick.*.east")
    for number in _numbers():
        pair.publisher.publish("tick.a.west", number)
        pair.publisher.publish("tick.a.east", number)
    pair.publisher.publish("tick.a.east", b"end")
    assert got.receive_all(COUNT + 1) == [*_numbers(), b"end"]


@promise("A handler gets each message of its subscription, in the order of publishing.")
def test_handler_gets_each_message_in_order(pair):
    handled = []
    pair.subscribe("tick.*", lambda message: handled.append(message.payload))
    pair.publisher.publish_many(("tick.a", number) for number in _numbers())
    pair.handle_until(lambda: len(handled) >= COUNT)
    assert handled == _numbers()


@promise(
    "A cut connection loses no message, and no message arrives twice.",
    not_for={"prefix": "A plain publisher does not keep messages of a subscriber that is disconnected."},
)
@cases("how", ["rst", "fin"])
def test_cut_connection_loses_nothing(proxied, how):
    received, gaps = [], []

    def receive_end():
        # When the subscriber is connected again is unknown, so the last message is repeated.
        proxied.publisher.publish("tick.a", b"end")
        with suppress(errors.Timeout):
            for message in proxied.subscriber.receive_many(timeout=0.02):
                received.append(message.payload)
                gaps.append(message.gap)
        return b"end" in received

    proxied.subscribe("tick.>")
    proxied.publisher.publish("tick.a", b"first")
    assert proxied.subscriber.receive().payload == b"first"
    proxied.proxy.stall()
    proxied.publisher.publish_many(("tick.a", number) for number in _numbers())
    proxied.proxy.cut(how)
    proxied.proxy.resume()
    until(receive_end)
    assert sum(gaps) == 0
    assert received[:COUNT] == _numbers()
