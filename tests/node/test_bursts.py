"""Bursts of requests, to handlers on a pool and inline: cancelled, timed out, and while a node closes."""

import asyncio
from functools import partial

import pytest

import oz
import oz.asyncio
from support.inside import engine_of
from support.waiting import DEADLINE, Thread, until

COUNT = 200

both = pytest.mark.parametrize("inline", [False, True], ids=["pool", "inline"])


def answer(message):
    """Answer but for those who ask for silence."""
    return None if message.payload == "silence" else message.reply(message.payload)


def in_loop(place, main, *, inline):
    async def joined():
        async with (
            oz.asyncio.Node("asks", directory=place) as asks,
            oz.asyncio.Node("answers", directory=place) as answers,
        ):
            answers.subscribe("svc", handler=answer, inline=inline)
            await asks.wait_for_peers("answers", timeout=DEADLINE)
            await answers.wait_ready(DEADLINE)
            await asks.wait_ready(DEADLINE)
            await main(asks, answers)
            assert not len(engine_of(asks).requests)

    asyncio.run(asyncio.wait_for(joined(), 2 * DEADLINE))


@both
def test_in_a_loop_those_that_are_cancelled_take_no_answer_from_the_others(place, inline):
    async def main(asks, answers):
        asking = [asyncio.create_task(asks.request("svc", number, DEADLINE)) for number in range(COUNT)]
        asking[0].cancel()
        await asyncio.sleep(0)
        # Some have gone, and the others wait for the end of the turn.
        for task in asking[1::2]:
            task.cancel()
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        assert [one.payload for one in outcomes[2::2]] == list(range(2, COUNT, 2))
        assert all(isinstance(one, asyncio.CancelledError) for one in (outcomes[0], *outcomes[1::2]))
        assert (await asks.request("svc", "after", DEADLINE)).payload == "after"
        assert asks.stats.late_replies == COUNT // 2

    in_loop(place, main, inline=inline)


@both
def test_in_a_loop_those_that_time_out_leave_the_others_their_answers(place, inline):
    async def main(asks, answers):
        asking = []
        for number in range(COUNT):
            asking.append(asks.request("svc", number, DEADLINE))
            asking.append(asks.request("svc", "silence", 0.01))
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        assert [one.payload for one in outcomes[::2]] == list(range(COUNT))
        assert all(isinstance(one, oz.Timeout) for one in outcomes[1::2])

    in_loop(place, main, inline=inline)


@both
@pytest.mark.parametrize("drain", [True, False])
def test_in_a_loop_each_is_answered_or_told_of_the_end_when_its_node_closes(place, inline, drain):
    async def main(asks, answers):
        asking = [asyncio.create_task(asks.request("svc", number, None)) for number in range(COUNT)]
        await asyncio.sleep(0)
        await asks.close(drain=drain)
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        for number, one in enumerate(outcomes):
            assert isinstance(one, oz.ClosedError) or one.payload == number

    in_loop(place, main, inline=inline)


@pytest.fixture
def pair(make, met):
    asks, answers = make("asks"), make("answers", threads=2)
    met(asks, answers)
    return asks, answers


def serve(asks, answers, *, inline):
    answers.subscribe("svc", handler=answer, inline=inline)
    answers.wait_ready(DEADLINE)
    asks.wait_ready(DEADLINE)


@both
def test_in_threads_those_that_time_out_leave_the_others_their_answers(pair, inline):
    asks, answers = pair
    serve(asks, answers, inline=inline)

    def ask(number):
        if number % 2:
            with pytest.raises(oz.Timeout):
                asks.request("svc", "silence", 0.01)
        return asks.request("svc", number, DEADLINE).payload

    threads = [Thread(partial(ask, number)) for number in range(32)]
    assert [one.outcome() for one in threads] == list(range(32))
    assert not len(engine_of(asks).requests)


@both
@pytest.mark.parametrize("closes", ["asks", "answers"])
def test_in_threads_each_is_answered_or_told_of_the_end_when_a_node_closes(pair, inline, closes):
    asks, answers = pair
    serve(asks, answers, inline=inline)
    got = []

    def ask():
        try:
            while True:
                got.append(asks.request("svc", 1, 1.0).payload)
        except (oz.ClosedError, oz.NoResponders, oz.Timeout):
            # Requests are not sent again: one that reached a node which leaves has its time.
            return True

    threads = [Thread(ask) for _ in range(16)]
    until(lambda: len(got) >= 100)
    (asks if closes == "asks" else answers).close()
    assert all(one.outcome() for one in threads)
    assert set(got) == {1}
    assert not len(engine_of(asks).requests)
