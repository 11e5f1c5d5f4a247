"""Inline handlers: called where the message arrives, and what they may not do there."""

import asyncio
import threading
from functools import partial

import pytest

import oz
import oz.asyncio
from oz.protocol.node.handler_queue import Workers
from oz.sync.waiting import ThreadNews
from oz.transport.node.mailbox import InlineRunner
from oz.transport.node.publisher import NodePublisher
from support.waiting import DEADLINE, until


@pytest.fixture
def pair(make, met):
    asks, answers = make("asks"), make("answers", threads=1)
    met(asks, answers)
    return asks, answers


def serve(asks, answers, subject, handler, **options):
    subscription = answers.subscribe(subject, handler=handler, **options)
    for one in (answers, asks):
        one.wait_ready(DEADLINE)
    return subscription


def echo(message):
    message.reply(message.payload)


def test_it_is_called_on_the_nodes_own_thread_and_answers(pair):
    asks, answers = pair
    threads = set()

    def answer(message):
        threads.add(threading.current_thread().name)
        echo(message)

    subscription = serve(asks, answers, "svc", answer, inline=True)
    assert [asks.request("svc", number, timeout=DEADLINE).payload for number in range(3)] == [0, 1, 2]
    assert threads == {"oz-node-answers"}
    assert answers.stats.handled == 3
    assert subscription.waiting == subscription.dropped == 0


def test_it_is_called_while_every_thread_of_the_pool_is_busy(pair):
    asks, answers = pair
    begun, go = threading.Event(), threading.Event()

    def wait(message):
        begun.set()
        go.wait(DEADLINE)

    serve(asks, answers, "slow", wait)
    serve(asks, answers, "svc", echo, inline=True)
    asks.publish("slow")
    assert begun.wait(DEADLINE)
    assert asks.request("svc", 1, timeout=DEADLINE).payload == 1
    go.set()


def test_one_that_raises_tells_whoever_asked_and_the_next_message_is_handled(pair):
    asks, answers = pair

    def answer(message):
        if message.payload == "late":
            echo(message)
        if message.payload != "good":
            raise SystemExit("bad size")
        echo(message)

    serve(asks, answers, "svc", answer, inline=True)
    with pytest.raises(oz.ReplyError, match="answers raised SystemExit at 'svc': bad size"):
        asks.request("svc", "bad", timeout=DEADLINE)
    assert asks.request("svc", "late", timeout=DEADLINE).payload == "late"
    assert asks.request("svc", "good", timeout=DEADLINE).payload == "good"
    assert answers.stats.failed == 2
    assert asks.stats.late_replies == 0


WAITS = {
    "request": lambda node, _: node.request("other", timeout=None),
    "request_many": lambda node, _: node.request_many("other", timeout=None),
    "wait_for_peers": lambda node, _: node.wait_for_peers(9),
    "wait_ready": lambda node, _: node.wait_ready(),
    "wait_for_subscribers": lambda node, _: node.wait_for_subscribers(9, "svc"),
    "receive": lambda _, other: other.receive(),
    "drain": lambda _, other: other.drain(DEADLINE),
}


@pytest.mark.parametrize("call", WAITS)
def test_what_would_wait_for_what_its_thread_reads_is_refused(pair, call):
    asks, answers = pair
    other = answers.subscribe("other")
    serve(asks, answers, "svc", lambda message: WAITS[call](answers, other), inline=True)
    with pytest.raises(oz.ReplyError, match="OwnershipError at 'svc': an inline handler of node answers"):
        asks.request("svc", timeout=DEADLINE)
    assert other.active
    answers.publish("other", 1)
    assert other.receive(DEADLINE).payload == 1


def test_it_may_publish_subscribe_and_unsubscribe(pair):
    asks, answers = pair
    got, begun = asks.subscribe("heard"), []

    def answer(message):
        begun.append(answers.subscribe("more", handler=begun.append, inline=True))
        answers.publish("heard", message.payload)
        subscription.unsubscribe()
        echo(message)

    subscription = serve(asks, answers, "svc", answer, inline=True)
    assert asks.request("svc", 1, timeout=DEADLINE).payload == 1
    assert got.receive(DEADLINE).payload == 1
    asks.wait_for_subscribers(1, "more", DEADLINE)
    asks.publish("more", 2)
    until(lambda: len(begun) == 2)
    assert begun[1].payload == 2
    with pytest.raises(oz.NoResponders):
        asks.request("svc", timeout=DEADLINE)


def test_it_may_take_what_is_there_already(pair):
    asks, answers = pair
    other = answers.subscribe("other")
    serve(asks, answers, "svc", lambda message: message.reply(other.receive(0).payload), inline=True)
    asks.publish("other", 1)
    until(lambda: other.waiting == 1)
    assert asks.request("svc", timeout=DEADLINE).payload == 1


@pytest.mark.parametrize("drain", [True, False])
def test_it_may_close_its_node(pair, drain):
    asks, answers = pair

    def answer(message):
        echo(message)
        answers.close(drain=drain)

    serve(asks, answers, "svc", answer, inline=True)
    assert asks.request("svc", 1, timeout=DEADLINE).payload == 1
    until(lambda: not asks.peers)
    until(lambda: "closed" in repr(answers))


def test_draining_it_from_elsewhere_handles_what_was_on_its_way(pair):
    asks, answers = pair
    got = []
    subscription = serve(asks, answers, "svc", got.append, inline=True)
    for number in range(100):
        asks.publish("svc", number)
    assert subscription.drain(DEADLINE)
    assert [message.payload for message in got] == list(range(100))


def test_it_ends_after_so_many_messages(pair):
    asks, answers = pair
    got = []
    serve(asks, answers, "svc", got.append, inline=True, max_messages=2)
    for number in range(4):
        asks.publish("svc", number)
    asks.flush()
    until(lambda: answers.stats.handled == 2)
    assert [message.payload for message in got] == [0, 1]


@pytest.mark.parametrize("options", [{}, {"handler": echo, "concurrency": 2}])
def test_it_is_a_handler_and_called_with_one_message_at_a_time(make, options):
    with pytest.raises(ValueError, match="inline=True"):
        make().subscribe("svc", inline=True, **options)


# asyncio -------------------------------------------------------------------------------------------------


def run(place, main):
    async def joined():
        async with (
            oz.asyncio.Node("asks", directory=place) as asks,
            oz.asyncio.Node("answers", directory=place) as answers,
        ):
            await asks.wait_for_peers("answers", timeout=DEADLINE)
            await answers.wait_for_peers("asks", timeout=DEADLINE)
            await main(asks, answers)

    asyncio.run(asyncio.wait_for(joined(), 2 * DEADLINE))


async def serve_in_loop(asks, answers, subject, handler):
    answers.subscribe(subject, handler=handler, inline=True)
    for one in (answers, asks):
        await one.wait_ready(DEADLINE)


async def echo_async(message):
    await message.reply(message.payload)


@pytest.mark.parametrize("handler", [echo, echo_async])
def test_in_a_loop_it_is_called_in_no_task_of_the_pool(place, handler):
    async def main(asks, answers):
        tasks = set()

        def answer(message):
            tasks.add(asyncio.current_task())
            return handler(message)

        await serve_in_loop(asks, answers, "svc", answer)
        asking = [asks.request("svc", number, timeout=DEADLINE) for number in range(3)]
        assert [one.payload for one in await asyncio.gather(*asking)] == [0, 1, 2]
        # The node's own takes in what has come when it was woken for something else.
        assert {"" if one is None else one.get_name() for one in tasks} <= {"", "oz-node-answers"}

    run(place, main)


def test_in_a_loop_one_that_waits_is_told_so_where_it_does(place):
    async def main(asks, answers):
        told = []

        async def answer(message):
            try:
                await answers.request("other", timeout=None)
            except oz.OwnershipError as error:
                told.append(str(error))
                raise

        answers.subscribe("other", handler=echo)
        await serve_in_loop(asks, answers, "svc", answer)
        with pytest.raises(
            oz.ReplyError, match="OwnershipError at 'svc': an inline handler has no task of its own"
        ):
            await asks.request("svc", timeout=DEADLINE)
        assert len(told) == 1
        assert answers.stats.failed == 1

    run(place, main)


def test_in_a_loop_one_that_exits_ends_the_loop(place):
    async def main(asks, answers):
        def answer(message):
            raise SystemExit(3)

        await serve_in_loop(asks, answers, "svc", answer)
        await asks.publish("svc")
        await asyncio.sleep(DEADLINE)

    with pytest.raises(SystemExit):
        run(place, main)


# three deep ----------------------------------------------------------------------------------------------


def ask_on(node, subject, message):
    message.reply(node.request(subject, message.payload, timeout=DEADLINE).payload + 1)


@pytest.mark.parametrize("last", [False, True], ids=["pool", "inline at the end"])
def test_handlers_that_ask_in_turn_three_deep_do_not_wait_for_each_other(make, met, last):
    """In a circle, with one thread in each pool, and several at once."""
    nodes = [make(f"n{number}", threads=1) for number in range(3)]
    for number, node in enumerate(nodes):
        node.subscribe(f"a{number}", handler=partial(ask_on, nodes[number], f"b{(number + 1) % 3}"))
        node.subscribe(f"b{number}", handler=partial(ask_on, nodes[number], f"c{(number + 1) % 3}"))
        node.subscribe(f"c{number}", handler=echo, inline=last)
    met(*nodes)
    got = []

    def ask(number):
        for _ in range(5):
            got.append(nodes[number].request(f"a{(number + 1) % 3}", 0, timeout=DEADLINE).payload)

    threads = [threading.Thread(target=ask, args=(number % 3,)) for number in range(9)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(DEADLINE)
    assert got == [2] * 45


def test_in_a_loop_handlers_that_ask_in_turn_three_deep_do_not_wait_for_each_other(place):
    async def main(asks, answers):
        async def ask_on(subject, message):
            reply = await answers.request(subject, message.payload, timeout=DEADLINE)
            await message.reply(reply.payload + 1)

        for subject, following in (("a", "b"), ("b", "c")):
            answers.subscribe(subject, handler=partial(ask_on, following), concurrency=1)
        await serve_in_loop(asks, answers, "c", echo_async)
        asking = [asks.request("a", 0, timeout=DEADLINE) for _ in range(20)]
        assert [one.payload for one in await asyncio.gather(*asking)] == [2] * 20

    run(place, main)


class Told:
    """What an inline runner is given of a pool, and of the messages beside one; says what it was told."""

    interrupts = ()
    is_handled = False

    def __init__(self):
        self.said = []
        self.workers = Workers(1, 1)

    def before_inline(self):
        self.said.append("before")

    def make_news(self, guard):
        return ThreadNews(guard)

    def finish(self, result):
        return result


def test_who_calls_it_is_told_before_each_as_it_may_take_long():
    told = Told()
    runner = InlineRunner(told, lambda message: told.said.append(message), None, told)
    assert not told.is_handled
    runner.put(1)
    runner.put(2)
    assert told.is_handled
    assert told.said == ["before", 1, "before", 2]


def test_a_node_without_inline_handlers_leaves_to_those_who_ask_when_their_requests_go(pair, monkeypatch):
    asks, answers = pair
    went = []
    go = NodePublisher.go

    def note(publisher):
        went.append(threading.current_thread().name)
        go(publisher)

    monkeypatch.setattr(NodePublisher, "go", note)
    serve(asks, answers, "svc", echo)
    assert [asks.request("svc", one, timeout=DEADLINE).payload for one in range(3)] == [0, 1, 2]
    assert went
    assert not [one for one in went if one.startswith("oz-node")]
    serve(asks, answers, "at.once", echo, inline=True)
    assert asks.request("at.once", 1, timeout=DEADLINE).payload == 1
    # The answer has come before the turn of the thread that sent it is over.
    until(lambda: "oz-node-answers" in went)
