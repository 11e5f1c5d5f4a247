"""Requests, replies and errors between nodes, over real sockets."""

import threading
import time
from collections import Counter

import pytest

from oz.errors import (
    ClosedError,
    NoRequest,
    NoResponders,
    OwnershipError,
    PatternError,
    PeerLost,
    ReplyError,
    Timeout,
)
from oz.options import Delivery
from support.scripts import started
from support.waiting import DEADLINE, Thread, until

ENDLESS = 600.0  # seconds; longer than any test
IMMEDIATE = 10.0  # seconds; far below ENDLESS, and far above the time that a loaded machine takes


@pytest.fixture
def pair(make):
    """A server and a client that know each other."""
    server, client = make("server"), make("client")
    server.wait_ready("client")
    client.wait_ready("server")
    return server, client


def serve(server, client, subject, handler, **options):
    subscription = server.subscribe(subject, handler, **options)
    client.wait_ready("server", subscriber=subject.replace("*", "x"))
    return subscription


def bare(node):
    """Return the node itself, for a handler: it runs in the loop of an asyncio node."""
    return node.wrapped if type(node).__name__ == "Looped" else node


def is_asyncio(node):
    return bare(node) is not node


def ask(client, subject, payload=b"", **options):
    return client.request(subject, payload, **{"timeout": ENDLESS, **options})


# replies


def test_a_handler_replies_by_its_result_or_by_reply(pair):
    server, client = pair
    serve(server, client, "result", lambda message: {"got": message.payload})
    serve(server, client, "call", lambda message: message.reply(message.payload, headers={"h": 7}))
    assert ask(client, "result", 5).payload == {"got": 5}
    reply = ask(client, "call", [1, 2], headers={"a": "b"})
    assert (reply.payload, reply.headers) == ([1, 2], {"h": 7})
    assert reply.origin == bytes.fromhex(client.peers[0].id)


def test_a_request_has_subject_headers_and_an_inbox(pair):
    server, client = pair
    seen = []
    serve(server, client, "svc.*", lambda message: seen.append(message) or True)
    ask(client, "svc.price", "x", headers={"ask": "7"})
    (message,) = seen
    assert (message.subject, message.payload, message.headers) == ("svc.price", "x", {"ask": "7"})
    assert message.reply_to.startswith(f"_INBOX.{server.peers[0].id}.")


def test_a_reply_is_published_on_the_inbox_too(pair):
    server, client = pair
    serve(server, client, "svc", lambda message: bare(server).publish(message.reply_to, "published"))
    assert ask(client, "svc").payload == "published"


def test_a_message_that_is_received_can_be_answered_later(pair):
    server, client = pair
    subscription = server.subscribe("later")
    client.wait_ready("server", subscriber="later")
    work = Thread(lambda: ask(client, "later", 1))
    message = subscription.receive(timeout=IMMEDIATE)
    message.reply(message.payload + 1)
    assert work.outcome().payload == 2


def test_a_message_that_is_no_request_cannot_be_answered(pair):
    server, client = pair
    subscription = client.subscribe("news")
    server.wait_ready("client", subscriber="news")
    server.publish("news", 1)
    message = subscription.receive(timeout=IMMEDIATE)
    with pytest.raises(NoRequest, match="'news'"):
        message.reply(2)


def test_a_result_without_a_request_goes_nowhere(pair):
    server, client = pair
    seen = []
    serve(server, client, "news", lambda message: seen.append(message) or "ignored")
    client.publish("news", 1)
    until(lambda: seen)
    assert server.stats.failed == 0


def test_a_node_asks_itself(make):
    node = make("alone")
    node.subscribe("svc", lambda message: message.payload)
    assert ask(node, "svc", 3).payload == 3


def test_the_second_reply_is_late(pair):
    server, client = pair

    def reply_twice(message):
        message.reply(1)
        message.reply(2)

    serve(server, client, "svc", reply_twice)
    assert [ask(client, "svc").payload for _ in range(10)] == 10 * [1]
    until(lambda: client.stats.late_replies == 10)


def test_wildcards_do_not_see_replies_and_an_inbox_cannot_be_subscribed(make):
    # A subscription to everything is a responder too, so that only the server receives its own messages.
    server, client = make("server"), make("client", echo=False)
    client.wait_ready("server")
    everything = [node.subscribe(">") for node in (server, client)]
    server.wait_ready("client")
    serve(server, client, "svc", lambda message: "secret")
    assert ask(client, "svc").payload == "secret"
    server.publish("end")
    for subscription, expected in zip(everything, (["svc", "end"], ["end"]), strict=True):
        found = []
        while not found or found[-1].subject != "end":
            found.append(subscription.receive(timeout=IMMEDIATE))
        assert [one.subject for one in found] == expected
    with pytest.raises(PatternError, match="inbox"):
        client.subscribe("_INBOX.>")


# failures


def test_an_exception_becomes_an_error_reply(pair):
    server, client = pair

    def fail(message):
        raise LookupError("no such isin")

    serve(server, client, "svc", fail)
    with pytest.raises(ReplyError, match=r"'server'.*LookupError: no such isin") as raised:
        ask(client, "svc")
    error = raised.value
    assert (error.subject, error.kind, error.text, error.node) == (
        "svc",
        "LookupError",
        "no such isin",
        "server",
    )
    until(lambda: server.stats.failed == 1)


def test_a_node_may_hide_the_text_of_its_exceptions(make):
    server, client = make("server", error_replies=False), make("client")

    def fail(message):
        raise LookupError("secret")

    client.wait_ready("server")
    serve(server, client, "svc", fail)
    with pytest.raises(ReplyError) as raised:
        ask(client, "svc")
    assert (raised.value.kind, raised.value.text) == ("", "")
    assert "secret" not in str(raised.value)


def test_a_result_that_cannot_be_encoded_is_an_error_reply(pair):
    server, client = pair
    serve(server, client, "svc", lambda message: object())
    with pytest.raises(ReplyError, match="TypeError"):
        ask(client, "svc")


def test_a_request_without_a_subscription_fails_at_once(pair):
    _, client = pair
    began = time.monotonic()
    with pytest.raises(NoResponders, match="'nobody'"):
        ask(client, "nobody")
    with pytest.raises(NoResponders, match="'nobody'"):
        list(client.request_many("nobody", timeout=ENDLESS))
    assert time.monotonic() - began < IMMEDIATE


def test_a_request_right_after_the_start_waits_for_its_peer(make):
    server = make("server")
    server.subscribe("svc", lambda message: message.payload)
    client = make("client")
    assert ask(client, "svc", 7).payload == 7


def test_a_request_without_a_reply_times_out(pair):
    server, client = pair
    seen = []
    serve(server, client, "svc", seen.append)
    with pytest.raises(Timeout, match="'server' has it"):
        ask(client, "svc", timeout=0.1)
    with pytest.raises(Timeout):
        ask(client, "svc", timeout=0)
    assert client.stats.requests == 0
    until(lambda: len(seen) == 2)
    seen[0].reply(1)
    until(lambda: client.stats.late_replies == 1)


def test_a_reply_to_a_node_that_is_gone_is_lost(pair, make):
    server, _ = pair
    seen = []
    server.subscribe("svc", seen.append)
    asker = make("asker")
    asker.wait_ready("server", subscriber="svc")
    with pytest.raises(Timeout):
        ask(asker, "svc", timeout=0.1)
    asker.close()
    until(lambda: len(server.peers) == 1 and seen)
    seen[0].reply(1)
    until(lambda: server.stats.lost_replies == 1)


def test_a_responder_that_closes_is_a_lost_peer(pair):
    server, client = pair
    entered = threading.Event()

    def vanish(message):
        entered.set()

    serve(server, client, "svc", vanish)
    work = Thread(lambda: ask(client, "svc"))
    assert entered.wait(IMMEDIATE)
    server.close(timeout=0)
    with pytest.raises(PeerLost, match="'server'"):
        work.outcome()


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


WORKER = """
import sys
from oz.node.sync import Node
from oz.options import NodeOptions

directory, name, mode = sys.argv[1:]
node = Node(name, bus="test", options=NodeOptions(directory=directory))

def work(message):
    if mode == "hold":
        print("held", flush=True)
    else:
        return [name, message.payload]

node.subscribe("job", work, group="workers")
print("up", flush=True)
sys.stdin.read()
"""


def started_worker(directory, name, mode="work"):
    return started("-c", WORKER, directory, name, mode)


def wait_until_up(process):
    assert process.stdout.readline() == "up\n", process.stderr.read()


def test_a_killed_responder_is_a_lost_peer(make, directory):
    client = make("client", lost_after=600.0)
    with started_worker(directory, "worker", "hold") as process:
        wait_until_up(process)
        client.wait_ready("worker", subscriber="job")
        work = Thread(lambda: ask(client, "job"))
        assert process.stdout.readline() == "held\n"
        began = time.monotonic()
        process.kill()
        with pytest.raises(PeerLost, match="'worker'"):
            work.outcome()
        assert time.monotonic() - began < 30.0
        assert client.stats.requests == 0


def test_a_retry_reaches_another_member(make, directory):
    client = make("client", lost_after=0.5)
    with started_worker(directory, "first", "hold") as first:
        wait_until_up(first)
        client.wait_ready("first", subscriber="job")
        work = Thread(lambda: ask(client, "job", 5, retries=1))
        assert first.stdout.readline() == "held\n"
        with started_worker(directory, "second") as second:
            wait_until_up(second)
            client.wait_ready("second")
            first.kill()
            assert work.outcome().payload == ["second", 5]


def test_each_request_is_answered_although_a_worker_is_killed(make, directory):
    client = make("client", lost_after=0.5)
    names = ("one", "two", "three")
    with (
        started_worker(directory, "one") as one,
        started_worker(directory, "two") as two,
        started_worker(directory, "three") as three,
    ):
        for process in (one, two, three):
            wait_until_up(process)
        client.wait_ready(*names, subscriber="job")
        answered, lock = Counter(), threading.Lock()

        def run(numbers):
            for number in numbers:
                name, payload = ask(client, "job", number, retries=1).payload
                assert payload == number
                with lock:
                    answered[name] += 1
                    if sum(answered.values()) == 300:
                        two.kill()

        works = [Thread(lambda at=at: run(range(at, 1_000, 10))) for at in range(10)]
        for work in works:
            work.outcome(timeout=90.0)
        assert sum(answered.values()) == 1_000
        assert set(answered) == set(names)


# several responders, many requests


def test_members_of_a_group_take_turns(make):
    servers, client = [make(name) for name in ("one", "two", "three")], make("client")
    for server in servers:
        server.subscribe("job", lambda message, name=server.name: name, group="workers")
    client.wait_ready("one", "two", "three", subscriber="job")
    assert Counter(ask(client, "job").payload for _ in range(30)) == {"one": 10, "two": 10, "three": 10}


def test_a_program_that_observes_takes_no_request(make):
    client, server, observer = make("client"), make("server"), make("observer")
    seen = []
    observer.subscribe(">", lambda message: seen.append(message.subject))
    server.subscribe("job", lambda message: "done")
    client.wait_ready("server", "observer")
    assert {ask(client, "job").payload for _ in range(20)} == {"done"}
    until(lambda: seen.count("job") == 20)


def test_an_error_reply_counts_if_no_other_responder_is_left(make):
    client, one, two = make("client"), make("one"), make("two")
    is_failing = threading.Event()

    def fail(message):
        raise ValueError("no")

    def reply_later(message):
        is_failing.wait(DEADLINE)
        return "yes"

    one.subscribe("job", fail)
    two.subscribe("job", reply_later)
    client.wait_ready("one", "two")
    client.subscribe("never")
    threading.Timer(0.2, is_failing.set).start()
    assert ask(client, "job").payload == "yes"
    two.close()
    with pytest.raises(ReplyError, match="no"):
        ask(client, "job")


def test_a_refused_request_does_not_count_at_its_member(pair):
    server, client = pair
    serve(server, client, "job", lambda message: message.payload, group="workers")
    publisher = bare(client)._node.publisher
    with publisher.lock:
        [(group, members)] = publisher.responders("job", b"job").groups
        member = group.pick(members, b"job", 0.0)
        counted = member.load
        publisher.end_session(member.session.member)
        assert not publisher.send_in(member, b"job", b"", None)
        assert member.load == counted - 1


def test_a_sticky_group_keeps_the_responder_of_a_key(make):
    servers, client = [make(name) for name in ("one", "two", "three")], make("client")
    for server in servers:
        server.subscribe(
            "job", lambda message, name=server.name: name, group="g", delivery=Delivery(policy="sticky")
        )
    client.wait_ready("one", "two", "three", subscriber="job")
    found = {key: {ask(client, "job", key=key).payload for _ in range(4)} for key in map(str, range(20))}
    assert all(len(names) == 1 for names in found.values())
    assert len(set.union(*found.values())) > 1


def test_request_many_returns_the_replies_of_all(make):
    servers, client = [make(name) for name in ("one", "two", "three", "four")], make("client")
    for server in servers[:2]:
        server.subscribe("who", lambda message, name=server.name: name)
    for server in servers[2:]:
        server.subscribe("who", lambda message: "member", group="g")
    client.wait_ready(*(server.name for server in servers), subscriber="who")
    found = [one.payload for one in client.request_many("who", timeout=ENDLESS, limit=3)]
    assert sorted(found) == ["member", "one", "two"]
    assert len(list(client.request_many("who", timeout=ENDLESS, limit=1))) == 1
    assert sorted(one.payload for one in client.request_many("who", timeout=1.0)) == sorted(found)
    assert client.stats.requests == 0


def test_an_error_among_the_replies_of_many_comes_last(make):
    servers, client = [make(name) for name in ("one", "two")], make("client")

    def fail(message):
        raise LookupError("broken")

    servers[0].subscribe("who", fail)
    servers[1].subscribe("who", lambda message: "two")
    client.wait_ready("one", "two", subscriber="who")
    replies = client.request_many("who", timeout=ENDLESS, limit=2)
    assert next(replies).payload == "two"
    with pytest.raises(ReplyError, match="broken"):
        next(replies)
    with pytest.raises(StopIteration):
        next(replies)


def test_an_iterator_that_is_dropped_forgets_its_request(pair):
    server, client = pair
    serve(server, client, "who", lambda message: "reply")
    replies = client.request_many("who", timeout=None)
    assert next(replies).payload == "reply"
    assert client.stats.requests == 1
    del replies
    until(lambda: client.stats.requests == 0)


def test_garbage_collection_of_an_iterator_needs_no_lock(pair):
    server, client = pair
    serve(server, client, "who", lambda message: "reply")
    kept = [client.request_many("who", timeout=None)]
    lock = bare(client)._node.exchange.lock

    def collect():
        # Garbage collection may run in a thread that holds the lock.
        with lock:
            kept.clear()

    Thread(collect).outcome()
    until(lambda: client.stats.requests == 0)


def test_many_threads_get_their_own_replies(pair):
    server, client = pair
    serve(server, client, "double", lambda message: 2 * message.payload, concurrency=4)

    def run(at):
        return [ask(client, "double", number).payload for number in range(at, at + 50)]

    works = [Thread(lambda at=at: run(at)) for at in range(32)]
    assert [work.outcome() for work in works] == [[2 * n for n in range(at, at + 50)] for at in range(32)]
    assert (client.stats.requests, client.stats.late_replies) == (0, 0)


# inside handlers


def test_a_handler_may_ask(make):
    server, client = make("server", threads=1), make("client")
    server.subscribe("inner", lambda message: message.payload + 1)

    def outer(message):
        return ask(server, "inner", message.payload).payload * 10

    if is_asyncio(server):

        async def outer(message):
            return (await bare(server).request("inner", message.payload)).payload * 10

    client.wait_ready("server")
    serve(server, client, "outer", outer)
    works = [Thread(lambda at=at: ask(client, "outer", at).payload) for at in range(8)]
    assert [work.outcome() for work in works] == [10 * (at + 1) for at in range(8)]


def test_an_inline_handler_replies_and_cannot_ask(pair):
    server, client = pair
    serve(server, client, "fast", lambda message: message.payload, delivery=Delivery(inline=True))
    serve(server, client, "call", lambda message: message.reply(1), delivery=Delivery(inline=True))
    assert ask(client, "fast", 5).payload == 5
    assert ask(client, "call").payload == 1


def test_an_inline_handler_that_asks_is_refused(pair):
    server, client = pair
    if is_asyncio(server):
        pytest.skip("an inline handler of a loop cannot await")
    serve(server, client, "slow", lambda message: ask(server, "x"), delivery=Delivery(inline=True))
    with pytest.raises(ReplyError, match=OwnershipError.__name__):
        ask(client, "slow")
    serve(
        server, client, "many", lambda message: list(server.request_many("x")), delivery=Delivery(inline=True)
    )
    with pytest.raises(ReplyError, match=OwnershipError.__name__):
        ask(client, "many")
