"""SIGINT and SIGTERM end a command in order; a second Ctrl-C ends it at once."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

import oz as library
from oz.cli.stop_signals import StopSignals, stop_on_signals
from support.scripts import started
from support.waiting import DEADLINE, Thread, until

ENDING = (signal.SIGINT, signal.SIGTERM)


def test_a_second_ctrl_c_ends_the_command_at_once(directory):
    # The end in order takes 5 seconds, exits 0 and writes a summary: the request has no answer yet.
    has_begun = Path(directory, "begun")
    command = f"exec 2> /dev/null; touch {has_begun}; sleep 30"
    words = ("reply", "a", "--command", command, "--directory", directory)
    with started("-m", "oz", *words) as service, library.Node() as node:
        node.wait_ready(subscriber="a", timeout=DEADLINE)
        asking = Thread(lambda: node.request("a", timeout=DEADLINE))
        until(has_begun.exists)
        until(lambda: service.send_signal(signal.SIGINT) or service.poll() is not None)
        with pytest.raises(library.PeerLost):
            asking.outcome()
        [_ready] = service.stderr.readlines()
    assert service.returncode == 130


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
