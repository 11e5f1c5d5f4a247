"""Nodes find each other, exchange messages and leave, over real sockets."""

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import threading
import warnings
from contextlib import suppress

import msgpack
import pytest

from oz.errors import ClosedError, PatternError, SubjectError, Timeout
from oz.node.engine import INTRODUCTION
from oz.node.roster import ForwarderGone
from oz.node.sync import Node
from oz.options import NodeOptions
from oz.wire import links
from support.waiting import DEADLINE, until


def names(node):
    return [peer.name for peer in node.peers]


def kinds(events):
    return [event.kind for event in events]


def exchange(node, other):
    """Check that messages pass in both directions."""
    for publisher, subscriber in ((node, other), (other, node)):
        got = subscriber.subscribe("exchange.*")
        subscriber.wait_ready(timeout=DEADLINE)
        publisher.publish("exchange.a", publisher.name)
        assert got.receive(timeout=DEADLINE).payload == publisher.name
        got.unsubscribe()


def test_a_node_without_echo_receives_only_from_peers(make):
    first, second = make("first", echo=False), make("second")
    own, other = first.subscribe("a"), second.subscribe("a")
    first.wait_ready("second", timeout=DEADLINE)
    second.wait_ready("first", timeout=DEADLINE)
    first.publish("a", 1)
    assert other.receive(timeout=DEADLINE).payload == 1
    second.publish("a", 2)
    assert own.receive(timeout=DEADLINE).payload == 2
    with pytest.raises(Timeout):
        own.receive(timeout=0)


def test_wait_ready_means_both_directions(make):
    """Each side receives messages for its earlier subscriptions, whichever side waits."""
    first, second = make("first"), make("second")
    first.wait_ready("second", timeout=DEADLINE)
    for number in range(10):
        got = second.subscribe(f"a.{number}")
        first.wait_ready(timeout=DEADLINE)
        first.publish(f"a.{number}", number)
        assert got.receive(timeout=DEADLINE).payload == number
        own = first.subscribe(f"b.{number}")
        first.wait_ready(timeout=DEADLINE)
        second.publish(f"b.{number}", number)
        assert own.receive(timeout=DEADLINE).payload == number


def test_wait_ready_names_missing_peers(make):
    node = make("alone")
    with pytest.raises(Timeout, match=r"'absentee'; peers that are up: none.*bus='test'"):
        node.wait_ready("absentee", timeout=0.1)
    with pytest.raises(Timeout, match="0 of 2 peers"):
        node.wait_ready(count=2, timeout=0.1)
    with pytest.raises(Timeout, match=r"no node subscribes to 'a\.b'; peers that are up: none.*bus='test'"):
        node.wait_ready(subscriber="a.b", timeout=0.1)
    node.wait_ready(timeout=DEADLINE)
    node.subscribe("a.*")
    node.wait_ready(subscriber="a.b", timeout=DEADLINE)


def test_wildcards_pass_reserved_subjects_by(make):
    first, second = make("first"), make("second")
    everything, reserved = second.subscribe(">"), second.subscribe("_x.>")
    second.wait_ready("first", timeout=DEADLINE)
    first.publish("_x.a", 1)
    first.publish("a", 2)
    assert reserved.receive(timeout=DEADLINE).payload == 1
    assert everything.receive(timeout=DEADLINE).payload == 2


def test_subjects_of_oz_are_refused(make):
    node = make("alone")
    for subject in ("_OZ.PEERS", "_OZ.x"):
        with pytest.raises(SubjectError):
            node.publish(subject, 1)
    for pattern in ("_OZ.>", "_INBOX.>", "_INBOX.*.*"):
        with pytest.raises(PatternError):
            node.subscribe(pattern)


def test_local_subjects_do_not_pass_tcp(make, directory):
    near, near_too = make("near", bind="tcp://127.0.0.1:*"), make("near too")
    far = make("far", connect=near.endpoint, directory=f"{directory}/far")
    inboxes = [item.subscribe(["_LOCAL.a", "end"]) for item in (near, near_too, far)]
    near.wait_ready("near too", "far", timeout=DEADLINE)
    near.publish("_LOCAL.a", 1)
    near.publish("end", 2)
    assert [[got.receive(timeout=DEADLINE).payload for _ in range(2)] for got in inboxes[:2]] == [[1, 2]] * 2
    assert inboxes[2].receive(timeout=DEADLINE).payload == 2


PROGRAM = """
    import {module} as api, asyncio, sys, warnings
    from oz.options import NodeOptions
    warnings.simplefilter("ignore")
    options = NodeOptions(directory=sys.argv[1])
    def make():
        node = api.Node("program", bus="test", options=options)
        node.publish("program.a", "last")
        return node
"""


def run(kind, directory, body):
    module = {"sync": "oz.node.sync", "asyncio": "oz.node.aio"}[kind]
    code = textwrap.dedent(PROGRAM.format(module=module)) + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-P", "-c", code, directory], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_program_may_end_without_close(make, directory):
    """The end of the program says BYE and removes the socket: the peer has left and is not lost."""
    events = []
    make("observer", on_event=events.append)
    body = """
        async def main():
            node = make()
            if asyncio.iscoroutinefunction(node.wait_ready):
                await node.wait_ready("observer")
            else:
                node.wait_ready("observer")
            return node
        kept = asyncio.run(main())
    """
    ran = run(make.kind, directory, body)
    assert (ran.returncode, ran.stderr) == (0, "")
    until(lambda: kinds(events) == ["peer_up", "peer_left"])
    assert len(os.listdir(directory)) == 1


def test_a_forgotten_node_closes(make, directory):
    if make.kind == "asyncio":
        pytest.skip("the loop of a test keeps no garbage")
    events = []
    observer = make("observer", on_event=events.append)
    forgotten = Node("forgotten", bus="test", options=NodeOptions(directory=directory))
    forgotten.subscribe("a")
    observer.wait_ready("forgotten", timeout=DEADLINE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del forgotten
        gc.collect()
    until(lambda: kinds(events) == ["peer_up", "peer_left"])


def test_a_forgotten_node_of_a_loop_closes(directory):
    from oz.node.aio import Node

    async def main():
        options = NodeOptions(directory=directory)
        async with Node("observer", bus="test", options=options) as observer:
            forgotten = Node("forgotten", bus="test", options=options)
            forgotten.subscribe("a")
            await observer.wait_ready("forgotten", timeout=DEADLINE)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                del forgotten
                gc.collect()
            while observer.peers:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(main(), 40))


def test_an_inline_handler_cannot_wait_for_its_own_thread(make):
    if make.kind == "asyncio":
        pytest.skip("a loop suspends the caller")
    from oz.errors import OwnershipError
    from oz.options import Delivery

    node = make("alone")
    other = node.subscribe("other")
    refused, done = [], threading.Event()

    def handle(message):
        for call in (
            lambda: other.receive(timeout=DEADLINE),
            lambda: node.wait_ready(timeout=DEADLINE),
            lambda: node.wait_for_subscribers("other", timeout=DEADLINE),
            lambda: other.drain(timeout=DEADLINE),
            lambda: node.request("x"),
            lambda: list(node.request_many("x")),
        ):
            try:
                call()
            except OwnershipError:
                refused.append(call)
        # Calls that do not wait are allowed.
        node.subscribe("late", lambda late: done.set())
        node.publish("late", 1)

    node.subscribe("a", handle, delivery=Delivery(inline=True))
    node.publish("a", 1)
    assert done.wait(20)
    assert len(refused) == 6


def test_an_inline_handler_may_close_the_node(make):
    if make.kind == "asyncio":
        pytest.skip("a loop suspends the caller")
    from oz.options import Delivery

    node = make("alone")
    node.subscribe("a", lambda message: node.close(), delivery=Delivery(inline=True))
    got = node.subscribe("b")
    node.publish("a", 1)
    with pytest.raises(ClosedError):
        got.receive(timeout=20)
    until(lambda: node.closed)


@pytest.mark.parametrize("group", [None, "workers"])
def test_messages_during_a_join_have_no_hole(make, group):
    """A peer with two endpoints is dialled at both; a group must not pick the link that ends."""
    first = make("first", bind="tcp://127.0.0.1:*")
    for number in range(2):
        second = make(f"second {number}", connect=first.endpoint)
        got = second.subscribe("count", group=group)
        until(lambda: first.has_subscribers("count"))
        payloads, sent = [], 0
        while len(payloads) < 200:
            first.publish("count", sent)
            sent += 1
            with suppress(Timeout):
                payloads.append(got.receive(timeout=0.001).payload)
        begin = payloads[0]
        assert payloads == list(range(begin, begin + 200))
        second.close()
        until(lambda: not first.has_subscribers("count"))


def test_last_values_reach_a_new_subscription(make):
    first, second = make("first", last_value=True), make("second")
    second.wait_ready("first", timeout=DEADLINE)
    for number in range(3):
        first.publish("price.a", number)
    first.publish("_private.a", 1)
    got = second.subscribe(["price.*", "_private.*"], last_value=True)
    second.wait_ready(timeout=DEADLINE)
    first.publish("price.b", "end")
    assert [got.receive(timeout=DEADLINE).payload for _ in range(2)] == [2, "end"]


def test_events_come_one_after_the_other_and_may_raise(make):
    seen, running = [], []

    def on_event(event):
        assert not running
        running.append(event)
        seen.append(event.kind)
        running.clear()
        raise ValueError("on purpose")

    node = make("observer", on_event=on_event)
    for number in range(3):
        peer = make(f"peer {number}")
        node.wait_ready(f"peer {number}", timeout=DEADLINE)
        peer.close()
    until(lambda: seen == ["peer_up", "peer_left"] * 3)


def test_stats_count_only_messages_of_programs(make):
    first, second = make("first"), make("second")
    got = second.subscribe("a")
    for item in (first, second):
        item.wait_ready(count=1, timeout=DEADLINE)
    first.publish("a", 1)
    first.publish("b", 1)
    got.receive(timeout=DEADLINE)
    assert (first.stats.published, first.stats.unmatched) == (2, 1)
    assert (first.stats.received, second.stats.received) == (0, 1)
    assert second.stats.delivered == second.stats.peers == 1


def test_a_hostile_introduction_is_ignored(make):
    """Garbage, wrong types and a large introduction add no peer and end nothing."""
    first, second = make("first"), make("second")
    first.wait_ready("second", timeout=DEADLINE)
    second.wait_ready("first", timeout=DEADLINE)
    node = bytes.fromhex(first.peers[0].id)
    stranger = [bytes(16), ["tcp://127.0.0.1:1"]]
    hostile = [
        b"",
        b"\xc1",
        b"\x91" * 2_000,
        msgpack.packb({"a": 1}),
        msgpack.packb([1, [b"short", ["tcp://127.0.0.1:1"]], [bytes(16), 5], [bytes(16), [5]], stranger[:1]]),
        msgpack.packb([stranger] * 40_000),
    ]
    for payload in hostile:
        assert first._node.publisher.direct(node, INTRODUCTION, payload)
    exchange(first, second)
    assert names(second) == ["first"]
    assert len(second._node.roster.by_id) == 1


def test_forwarder_that_closes_before_its_hello_is_an_unknown_loss(make):
    node = make("alone")
    node.subscribe("x")
    engine = getattr(node, "wrapped", node)._node
    card = engine.card._replace(node=bytes(16), kind=links.FORWARDER)
    engine._events.append(lambda now: [ForwarderGone(card)])
    until(lambda: engine.subscriber.dispatcher.unknown_losses == {"lost": 1})
