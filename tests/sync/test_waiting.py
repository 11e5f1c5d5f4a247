"""Waits that end in time, also those that are over before they begin."""

import threading
from contextlib import suppress
from queue import Empty, SimpleQueue

import pytest

from oz.sync.waiting import ThreadNews, get_within
from support.waiting import Thread


def test_a_queue_that_nobody_has_used_is_waited_for_no_longer_than_asked():
    """`SimpleQueue.get` itself waits for ever at one of 4,000 to 38,000 such calls."""

    def take():
        for _ in range(60_000):
            with suppress(Empty):
                get_within(SimpleQueue(), 1e-9)

    Thread(take).outcome()


def test_nor_one_that_was_just_emptied():
    def take():
        for number in range(100):
            queue = SimpleQueue()
            queue.put(number)
            assert get_within(queue, 1e-9) == number
            with pytest.raises(Empty):
                get_within(queue, 1e-9)

    Thread(take).outcome()


def test_a_wait_for_news_ends_as_soon_as_its_time_is_over():
    news = ThreadNews(threading.RLock())
    assert not Thread(lambda: any(news.wait_for(bool, 1e-6) for _ in range(100))).outcome()
