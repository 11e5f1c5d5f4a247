"""Public bug reports about requests, handlers and payloads. Each test is named after the issue."""

import os
import pickle
import time

import pytest

from contract.adapter import errors
from contract.promises import promise
from support.waiting import until


@promise("The first request right after `wait_ready` gets its reply.")
def test_openmama_zmq_16_first_reply_is_not_lost(nodes):
    server, client = nodes.join("server", "client")
    server.subscribe("double.*", lambda message: message.reply(2 * message.payload))
    server.wait_ready()
    assert [client.request("double.a", number).payload for number in range(20)] == [*range(0, 40, 2)]


@promise("A request without a reply in time raises Timeout, and later requests get their replies.")
def test_nats_py_667_late_replies_do_not_hang_requests(nodes):
    server, client = nodes.join("server", "client")
    is_released = []

    def answer_late(message):
        until(lambda: is_released)
        message.reply(message.payload)

    # Two subscriptions, because messages of two subjects of one subscription may share a worker.
    server.subscribe("slow", answer_late, concurrency=8)
    server.subscribe("quick", lambda message: message.reply(message.payload))
    server.wait_ready()
    for _ in range(3):
        with pytest.raises(errors.Timeout):
            client.request("slow", "x", timeout=0.02)
    assert client.request("quick", "y").payload == "y"
    is_released.append(True)
    assert [client.request("quick", number).payload for number in range(10)] == [*range(10)]


class _Bomb:
    """Object whose pickle makes a directory when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@promise("No payload from the network is unpickled.")
def test_pyzmq_1077_pickles_are_not_loaded(pair, directory):
    bomb = pickle.dumps(_Bomb(f"{directory}/loaded"))
    got = pair.subscribe("tick.>")
    pair.publisher.publish("tick.a", bomb)
    assert got.receive().payload == bomb
    assert not os.path.exists(f"{directory}/loaded")


@promise("A handler may call the object that called it: each call works, or raises at once.")
def test_cyclonedds_python_135_handler_may_call_its_own_object(pair):
    outcomes = {}

    def handle(message):
        if outcomes:
            return
        calls = {
            "publish": lambda: pair.publisher.publish("other.a", b""),
            "subscribe": lambda: pair.subscriber.subscribe("tock.>").unsubscribe(),
            "receive": lambda: other.receive(timeout=0.05),
            "wait_ready": lambda: pair.subscriber.wait_ready(timeout=0.5),
            "unsubscribe": lambda: got.unsubscribe(),
            "close": lambda: pair.subscriber.close(timeout=0.2),
        }
        for name, call in calls.items():
            start = time.monotonic()
            try:
                call()
                outcomes[name] = "worked"
            except Exception as error:
                outcomes[name] = type(error).__name__
            assert time.monotonic() - start < 10, name
        outcomes["end"] = True

    other = pair.subscribe("other.>")
    got = pair.subscribe("tick.>", handle)
    pair.publisher.publish("tick.a", b"")

    def has_ended():
        return "end" in outcomes

    try:
        pair.handle_until(has_ended)
    except errors.ClosedError:
        assert has_ended()
    assert outcomes["publish"] == outcomes["subscribe"] == outcomes["unsubscribe"] == "worked"
