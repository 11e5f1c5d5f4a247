"""What API.md promises of nodes, to the letter: order of arguments, None, names, bytes."""

import asyncio
import gc
import inspect
import signal
import threading

import pytest

import oz
import oz.asyncio
from support.inside import engine_of
from support.waiting import DEADLINE, until

KINDS = [oz.Node, oz.asyncio.Node]


@pytest.fixture
def pair(make, met):
    asks, answers = make("asks"), make("answers")
    met(asks, answers)
    return asks, answers


def serve(node, pattern, **options):
    subscription = node.subscribe(pattern, handler=lambda message: message.reply(message.payload), **options)
    node.wait_ready(DEADLINE)
    return subscription


@pytest.mark.parametrize("kind", KINDS)
def test_the_constructor_shows_its_arguments(kind):
    shown = inspect.signature(kind).parameters
    assert list(shown)[:3] == ["name", "bus", "nameserver"]
    assert {"bind", "peers", "codec", "echo", "on_peer", "threads"} <= set(shown)


@pytest.mark.parametrize("kind", KINDS)
def test_the_timeout_of_a_request_may_be_given_by_position(kind):
    for method in (kind.request, kind.request_many):
        bound = inspect.signature(method).bind(None, "subject", "payload", 2.5)
        assert bound.arguments["timeout"] == 2.5


def test_a_request_with_its_timeout_by_position_is_answered(pair):
    asks, answers = pair
    serve(answers, "svc")
    assert asks.request("svc", 1, DEADLINE).payload == 1
    assert next(asks.request_many("svc", 2, DEADLINE)).payload == 2


@pytest.mark.parametrize("arguments", [((True, 5.0), {}), ((False,), {}), ((), {"timeout": None})])
def test_closing_takes_its_arguments_by_position_and_any_time(make, place, arguments):
    positional, named = arguments
    node = make("node")
    node.close(*positional, **named)
    with pytest.raises(oz.ClosedError):
        node.publish("a")

    async def main():
        node = await oz.asyncio.Node("node", directory=place).start()
        await node.close(*positional, **named)
        with pytest.raises(oz.ClosedError):
            await node.publish("a")

    asyncio.run(asyncio.wait_for(main(), DEADLINE))


def test_no_responders_once_somebody_has_unsubscribed(pair):
    asks, answers = pair
    others = [serve(answers, pattern) for pattern in ("svc.b", "svc.*.x")]
    ends = serve(answers, "svc.*")
    assert asks.request("svc.a", 1, timeout=DEADLINE).payload == 1
    ends.unsubscribe()
    until(lambda: not engine_of(asks).sockets.main.engine.interest("svc.a"))
    with pytest.raises(oz.NoResponders):
        asks.request("svc.a", timeout=DEADLINE)
    # What others ask for still stands.
    assert asks.request("svc.b", 2, timeout=DEADLINE).payload == 2
    assert asks.request("svc.b.x", 3, timeout=DEADLINE).payload == 3
    assert all(one.active for one in others)


def test_a_process_that_stands_still_does_not_hold_up_those_who_come_later(make, spawn):
    stops = spawn("stops")
    stops.send_signal(signal.SIGSTOP)
    try:
        node = make("node")
        with pytest.raises(oz.NoResponders):
            node.request("nobody", timeout=DEADLINE)
        node.wait_ready(DEADLINE)
        assert not node.peers
    finally:
        stops.send_signal(signal.SIGCONT)
    node.wait_for_peers("stops", timeout=DEADLINE)
    node.wait_ready(DEADLINE)


def test_answers_that_nobody_looks_at_leave_nothing(pair):
    asks, answers = pair
    serve(answers, "svc")
    for number in range(20):
        asks.request_many("svc", number)
    gc.collect()
    assert not len(engine_of(asks).requests)


@pytest.mark.parametrize(("limit", "error"), [(0, ValueError), (-1, ValueError), ("2", TypeError)])
def test_a_limit_of_answers_is_at_least_one(pair, limit, error):
    asks, answers = pair
    serve(answers, "svc")
    with pytest.raises(error, match="limit is"):
        asks.request_many("svc", limit=limit)
    assert asks.stats.requests == 0


def test_bytes_are_a_pattern_of_the_dialect(make, met):
    node, other = make("node", dialect="redis"), make("other")
    met(node, other)
    raw = node.subscribe(b"x\xff*")
    text = other.subscribe([b"order.*.new", oz.compile("a")])
    assert [one.text for one in text.patterns] == ["order.*.new", "a"]
    with pytest.raises(oz.PatternError):
        other.subscribe(b"order.")
    node.publish(b"x\xff1", 1)
    message = raw.receive(DEADLINE)
    assert (message.subject, message.subject_bytes) == ("x\udcff1", b"x\xff1")
    node.publish(message.subject, 2)
    assert (raw.receive(DEADLINE).payload, message.subject) == (2, "x\udcff1")
    node.wait_ready(DEADLINE)
    other.wait_ready(DEADLINE)
    node.publish("order.7.new", 2)
    assert text.receive(DEADLINE).payload == 2


@pytest.mark.parametrize("wanted", [None, 1.5, b"name", [1, 2]])
def test_waiting_for_what_is_neither_number_nor_name_is_refused(make, wanted):
    with pytest.raises(TypeError, match="a number of peers, for a name"):
        make("node").wait_for_peers(wanted, timeout=0)


@pytest.mark.parametrize("concurrency", ["4", 1.5])
def test_a_concurrency_that_is_no_whole_number_is_refused(make, concurrency):
    with pytest.raises(ValueError, match=r"concurrency=.* is not a number from 1 to 1,024"):
        make("node").subscribe("a", handler=print, concurrency=concurrency)


def test_a_payload_that_cannot_be_packed_says_what_can(make):
    with pytest.raises(TypeError, match=r"'object' object; MessagePack has .* give a codec="):
        make("node").publish("a", object())


def test_an_async_handler_is_told_of_the_node_that_awaits_it(make):
    async def handler(message):
        pass

    with pytest.raises(TypeError, match=r"use oz\.asyncio\.Node$"):
        make("node").subscribe("a", handler=handler)


def test_a_node_that_has_not_joined_yet_has_counted_nothing(place):
    assert oz.asyncio.Node("node", directory=place).stats.published == 0


def test_closing_waits_for_no_thread_of_the_loop(place):
    """A program may keep all of them busy."""
    go = threading.Event()

    async def main():
        loop = asyncio.get_running_loop()
        busy = [loop.run_in_executor(None, go.wait, 2 * DEADLINE) for _ in range(64)]
        node = await oz.asyncio.Node("node", directory=place).start()
        try:
            await asyncio.wait_for(node.close(timeout=2.0), DEADLINE)
        finally:
            go.set()
        await asyncio.gather(*busy)

    asyncio.run(main())
