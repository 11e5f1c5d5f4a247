"""SIGINT and SIGTERM end a command in order; a second Ctrl-C ends it at once."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from oz.cli.stop_signals import StopSignals, stop_on_signals
from support.waiting import until

ENDING = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize(
    ("arguments", "code", "summary"),
    [
        ("nameserver --bind tcp://127.0.0.1:*", 0, "nodes joined"),
        ("sub a.> --bus b --directory {0}", 143, ""),
    ],
)
def test_repeated_sigterm_does_not_disturb_the_end(oz_start, directory, arguments, code, summary):
    running = oz_start(*arguments.format(directory).split())
    running.ready_line()
    until(lambda: running.terminate() or running.process.poll() is not None)
    ended = running.end()
    assert ended.code == code, ended.stderr
    assert summary in ended.stderr


def test_a_second_ctrl_c_ends_the_command_at_once(oz_start, directory):
    # The end in order takes 5 seconds, exits 0 and writes a summary: the request has no answer yet.
    started = Path(directory, "started")
    command = f"exec 2> /dev/null; touch {started}; sleep 30"
    service = oz_start("reply", "a", "--command", command, "--directory", directory)
    service.ready_line()
    request = oz_start("request", "a", "--wait", "60", "--timeout", "60", "--directory", directory)
    request.ready_line()
    until(started.exists)
    until(lambda: service.interrupt() or service.process.poll() is not None)
    ended = service.end()
    assert (ended.code, ended.stderr) == (130, "")


def test_two_signals_at_once_are_one(oz_start):
    running = oz_start("nameserver", "--bind", "tcp://127.0.0.1:*")
    running.ready_line()
    running.interrupt()  # `timeout -s INT` signals its child, and then its process group
    running.interrupt()
    assert running.end().code == 0


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
    before = {
        ending: signal.SIG_DFL if ending == signal.SIGTERM else signal.default_int_handler
        for ending in ENDING
    }
    for item, action in before.items():
        signal.signal(item, action)
    assert stops == [number]
    assert signals.exit_code == {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
