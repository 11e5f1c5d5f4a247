"""Readiness: waiting for the other end."""

import pytest

from contract.adapter import errors
from contract.promises import promise
from support.ports import lasting_port

COUNT = 50


def _numbers():
    return [b"%d" % number for number in range(COUNT)]


@promise(
    "After wait_ready no later message that matches is missed.",
    not_for={"prefix": "A plain publisher does not confirm subscriptions."},
)
def test_wait_ready_misses_no_later_message(sockets):
    publishers = [sockets.publisher() for _ in range(3)]
    subscriber = sockets.subscriber(*publishers)
    subscriber.subscribe("a.*")
    subscriber.wait_ready()
    for at, publisher in enumerate(publishers):
        publisher.publish(f"a.{at}")
    assert {subscriber.receive().subject for _ in publishers} == {"a.0", "a.1", "a.2"}


@promise("After wait_for_subscribers no later message that the subscription matches is missed.")
def test_wait_for_subscribers_misses_no_later_message(sockets):
    publisher = sockets.publisher()
    subscriber = sockets.subscriber(publisher)
    subscriber.subscribe("a.*")
    publisher.wait_for_subscribers("a.b")
    for number in _numbers():
        publisher.publish("a.b", number)
    assert [subscriber.receive().payload for _ in range(COUNT)] == _numbers()


@promise("wait_for_subscribers raises Timeout when too few subscriptions arrive.")
def test_wait_for_subscribers_times_out(sockets):
    publisher = sockets.publisher()
    subscriber = sockets.subscriber(publisher)
    sockets.subscribe(publisher, subscriber, "a.*")
    with pytest.raises(errors.Timeout):
        publisher.wait_for_subscribers("b.x", timeout=0.1)
    publisher.wait_for_subscribers("a.x", timeout=0)


@promise(
    "wait_ready raises Timeout and names the endpoint where no publisher answers.",
    not_for={"prefix": "A plain publisher does not confirm subscriptions."},
)
def test_wait_ready_names_the_endpoint(api, filtering):
    endpoint = f"tcp://127.0.0.1:{lasting_port()}"
    subscriber = api.subscriber(endpoint, filtering=filtering)
    subscriber.subscribe("a.*")
    with pytest.raises(errors.Timeout, match=endpoint):
        subscriber.wait_ready(timeout=0.1)


@promise("has_subscribers returns whether a subscription matches a subject.")
def test_has_subscribers(pair):
    pair.subscribe("a.*")
    pair.publisher.wait_for_subscribers("a.b")
    assert pair.publisher.has_subscribers("a.b")
    assert not pair.publisher.has_subscribers("b.a")


@promise('filtering="auto" serves a plain PUB and an oz publisher.')
def test_auto_serves_any_publisher(api):
    publisher = api.publisher("tcp://127.0.0.1:*")
    subscriber = api.subscriber(publisher.endpoint, filtering="auto")
    subscriber.subscribe("a.*")
    publisher.wait_for_subscribers("a.b")
    publisher.publish("a.b", b"1")
    assert subscriber.receive().payload == b"1"
