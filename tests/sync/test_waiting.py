"""Waits that end in time, also those that are over before they begin."""

import threading

import pytest

from oz.sync import waiting
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


@pytest.mark.parametrize("seconds", [0.0, 0.25, 0.75, None])
def test_a_wait_of_the_main_thread_is_bounded_by_its_own_time_first(monkeypatch, seconds):
    monkeypatch.setattr(waiting, "monotonic", lambda: 7.0)
    assert waiting.InterruptionCheck().bound(seconds) == (0.5 if seconds is None else min(seconds, 0.5))
