"""Requests, replies and errors between nodes, over real sockets."""

import asyncio
import threading

import pytest

from oz.errors import (
    ClosedError,
    OwnershipError,
    PatternError,
    ReplyError,
    Timeout,
)
from oz.options import Delivery
from support.waiting import DEADLINE, Thread, until

ENDLESS = 600.0  # seconds; longer than any test
IMMEDIATE = 90.0  # seconds; far below ENDLESS, and far above the time that a loaded machine takes


@pytest.fixture
def pair(make):
    """A server and a client that know each other."""
    server, client = make("server"), make("client")
    server.wait_ready("client", timeout=DEADLINE)
    client.wait_ready("server", timeout=DEADLINE)
    return server, client


def serve(server, client, subject, handler, **options):
    subscription = server.subscribe(subject, handler, **options)
    client.wait_ready("server", subscriber=subject.replace("*", "x"), timeout=DEADLINE)
    return subscription


def bare(node):
    """Return the node itself, for a handler: it runs in the loop of an asyncio node."""
    return node.wrapped if type(node).__name__ == "Looped" else node


def is_asyncio(node):
    return bare(node) is not node


def ask(client, subject, payload=b"", **options):
    return client.request(subject, payload, **{"timeout": ENDLESS, **options})


# replies


def test_wildcards_do_not_see_replies_and_an_inbox_cannot_be_subscribed(make):
    # A subscription to everything is a responder too, so that only the server receives its own messages.
    server, client = make("server"), make("client", echo=False)
    client.wait_ready("server", timeout=DEADLINE)
    everything = [node.subscribe(">") for node in (server, client)]
    server.wait_ready("client", timeout=DEADLINE)
    serve(server, client, "svc", lambda message: "secret")
    assert ask(client, "svc").payload == "secret"
    server.publish("end")
    for subscription, expected in zip(everything, (["svc", "end"], ["end"]), strict=True):
        found = []
        while not found or found[-1].subject != "end":
            found.append(subscription.receive(timeout=IMMEDIATE))
        assert [item.subject for item in found] == expected
    with pytest.raises(PatternError, match="inbox"):
        client.subscribe("_INBOX.>")


# failures


def test_a_result_that_cannot_be_encoded_is_an_error_reply(pair):
    server, client = pair
    serve(server, client, "svc", lambda message: object())
    with pytest.raises(ReplyError, match="TypeError"):
        ask(client, "svc")


def test_a_request_right_after_the_start_waits_for_its_peer(make):
    server = make("server")
    server.subscribe("svc", lambda message: message.payload)
    client = make("client")
    assert ask(client, "svc", 7).payload == 7


def test_a_reply_to_a_node_that_is_gone_is_lost(pair, make):
    server, _ = pair
    seen = []
    server.subscribe("svc", seen.append)
    asker = make("asker")
    asker.wait_ready("server", subscriber="svc", timeout=DEADLINE)
    with pytest.raises(Timeout):
        ask(asker, "svc", timeout=0.1)
    asker.close()
    until(lambda: len(server.peers) == 1 and seen)
    seen[0].reply(1)
    until(lambda: server.stats.lost_replies == 1)


def test_close_ends_the_requests_of_the_node(pair):
    server, client = pair
    entered = threading.Event()
    serve(server, client, "svc", lambda message: entered.set())
    work = Thread(lambda: ask(client, "svc"))
    assert entered.wait(IMMEDIATE)
    client.close(timeout=0)
    with pytest.raises(ClosedError):
        work.outcome()
    with pytest.raises(ClosedError):
        ask(client, "svc")


# several responders, many requests


def test_an_error_among_the_replies_of_many_comes_last(make):
    servers, client = [make(name) for name in ("one", "two")], make("client")

    def fail(message):
        raise LookupError("broken")

    servers[0].subscribe("who", fail)
    servers[1].subscribe("who", lambda message: "two")
    client.wait_ready("one", "two", subscriber="who", timeout=DEADLINE)
    replies = client.request_many("who", timeout=ENDLESS, limit=2)
    assert next(replies).payload == "two"
    with pytest.raises(ReplyError, match="broken"):
        next(replies)
    with pytest.raises(StopIteration):
        next(replies)


def test_an_iterator_that_is_dropped_forgets_its_request(pair):
    server, client = pair
    serve(server, client, "who", lambda message: "reply")
    kept = [client.request_many("who", timeout=None)]
    assert next(kept[0]).payload == "reply"
    assert client.stats.requests == 1
    lock = client._node.exchange.lock

    def collect():
        # Garbage collection may run in a thread that holds the lock.
        with lock:
            kept.clear()

    Thread(collect).outcome()
    until(lambda: client.stats.requests == 0)


# inside handlers


def test_a_handler_may_ask(make):
    server, client = make("server", threads=1), make("client")
    server.subscribe("inner", lambda message: message.payload + 1)

    def outer(message):
        return ask(server, "inner", message.payload).payload * 10

    if is_asyncio(server):

        async def outer(message):
            return (await bare(server).request("inner", message.payload)).payload * 10

    client.wait_ready("server", timeout=DEADLINE)
    serve(server, client, "outer", outer)
    works = [Thread(lambda at=at: ask(client, "outer", at).payload) for at in range(8)]
    assert [work.outcome() for work in works] == [10 * (at + 1) for at in range(8)]


def test_an_inline_handler_replies(pair):
    server, client = pair
    serve(server, client, "fast", lambda message: message.payload, delivery=Delivery(inline=True))
    serve(server, client, "call", lambda message: message.reply(1), delivery=Delivery(inline=True))
    assert ask(client, "fast", 5).payload == 5
    assert ask(client, "call").payload == 1


def test_an_inline_handler_of_a_loop_that_waits_is_refused(pair):
    server, client = pair
    if not is_asyncio(server):
        pytest.skip("tests/nodes/test_joining.py has the handlers of threads")
    serve(server, client, "slow", lambda message: asyncio.sleep(1), delivery=Delivery(inline=True))
    with pytest.raises(ReplyError, match=OwnershipError.__name__):
        ask(client, "slow")
