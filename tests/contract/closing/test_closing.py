"""Closing, draining, and the end of a process."""

import time

import pytest

from contract.adapter import errors
from contract.promises import promise
from support.waiting import DEADLINE, until

COUNT = 200
BOUND = 10.0  # seconds: far above the time that a bounded close may take, far below for ever


def _numbers(count=COUNT):
    return [b"%d" % number for number in range(count)]


@promise("`close` of a publisher delivers the messages that were published before.")
def test_close_delivers_what_was_published(pair, api):
    got = pair.subscribe("tick.>")
    for number in _numbers():
        pair.publisher.publish("tick.a", number)
    closing = api.start(pair.publisher.close)
    assert got.receive_all(COUNT) == _numbers()
    closing.outcome()


@promise("`close` of a publisher delivers the messages that wait for a slow connection.", small=2)
def test_close_delivers_what_waits_for_a_slow_connection(proxied, api):
    got = proxied.subscribe("tick.>")
    proxied.proxy.stall()
    # More than the buffers of the system hold.
    payloads = [number * 50_000 for number in _numbers(160)]
    proxied.publisher.publish_many(("tick.a", payload) for payload in payloads)
    closing = api.start(proxied.publisher.close)
    closing.wait_until_blocked()
    proxied.proxy.resume()
    assert got.receive_all(len(payloads)) == payloads
    closing.outcome()


@promise("After `close` each other call of the object raises ClosedError; a second `close` does nothing.")
def test_calls_after_close_raise_closed_error(pair):
    got = pair.subscribe("tick.>")
    calls = [
        lambda: pair.publisher.publish("tick.a"),
        lambda: pair.subscriber.subscribe("tick.b"),
        lambda: got.receive(timeout=0.1),
        lambda: pair.subscriber.wait_ready(timeout=0.1),
    ]
    for item in (pair.publisher, pair.subscriber, pair.publisher, pair.subscriber):
        item.close()
    for call in calls:
        with pytest.raises(errors.ClosedError):
            call()


@promise("`close` of a node ends a receive that waits, with ClosedError.")
def test_close_ends_a_receive_that_waits(nodes, api):
    node = nodes.node("node")
    got = node.subscribe("tick.>")
    waiting = api.start(lambda: got.receive(timeout=None))
    waiting.wait_until_blocked()
    node.close()
    with pytest.raises(errors.ClosedError):
        waiting.outcome()


@promise("`close` of a publisher without subscribers returns at once, also after messages were published.")
def test_pyzmq_1407_close_without_subscribers_returns_at_once(sockets):
    publisher = sockets.publisher()
    publisher.publish_many(("tick.a", b"x" * 100) for _ in range(COUNT))
    start = time.monotonic()
    publisher.close(timeout=DEADLINE)
    assert time.monotonic() - start < BOUND


@promise("`close` of a publisher ends within its timeout although a subscriber reads nothing.")
def test_close_is_bounded_beside_a_stalled_subscriber(proxied):
    proxied.subscribe("tick.>")
    proxied.proxy.stall()
    proxied.publisher.publish_many(("tick.a", b"x" * 10_000) for _ in range(COUNT))
    start = time.monotonic()
    proxied.publisher.close(timeout=0.1)
    assert time.monotonic() - start < BOUND


@promise(
    "`close` of a publisher returns the number of messages without an acknowledgement.",
    not_for={"prefix": "A plain publisher does not know which messages arrive."},
    small=1,
)
def test_close_counts_messages_without_acknowledgement(proxied):
    proxied.subscribe("tick.>")
    proxied.proxy.stall()
    proxied.publisher.publish_many(("tick.a", number) for number in _numbers(10))
    assert proxied.publisher.close(timeout=0.1) == 10


@promise("A publisher removes a subscriber soon after the subscriber closes.")
def test_closed_subscriber_is_forgotten(pair):
    pair.subscribe("tick.>")
    until(lambda: pair.publisher.has_subscribers("tick.a"))
    pair.subscriber.close()
    until(lambda: not pair.publisher.has_subscribers("tick.a"), timeout=BOUND)


@promise(
    "The endpoint of a closed publisher can be bound again at once.",
    not_for={"inproc": "libzmq frees the name some time after close."},
)
def test_endpoint_can_be_bound_again(sockets):
    first = sockets.publisher()
    endpoint = first.endpoint
    subscriber = sockets.subscriber(first)
    sockets.subscribe(first, subscriber, "tick.>")
    first.close()
    assert sockets.publisher(endpoint).endpoint == endpoint


@promise(
    "`drain` of a subscription waits until the handler has handled each message that was sent before.",
    not_for={
        "sockets": "Handlers of sockets run in the thread that receives.",
    },
)
def test_nats_py_100_drain_handles_all(nodes):
    publisher, subscriber = nodes.join("publisher", "subscriber", options={"threads": 1})
    handled = []

    def handle(message):
        time.sleep(0.005)
        handled.append(message.payload)

    got = subscriber.subscribe("tick.>", handle)
    subscriber.wait_ready()
    publisher.publish_many(("tick.a", number) for number in _numbers(20))
    publisher.flush()
    got.drain()
    assert handled == _numbers(20)


@promise(
    "`close` of a node waits until its handlers have handled the received messages.",
    not_for={
        "sockets": "Handlers of sockets run in the thread that receives.",
    },
)
def test_close_of_a_node_handles_what_has_come(nodes, api):
    publisher, subscriber = nodes.join("publisher", "subscriber")
    handled, released = [], []

    def handle(message):
        until(lambda: released)
        handled.append(message.payload)

    got = subscriber.subscribe("tick.>", handle)
    subscriber.wait_ready()
    publisher.publish_many(("tick.a", number) for number in _numbers(20))
    until(lambda: got.pending >= 19)
    closing = api.start(lambda: subscriber.close(timeout=DEADLINE))
    closing.wait_until_blocked()
    released.append(True)
    closing.outcome()
    assert handled == _numbers(20)


FORGETFUL = """
publisher = api.publisher("tcp://127.0.0.1:*")
subscriber = api.subscriber(publisher.endpoint, filtering="publisher")
subscriber.subscribe("tick.>", handler=print)
subscriber.wait_ready(timeout=40)
publisher.publish("tick.a", b"never received")
node = api.node("forgetful", bus="contract", options=NodeOptions(directory=sys.argv[1]))
node.subscribe("tick.>", handler=print)
say("ready")
sys.exit(7)
"""


@promise("A program that forgets `close` ends in time, with its own exit code and no message.")
def test_pyzmq_1407_program_that_forgets_close_ends(program, directory):
    with program(FORGETFUL, directory) as process:
        out, messages = process.communicate(timeout=DEADLINE)
    assert (out, messages, process.returncode) == ("ready\n", "", 7)


@promise("`close` of a node returns the number of messages in queues without a handler, and does not wait.")
def test_a_node_does_not_wait_for_its_own_queues(nodes, api):
    (node,) = nodes.join("worker")
    made = node.subscribe("job", ack="handled", group="workers")
    node.publish_many(("job", number) for number in range(3))
    until(lambda: made.pending == 3)
    assert api.start(lambda: node.close(timeout=None)).outcome() == 3


@promise(
    "Jobs of a redelivering group that wait in the queue of a node go to another member when the node closes."
)
def test_jobs_in_the_queue_of_a_closing_node_go_to_another_member(nodes):
    closing, other = nodes.join("closing", "other")
    options = {"ack": "handled", "group": "workers", "delivery": {"redeliver": True}}
    made, handled = closing.subscribe("job", **options), []
    closing.publish_many(("job", number) for number in range(3))
    until(lambda: made.pending == 3)
    other.subscribe("job", lambda message: handled.append(message.payload), **options)
    closing.wait_for_subscribers("job", count=2)
    assert (closing.close(timeout=DEADLINE), handled) == (0, [0, 1, 2])
