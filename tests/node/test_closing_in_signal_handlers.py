"""Nodes that are closed in a signal handler, or while one raises, leave nothing open."""

import os
import signal
import sys
import threading
import time
from contextlib import nullcontext, suppress

import pytest

import oz
from oz.protocol.publisher.batches import Batches
from support.raising import AtPlace, Interrupted
from support.sizes import size
from support.waiting import DEADLINE, Thread, until


@pytest.mark.usefixtures("sends_in_python")
def test_a_signal_handler_may_close_a_node_in_the_middle_of_publishing(make, met, collected, monkeypatch):
    one, two = make("one"), make("two")
    got = collected()
    two.subscribe("a", handler=got)
    met(one, two)
    send, begun = Batches.send_alone, []

    def interrupted(*args):
        if threading.current_thread() is threading.main_thread() and not begun:
            begun.append(True)
            signal.raise_signal(signal.SIGUSR1)
        return send(*args)

    before = signal.signal(signal.SIGUSR1, lambda *_: one.close(timeout=DEADLINE))
    try:
        monkeypatch.setattr(Batches, "send_alone", interrupted)
        for number in range(1_000_000):
            try:
                one.publish("a", number)
            except oz.ClosedError:
                break
            # A lone message is sent by the thread that publishes, with the publisher's guard.
            time.sleep(0.0001)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert begun
    until(lambda: not any(thread.name == "oz-closing" for thread in threading.enumerate()))
    assert got.wait(number) == list(range(number))


@pytest.mark.sized
# A socket that is cut short between being made and being closed goes with its frame.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_close_that_a_signal_handler_cuts_short_is_ended_by_the_next_one(make):
    other = make("other")
    step = size(211, 7)
    for number in range(1, 20_000, step):
        one = make("one")
        one.subscribe("a", handler=print)
        one.wait_for_peers(1, timeout=DEADLINE)
        at_place = AtPlace(number, again=number % 4)
        with suppress(Interrupted), at_place:
            one.close(timeout=DEADLINE)
        one.close(timeout=DEADLINE)
        until(lambda: not other.peers)
        with pytest.raises(oz.ClosedError):
            one.publish("a")
        if not at_place.has_raised:
            return
    raise AssertionError("there are more places")


def threads_of_nodes():
    names = (one.name for one in threading.enumerate())
    return [one for one in names if one.startswith(("oz-node", "oz-closing", "oz-handler"))]


@pytest.mark.sized
@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
@pytest.mark.parametrize("when", ["making", "leaving"])
def test_a_signal_handler_that_raises_where_a_node_is_made_or_left_leaves_nothing_open(place, when):
    def interrupted_at(number):
        """Make and leave a node, with a handler that raises at that place of it; tell whether it has."""
        at_place = AtPlace(number)
        with suppress(Interrupted):
            with at_place if when == "making" else nullcontext():
                node = oz.Node("node", directory=place)
            with at_place if when == "leaving" else nullcontext():
                node.__exit__(None, None, None)
        if when == "making" and not at_place.has_raised:
            node.close()
        return at_place.has_raised

    def left():
        return len(os.listdir("/proc/self/fd"))

    assert not interrupted_at(10**9)
    assert threads_of_nodes() == []
    # At the first place of `__exit__` nothing of oz has begun yet that could catch it.
    before, number = left(), 2
    while interrupted_at(number):
        until(lambda: not threads_of_nodes() and left() <= before)
        assert os.listdir(place) == []
        number += size(41, 5)
    assert number > 100


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_ctrl_c_while_a_node_waits_for_its_name_server_leaves_nothing_open(place):
    def interrupt():
        until(lambda: any(one.startswith("oz-node") for one in threads_of_nodes()))
        os.kill(os.getpid(), signal.SIGINT)

    before = len(os.listdir("/proc/self/fd"))
    interrupting = Thread(interrupt)
    with pytest.raises(KeyboardInterrupt):
        oz.Node("node", directory=place, nameserver="tcp://127.0.0.1:1", join_timeout=DEADLINE)
    interrupting.outcome()
    until(lambda: not threads_of_nodes() and len(os.listdir("/proc/self/fd")) <= before)
