"""SIGINT and SIGTERM end a command in order; a second Ctrl-C ends it at once."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

import oz as library
from oz.cli.stop_signals import StopSignals, stop_on_signals
from support.waiting import DEADLINE, Thread, until

ENDING = (signal.SIGINT, signal.SIGTERM)


def test_a_second_ctrl_c_ends_the_command_at_once(oz_start, directory):
    # The end in order takes 5 seconds, exits 0 and writes a summary: the request has no answer yet.
    started = Path(directory, "started")
    command = f"exec 2> /dev/null; touch {started}; sleep 30"
    service = oz_start("reply", "a", "--command", command, "--directory", directory)
    service.ready_line()
    with library.Node() as node:
        node.wait_ready(subscriber="a", timeout=DEADLINE)
        asking = Thread(lambda: node.request("a", timeout=DEADLINE))
        until(started.exists)
        until(lambda: service.interrupt() or service.process.poll() is not None)
        with pytest.raises(library.PeerLost):
            asking.outcome()
    ended = service.end()
    assert (ended.code, ended.stderr) == (130, "")


def test_a_command_restores_the_handlers_of_its_process(oz):
    before = [signal.getsignal(ending) for ending in ENDING]
    assert oz("match", "a", "a").exit_code == 0
    assert [signal.getsignal(ending) for ending in ENDING] == before


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_whose_exception_python_has_dropped_stops_a_service_that_begins(number):
    stops = []
    with StopSignals().installed():
        with suppress(KeyboardInterrupt, SystemExit):
            os.kill(os.getpid(), number)
        with stop_on_signals(lambda: stops.append(number)) as signals:
            pass
    assert stops == [number]
    assert signals.exit_code == {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
