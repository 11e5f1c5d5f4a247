"""Life of a subscriber: threads, fork, exit, interruption, cancellation, descriptors."""

import asyncio
import gc
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from contextlib import suppress

import pytest
import zmq

import oz
from oz.errors import ClosedError, OwnershipError, Timeout
from oz.options import Delivery, Options
from oz.subscriber import aio, sync
from subscriber.publishing import LinkPublisher
from support.waiting import Thread, until


@pytest.fixture
def sub(publisher):
    with sync.Subscriber(publisher.endpoint, filtering="publisher") as one:
        yield one


def ready(sub, *patterns):
    for pattern in patterns:
        sub.subscribe(pattern)
    sub.wait_ready()


# threads


@pytest.mark.parametrize("wait", ["receive", "run", "iterate", "own"])
def test_close_ends_a_wait_of_another_thread(sub, wait):
    one = sub.subscribe("a")
    sub.wait_ready()
    calls = {"receive": sub.receive, "run": sub.run, "iterate": lambda: list(sub), "own": one.receive}
    threads = [Thread(calls[wait]) for _ in range(2)]
    for thread in threads:
        thread.wait_until_stuck()
    sub.close()
    for thread in threads:
        if wait in ("receive", "own"):
            with pytest.raises(ClosedError):
                thread.outcome()
        else:
            assert thread.outcome() in (0, [])


def test_a_thread_subscribes_while_another_waits(sub, publisher):
    ready(sub, "a")
    thread = Thread(lambda: sub.receive(timeout=40))
    thread.wait_until_stuck()
    sub.subscribe("b")
    publisher.wait_for_patterns(2)
    publisher.publish("b")
    assert thread.outcome().subject == "b"


def test_threads_share_the_messages(sub, publisher):
    ready(sub, "a")
    got, lock = [], threading.Lock()

    def work():
        while True:
            try:
                message = sub.receive(timeout=40)
            except ClosedError:
                return
            with lock:
                got.append(int(message.payload))

    threads = [Thread(work) for _ in range(4)]
    for first in range(0, 5_000, 500):
        publisher.publish_numbers("a", range(first, first + 500), batch=10)
    until(lambda: len(got) >= 5_000)
    sub.close()
    for one in threads:
        one.outcome()
    assert sorted(got) == list(range(5_000))


def test_each_subscription_in_its_own_thread(sub, publisher):
    subscriptions = {name: sub.subscribe(f"{name}.*") for name in "abc"}
    sub.wait_ready()
    threads = {
        name: Thread(lambda one=one: [int(one.receive(timeout=40).payload) for _ in range(300)])
        for name, one in subscriptions.items()
    }
    for number in range(300):
        for name in subscriptions:
            publisher.publish(f"{name}.x", payload=b"%d" % number)
    for thread in threads.values():
        assert thread.outcome() == list(range(300))


def test_a_full_queue_does_not_hold_up_others_for_ever(sub, publisher):
    full = sub.subscribe("a", delivery=Delivery(max_pending=10))
    other = sub.subscribe("b")
    sub.wait_ready()
    publisher.publish("a", "b")
    assert full.receive(timeout=10).subject == "a"
    assert other.receive(timeout=10).subject == "b"
    for _ in range(200):
        publisher.publish("a")
    publisher.publish("b")
    thread = Thread(lambda: other.receive(timeout=40))
    until(lambda: full.pending >= 10)
    thread.wait_until_stuck()
    # Reading continues as the program takes messages of the full queue.
    assert [full.receive(timeout=10).subject for _ in range(200)] == ["a"] * 200
    assert thread.outcome().subject == "b"


def test_an_overflow_policy_keeps_other_subscriptions_served(sub, publisher):
    lossy = sub.subscribe("a", overflow="drop_oldest", delivery=Delivery(max_pending=10))
    other = sub.subscribe("b")
    sub.wait_ready()
    publisher.publish("a", "b")
    assert lossy.receive(timeout=10).subject == "a"
    for number in range(50):
        publisher.publish("a", payload=b"%d" % number)
        publisher.publish("b")
        assert other.receive(timeout=10).subject == "b"
    until(lambda: sub.run(timeout=0.02) is not None and lossy.dropped == 40)
    assert lossy.pending == 10
    assert int(lossy.receive(timeout=10).payload) >= 40


# handlers


def test_a_handler_may_use_the_subscriber(make, publisher):
    sub, seen = make(publisher.endpoint), []
    raw = getattr(sub, "wrapped", sub)

    def handle(message):
        seen.append(message.subject)
        if message.subject == "a.1":
            raw.subscribe("b.*", handle)
        else:
            raw.close()

    sub.subscribe("a.*", handle)
    sub.wait_ready()
    publisher.publish("a.1")
    until(lambda: sub.run(timeout=0.02) is not None and len(raw.subscriptions) == 2)
    sub.wait_ready()
    publisher.publish("b.1")
    sub.run()
    assert seen == ["a.1", "b.1"]


# processes


def test_a_forked_child_gets_ownership_errors(sub, publisher):
    one = sub.subscribe("a")
    sub.wait_ready()
    publisher.publish("a", "a")
    assert sub.receive(timeout=10).subject == "a"
    child = os.fork()
    if not child:
        code = 1
        try:
            calls = (
                sub.receive,
                sub.run,
                one.receive,
                one.unsubscribe,
                sub.fileno,
                lambda: sub.subscribe("b"),
            )
            for call in calls:
                with pytest.raises(OwnershipError):
                    call()
            sub.close()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert sub.receive(timeout=10).subject == "a"
    publisher.publish("a")
    assert sub.receive(timeout=10).subject == "a"


@pytest.mark.parametrize("kind", ["sync", "asyncio", "waiting daemon"])
def test_a_program_that_forgets_close_ends_with_its_code(publisher, kind):
    programs = {
        "sync": """
            import sys
            from oz.subscriber.sync import Subscriber
            sub = Subscriber(sys.argv[1])
            sub.subscribe("a")
            sub.wait_ready()
            sys.exit(7)
        """,
        "asyncio": """
            import asyncio, sys
            from oz.subscriber.aio import Subscriber
            kept = []
            async def main():
                sub = Subscriber(sys.argv[1])
                kept.append(sub)
                sub.subscribe("a", print)
                await sub.wait_ready()
            asyncio.run(main())
            sys.exit(7)
        """,
        "waiting daemon": """
            import sys, threading, time
            from oz.subscriber.sync import Subscriber
            sub = Subscriber(sys.argv[1])
            sub.subscribe("a")
            sub.wait_ready()
            threading.Thread(target=sub.receive, daemon=True).start()
            time.sleep(0.2)
            sys.exit(7)
        """,
    }
    program = textwrap.dedent(programs[kind])
    ended = subprocess.run(
        [sys.executable, "-c", program, publisher.endpoint], capture_output=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (7, b"")


def test_an_unclosed_subscriber_warns_and_closes(publisher):
    sub = sync.Subscriber(publisher.endpoint)
    sub.subscribe("a")
    publisher.wait_for_patterns()
    text = f"unclosed {sub!r}"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del sub
        gc.collect()
    # Objects of other tests may be collected here too.
    assert [one.category for one in caught if str(one.message) == text] == [ResourceWarning]
    publisher.wait_for(lambda sessions: not sessions.by_id)


# interruption


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("size", [1, 1_000], ids=["joined", "head and body"])
def test_an_interrupted_delivery_is_done_again(sub, publisher, monkeypatch, place, size):
    ready(sub, "a")
    dispatcher, interruptions = sub._engine.dispatcher, []
    deliver = dispatcher.deliver

    def interrupt(*arguments):
        if place == "after":
            deliver(*arguments)
        if len(interruptions) < 3:
            interruptions.append(place)
            raise KeyboardInterrupt
        if place == "before":
            deliver(*arguments)

    monkeypatch.setattr(dispatcher, "deliver", interrupt)
    payloads = [b"%d" % number * size for number in range(50)]

    def publish():
        for payload in payloads:
            publisher.sessions.publish("a", payload)
        publisher.sessions.flush()

    publisher.do(publish)
    got = []
    while len(got) < 50:
        with suppress(KeyboardInterrupt):
            got.append(sub.receive(timeout=40).payload)
    assert got == payloads
    assert len(interruptions) == 3
    with pytest.raises(Timeout):
        sub.receive(timeout=0.05)


@pytest.mark.parametrize("name", ["enter", "leave"])
def test_an_interrupted_wait_does_not_stop_the_clock_of_silence(sub, publisher, monkeypatch, name):
    ready(sub, "a")
    clock = sub._engine.listening
    with monkeypatch.context() as patched:

        def interrupt(*_):
            raise KeyboardInterrupt

        patched.setattr(type(clock), name, interrupt)
        with pytest.raises(KeyboardInterrupt):
            sub.receive(timeout=0.01)
    before = clock.time(time.monotonic())
    with pytest.raises(Timeout):
        sub.receive(timeout=0.05)
    after = clock.time(time.monotonic())
    assert after > before
    # Outside a wait the clock stands.
    assert clock.time(time.monotonic() + 10) == after


@pytest.mark.heavy
def test_interruptions_lose_at_most_the_message_in_hand(publisher):
    """Interrupt the receiving main thread again and again."""
    program = textwrap.dedent("""
        import json, os, signal, sys, threading, time
        from oz.subscriber.sync import Subscriber
        sub = Subscriber(sys.argv[1], filtering="publisher")
        sub.subscribe("a")
        sub.wait_ready()
        total = int(sys.argv[2])
        print("ready", flush=True)
        ended = threading.Event()
        interruptions = 0
        def interrupt():
            while not ended.wait(0.0037):
                os.kill(os.getpid(), signal.SIGINT)
        got = []
        threading.Thread(target=interrupt, daemon=True).start()
        def main():
            global interruptions
            while True:
                try:
                    while True:
                        message = sub.receive(timeout=60)
                        got.append(int(message.payload))
                        if got[-1] == total - 1:
                            signal.signal(signal.SIGINT, signal.SIG_IGN)
                            ended.set()
                            return
                except KeyboardInterrupt:
                    interruptions += 1
        while not ended.is_set():
            try:
                main()
            except KeyboardInterrupt:
                interruptions += 1
        print(json.dumps([got, interruptions, sub.stats.lost]), flush=True)
        sub.close()
    """)
    total = 40_000
    with subprocess.Popen(
        [sys.executable, "-c", program, publisher.endpoint, str(total)], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout.readline() == b"ready\n"
            for first in range(0, total, 500):
                # Slow enough that the program waits now and then. After the last message it acknowledges nothing.
                until(
                    lambda: publisher.do(
                        lambda: all(len(one.batches) < 30 for one in publisher.sessions.by_id.values())
                    )
                )
                publisher.publish_numbers("a", range(first, first + 500), batch=100)
            got, interruptions, lost = json.loads(process.stdout.readline())
        finally:
            process.kill()
    assert interruptions > 5
    assert got == sorted(set(got))
    assert total - len(got) <= interruptions
    assert lost == 0


# asyncio


def test_cancelled_receives_lose_nothing(publisher):
    async def main():
        async with aio.Subscriber(publisher.endpoint) as sub:
            sub.subscribe("a")
            await sub.wait_ready()
            total, got = 3_000, []

            def work():
                for first in range(0, total, 10):
                    publisher.publish_numbers("a", range(first, first + 10), batch=10)

            thread = Thread(work)
            while len(got) < total:
                task = asyncio.create_task(sub.receive())
                await asyncio.sleep(0)
                await asyncio.sleep(0.0001 * (len(got) % 3))
                task.cancel()
                try:
                    got.append(int((await task).payload))
                except asyncio.CancelledError:
                    await asyncio.sleep(0)
                # Two more ways to give up.
                with suppress(TimeoutError):
                    got.append(int((await asyncio.wait_for(sub.receive(), 0.0005)).payload))
            thread.outcome()
            assert got == list(range(total))

    asyncio.run(main())


def test_close_ends_waits_and_cancels_handlers_in_a_loop(publisher):
    async def main():
        sub = aio.Subscriber(publisher.endpoint)
        begun, cancelled = asyncio.Event(), []

        async def handle(message):
            begun.set()
            try:
                await asyncio.sleep(1_000)
            except asyncio.CancelledError:
                cancelled.append(message.subject)
                raise

        await sub.subscribe("a", handle)
        await sub.subscribe("b")
        await sub.wait_ready()
        waiting = asyncio.create_task(sub.receive())
        await asyncio.to_thread(publisher.publish, "a")
        await begun.wait()
        await sub.close()
        with pytest.raises(ClosedError):
            await waiting
        assert cancelled == ["a"]

    asyncio.run(main())


def test_a_loop_runs_while_messages_arrive(publisher):
    async def main():
        turns = 0

        async def count():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with aio.Subscriber(publisher.endpoint) as sub:
            sub.subscribe("a")
            await sub.wait_ready()
            await asyncio.to_thread(publisher.publish_numbers, "a", range(5_000), 500)
            counting = asyncio.create_task(count())
            for _ in range(5_000):
                await sub.receive(timeout=40)
            counting.cancel()
        assert turns > 0

    asyncio.run(main())


def test_uvloop(publisher):
    uvloop = pytest.importorskip("uvloop")

    async def main():
        seen = []
        async with aio.Subscriber(publisher.endpoint) as sub:
            sub.subscribe("a", seen.append)
            sub.subscribe("b")
            await sub.wait_ready()
            await asyncio.to_thread(publisher.publish, "a", "b")
            assert (await sub.receive(timeout=40)).subject == "b"
            await sub.run(timeout=0.05)
        assert [one.subject for one in seen] == ["a"]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        uvloop.run(main())


def test_subscribing_before_the_loop_runs(publisher):
    seen = []
    sub = aio.Subscriber(publisher.endpoint)
    sub.subscribe("a", seen.append)

    async def main():
        await sub.wait_ready()
        await asyncio.to_thread(publisher.publish, "a")
        while not seen:
            await sub.run(timeout=0.05)
        await sub.close()

    asyncio.run(main())
    assert [one.subject for one in seen] == ["a"]


# descriptors


def test_the_descriptor_becomes_readable(sub, publisher):
    ready(sub, "a")
    descriptor = sub.fileno()
    got = []
    publisher.publish_numbers("a", range(100), batch=10)
    while len(got) < 100:
        readable, _, _ = select.select([descriptor], [], [], 40)
        assert readable
        # One message for each time the descriptor is readable.
        with suppress(Timeout):
            got.append(int(sub.receive(timeout=0).payload))
    assert got == list(range(100))


def test_an_interrupted_wait_goes_on(sub, publisher):
    ready(sub, "a")
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    try:
        timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGUSR1))
        timer.start()
        with pytest.raises(Timeout):
            sub.receive(timeout=0.3)
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [1]
    publisher.publish("a")
    assert sub.receive(timeout=10).subject == "a"


def test_many_subscribers_leave_no_descriptors(publisher):
    def count():
        return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0

    def once():
        with sync.Subscriber(publisher.endpoint) as sub:
            ready(sub, "a")

    once()
    before = count()
    for _ in range(10):
        once()
    until(lambda: count() <= before)


def test_another_context(publish):
    context, endpoint = zmq.Context(), "inproc://own-context"
    with LinkPublisher(endpoint, context) as publisher, sync.Subscriber(endpoint, context=context) as sub:
        ready(sub, "a")
        publisher.publish("a")
        assert sub.receive(timeout=10).subject == "a"
    context.term()


@pytest.mark.parametrize("wait", ["receive", "run", "iterate"])
def test_the_end_of_its_context_closes_a_subscriber(publisher, wait):
    context = zmq.Context()
    with sync.Subscriber(publisher.endpoint, context=context) as sub:
        ready(sub, "a")
        waiting = Thread({"receive": sub.receive, "run": sub.run, "iterate": lambda: list(sub)}[wait])
        waiting.wait_until_stuck()
        ending = Thread(context.term)
        if wait == "receive":
            with pytest.raises(ClosedError):
                waiting.outcome()
        else:
            assert waiting.outcome() in (0, [])
        ending.outcome()
        for call in (sub.receive, lambda: sub.subscribe("b")):
            with pytest.raises(ClosedError):
                call()


def test_calls_after_the_end_of_its_context_close_a_subscriber(publisher):
    context = zmq.Context()
    with sync.Subscriber(publisher.endpoint, context=context) as sub:
        ready(sub, "a")
        ending = Thread(context.term)
        ending.wait_until_stuck()
        sub.subscribe("b")
        with pytest.raises(ClosedError):
            sub.receive()
        ending.outcome()


CALLS = {
    "receive": lambda sub, one: sub.receive(timeout=0),
    "receive_many": lambda sub, one: sub.receive_many(timeout=0),
    "receive of a subscription": lambda sub, one: one.receive(timeout=0),
    "drain": lambda sub, one: sub.drain(timeout=0),
    "drain of a subscription": lambda sub, one: one.drain(timeout=0),
    "subscribe": lambda sub, one: sub.subscribe("b"),
    "unsubscribe": lambda sub, one: one.unsubscribe(),
    "connect": lambda sub, one: sub.connect("tcp://127.0.0.1:9"),
    "bind": lambda sub, one: sub.bind("tcp://127.0.0.1:*"),
    "disconnect": lambda sub, one: sub.disconnect(sub.endpoint),
}


@pytest.mark.parametrize("call", CALLS)
def test_the_destruction_of_its_context_is_a_closed_error_in_each_call(make, publisher, call):
    context, foreign = zmq.Context(), zmq.Context()
    plain = foreign.socket(zmq.PUB)
    port = plain.bind_to_random_port("tcp://127.0.0.1")
    sub = make([publisher.endpoint, f"tcp://127.0.0.1:{port}"], context=context)
    one = sub.subscribe("a")
    sub.wait_ready()
    context.destroy(0)
    for _ in range(2):
        with pytest.raises(ClosedError):
            CALLS[call](sub, one)
    sub.close()
    plain.close(0)
    foreign.term()


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:*", "tcp://127.0.0.1:9"])
def test_a_new_endpoint_after_the_end_of_its_context_closes_a_subscriber(make, publisher, endpoint):
    context = zmq.Context()
    sub = make(publisher.endpoint, filtering="prefix", context=context)
    ending = Thread(context.term)
    ending.wait_until_stuck()
    with pytest.raises(ClosedError):
        (sub.bind if endpoint.endswith("*") else sub.connect)(endpoint)
    ending.outcome()


def test_an_acknowledgement_after_the_destruction_of_its_context_is_ignored(make, publisher):
    context = zmq.Context()
    sub = make(publisher.endpoint, context=context)
    sub.subscribe("a", ack="handled")
    sub.wait_ready()
    publisher.publish("a")
    message = sub.receive(timeout=10)
    context.destroy(0)
    message.ack()
    with pytest.raises(ClosedError):
        sub.receive(timeout=0)


def test_the_end_of_its_context_closes_a_subscriber_of_asyncio(publisher):
    context, errors = zmq.Context(), []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, about: errors.append(about))
        async with aio.Subscriber(publisher.endpoint, context=context) as sub:
            sub.subscribe("a")
            await sub.wait_ready()
            waiting = asyncio.create_task(sub.receive())
            await asyncio.sleep(0)
            ending = Thread(context.term)
            with pytest.raises(ClosedError):
                await waiting
            ending.outcome()

    asyncio.run(main())
    assert errors == []


def test_a_subscriber_that_is_garbage_says_bye_although_its_sockets_are_finalized_first():
    gc.collect()
    gc.disable()
    try:
        with oz.Publisher("tcp://127.0.0.1:*", options=Options(resume_seconds=600.0)) as publisher:
            sub = sync.Subscriber(filtering="publisher")
            # The subscriber moves to an older generation than its sockets, which a full collection finalizes
            # after generation 0.
            gc.collect(0)
            sub.connect(publisher.endpoint)
            ready(sub, "a")
            publisher.wait_for_subscribers()
            del sub
            with pytest.warns(ResourceWarning, match="unclosed <oz.Subscriber"):  # noqa: PT031
                gc.collect()
                until(lambda: not publisher.has_subscribers("a"), 5)
    finally:
        gc.enable()
