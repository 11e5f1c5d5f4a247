"""Handlers of single subscriptions, and what the end of one stops."""

import logging

import pytest

import oz
from support.waiting import DEADLINE
from sync.received import publish_all, subjects_until

# handlers and subscriptions


def test_overlapping_subscriptions_deliver_once_to_the_iterator_and_once_to_each_handler(pair):
    two = pair("a.*", "a.>", "*.b", ">")
    calls = []
    for name in "xyz":
        two.sub.subscribe(["a.*", "a.b", ">"], handler=lambda message, name=name: calls.append(name))
    publish_all(two.pub, "a.b", "a.b", "end")
    assert subjects_until(two.sub) == ["a.b", "a.b"]
    assert sorted(calls) == sorted("xyz" * 3)


def test_a_message_for_handlers_only_is_not_received(pair):
    two = pair("end")
    seen = []
    two.sub.subscribe("a.*", handler=seen.append)
    two.pub.wait_for_subscribers(2, timeout=DEADLINE)
    publish_all(two.pub, "a.1", "a.2", "end")
    assert subjects_until(two.sub) == []
    assert [message.subject for message in seen] == ["a.1", "a.2"]


def test_a_handler_that_raises_is_counted_and_logged_and_the_others_get_the_message(pair, caplog):
    two = pair("a", "end")
    calls = []

    def fail(message):
        calls.append("fail")
        raise RuntimeError("on purpose")

    two.sub.subscribe("a", handler=fail)
    two.sub.subscribe("a", handler=lambda message: calls.append("other"))
    publish_all(two.pub, "a", "end")
    assert subjects_until(two.sub) == ["a"]
    assert sorted(calls) == ["fail", "other"]
    assert two.sub.stats.failed == 1
    assert "on purpose" in caplog.text
    assert caplog.records[0].levelno == logging.ERROR


def test_unsubscribing_stops_also_what_was_queued(pair):
    two = pair("a.*", "b.*", "end")
    publish_all(two.pub, "a.1", "b.1", "a.2", "b.2", "end")
    assert two.sub.receive(timeout=DEADLINE).subject == "a.1"
    two.subscriptions[0].unsubscribe()
    assert subjects_until(two.sub) == ["b.1", "b.2"]


def test_unsubscribing_stops_what_already_waits_in_line(pair):
    two = pair("a.*", "b.*")
    publish_all(two.pub, "a.1", "b.1", "a.2", "b.2")
    while two.sub.stats.delivered < 4:
        two.sub.run(timeout=0.01)
    two.subscriptions[0].unsubscribe()
    assert [two.sub.receive(timeout=0).subject for _ in range(2)] == ["b.1", "b.2"]
    with pytest.raises(oz.Timeout):
        two.sub.receive(timeout=0)


def test_unsubscribing_while_iterating_stops_what_waits_in_line(pair):
    two = pair("a.*", "b.*", "end")
    publish_all(two.pub, "a.1", "a.2", "b.1", "end")
    while two.sub.stats.delivered < 4:
        two.sub.run(timeout=0.01)
    got = []
    for message in two.sub:
        got.append(message.subject)
        two.subscriptions[0].unsubscribe()
        if message.subject == "end":
            break
    assert got == ["a.1", "b.1", "end"]


def test_a_message_that_waits_in_line_is_not_handled_again(pair):
    two = pair("a")
    calls = []
    two.sub.subscribe("a", handler=calls.append)
    two.pub.publish("a", b"x")
    while not calls:
        two.sub.run(timeout=0.01)
    assert next(iter(two.sub)).subject == "a"
    assert len(calls) == 1


def test_run_calls_handlers_and_keeps_the_rest_in_order(pair):
    two = pair("b.*")
    calls = []
    two.sub.subscribe("a.*", handler=calls.append)
    two.pub.wait_for_subscribers(2, timeout=DEADLINE)
    for number in range(50):
        publish_all(two.pub, f"a.{number}", f"b.{number}")
    count = 0
    while count < 100:
        count += two.sub.run(timeout=0.05)
    assert len(calls) == 50
    assert [two.sub.receive(timeout=0).subject for _ in range(50)] == [f"b.{number}" for number in range(50)]


def test_a_handler_that_ends_another_subscription_stops_its_delivery_at_once(pair):
    two = pair("a.*", "end")
    later = []
    two.sub.subscribe("a.*", handler=lambda message: [one.unsubscribe() for one in others])
    others = [two.subscriptions[0], two.sub.subscribe("a.*", handler=later.append)]
    publish_all(two.pub, "a.1", "a.2", "end")
    assert subjects_until(two.sub) == []
    assert later == []


def test_a_handler_may_subscribe_and_receive_and_end_itself(pair):
    two = pair("end")
    got = []

    def handle(message):
        own.unsubscribe()
        two.sub.subscribe("b.*")
        got.append(two.sub.receive(timeout=DEADLINE).subject)

    own = two.sub.subscribe(["a.*", "b.none"], handler=handle)
    two.pub.wait_for_subscribers(3, timeout=DEADLINE)
    publish_all(two.pub, "a.1", "end")
    two.pub.wait_for_subscribers(1, timeout=DEADLINE)
    assert two.sub.poll(DEADLINE * 1000)
    two.pub.publish("end", b"last")
    assert two.sub.receive(timeout=DEADLINE).payload == b"last"
    assert got == ["end"]


def test_a_handler_may_close_the_subscriber(pair):
    two = pair()
    two.sub.subscribe("a", handler=lambda message: two.sub.close())
    two.pub.wait_for_subscribers(timeout=DEADLINE)
    two.pub.publish("a", b"x")
    with pytest.raises(oz.ClosedError):
        two.sub.receive(timeout=DEADLINE)
    assert list(two.sub) == []


def test_one_subscriber_has_several_publishers_one_of_them_late(context):
    with (
        oz.Publisher("tcp://127.0.0.1:*") as first,
        oz.Publisher("tcp://127.0.0.1:*") as second,
        oz.Subscriber([first.endpoint, second.endpoint]) as sub,
    ):
        sub.subscribe("a.*")
        first.wait_for_subscribers(timeout=DEADLINE)
        second.wait_for_subscribers(timeout=DEADLINE)
        first.publish("a.first", b"x")
        second.publish("a.second", b"x")
        assert {sub.receive(timeout=DEADLINE).subject for _ in range(2)} == {"a.first", "a.second"}
        with oz.Publisher("tcp://127.0.0.1:*") as late:
            sub.connect(late.endpoint)
            late.wait_for_subscribers(timeout=DEADLINE)
            late.publish("a.late", b"x")
            assert sub.receive(timeout=DEADLINE).subject == "a.late"
