"""Reads of links by a thread that waits for a reply."""

import threading
import time
from contextlib import contextmanager

import pytest

from nodes.conftest import Nodes
from oz.errors import ClosedError, PeerLost, Timeout
from oz.node import reading
from oz.options import Delivery
from support.waiting import Thread, until

ENDLESS = 600.0  # seconds; longer than any test
ROUNDS = 30
HEARTBEAT = 1.0  # seconds between two frames of an idle peer


@pytest.fixture
def pair(directory, monkeypatch):
    """A server and a client, whose waiting threads read without an end."""
    monkeypatch.setattr(reading, "READING", ENDLESS)
    nodes = Nodes("sync", directory)
    server, client = nodes("server"), nodes("client")
    server.wait_ready("client")
    client.wait_ready("server")
    yield server, client
    nodes.close()


def serve(server, client, subject, handler):
    server.subscribe(subject, handler)
    client.wait_ready("server", subscriber=subject)


@pytest.fixture
def swift(pair):
    """Context whose rounds need no timer of the client: what waits for the next heartbeat takes too long."""
    _, client = pair
    client._node.next_deadline = lambda: None

    @contextmanager
    def measure():
        began = time.monotonic()
        yield range(ROUNDS)
        assert time.monotonic() - began < ROUNDS * HEARTBEAT / 4

    return measure


def reads(node):
    return node._node.reader.is_reading()


def held(server, client):
    """Begin a request that is not answered; return its thread, the message, and the time at which it began."""
    seen = []
    serve(server, client, "held", seen.append)
    work = Thread(lambda: client.request("held", timeout=ENDLESS))
    until(lambda: seen and reads(client))
    return work, seen[0]


def test_a_thread_reads_its_reply_itself(pair):
    server, client = pair
    serve(server, client, "svc", lambda message: until(lambda: reads(client)) and message.payload)
    assert [client.request("svc", one, timeout=ENDLESS).payload for one in range(20)] == list(range(20))
    assert not reads(client)


@pytest.mark.parametrize("delivery", [Delivery(), Delivery(inline=True)], ids=["thread", "inline"])
def test_handlers_run_while_a_thread_waits_for_its_reply(pair, swift, delivery):
    server, client = pair
    threads = []
    client.subscribe("news", lambda message: threads.append(threading.current_thread()), delivery=delivery)
    server.wait_ready("client", subscriber="news")
    work, message = held(server, client)
    with swift() as rounds:
        for number in rounds:
            server.publish("news", number)
            until(lambda number=number: len(threads) == number + 1)
    message.reply("reply")
    assert work.outcome().payload == "reply"
    assert {one.name for one in threads} == ({"oz node"} if delivery.inline else {"oz handler"})


def test_receive_returns_while_a_thread_waits_for_its_reply(pair):
    server, client = pair
    news = client.subscribe("news")
    server.wait_ready("client", subscriber="news")
    work, message = held(server, client)
    server.publish("news", 1)
    assert news.receive(timeout=ENDLESS).payload == 1
    message.reply("reply")
    assert work.outcome().payload == "reply"


def test_handlers_run_after_a_thread_has_read_its_reply(pair, swift):
    server, client = pair
    seen = []
    serve(server, client, "svc", lambda message: message.payload)
    client.subscribe("news", seen.append)
    server.wait_ready("client", subscriber="news")
    assert client.request("svc", 1, timeout=ENDLESS).payload == 1
    with swift() as rounds:
        for number in rounds:
            server.publish("news", number)
            until(lambda number=number: len(seen) == number + 1)


def test_another_thread_may_end_the_request_of_a_thread_that_reads(pair, swift):
    server, client = pair
    seen = []
    serve(server, client, "held", seen.append)
    with swift() as rounds:
        for number in rounds:
            work = Thread(lambda: client.request("held", timeout=ENDLESS))
            until(lambda number=number: len(seen) == number + 1 and reads(client))
            client._node.exchange.end_requests(ClosedError("ended"))
            with pytest.raises(ClosedError):
                work.outcome()


def test_a_second_request_is_answered_while_a_thread_reads(pair):
    server, client = pair
    serve(server, client, "svc", lambda message: message.payload)
    work, message = held(server, client)
    assert [client.request("svc", number, timeout=ENDLESS).payload for number in range(5)] == [0, 1, 2, 3, 4]
    message.reply("reply")
    assert work.outcome().payload == "reply"


def test_a_new_peer_joins_while_a_thread_reads(pair, directory):
    server, client = pair
    work, message = held(server, client)
    nodes = Nodes("sync", directory)
    third = nodes("third")
    third.wait_ready("client", "server")
    client.wait_ready("third")
    nodes.close()
    message.reply("reply")
    assert work.outcome().payload == "reply"


def test_a_request_times_out_while_its_thread_reads(pair):
    server, client = pair
    serve(server, client, "none", lambda message: None)
    began = time.monotonic()
    with pytest.raises(Timeout):
        client.request("none", timeout=0.1)
    assert time.monotonic() - began < ENDLESS / 2
    assert not reads(client)


def test_a_lost_peer_ends_the_request_of_a_thread_that_reads(pair):
    server, client = pair
    work, _ = held(server, client)
    server.close(timeout=0)
    with pytest.raises(PeerLost):
        work.outcome()


def test_close_ends_the_request_of_a_thread_that_reads(pair):
    server, client = pair
    work, _ = held(server, client)
    client.close(timeout=0)
    with pytest.raises(ClosedError):
        work.outcome()


def test_the_node_reads_again_after_an_exception_of_a_signal_handler(pair, monkeypatch):
    server, client = pair
    serve(server, client, "svc", lambda message: message.payload)
    subscriber, main = client._node.subscriber, threading.get_ident()
    read = subscriber.read

    def interrupt(**options):
        if threading.get_ident() == main:
            raise KeyboardInterrupt
        return read(**options)

    with monkeypatch.context() as patch:
        patch.setattr(type(subscriber), "read", lambda self, **options: interrupt(**options))
        with pytest.raises(KeyboardInterrupt):
            client.request("svc", 1, timeout=ENDLESS)
    assert not reads(client)
    assert Thread(lambda: client.request("svc", 2, timeout=ENDLESS)).outcome().payload == 2


def test_the_thread_of_the_node_reads_in_place_of_a_thread_that_left_its_place(pair):
    server, client = pair
    serve(server, client, "svc", lambda message: message.payload)
    work, message = held(server, client)
    reader = client._node.reader
    request = reader._request
    message.reply("reply")
    work.outcome()
    # As an exception between two steps of the thread leaves it.
    assert reader._enter(request)
    assert client.request("svc", 1, timeout=ENDLESS).payload == 1
