"""Signal handlers that wait for their node: what it has to do for them it may wait for them to do."""

import signal
import threading
import time
from contextlib import contextmanager

import pytest

import oz
from oz.protocol.publisher.batches import Batches
from oz.transport.node.mailbox import Mailbox
from support.waiting import DEADLINE

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that signals")


class StuckError(AssertionError):
    """It waited for ever."""


@contextmanager
def never_for_ever():
    """Raise in the main thread once it has taken too long."""

    def handler(*_):
        raise StuckError

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, DEADLINE / 4)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def interrupts(monkeypatch):
    """Have something done by a signal handler of the main thread in the middle of a method, once."""
    kept = signal.getsignal(signal.SIGUSR1)

    def interrupt(kind, name, do):
        method, outcome, fired = getattr(kind, name), [], []

        def handler(*_):
            try:
                with never_for_ever():
                    outcome.append(do())
            except BaseException as error:
                outcome.append(error)

        def interrupted(*args, **named):
            if threading.current_thread() is threading.main_thread() and not fired:
                fired.append(True)
                signal.raise_signal(signal.SIGUSR1)
            return method(*args, **named)

        signal.signal(signal.SIGUSR1, handler)
        monkeypatch.setattr(kind, name, interrupted)
        return outcome

    yield interrupt
    signal.signal(signal.SIGUSR1, kept)


WAITS = {
    "request": lambda node, _: node.request("svc", 1, None),
    "request of nobody": lambda node, _: node.request("nobody", 1, None),
    "request_many": lambda node, _: list(node.request_many("svc", 1, None, limit=1)),
    "receive": lambda node, box: box.receive(None),
    "subscribe": lambda node, _: node.subscribe("other"),
    "wait_ready": lambda node, _: node.wait_ready(None),
    "wait_for_peers": lambda node, _: node.wait_for_peers(5, None),
    "peers": lambda node, _: node.peers,
    "drain": lambda node, box: box.drain(DEADLINE),
}


@pytest.mark.usefixtures("sends_in_python")
@pytest.mark.parametrize("wait", WAITS)
def test_a_signal_handler_in_the_middle_of_publishing_is_refused_what_it_would_wait_for(
    make, met, interrupts, wait
):
    asks, answers = make("asks"), make("answers")
    answers.subscribe("svc", handler=lambda message: message.reply(message.payload))
    box = asks.subscribe("never")
    met(asks, answers)
    outcome = interrupts(Batches, "send_alone", lambda: WAITS[wait](asks, box))
    ends = time.monotonic() + DEADLINE
    while not outcome and time.monotonic() < ends:
        # A lone message is sent by the thread that publishes, with the publisher's guard.
        time.sleep(0.001)
        asks.publish("svc", 0)
    [error] = outcome
    assert isinstance(error, oz.OwnershipError), repr(error)
    assert "have a thread do this" in str(error)
    assert asks.request("svc", 2, timeout=DEADLINE).payload == 2


@pytest.mark.parametrize("wait", [one for one in WAITS if one not in ("receive", "drain")])
def test_a_signal_handler_in_the_middle_of_receiving_is_refused_what_it_holds_up(
    make, met, interrupts, monkeypatch, wait
):
    put, is_held_up = Mailbox.put, threading.Event()

    def noticed(mailbox, message):
        is_held_up.set()
        put(mailbox, message)

    monkeypatch.setattr(Mailbox, "put", noticed)
    asks, answers = make("asks"), make("answers")
    answers.subscribe("svc", handler=lambda message: message.reply(message.payload))
    box = asks.subscribe("md")
    met(asks, answers)

    def hold_up_and_wait():
        is_held_up.clear()
        answers.publish("md", 1)
        assert is_held_up.wait(DEADLINE)
        return WAITS[wait](asks, box)

    outcome = interrupts(Mailbox, "take", hold_up_and_wait)
    answers.publish("md", 0)
    assert box.receive(DEADLINE).payload == 0
    [error] = outcome
    assert isinstance(error, oz.OwnershipError), repr(error)
    assert "have a thread do this" in str(error)
    assert box.receive(DEADLINE).payload == 1
    assert asks.request("svc", 2, timeout=DEADLINE).payload == 2


def test_a_signal_handler_may_take_the_message_that_is_about_to_be_received(make, met, interrupts):
    asks, answers = make("asks"), make("answers")
    box = asks.subscribe("md")
    met(asks, answers)
    outcome = interrupts(Mailbox, "take", lambda: box.receive(DEADLINE).payload)
    answers.publish("md", 0)
    with pytest.raises(oz.Timeout):
        box.receive(0.5)
    assert outcome == [0]
    answers.publish("md", 1)
    assert box.receive(DEADLINE).payload == 1
