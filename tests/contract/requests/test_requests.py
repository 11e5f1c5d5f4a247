"""Requests and replies between nodes."""

import time
from contextlib import contextmanager, suppress

import pytest

from contract.adapter import errors, limit_requests
from contract.promises import promise
from support.waiting import until

LONG = 90.0  # seconds; below DEADLINE, so that a request that does not end fails with its own Timeout
IMMEDIATE = 60.0  # seconds; below LONG, and far above the time that a loaded machine takes


def _echo(message):
    message.reply(message.payload)


@promise("A request gets the reply of a node that subscribes to its subject.")
def test_request_gets_the_reply(nodes):
    server, client = nodes.join("server", "client")
    server.subscribe("svc.*", lambda message: message.reply({"got": message.payload, "on": message.subject}))
    client.wait_ready(subscriber="svc.price")
    assert client.request("svc.price", 5).payload == {"got": 5, "on": "svc.price"}


@promise("A request without a responder fails at once with NoResponders.")
def test_request_without_responder_fails_at_once(nodes):
    server, client = nodes.join("server", "client")
    server.subscribe("svc.price", _echo)
    client.wait_ready(subscriber="svc.price")
    began = time.monotonic()
    with pytest.raises(errors.NoResponders, match=r"svc\.other"):
        client.request("svc.other", b"", timeout=LONG)
    assert time.monotonic() - began < IMMEDIATE


@promise("A request whose responder does not reply ends with Timeout after its timeout.")
def test_request_without_reply_times_out(nodes):
    server, client = nodes.join("server", "client")
    seen = []
    server.subscribe("svc", seen.append)
    client.wait_ready(subscriber="svc")
    with pytest.raises(errors.Timeout):
        client.request("svc", b"", timeout=0.2)
    until(lambda: len(seen) == 1)


@promise(
    "An exception of a handler reaches the requester at once, as ReplyError with its class and text.", small=2
)
def test_exception_of_a_handler_becomes_a_reply_error(nodes, logged_errors):
    logged_errors.expected.append("a handler raised")
    server, client = nodes.join("server", "client")

    def fail(message):
        raise LookupError("no such isin")

    server.subscribe("svc", fail)
    client.wait_ready(subscriber="svc")
    began = time.monotonic()
    with pytest.raises(errors.ReplyError, match=r"LookupError.*no such isin"):
        client.request("svc", b"", timeout=LONG)
    assert time.monotonic() - began < IMMEDIATE


@promise("With error_replies=False the requester does not learn the text of an exception.", small=2)
def test_error_replies_can_be_turned_off(nodes, logged_errors):
    logged_errors.expected.append("a handler raised")
    server = nodes.node("server", options={"error_replies": False})
    client = nodes.node("client")
    client.wait_ready("server")

    def fail(message):
        raise LookupError("secret")

    server.subscribe("svc", fail)
    client.wait_ready(subscriber="svc")
    with pytest.raises((errors.Timeout, errors.ReplyError)) as raised:
        client.request("svc", b"", timeout=0.3)
    assert "secret" not in str(raised.value)


@promise("request_many returns one reply of each responder, up to its limit.", small=2)
def test_request_many_collects_replies(nodes):
    first, second, client = nodes.join("first", "second", "client")
    first.subscribe("who", lambda message: message.reply("first"))
    second.subscribe("who", lambda message: message.reply("second"))
    client.wait_ready()
    until(lambda: _has_two(client))
    assert {item.payload for item in client.request_many("who", limit=2)} == {"first", "second"}
    assert len(list(client.request_many("who", limit=1))) == 1


def _has_two(client):
    """Return whether both responders reply; declarations of two nodes arrive independently."""
    return len(list(client.request_many("who", timeout=0.3, limit=2))) == 2


@promise("Each of many concurrent requests gets its own reply.")
def test_concurrent_requests_get_their_own_replies(nodes):
    server, client = nodes.join("server", "client")
    server.subscribe("double", lambda message: message.reply(2 * message.payload), concurrency=4)
    client.wait_ready(subscriber="double")
    works = [nodes.api.start(lambda number=number: client.request("double", number)) for number in range(20)]
    assert [work.outcome().payload for work in works] == [2 * number for number in range(20)]


@promise("A group of responders shares requests: one member handles each request.")
def test_a_group_runs_each_request_once(nodes):
    *workers, client = nodes.join("one", "two", "client")
    runs = []

    def work(message, name):
        runs.append((name, message.payload))
        message.reply(message.payload)

    for node in workers:
        node.subscribe("job", lambda message, name=node.name: work(message, name), group="workers")
    for node in workers:
        client.wait_ready(node.name)
    client.wait_ready(subscriber="job")
    assert [client.request("job", number).payload for number in range(30)] == list(range(30))
    assert sorted(number for _, number in runs) == list(range(30))


@promise("Headers travel with a request and with its reply.", small=2)
def test_headers_travel_both_ways(nodes):
    server, client = nodes.join("server", "client")
    server.subscribe("svc", lambda message: message.reply(b"", headers={"echo": message.headers["ask"]}))
    client.wait_ready(subscriber="svc")
    assert client.request("svc", b"", headers={"ask": "7"}).headers == {"echo": "7"}


WORKER = """
import sys
directory, name, *peers = sys.argv[1:]
node = api.node(name, bus="contract", connect=peers, options=NodeOptions(directory=directory))
def work(message):
    say("asked")
    return None if name == "mute" else name
node.subscribe("job", work, group="workers")
say("up")
sys.stdin.read()
"""


@pytest.fixture
def worker(nodes, program, directory):
    """Function that starts a member of a group in a process. The member "mute" does not reply."""

    @contextmanager
    def start(client, name):
        peers = [] if nodes.transport == "ipc" else [client.endpoint]
        with program(WORKER, directory, name, *peers) as process:
            assert process.stdout.readline() == "up\n"
            client.wait_ready(name, subscriber="job")
            yield process

    return start


@promise("A request fails at once with PeerLost if its responder dies.", small=1)
def test_death_of_the_responder_is_peer_lost(nodes, worker, directory):
    client = nodes.node("client", options={"lost_after": 600.0, "directory": directory})
    with worker(client, "mute") as process:
        request = nodes.api.start(lambda: client.request("job", b"", timeout=LONG))
        assert process.stdout.readline() == "asked\n"
        process.kill()
        with pytest.raises(errors.PeerLost, match="'mute'"):
            request.outcome()


@promise("A request fails if its group member is lost, although a plain subscription got it too.", small=2)
def test_loss_of_the_member_ends_a_request_that_an_observer_holds(nodes):
    worker, observer, client = nodes.join("worker", "observer", "client")
    begun = []
    observer.subscribe("job", lambda message: None)
    worker.subscribe("job", begun.append, group="workers")
    client.wait_for_subscribers("job", count=2)
    request = nodes.api.start(lambda: client.request("job", b"", timeout=IMMEDIATE))
    until(lambda: begun)
    worker.close(timeout=0)
    with pytest.raises(errors.PeerLost, match="'worker'"):
        request.outcome()


@promise("A request that fills pending_bytes is sent; a larger one fails at once with WouldBlock.", small=2)
def test_request_that_exceeds_pending_bytes_fails_at_once(nodes):
    size = 2_000
    server = nodes.node("server", codec=None)
    client = nodes.node("client", codec=None, options={"pending_bytes": len("svc") + size})
    server.subscribe("svc", _echo)
    client.wait_ready("server", subscriber="svc")
    assert client.request("svc", bytes(size), timeout=IMMEDIATE).payload == bytes(size)
    with pytest.raises(errors.WouldBlock, match="'server' is full"):
        client.request("svc", bytes(size + 1), timeout=IMMEDIATE)


@promise("A node with 65,536 requests without a reply refuses another request with WouldBlock.", small=1)
def test_number_of_requests_is_bounded(nodes):
    server, client = nodes.join("server", "client", options={"high_water_mark": 0, "lost_after": 600.0})
    server.subscribe("svc", lambda message: None)
    client.wait_ready(subscriber="svc")
    assert limit_requests(client, 100) == 65_536

    def request():
        return client.raw.request_many("svc", timeout=None)

    kept = nodes.api.shell.call(lambda: [request() for _ in range(100)])
    with pytest.raises(errors.WouldBlock, match="100 requests have no reply"):
        nodes.api.shell.call(request)
    del kept[0]
    kept.append(until(lambda: _accepted(nodes, request)))


def _accepted(nodes, request):
    """Return a new request, or None if there are too many."""
    with suppress(errors.WouldBlock):
        return nodes.api.shell.call(request)


@promise("retries= sends a request to another member of the group if its responder is lost.", small=1)
def test_retries_reach_another_member(nodes, worker, directory):
    client = nodes.node("client", options={"directory": directory})
    with worker(client, "mute") as process:
        request = nodes.api.start(lambda: client.request("job", b"", timeout=LONG, retries=1))
        assert process.stdout.readline() == "asked\n"
        with worker(client, "second"):
            process.kill()
            assert request.outcome().payload == "second"


@promise("retries= sends a request to another member of the group if its responder closes.", small=1)
def test_retries_reach_another_member_if_the_responder_closes(nodes):
    *workers, client = nodes.join("one", "two", "client")
    begun = []

    def work(message, node):
        begun.append(node)
        return node.name if len(begun) > 1 else None

    for node in workers:
        node.subscribe("svc", lambda message, node=node: work(message, node), group="workers")
        client.wait_ready(node.name)
    client.wait_for_subscribers("svc", count=2)
    request = nodes.api.start(lambda: client.request("svc", b"x", retries=1))
    until(lambda: begun)
    begun[0].close(timeout=0)
    assert request.outcome().payload == begun[1].name != begun[0].name


@promise("The return value of a handler is its reply.", small=1)
def test_return_value_of_a_handler_is_the_reply(nodes):
    server, client = nodes.join("server", "client")
    server.subscribe("svc", lambda message: "pong")
    client.wait_ready(subscriber="svc")
    assert client.request("svc", "ping", timeout=0.3).payload == "pong"
