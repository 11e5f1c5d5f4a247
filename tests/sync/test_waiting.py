"""Waits that end in time, also those that are over before they begin."""

import threading

from oz.sync.answer_line import EagerWaiter
from oz.sync.waiting import ThreadNews
from support.waiting import Thread


def test_a_waiter_that_nobody_has_used_waits_no_longer_than_asked():
    """`SimpleQueue.get` waits for ever at one of 4,000 to 38,000 such calls."""

    def wait():
        for _ in range(60_000):
            EagerWaiter().wait(1e-9)

    Thread(wait).outcome()


def test_nor_one_that_has_just_heard():
    def wait():
        for _ in range(100):
            waiter = EagerWaiter()
            waiter.tell()
            waiter.wait(None)
            waiter.wait(1e-9)

    Thread(wait).outcome()


def test_a_wait_for_news_ends_as_soon_as_its_time_is_over():
    news = ThreadNews(threading.RLock())
    assert not Thread(lambda: any(news.wait_for(bool, 1e-6) for _ in range(100))).outcome()
