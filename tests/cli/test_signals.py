"""Signals whose handlers raise: what is raised must not get lost on the way."""

import functools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import zmq

from oz.cli import signals
from oz.cli.signals import ended_by_signals, ended_by_sigterm, interruptible
from oz.starting import is_command
from support.waiting import DEADLINE, until

ROUNDS = 40
ENDING = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture
def handlers():
    """Put back what a command that was ended leaves behind."""
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    for number, action in before.items():
        signal.signal(number, action)


@pytest.fixture(autouse=True)
def sigterm_as_before():
    """A command leaves SIGTERM ignored up to the end of its process."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


class Dropping:
    """Evaluates what Cython's limited API does for a traceback, and drops what is raised meanwhile too."""

    def __del__(self):
        _getframe()  # noqa: F821


@pytest.mark.parametrize(
    ("context", "number", "raised"),
    [(interruptible, signal.SIGINT, KeyboardInterrupt), (ended_by_sigterm, signal.SIGTERM, SystemExit)],
)
def test_a_signal_that_comes_while_a_traceback_is_made_is_raised_after_it(
    monkeypatch, context, number, raised
):
    monkeypatch.setitem(globals(), "_getframe", functools.partial(signal.raise_signal, number))
    with pytest.raises(raised), context():
        drop_and_wait()


def drop_and_wait():
    Dropping()
    until(lambda: False)


@pytest.mark.parametrize(
    ("context", "number", "raised"),
    [(interruptible, signal.SIGINT, KeyboardInterrupt), (ended_by_sigterm, signal.SIGTERM, SystemExit)],
)
def test_a_signal_that_comes_while_an_object_is_deleted_is_raised_after_it(context, number, raised, capsys):
    with pytest.raises(raised), context():
        delete_and_wait(number)
    assert "ignored" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("context", "number", "raised"),
    [(interruptible, signal.SIGINT, KeyboardInterrupt), (ended_by_sigterm, signal.SIGTERM, SystemExit)],
)
def test_a_signal_that_is_back_before_its_loss_was_dealt_with_is_raised_after_all(
    monkeypatch, context, number, raised
):
    send_later, sent = signals._send_later, []

    def send_at_once(again):
        # As where the thread that sends it is slow to start.
        sent.append(again)
        if len(sent) == 1:
            signal.raise_signal(again)
        else:
            send_later(again)

    monkeypatch.setattr(signals, "_send_later", send_at_once)
    with pytest.raises(raised), context():
        delete_and_wait(number)
    # Again and again, as long as it comes while the first is still being dealt with.
    assert len(sent) >= 2
    assert set(sent) == {number}


def delete_and_wait(number):
    Deleted(number)
    until(lambda: False)


class Deleted:
    """Gets a signal where Python drops what is raised."""

    def __init__(self, number):
        self.number = number

    def __del__(self):
        signal.raise_signal(self.number)


def test_what_else_is_dropped_is_told_as_ever(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: told.append(unraisable.exc_type))
    with interruptible():
        Failing()
    assert told == [ZeroDivisionError]


class Failing:
    def __del__(self):
        raise ZeroDivisionError


INTERRUPTED_WHILE_IMPORTED = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
"""
AS_INSTALLED = "import sys\nfrom oz.cli import main\nsys.exit(main())\n"


@pytest.mark.skipif(os.name != "posix", reason="a signal ends a process")
@pytest.mark.parametrize("module", ["oz.configuration", "oz.cli"])
@pytest.mark.parametrize("way", [["-m", "oz"], ["oz"]])
def test_ctrl_c_ends_the_command_in_silence_while_it_is_loaded(tmp_path, module, way):
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED_WHILE_IMPORTED.format(module=module))
    (tmp_path / "oz").write_text(AS_INSTALLED)
    root = Path(signals.__file__).parents[2]
    path = os.pathsep.join([str(tmp_path), str(root), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, *way, "--version"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        timeout=DEADLINE,
    )
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, b"")


def test_ctrl_c_of_a_program_that_imports_oz_stays_as_it_is():
    ended = subprocess.run(
        [sys.executable, "-c", "import oz, signal; signal.raise_signal(signal.SIGINT)"],
        capture_output=True,
        timeout=DEADLINE,
    )
    assert b"KeyboardInterrupt" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "original", "is_so"),
    [
        (["-m", "sub", "a.>"], ["python", "-m", "oz", "sub", "a.>"], True),
        (["-m"], ["python", "-X", "dev", "-moz"], True),
        (["-m"], ["python", "-m", "program"], False),
        (["-m", "oz"], ["python", "-m", "pytest", "oz"], False),
        (["{0}/oz", "sub", "a.>"], ["python", "{0}/oz", "sub", "a.>"], True),
        (["{0}/program"], ["python", "{0}/program"], False),
        (["{0}/other/oz"], ["python", "{0}/other/oz"], False),
        (["{0}/none/oz"], ["python", "{0}/none/oz"], False),
        ([], ["python"], False),
    ],
)
def test_the_command_is_told_from_other_programs(tmp_path, arguments, original, is_so):
    (tmp_path / "other").mkdir()
    (tmp_path / "oz").write_text(AS_INSTALLED)
    (tmp_path / "program").write_text(AS_INSTALLED)
    (tmp_path / "other" / "oz").write_text("import oz\n")
    given, began_with = ([one.format(tmp_path) for one in some] for some in (arguments, original))
    assert is_command(given, began_with) is is_so


def test_ctrl_c_reaches_a_thread_that_does_nothing_but_find_no_message():
    """Most of its time goes into tracebacks."""
    with zmq.Context() as context, context.socket(zmq.PULL) as socket:
        for _ in range(ROUNDS):
            with pytest.raises(KeyboardInterrupt), interruptible():
                find_nothing(socket)


def find_nothing(socket):
    threading.Timer(0.002, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
    ends = time.monotonic() + DEADLINE
    while time.monotonic() < ends:
        with suppress(zmq.Again):
            socket.recv(zmq.NOBLOCK)


def test_who_has_a_handler_of_their_own_keeps_it():
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    try:
        with interruptible():
            os.kill(os.getpid(), signal.SIGINT)
            until(lambda: seen)
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_handler_of_python_comes_back():
    with interruptible():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("first", ENDING)
@pytest.mark.parametrize("second", ENDING)
def test_a_signal_that_comes_twice_ends_a_command_once_and_in_order(handlers, first, second):
    stops = []
    with ended_by_signals(lambda: stops.append(1)):
        signal.raise_signal(first)
        signal.raise_signal(second)
    signal.raise_signal(signal.SIGTERM)  # while what is open is closed
    assert stops == [1]


def test_a_later_ctrl_c_forces_the_end(handlers, monkeypatch):
    monkeypatch.setattr(signals, "_SAME", 0.0)
    with ended_by_signals(lambda: None):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_that_comes_twice_leaves_the_goodbye_to_its_end(monkeypatch):
    closed = []

    def work():
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)
            closed.append("after the same one")
            monkeypatch.setattr(signals, "_SAME", 0.0)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            closed.append("after another")

    with pytest.raises(KeyboardInterrupt), interruptible():
        work()
    assert closed == ["after the same one", "after another"]


def test_sigterm_that_comes_twice_leaves_the_goodbye_to_its_end(handlers):
    closed = []
    with ended_by_sigterm():
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        closed.append(1)
    assert closed == [1]


def test_what_ends_a_command_stays_in_place_up_to_the_end(handlers):
    stops = []
    with interruptible(), ended_by_signals(lambda: stops.append(1)):
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    assert stops == [1]


def test_who_was_not_ended_has_their_handlers_again():
    before = [signal.getsignal(number) for number in ENDING]
    with ended_by_sigterm(), ended_by_signals(lambda: None):
        pass
    assert [signal.getsignal(number) for number in ENDING] == before


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ("forwarder --leg bus=a,directory={0} --leg bus=b,directory={0}", 0, "messages of"),
        ("nameserver --bind tcp://127.0.0.1:*", 0, "nodes joined"),
        ("reply a.> --echo --directory {0}", 0, "requests answered"),
        ("sub a.> --bus --directory {0}", 143, ""),
    ],
)
def test_a_command_that_gets_sigterm_until_it_is_gone_ends_in_order(oz_start, arguments, code, says):
    with tempfile.TemporaryDirectory() as directory:  # that of pytest is too long a path
        running = oz_start(*arguments.format(directory).split())
        running.ready_line()
        until(lambda: running.terminate() or running.process.poll() is not None)
        ended = running.end()
    assert ended.code == code, ended.stderr
    assert says in ended.stderr
