import asyncio
import sys
from contextlib import ExitStack

import pytest
import zmq

import oz
import oz.asyncio
from oz.protocol.publisher.records import Records
from support.inside import engine_of
from support.ports import lasting_endpoint
from support.sizes import SOAK, size
from support.waiting import DEADLINE, Thread, until


def check_at_once(pub, sub, number):
    """What is published once the subscriber is ready arrives."""
    sub.wait_ready(timeout=DEADLINE)
    pub.publish(f"n.{number}", b"%d" % number)
    message = sub.receive(timeout=DEADLINE)
    assert (message.subject, message.payload) == (f"n.{number}", b"%d" % number)
    assert message.sequence == message.gap == 0


@pytest.mark.sized
def test_nothing_is_lost_over_fresh_connections():
    with zmq.Context() as context, oz.Publisher("tcp://127.0.0.1:*", context=context) as pub:
        for number in range(size(60, 1_000)):
            with oz.Subscriber(pub.endpoint, context=context, filtering="publisher") as sub:
                sub.subscribe("*.*")
                check_at_once(pub, sub, number)
        assert pub.stats.unwanted == 0


@pytest.mark.sized
def test_nothing_is_lost_from_fresh_publishers():
    for number in range(size(30, 100)):
        with (
            oz.Publisher("tcp://127.0.0.1:*") as pub,
            oz.Subscriber(pub.endpoint, filtering="publisher") as sub,
        ):
            sub.subscribe(["a.>", "*.*"])
            check_at_once(pub, sub, number)


@pytest.mark.heavy
@pytest.mark.sized
@pytest.mark.timeout(3_600 if SOAK else 180)
def test_nothing_is_lost_between_fresh_processes(program):
    for _ in range(size(4, 1_000)):
        pub = program("publisher", "bind", "tcp://127.0.0.1:*")
        sub = program("subscriber", pub.hear(), "n.*")
        assert sub.hear() == "ready"
        # Until now the publisher has waited for a line on its standard input.
        assert pub.ask("n.# 5 0") == "published"
        found = until(lambda: (report := sub.report()).delivered == 5 and report)  # noqa: B023
        assert found.lost == 0
        sub.kill()
        pub.kill()


@pytest.mark.sized
def test_nothing_is_lost_over_new_subscriptions_under_traffic():
    with (
        oz.Publisher("tcp://127.0.0.1:*") as pub,
        oz.Subscriber(pub.endpoint, filtering="publisher") as sub,
    ):
        is_over = []

        def traffic():
            while not is_over:
                pub.publish("other", b"")

        work = Thread(traffic)
        for number in range(size(30, 300)):
            subscription = sub.subscribe(f"n.{number}")
            sub.wait_ready(timeout=DEADLINE)
            # Published before, perhaps, when nobody wanted it.
            pub.publish(f"n.{number}", b"")
            assert sub.receive(timeout=DEADLINE).subject == f"n.{number}"
            if number % 3:
                subscription.unsubscribe()
        is_over.append(True)
        work.outcome()


@pytest.fixture
def hasty_threads():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.sized
def test_a_thread_that_publishes_all_the_time_misses_nobody_who_is_ready(hasty_threads):
    """What it published before, on the same subjects, nobody wanted."""
    with oz.Publisher("tcp://127.0.0.1:*") as pub:
        begun, is_over = 0, False

        def traffic():
            nonlocal begun
            while not is_over:
                begun += 1
                pub.publish(f"n.{begun % 40}", b"%d" % begun)

        work = Thread(traffic)
        for _ in range(size(12, 100)):
            with oz.Subscriber(pub.endpoint, filtering="publisher") as sub:
                sub.subscribe("n.*")
                sub.wait_ready(timeout=DEADLINE)
                last = begun
                numbers = [int(sub.receive(timeout=DEADLINE).payload) for _ in range(100)]
                assert numbers[0] <= last + 1
                assert numbers == list(range(numbers[0], numbers[0] + 100))
        is_over = True
        work.outcome()


def test_what_is_published_as_soon_as_the_answer_is_out_arrives(monkeypatch):
    with oz.Publisher("tcp://127.0.0.1:*") as pub:
        pub.publish("n.1", b"nobody wants it")
        tell, answers = Records.answer, 0

        def tell_and_publish(dispatch):
            nonlocal answers
            tell(dispatch)
            answers += 1
            pub.publish("n.1", b"%d" % answers)

        monkeypatch.setattr(Records, "answer", tell_and_publish)
        with oz.Subscriber(pub.endpoint, filtering="publisher") as sub:
            sub.subscribe("n.*")
            sub.wait_ready(timeout=DEADLINE)
            assert sub.receive(timeout=DEADLINE).payload == b"1"


def test_every_one_of_several_publishers_has_answered():
    with ExitStack() as stack:
        pubs = [stack.enter_context(oz.Publisher("tcp://127.0.0.1:*")) for _ in range(5)]
        sub = stack.enter_context(oz.Subscriber([pub.endpoint for pub in pubs], filtering="publisher"))
        for turn in range(20):
            sub.subscribe(f"n.{turn}")
            sub.wait_ready(timeout=DEADLINE)
            for pub in pubs:
                pub.publish(f"n.{turn}", b"")
            origins = {sub.receive(timeout=DEADLINE).origin for _ in pubs}
            assert len(origins) == len(pubs)


@pytest.fixture
def free_port():
    return lasting_endpoint()


def test_a_publisher_that_comes_late_is_waited_for(free_port):
    with oz.Subscriber(free_port, filtering="publisher") as sub:
        sub.subscribe("n.*")
        waiter = Thread(lambda: sub.wait_ready(timeout=DEADLINE))
        waiter.wait_until_stuck()
        with oz.Publisher(free_port) as pub:
            waiter.outcome()
            check_at_once(pub, sub, 1)


def test_one_of_two_publishers_that_is_missing_is_waited_for(free_port):
    with (
        oz.Publisher("tcp://127.0.0.1:*") as pub,
        oz.Subscriber([pub.endpoint, free_port], filtering="publisher") as sub,
    ):
        sub.subscribe("n.*")

        def why_not():
            with pytest.raises(oz.Timeout, match=r"^not ready within 0\.2 s: ") as caught:
                sub.wait_ready(timeout=0.2)
            return str(caught.value)

        until(lambda: "s: 1 publisher" in why_not())
        with oz.Publisher(free_port) as other:
            check_at_once(other, sub, 1)


def test_a_wrong_endpoint_is_named_in_the_timeout(free_port):
    with oz.Subscriber(free_port, filtering="publisher") as sub:
        sub.subscribe("n.*")
        with pytest.raises(oz.Timeout, match=r"^not ready within 0\.2 s: no oz publisher") as caught:
            sub.wait_ready(timeout=0.2)
        assert f"answered at {free_port}. " in str(caught.value)


def test_a_plain_publisher_is_named_as_what_never_answers():
    with zmq.Context() as context, context.socket(zmq.PUB) as pub:
        port = pub.bind_to_random_port("tcp://127.0.0.1")
        with oz.Subscriber(f"tcp://127.0.0.1:{port}", filtering="publisher", context=context) as sub:
            sub.subscribe("n.*")
            with pytest.raises(oz.Timeout, match="A plain PUB never answers: use filtering='prefix'"):
                sub.wait_ready(timeout=0.1)


def test_a_subscriber_that_is_not_connected_is_told_so():
    with oz.Subscriber(filtering="publisher") as sub:
        sub.subscribe("n.*")
        with pytest.raises(oz.Timeout, match="neither connected nor bound"):
            sub.wait_ready(timeout=0)


def test_the_same_endpoint_twice_is_one_publisher():
    with (
        oz.Publisher("tcp://127.0.0.1:*") as pub,
        oz.Subscriber([pub.endpoint, pub.endpoint], filtering="publisher") as sub,
    ):
        sub.subscribe("n.*")
        check_at_once(pub, sub, 1)


def test_a_subscriber_is_ready_behind_a_proxy(proxy):
    with oz.Publisher(connect=proxy.publishers) as pub:
        for number in range(50):
            with oz.Subscriber(proxy.subscribers, filtering="publisher") as sub:
                sub.subscribe("*.*")
                check_at_once(pub, sub, number)


def test_a_publisher_that_is_gone_for_long_makes_nobody_ready(monkeypatch):
    monkeypatch.setattr("oz.protocol.subscriber.publishers.SILENCE", 0.2)
    with oz.Publisher("tcp://127.0.0.1:*") as pub:
        sub = oz.Subscriber(pub.endpoint, filtering="publisher")
        sub.subscribe("n.*")
        sub.wait_ready(timeout=DEADLINE)
    with sub, pytest.raises(oz.Timeout):
        until(lambda: sub.wait_ready(timeout=0.5))


def test_unsubscribing_leaves_nothing_to_wait_for():
    with (
        oz.Publisher("tcp://127.0.0.1:*") as pub,
        oz.Subscriber(pub.endpoint, filtering="publisher") as sub,
    ):
        for number in range(200):
            subscription = sub.subscribe(["n.*", "*.n"])
            check_at_once(pub, sub, number)
            subscription.unsubscribe()
        until(lambda: pub.interest("n.1") or not engine_of(pub).router.streams)


def test_nothing_is_lost_between_asyncio_sockets():
    async def main():
        async with oz.asyncio.Publisher("tcp://127.0.0.1:*") as pub:
            for number in range(size(60, 200)):
                async with oz.asyncio.Subscriber(pub.endpoint, filtering="publisher") as sub:
                    sub.subscribe("*.*")
                    await sub.wait_ready(timeout=DEADLINE)
                    await pub.publish(f"n.{number}")
                    message = await sub.receive(timeout=DEADLINE)
                    assert (message.subject, message.sequence) == (f"n.{number}", 0)

    asyncio.run(main())


def test_asyncio_subscriber_is_told_what_is_missing(free_port):
    async def main():
        async with oz.asyncio.Subscriber(free_port, filtering="publisher") as sub:
            sub.subscribe("n.*")
            with pytest.raises(oz.Timeout, match="no oz publisher answered"):
                await sub.wait_ready(timeout=0.1)

    asyncio.run(main())
