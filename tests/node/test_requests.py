"""One asks, others answer."""

import asyncio
import threading
import time

import pytest

import oz
import oz.asyncio
from oz.sync.publisher_engine import ThreadedPublisher
from oz.transport.publisher import accumulator
from support.inside import engine_of
from support.waiting import DEADLINE, Thread, until

LONG_ENOUGH = 5.0
"""Seconds in which answers come, also on a machine that has others to serve."""


@pytest.fixture
def pair(make, met):
    asks, answers = make("asks"), make("answers")
    met(asks, answers)
    return asks, answers


def echo(message):
    message.reply(message.payload)


def serve(node, pattern, handler, *others, **options):
    subscription = node.subscribe(pattern, handler=handler, **options)
    for one in (node, *others):
        one.wait_ready(DEADLINE)
    return subscription


def test_a_request_is_answered_with_payload_and_headers(pair):
    asks, answers = pair

    def answer(message):
        assert message.headers == {"lang": "en"}
        message.reply({"got": message.payload}, headers={"by": "answers"})

    serve(answers, "svc.*", answer)
    reply = asks.request("svc.a", {"n": 1}, headers={"lang": "en"}, timeout=DEADLINE)
    assert reply.payload == {"got": {"n": 1}}
    assert reply.headers == {"by": "answers"}
    assert reply.subject.startswith("_INBOX.")
    assert asks.stats.requests == 1
    until(lambda: answers.stats.replies == 1)


def test_a_node_may_ask_itself(make):
    node = make("node")
    node.subscribe("svc", handler=echo)
    assert node.request("svc", 1, timeout=DEADLINE).payload == 1


def test_no_responders_is_known_at_once(pair):
    asks, _ = pair
    took = []
    for _ in range(5):
        began = time.monotonic()
        with pytest.raises(oz.NoResponders, match=r"nobody .* 'no.body'; peers that are up: 1"):
            asks.request("no.body", timeout=DEADLINE)
        took.append(time.monotonic() - began)
    assert min(took) < DEADLINE / 10
    assert asks.stats.no_responders == 5


def test_no_responders_once_the_last_of_a_group_has_died(make, spawn):
    asks = make("asks")
    answers = spawn("answers", "serve svc workers")
    asks.wait_for_peers("answers", timeout=DEADLINE)
    assert asks.request("svc", 1, timeout=DEADLINE).payload == ["answers", 1]
    answers.kill()
    until(lambda: not asks.peers)
    with pytest.raises(oz.NoResponders):
        asks.request("svc", timeout=DEADLINE)


def test_a_request_that_nobody_answers_times_out_and_a_late_reply_is_counted(pair):
    asks, answers = pair
    go = threading.Event()

    def late(message):
        go.wait(DEADLINE)
        message.reply("late")

    serve(answers, "svc", late)
    with pytest.raises(oz.Timeout, match="no answer to 'svc' in"):
        asks.request("svc", timeout=0.1)
    go.set()
    until(lambda: asks.stats.late_replies == 1)


def test_a_request_without_a_timeout_ends_when_its_node_closes(pair):
    asks, answers = pair
    serve(answers, "svc", lambda message: None)
    asking = Thread(lambda: asks.request("svc", timeout=None))
    until(lambda: len(engine_of(asks).requests) == 1)
    asks.close(drain=False)
    with pytest.raises(oz.ClosedError):
        asking.outcome()
    assert not len(engine_of(asks).requests)


def test_request_many_ends_with_the_count(make, met):
    nodes = [make(f"n{number}") for number in range(4)]
    asks, *others = nodes
    for node in others:
        node.subscribe("who", handler=lambda message, name=node.name: message.reply(name))
    met(*nodes)
    replies = asks.request_many("who", timeout=DEADLINE, limit=3)
    assert sorted(reply.payload for reply in replies) == ["n1", "n2", "n3"]
    assert [len(list(asks.request_many("who", timeout=DEADLINE, limit=2)))] == [2]


def test_request_many_ends_with_the_time(pair):
    asks, answers = pair
    serve(answers, "svc", lambda message: (message.reply(1), message.reply(2)))
    began = time.monotonic()
    assert [reply.payload for reply in asks.request_many("svc", timeout=LONG_ENOUGH)] == [1, 2]
    assert time.monotonic() - began >= LONG_ENOUGH - 0.1


def test_a_second_reply_to_a_plain_request_is_late(pair):
    asks, answers = pair
    serve(answers, "svc", lambda message: (message.reply(1), message.reply(2)))
    assert asks.request("svc", timeout=DEADLINE).payload == 1
    until(lambda: asks.stats.late_replies == 1)


def test_replies_of_iteration_that_was_left_are_late(pair):
    asks, answers = pair
    serve(answers, "svc", lambda message: [message.reply(number) for number in range(5)])
    for reply in asks.request_many("svc", timeout=DEADLINE):
        assert reply.payload == 0
        break
    until(lambda: asks.stats.late_replies == 4)
    assert not len(engine_of(asks).requests)


def test_one_of_a_group_answers(make, met):
    nodes = [make(f"n{number}") for number in range(4)]
    asks, *others = nodes
    for node in others:
        node.subscribe("svc", handler=lambda m, name=node.name: m.reply(name), group="workers")
    met(*nodes)
    names = [asks.request("svc", timeout=DEADLINE).payload for _ in range(30)]
    assert set(names) == {"n1", "n2", "n3"}
    assert len(list(asks.request_many("svc", timeout=LONG_ENOUGH))) == 1


def test_what_is_no_request_cannot_be_answered(pair):
    asks, answers = pair
    errors = []

    def answer(message):
        with pytest.raises(oz.ReplyError, match="'svc' is no request") as caught:
            message.reply(1)
        errors.append(caught.value)

    serve(answers, "svc", answer)
    asks.publish("svc", 1)
    until(lambda: errors)


def refuse(message):
    raise ValueError(f"bad size: {message.payload}")


def answer_and_raise(message):
    message.reply(message.payload)
    raise ValueError("too late")


def answer_what_cannot_be_encoded(message):
    message.reply(object())


def test_a_handler_that_raises_answers_with_its_error_at_once(pair):
    asks, answers = pair
    serve(answers, "bad", refuse, group="workers")
    with pytest.raises(
        oz.ReplyError, match="the handler of answers raised ValueError at 'bad': bad size: 7"
    ) as told:
        asks.request("bad", 7, timeout=None)
    error = told.value
    assert (error.subject, error.kind, error.text, error.node) == (
        "bad",
        "ValueError",
        "bad size: 7",
        "answers",
    )
    serve(answers, "odd", answer_what_cannot_be_encoded)
    with pytest.raises(oz.ReplyError, match="TypeError"):
        asks.request("odd", timeout=None)
    assert (answers.stats.failed, asks.stats.late_replies, len(engine_of(asks).requests)) == (2, 0, 0)


def test_a_handler_that_had_answered_or_was_not_asked_tells_nobody_that_it_raised(pair):
    asks, answers = pair
    handled = serve(answers, "svc", answer_and_raise)
    asks.publish("svc", 0)
    assert [one.payload for one in asks.request_many("svc", 1, timeout=LONG_ENOUGH)] == [1]
    until(lambda: answers.stats.failed == 2)
    assert (handled.active, asks.stats.late_replies, answers.stats.replies_dropped) == (True, 0, 0)


def test_request_many_gives_all_answers_before_it_tells_who_raised(make, met):
    nodes = [make(f"n{number}") for number in range(4)]
    asks, *others = nodes
    for node, handler in zip(others, (refuse, echo, refuse), strict=True):
        node.subscribe("who", handler=handler)
    met(*nodes)
    got = []
    with pytest.raises(oz.ReplyError, match="ValueError at 'who': bad size: 5") as told:
        got.extend(one.payload for one in asks.request_many("who", 5, timeout=None, limit=3))
    assert {told.value.node, *(note.split()[3] for note in told.value.__notes__)} == {"n1", "n3"}
    answers = asks.request_many("who", 5, timeout=None, limit=3)
    assert next(answers).payload == 5
    with pytest.raises(oz.ReplyError):
        next(answers)


def test_of_several_subscriptions_each_handler_answers_for_itself(pair):
    asks, answers = pair
    answers.subscribe("svc.*", handler=echo)
    serve(answers, "svc.>", refuse)
    replies = asks.request_many("svc.a", 1, timeout=None, limit=2)
    assert next(replies).payload == 1
    with pytest.raises(oz.ReplyError):
        next(replies)


def test_a_node_that_tells_no_errors_leaves_whoever_asks_waiting(make, met):
    asks, answers = make("asks"), make("answers", error_replies=False)
    met(asks, answers)
    serve(answers, "bad", refuse)
    with pytest.raises(oz.Timeout):
        asks.request("bad", timeout=0.3)
    until(lambda: answers.stats.failed == 1)
    assert (answers.stats.replies, answers.stats.replies_dropped) == (0, 0)


def test_a_value_that_is_returned_is_warned_of_once_for_each_subscription(pair, caplog):
    asks, answers = pair
    serve(answers, "returns", lambda message: message.payload)
    serve(answers, "replies", lambda message: [message.reply(1)])
    asks.publish("returns", 0)
    for _ in range(2):
        with pytest.raises(oz.Timeout):
            asks.request("returns", timeout=0.1)
        assert asks.request("replies", timeout=DEADLINE).payload == 1
    until(lambda: answers.stats.handled == 5)
    warned = [one.getMessage() for one in caplog.records if "returned a value" in one.message]
    assert len(warned) == 1
    assert "'returns'" in warned[0]
    assert "message.reply(value)" in warned[0]


def test_a_thousand_requests_of_many_threads_each_get_their_own_answer(pair):
    asks, answers = pair
    serve(answers, "svc.*", echo, asks, concurrency=4)

    def ask(thread):
        numbers = range(thread * 1000, thread * 1000 + 100)
        return [asks.request("svc.a", number, timeout=DEADLINE * 2).payload == number for number in numbers]

    threads = [Thread(lambda number=number: ask(number)) for number in range(10)]
    assert all(all(thread.outcome(DEADLINE * 2)) for thread in threads)
    assert asks.stats.requests == 1000
    assert asks.stats.late_replies == 0
    assert len(engine_of(asks).requests) == 0


def test_two_thousand_requests_in_one_turn_of_a_loop_each_get_their_own_answer(place):
    async def main():
        async with (
            oz.asyncio.Node("asks", directory=place) as asks,
            oz.asyncio.Node("answers", directory=place) as answers,
        ):
            order = []

            async def answer(message):
                order.append(message.payload)
                await message.reply(message.payload)

            answers.subscribe("svc.*", handler=answer)
            await asks.wait_for_peers("answers", timeout=DEADLINE)
            await answers.wait_ready(DEADLINE)
            await asks.wait_ready(DEADLINE)
            asking = [asks.request("svc.a", number, timeout=DEADLINE * 2) for number in range(2000)]
            replies = await asyncio.gather(*asking)
            assert [reply.payload for reply in replies] == order == list(range(2000))
            assert asks.stats.late_replies == answers.stats.replies_dropped == answers.stats.dropped == 0
            assert len(engine_of(asks).requests) == 0

    asyncio.run(main())


@pytest.mark.parametrize("inline", [False, True])
def test_a_lone_request_and_its_reply_wait_for_no_others(make, met, monkeypatch, inline):
    waited = []
    monkeypatch.setattr(ThreadedPublisher, "_expect_more", waited.append)
    # A send that was held up by others makes the next message wait, and this machine may hold up any.
    monkeypatch.setattr(accumulator, "QUIET", 0.0)
    monkeypatch.setattr(accumulator, "SHARE", 0.0)
    asks, answers = make("asks"), make("answers")
    met(asks, answers)
    serve(answers, "svc", echo, asks, inline=inline)
    for number in range(3):
        assert asks.request("svc", number, timeout=DEADLINE).payload == number
    assert not waited


def test_a_requester_that_has_only_just_joined_gets_its_answer(make, spawn):
    """Its peers may hear of its request before they are connected to it."""
    spawn("answers", "serve svc")
    for number in range(5):
        node = make(f"asks {number}")
        assert node.request("svc", number, timeout=DEADLINE).payload == ["answers", number]
        node.close()


def test_a_requester_that_leaves_meanwhile_harms_nobody(make, met):
    asks, answers, other = make("asks"), make("answers"), make("other")
    go, begun = threading.Event(), threading.Event()

    def answer(message):
        if message.payload == "slow":
            begun.set()
            go.wait(DEADLINE)
        message.reply(message.payload)

    answers.subscribe("svc", handler=answer)
    met(asks, answers, other)
    asking = Thread(lambda: asks.request("svc", "slow", timeout=DEADLINE))
    assert begun.wait(DEADLINE)
    asks.close(timeout=1.0)
    with pytest.raises(oz.ClosedError):
        asking.outcome()
    until(lambda: [peer.name for peer in answers.peers] == ["other"])
    go.set()
    assert other.request("svc", 1, timeout=DEADLINE).payload == 1
    until(lambda: answers.stats.replies_dropped == 1)


def test_a_handler_may_ask_on(make, met):
    nodes = [make(name, threads=1) for name in ("asks", "middle", "last")]
    asks, middle, last = nodes
    middle.subscribe("a", handler=lambda m: m.reply(middle.request("b", m.payload, timeout=DEADLINE).payload))
    last.subscribe("b", handler=lambda m: m.reply(m.payload + 1))
    met(*nodes)
    assert [asks.request("a", number, timeout=DEADLINE).payload for number in range(5)] == [1, 2, 3, 4, 5]


def test_a_handler_may_ask_its_own_node(make):
    """With a pool of one thread: the handler that waits lends it to the one that answers."""
    node = make("node", threads=1)
    node.subscribe("a", handler=lambda m: m.reply(node.request("b", m.payload, timeout=DEADLINE).payload))
    node.subscribe("b", handler=echo)
    assert node.request("a", 7, timeout=DEADLINE).payload == 7


def test_a_request_may_wait_for_ever_and_closing_ends_it(pair):
    asks, answers = pair
    serve(answers, "svc", lambda message: None)
    asking = Thread(lambda: asks.request("svc", timeout=None))
    until(lambda: answers.stats.handled == 1)
    asks.close(timeout=1.0)
    with pytest.raises(oz.ClosedError):
        asking.outcome()
