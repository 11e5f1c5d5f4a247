"""Ctrl-C, and processes that are stopped."""

import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from contract.adapter import errors
from contract.promises import promise
from support.alarms import alarms
from support.scripts import finished
from support.waiting import DEADLINE, Thread, until, wait_until_stuck

ASYNCIO = {"asyncio": "In asyncio Ctrl-C cancels the main task; see the promises of cancellation."}
INTERRUPTS = 20
REPEATS = 50
MESSAGES = 500


class Interrupts:
    """SIGINT for the main thread; the handler raises KeyboardInterrupt only in `interrupted`."""

    def __init__(self):
        self.is_armed = False
        self._old = signal.signal(signal.SIGINT, self._handle)

    def _handle(self, *_):
        if self.is_armed:
            self.is_armed = False
            raise KeyboardInterrupt

    def interrupted(self, call):
        """Return the result of a call, or None if KeyboardInterrupt ended it."""
        with suppress(KeyboardInterrupt):
            try:
                self.is_armed = True
                return call()
            finally:
                self.is_armed = False
        return None

    def sent_often(self):
        """Interrupt the main thread every 0.5 ms."""
        return alarms(self._handle, 0.0005)

    def send(self):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    def close(self):
        signal.signal(signal.SIGINT, self._old)


@pytest.fixture
def interrupts(monkeypatch):
    # Destructors let an exception pass that a signal handler raises in them.
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
    made = Interrupts()
    yield made
    made.close()


@promise("Ctrl-C ends a receive that waits, and the next receive gets the next message.", not_for=ASYNCIO)
def test_interrupt_ends_a_receive_that_waits(pair, interrupts):
    got = pair.subscribe("tick.>")

    def interrupt():
        wait_until_stuck(threading.main_thread())
        interrupts.send()

    for number in range(3):
        thread = Thread(interrupt)
        assert interrupts.interrupted(lambda: got.receive(timeout=DEADLINE)) is None
        thread.outcome()
        pair.publisher.publish("tick.a", b"%d" % number)
        assert got.receive().payload == b"%d" % number


@promise(
    "Ctrl-C in a receive never splits a message: the following messages are whole and in order.",
    not_for={"node": "A node's thread receives, which Ctrl-C does not interrupt.", **ASYNCIO},
)
def test_pyzmq_2044_interrupted_receive_keeps_messages_whole(pair, interrupts):
    # Every subject, so that a message without its first frame is delivered too.
    got = pair.subscribe(">")
    numbers, interrupted, end = [], 0, 0

    def receive(call):
        """Return whether a call was interrupted."""
        message = call(got.receive)
        if message is None:
            return True
        assert message.subject == "tick.a"
        parts = message.payload.split()
        assert len(parts) == REPEATS
        assert len(set(parts)) == 1
        numbers.append(int(parts[0]))
        return False

    def publish(number):
        pair.publisher.publish("tick.a", b"%d " % number * REPEATS)

    while interrupted < INTERRUPTS:
        start, end = end, end + MESSAGES
        for number in range(start, end):
            publish(number)
        # An interrupt may cost the messages that were just read, the last of them too. A receive that waits
        # for more is interrupted before it ends by Timeout.
        in_vain = 0
        with interrupts.sent_often(), suppress(errors.Timeout):
            while in_vain < 100 and (not numbers or numbers[-1] < end - MESSAGES // 10):
                in_vain = in_vain + 1 if receive(interrupts.interrupted) else 0
                interrupted += in_vain > 0
        publish(end)
        end += 1
        while not numbers or numbers[-1] < end - 1:
            receive(lambda call: call())
    assert numbers == sorted(set(numbers))


STARTING = """
say("starting")
node = None
try:
    node = api.node("starting", bus="contract", options=NodeOptions(directory=sys.argv[1]))
    node.wait_ready("never there", timeout=40)
except KeyboardInterrupt:
    if node is not None:
        node.close()
    sys.exit(9)
"""


@promise("Ctrl-C during the start of a node ends the start, and no file of the node remains.")
def test_opengris_scaler_984_interrupted_start_leaves_nothing(program, directory):
    with program(STARTING, directory) as process:
        assert process.stdout.readline() == "starting\n"
        # Its files show that the start is under way.
        until(lambda: sockets_below(directory))
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=DEADLINE)
    assert (process.returncode, messages) == (9, "")
    assert not sockets_below(directory)


def sockets_below(directory):
    return [item for item in Path(directory).rglob("*") if item.is_socket()]


STOPPED = """
got = {"delivered": 0, "lost": 0}
subscriber = api.subscriber(sys.argv[1], filtering="publisher")
subscriber.subscribe("tick.>")
subscriber.wait_ready()
say("ready")
while True:
    message = subscriber.receive()
    got["delivered"] += 1
    got["lost"] += message.gap
    if message.payload == b"end":
        break
say(got["delivered"] + got["lost"])
"""


@promise(
    "A subscriber whose process is stopped does not affect others, and gets its messages later.",
    not_for={
        "inproc": "Sockets over inproc belong to one process.",
        "prefix": "A plain publisher does not count the messages that a subscriber loses.",
    },
    small=1,
)
def test_stopped_subscriber_beside_a_healthy_one(sockets, program):
    publisher = sockets.publisher()
    healthy = sockets.subscriber(publisher)
    got = sockets.subscribe(publisher, healthy, "tick.>")
    with program(STOPPED, publisher.endpoint) as process:
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGSTOP)
        payloads = [b"%d" % number + b"x" * 20_000 for number in range(500)]
        publisher.publish_many(("tick.a", payload) for payload in payloads)
        assert got.receive_all(len(payloads)) == payloads
        os.kill(process.pid, signal.SIGCONT)
        publisher.publish("tick.a", b"end")
        counted = finished(process)
    assert int(counted) == len(payloads) + 1
