"""The mailbox of a subscription without a handler, in threads."""

import signal
from contextlib import suppress

import pytest

import oz
from oz.protocol.node.handler_queue import HandlerQueue
from oz.transport.node.mailbox import Mailbox
from support.handling import filled, message
from support.outlasting import outlast
from support.waiting import DEADLINE, Thread


@pytest.fixture
def mailbox(pool):
    def make(**options):
        dropped = []
        made = Mailbox(pool(1), HandlerQueue(**options), lambda count, of: dropped.append((count, of.number)))
        return made, dropped

    return make


def test_threads_that_receive_get_each_message_once_and_learn_of_the_end(mailbox):
    box, _ = mailbox()

    def receive_all():
        got = []
        with suppress(oz.ClosedError):
            while True:
                got.append(box.receive(DEADLINE).number)
        return got

    threads = [Thread(receive_all) for _ in range(4)]
    filled(box, 1000)
    box.end()
    assert sorted(number for one in threads for number in one.outcome()) == list(range(1000))
    assert (box.handled, box.waiting) == (1000, 0)


def test_what_is_left_can_be_received_after_the_end_and_nothing_after_closing(mailbox):
    box, _ = mailbox()
    filled(box, 2)
    assert (box.abandon(), box.receive(0).number, box.waiting) == (0, 0, 1)
    assert box.close() == 1
    box.put(message("a"))
    with pytest.raises(oz.ClosedError, match="nothing is left"):
        box.receive(None)


def test_what_finds_no_place_is_dropped_and_reported(mailbox):
    box, dropped = mailbox(limit=2, overflow="drop_oldest")
    filled(box, 3)
    assert (dropped, box.dropped) == ([(1, 2)], 1)
    assert [box.receive(0).number for _ in range(2)] == [1, 2]
    with pytest.raises(oz.Timeout, match=r"no message in 0\.01 s"):
        box.receive(0.01)
    assert box.drain(0)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals to threads")
def test_receiving_ends_in_time_behind_a_signal_handler_that_outlasts_it(mailbox):
    box, _ = mailbox()
    with pytest.raises(oz.Timeout):
        outlast(box.receive, 2.0)
