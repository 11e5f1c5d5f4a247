"""A program that leaves objects open ends in time, with its own exit code and without a message."""

import signal
import time
from contextlib import ExitStack
from pathlib import Path
from subprocess import TimeoutExpired

import pytest
import zmq

import oz
from oz.journal import Journal, Writer
from support import scripts
from support.sizes import in_suite
from support.waiting import DEADLINE

PROGRAM = Path(__file__).parent / "program_without_close.py"
RECORDS = 20  # as in the program

ENDS = [
    ("global", "last line", 0),
    ("daemon", "exception", 1),
    ("global", "fork", 4),
    ("cycle", "exit", 3),
    ("thread", "last line", 0),
    ("suspended", "exit", 3),
    ("global", "interrupt", -signal.SIGINT),
    ("global", "multiprocessing spawn", 5),
]


def end_of(process):
    """Return the exit code and the messages of a program, which ends once it has written a line."""
    line = process.stdout.readline()
    try:
        _, messages = process.communicate(timeout=DEADLINE)
    except TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        raise AssertionError(process.communicate()[1]) from None
    assert line == "ready\n", messages
    return process.returncode, messages


def has_a_flaw(directory):
    """Return whether a writer has to repair a journal, or an acknowledged record is missing."""
    with Writer(directory) as writer:
        findings = writer.findings
    payloads = [int(message.payload) for message in Journal(directory).read(end=RECORDS)]
    return findings or payloads != list(range(RECORDS))


@pytest.mark.parametrize(("holder", "end", "code"), in_suite(ENDS[:3], ENDS[3:]))
def test_a_program_that_leaves_objects_open_ends(tmp_path, holder, end, code):
    with scripts.started(PROGRAM, holder, end, tmp_path) as process:
        assert end_of(process) == (code, "")
    journals = [item for item in tmp_path.iterdir() if not item.name.startswith("recorded")]
    assert journals
    assert not [journal.name for journal in journals if has_a_flaw(journal)]


LATE = """
import atexit, sys
kept = []
def open_late():
    writer = oz.journal.Writer(sys.argv[1])
    for number in range(20):
        writer.append([("a.b", b"%d" % number)])
    kept.append(writer)
    print("ready", flush=True)
# Python calls the function that was registered last first, which is that of oz.
atexit.register(open_late)
import oz.journal
"""


def test_a_writer_that_opens_after_oz_has_closed_all_others_does_not_hang(tmp_path):
    with scripts.started("-c", LATE, tmp_path / "journal") as process:
        assert end_of(process) == (0, "")
    assert not has_a_flaw(tmp_path / "journal")


STALLED = """
import oz
publishers = [oz.Publisher(bind="tcp://127.0.0.1:*") for number in range(8)]
print(*(one.endpoint for one in publishers), flush=True)
for publisher in publishers:
    publisher.wait_for_subscribers(timeout=60)
    for number in range(200):
        publisher.publish("a.b", bytes(100_000))
print("ready", flush=True)
"""


def test_publishers_with_stalled_subscribers_share_the_time_to_send():
    with (
        scripts.started("-c", STALLED) as process,
        zmq.Context() as context,
        ExitStack() as opened,
    ):
        context.rcvhwm, context.linger = 1, 0
        for endpoint in process.stdout.readline().split():
            stalled = opened.enter_context(context.socket(zmq.SUB))
            stalled.subscribe(b"")
            stalled.connect(endpoint)
        began = time.monotonic()
        code, messages = end_of(process)
        # The default of `close` is 5 s for each of the eight.
        assert time.monotonic() - began < 30
    assert (code, messages) == (0, "")


def test_a_dropped_publisher_waits_no_longer_than_the_end_of_a_program(monkeypatch):
    """A program that drops its publisher does not wait the 5 s of `close` for a stuck subscriber."""
    publisher = oz.Publisher(
        "tcp://127.0.0.1:*", options=oz.Options(high_water_mark=100_000, pending_bytes=1 << 30)
    )
    with zmq.Context() as context, context.socket(zmq.SUB) as stuck:
        stuck.set(zmq.RCVHWM, 1)
        stuck.subscribe(b"")
        stuck.connect(publisher.endpoint)
        publisher.wait_for_subscribers(timeout=DEADLINE)
        # More than the buffers of the sockets and of the system hold.
        for _ in range(1_000):
            publisher.publish("a.b", bytes(100_000))
        dropped = [publisher]
        del publisher
        monkeypatch.setattr("oz.publisher.thread.CLOSE_TIMEOUT", 0.2)
        began = time.monotonic()
        with pytest.warns(ResourceWarning):
            dropped.clear()
        assert time.monotonic() - began < 4.5


LATE_PUBLISHER = """
import atexit, sys
def publish():
    global publisher
    try:
        publisher = oz.Publisher("tcp://127.0.0.1:*")
    except oz.ClosedError as error:
        print(error, file=sys.stderr)
atexit.register(publish)
import oz
oz.Publisher("tcp://127.0.0.1:*").close()
print("ready", flush=True)
"""


def test_a_publisher_that_opens_after_oz_has_closed_all_others_is_refused():
    with scripts.started("-c", LATE_PUBLISHER) as process:
        code, messages = end_of(process)
    assert code == 0
    assert "registered after the import of oz" in messages
