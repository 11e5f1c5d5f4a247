"""Nodes that many threads use, and their handlers."""

import threading
import time
from contextlib import suppress

import pytest

import oz
from support.inside import engine_of, shell_of
from support.sizes import size
from support.waiting import DEADLINE, Thread, until


@pytest.fixture
def pair(make, met):
    one, two = make("one"), make("two")
    met(one, two)
    return one, two


@pytest.mark.sized
def test_every_public_method_is_safe_from_eight_threads(pair):
    one, two = pair
    two.subscribe("svc.*", handler=lambda message: message.reply(message.payload), concurrency=2)
    two.wait_ready(DEADLINE)
    one.wait_ready(DEADLINE)
    counts = [0] * 8

    def work(number):
        own = f"own.{number}"
        for turn in range(size(8, 25)):
            got = one.subscribe(own, handler=lambda message: counts.__setitem__(number, counts[number] + 1))
            mailbox = one.subscribe([f"{own}.x", "all"], group=f"g{number}" if turn % 2 else None)
            one.wait_ready(DEADLINE)
            one.publish(own, turn)
            one.publish(f"{own}.x", turn)
            one.flush()
            while mailbox.receive(DEADLINE).subject != f"{own}.x":
                pass
            one.publish("all", number)
            assert one.request("svc.a", (number, turn), timeout=DEADLINE).payload == [number, turn]
            with pytest.raises(oz.NoResponders):
                one.request("nobody", timeout=DEADLINE)
            assert len(one.peers) == 1
            one.wait_for_peers("two", timeout=DEADLINE)
            assert one.stats.requests
            repr(one)
            until(lambda turn=turn: counts[number] == turn + 1)
            got.unsubscribe()
            mailbox.unsubscribe()

    threads = [Thread(lambda number=number: work(number)) for number in range(8)]
    for thread in threads:
        thread.outcome(DEADLINE * 2)
    assert counts == [size(8, 25)] * 8
    assert one.stats.lost == two.stats.lost == 0
    assert not engine_of(one).subscriptions.standing


def test_nobody_sleeps_on_what_came_while_something_else_took_the_sign_of_it(pair, monkeypatch):
    """libzmq signs a descriptor once for all that comes until it is asked; whoever sets an option asks it."""
    sends, gets = pair
    heard, looks, engine = [], [], engine_of(gets)
    sub, seconds_left = engine.sockets.sub, engine.seconds_left
    gets.subscribe("a", handler=heard.append, inline=True)
    gets.wait_ready(DEADLINE)
    sends.wait_ready(DEADLINE)

    def look():
        looks.append(len(heard))
        return seconds_left()

    def take_sign():
        sends.publish("a", 1)
        until(lambda: sub.has_come)
        # The thread asks how long it may sleep.
        monkeypatch.setattr(engine, "seconds_left", look)

    shell_of(gets).call(take_sign)
    until(lambda: looks)
    assert looks[0] == 1


def test_a_handler_that_takes_the_sign_of_the_next_message_has_it_read_in_the_same_turn(pair):
    sends, gets = pair
    heard, sub = [], engine_of(gets).sockets.sub

    def handle(message):
        if message.payload == 1:
            sends.publish("a", 2)
            until(lambda: sub.has_come)
        heard.append(message.payload)

    gets.subscribe("a", handler=handle, inline=True)
    gets.wait_ready(DEADLINE)
    sends.wait_ready(DEADLINE)
    sends.publish("a", 1)
    until(lambda: heard)
    assert shell_of(gets).call(heard.copy) == [1, 2]


def test_messages_of_many_threads_all_arrive_each_threads_in_order(pair, collected):
    one, two = pair
    got = collected()
    two.subscribe("a", handler=got)
    two.wait_ready(DEADLINE)

    def publish(thread):
        for number in range(500):
            one.publish("a", (thread, number))

    for thread in [Thread(lambda number=number: publish(number)) for number in range(8)]:
        thread.outcome()
    one.flush()
    got.wait(4000)
    for thread in range(8):
        assert [number for whose, number in got if whose == thread] == list(range(500))


def test_a_handler_that_raises_harms_no_one(pair, collected, caplog):
    one, two = pair
    got = collected()

    def fail(message):
        got.append(message.payload)
        raise ValueError("on purpose")

    others = collected()
    two.subscribe("a", handler=fail)
    two.subscribe("a", handler=others)
    two.wait_ready(DEADLINE)
    for number in range(10):
        one.publish("a", number)
    assert got.wait(10) == others.wait(10) == list(range(10))
    until(lambda: two.stats.failed == 10)
    assert "a handler raised at 'a'" in caplog.text


def test_a_slow_handler_fills_its_own_queue_only(make, met, collected):
    one, two = make("one"), make("two", threads=2)
    go, begun = threading.Event(), threading.Event()
    slow = two.subscribe("a", handler=lambda _: (begun.set(), go.wait(DEADLINE)), max_pending=100)
    got = collected()
    two.subscribe("a", handler=got)
    met(one, two)
    one.publish("a", 0)
    assert begun.wait(DEADLINE)
    for number in range(1, 1000):
        one.publish("a", number)
    one.flush()
    assert got.wait(1000) == list(range(1000))
    until(lambda: slow.dropped == 899)
    assert slow.waiting == 100
    assert two.stats.dropped == slow.dropped
    go.set()
    until(lambda: slow.waiting == 0)


def test_handlers_keep_order_unless_they_are_widened(pair):
    one, two = pair
    at_once, most = [], []
    lock = threading.Lock()

    def handler(message):
        with lock:
            at_once.append(1)
            most.append(len(at_once))
        time.sleep(0.01)
        with lock:
            at_once.pop()
            done.append((message.subject, message.payload))

    done = []
    two.subscribe("a.*", handler=handler, concurrency=4, order_by="subject")
    two.wait_ready(DEADLINE)
    for number in range(100):
        one.publish(f"a.{number % 10}", number)
    one.flush()
    until(lambda: len(done) == 100)
    assert 1 < max(most) <= 4
    for subject in {subject for subject, _ in done}:
        numbers = [number for whose, number in done if whose == subject]
        assert numbers == sorted(numbers)


def test_a_handler_may_subscribe_and_unsubscribe(make, collected):
    node = make("node", threads=1)
    got = collected()

    def first(message):
        message.subscriptions[0].unsubscribe()
        node.subscribe("b", handler=got)
        node.wait_ready(DEADLINE)
        node.publish("b", message.payload)

    node.subscribe("a", handler=first)
    node.wait_ready(DEADLINE)
    node.publish("a", 1)
    assert got.wait(1) == [1]
    node.publish("a", 2)
    node.publish("b", 3)
    until(lambda: len(got) == 2)
    assert got == [1, 3]


@pytest.mark.parametrize("drain", [True, False])
def test_a_handler_may_close_its_own_node(make, drain):
    node = make("node", threads=1)
    done = threading.Event()

    def close(_):
        node.close(drain=drain, timeout=DEADLINE)
        done.set()

    node.subscribe("a", handler=close)
    node.wait_ready(DEADLINE)
    began = time.monotonic()
    node.publish("a")
    # The handler may have closed it already.
    with suppress(oz.ClosedError):
        node.flush()
    assert done.wait(DEADLINE)
    assert time.monotonic() - began < DEADLINE / 2
    with pytest.raises(oz.ClosedError):
        node.publish("a")


def test_a_subscription_ends_after_so_many_messages(make, collected):
    node = make("node")
    got, all_of_them = collected(), collected()
    node.subscribe("a", handler=got, max_messages=3)
    mailbox = node.subscribe("a", max_messages=2)
    node.subscribe("a", handler=all_of_them)
    node.wait_ready(DEADLINE)
    for number in range(10):
        node.publish("a", number)
    assert all_of_them.wait(10)
    assert got.wait(3) == [0, 1, 2]
    assert [message.payload for message in mailbox] == [0, 1]
    assert len(engine_of(node).subscriptions.standing) == 1


def test_unsubscribing_lets_what_waits_go(make, collected):
    node = make("node")
    go, begun = threading.Event(), threading.Event()
    got, quick = collected(), collected()

    def slow(message):
        got(message)
        begun.set()
        go.wait(DEADLINE)

    subscription = node.subscribe("a", handler=slow)
    node.subscribe("a", handler=quick)
    node.wait_ready(DEADLINE)
    for number in range(100):
        node.publish("a", number)
    node.flush()
    quick.wait(100)
    assert begun.wait(DEADLINE)
    until(lambda: subscription.waiting == 99)
    subscription.unsubscribe()
    subscription.unsubscribe()
    assert subscription.waiting == 0
    go.set()
    node.close()
    assert got == [0]


def test_whoever_receives_is_woken_by_the_end_of_the_subscription(make):
    node = make("node")
    first, second = node.subscribe("a"), node.subscribe("a")
    waiting = [Thread(first.receive), Thread(lambda: list(second))]
    for thread in waiting:
        thread.wait_until_stuck()
    first.unsubscribe()
    with pytest.raises(oz.ClosedError):
        waiting[0].outcome()
    node.close()
    assert waiting[1].outcome() == []


def test_what_was_received_before_the_end_is_still_had(make):
    node = make("node")
    mailbox = node.subscribe("a")
    node.wait_ready(DEADLINE)
    for number in range(3):
        node.publish("a", number)
    node.flush()
    until(lambda: mailbox.waiting == 3)
    node.close()
    assert [message.payload for message in mailbox] == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_messages": 0}, ValueError),
        ({"concurrency": 0}, ValueError),
        ({"concurrency": 2, "handler": None}, ValueError),
        ({"order_by": "size"}, ValueError),
        ({"overflow": "some"}, ValueError),
        ({"group": ""}, ValueError),
        ({"handler": 7}, TypeError),
        ({"max_pending": 0}, ValueError),
    ],
)
def test_what_makes_no_sense_is_refused(make, options, error):
    node = make("node")
    with pytest.raises(error):
        node.subscribe("a", **{"handler": print, **options})
    assert not engine_of(node).subscriptions.standing


def test_an_async_handler_is_refused(make):
    async def handler(message):
        pass

    with pytest.raises(TypeError, match=r"oz\.asyncio"):
        make("node").subscribe("a", handler=handler)
