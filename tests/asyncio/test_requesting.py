"""Requests in a loop on a virtual clock: which frames they share, and the one timer of all of them."""

import asyncio
import gc
from math import nan

import pytest

import oz
import oz.testing
from oz.asyncio.requesting import AnswerNews, Deadlines
from oz.protocol.publisher.batches import Batches

IN_FLIGHT, ROUNDS = 32, 10


@pytest.fixture
def bus():
    with oz.testing.Bus(3) as made:
        yield made


async def joined(bus, handler, **options):
    asks, answers = bus.node("asks"), bus.node("answers")
    await asks.start()
    await answers.start()
    answers.subscribe("svc", handler=handler, **options)
    await asks.wait_for_peers("answers", 10)
    await answers.wait_ready(10)
    await asks.wait_ready(10)
    return asks


@pytest.mark.parametrize("inline", [False, True])
def test_requests_that_are_answered_together_share_a_frame_and_so_do_their_replies(bus, monkeypatch, inline):
    sent = []

    def counted(send):
        def count(*arguments, **options):
            sent.append(send.__name__)
            return send(*arguments, **options)

        return count

    for send in (Batches.send, Batches.send_alone):
        monkeypatch.setattr(Batches, send.__name__, counted(send))

    async def main():
        asks = await joined(bus, lambda message: message.reply(message.payload), inline=inline)
        sent.clear()

        async def ask(task):
            return [(await asks.request("svc", [task, turn], 10)).payload for turn in range(ROUNDS)]

        answers = await asyncio.gather(*map(ask, range(IN_FLIGHT)))
        assert answers == [[[task, turn] for turn in range(ROUNDS)] for task in range(IN_FLIGHT)]

    bus.run(main())
    # Half of those that are asked go before the others; one of the first turn goes alone.
    assert len(sent) <= 4 * ROUNDS + 2


def test_each_request_ends_in_its_own_time_and_the_answered_ones_before(bus):
    async def main():
        asks = await joined(bus, lambda message: message.payload and message.reply(message.payload))
        began = bus.now()

        async def ask(payload, timeout):
            try:
                return (await asks.request("svc", payload, timeout)).payload
            except oz.Timeout:
                return bus.now() - began

        took = await asyncio.gather(
            *(ask(None, seconds) for seconds in (3, 1, 2, 1)), ask("a", 1), ask("b", 9)
        )
        assert took == [pytest.approx(3, abs=0.01), pytest.approx(1, abs=0.01), pytest.approx(2, abs=0.01),
                        pytest.approx(1, abs=0.01), "a", "b"]  # fmt: skip
        many = [one async for one in asks.request_many("svc", "c", 2)]
        assert [one.payload for one in many] == ["c"]
        assert bus.now() - began == pytest.approx(5, abs=0.01)

    bus.run(main())


def timers(loop):
    return [one for one in loop._scheduled if not one.cancelled()]


def run(main):
    with asyncio.Runner(loop_factory=oz.testing.VirtualLoop) as runner:
        runner.run(main())


def in_line():
    """Give the news that anything still knows of."""
    gc.collect()
    return [one for one in gc.get_objects() if type(one) is AnswerNews]


def test_one_timer_does_for_all_and_with_the_last_it_goes():
    async def main():
        loop = asyncio.get_running_loop()
        deadlines = Deadlines(loop.time)
        waiting = [AnswerNews(loop) for _ in range(5)]
        for number, news in enumerate(waiting):
            deadlines.add(10.0 - number, news)
            assert len(timers(loop)) == 1
        await waiting[4].waiter
        assert loop.time() == pytest.approx(6.0, abs=0.01)
        for news in waiting[1:]:
            deadlines.end(news)
        assert len(timers(loop)) == 1
        deadlines.end(waiting[0])
        assert not timers(loop)
        del waiting, news
        assert not in_line()

    run(main)


def test_what_has_ended_long_before_its_time_does_not_stay():
    async def main():
        loop = asyncio.get_running_loop()
        deadlines, last = Deadlines(loop.time), AnswerNews(loop)
        deadlines.add(100.0, last)
        for _ in range(10_000):
            news = AnswerNews(loop)
            deadlines.add(3_600.0, news)
            deadlines.end(news)
            del news
        assert len(in_line()) < 200
        await last.waiter
        assert loop.time() == pytest.approx(100.0, abs=0.01)
        # Nothing else is due.
        assert [one.when() for one in timers(loop)] in ([3_600.0], [])

    run(main)


def test_news_of_another_thread_and_of_before_the_wait_end_it():
    async def main():
        loop = asyncio.get_running_loop()
        news = AnswerNews(loop)
        news.tell()
        news.tell()
        await news.waiter
        news.renew()
        await asyncio.to_thread(news.tell)
        await news.waiter
        news.renew()
        assert not news.waiter.done()
        return news

    with asyncio.Runner(loop_factory=oz.testing.VirtualLoop) as runner:
        news = runner.run(main())
    # Its loop has ended.
    news.tell()


def test_handlers_that_ask_in_turn_are_answered_however_few_may_run_at_once(bus):
    async def main():
        asks, answers = bus.node("asks"), bus.node("answers", threads=1)
        await asks.start()
        await answers.start()

        async def answer(message):
            depth = message.payload
            if depth:
                await answers.wait_for_peers("asks", 1)
                one = await answers.request("deep", depth - 1, 1)
                many = [one async for one in answers.request_many("deep", depth - 1, 1, limit=1)]
                depth = one.payload + many[0].payload + 1
            await message.reply(depth)

        answers.subscribe("deep", handler=answer, concurrency=100)
        await asks.wait_for_peers("answers", 10)
        await answers.wait_ready(10)
        replies = await asyncio.gather(*(asks.request("deep", 3, 10) for _ in range(IN_FLIGHT // 4)))
        assert [one.payload for one in replies] == [7] * len(replies)

    bus.run(main())


def test_a_timeout_that_is_no_number_is_refused_and_holds_up_nobody(bus):
    async def main():
        asks = await joined(bus, lambda message: None)
        with pytest.raises(ValueError, match="nan"):
            await asks.request("svc", timeout=nan)
        with pytest.raises(ValueError, match="nan"):
            await anext(asks.request_many("svc", timeout=nan))
        with pytest.raises(oz.Timeout):
            await asks.request("svc", timeout=1)

    bus.run(main())
