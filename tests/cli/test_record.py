"""`oz record`. The command runs in the process of the test, and ends with a signal."""

import importlib
import os
import re
import signal
from contextlib import contextmanager
from threading import Event

import pytest

import oz
from oz.journal import Journal, JournalFull, JournalGap, Writer
from support import waiting
from support.ports import lasting_endpoint
from support.waiting import Thread

RECORD = importlib.import_module("oz.cli.record")


@pytest.fixture
def publisher():
    with oz.Publisher("tcp://127.0.0.1:*", on_full="block") as pub:
        yield pub


@pytest.fixture
def recorded(tmp_path):
    return tmp_path / "recorded"


def end_of(directory):
    try:
        return Journal(directory).end_offset
    except oz.JournalError:
        return 0


def payloads(directory, **options):
    return [
        message.payload
        for message in Journal(directory, **options).read()
        if not isinstance(message, JournalGap)
    ]


@pytest.fixture
def record(oz_run, signal_when, recorded):
    """Function that runs `oz record` beside a function, until the journal has a number of records."""

    def run(*arguments, beside, count, number=signal.SIGINT):
        thread = Thread(beside)
        signal_when(lambda: end_of(recorded) >= count and not thread.is_alive(), number)
        ended = oz_run("record", *arguments, "--journal", str(recorded))
        thread.outcome()
        return ended

    return run


@pytest.mark.parametrize(("number", "filtering"), [(signal.SIGINT, "prefix"), (signal.SIGTERM, "publisher")])
def test_signal_ends_it_with_each_message_and_a_summary(publisher, record, recorded, number, filtering):
    def publish():
        publisher.wait_for_subscribers(count=2 if filtering == "prefix" else 1, timeout=waiting.DEADLINE)
        for at in range(3000):
            publisher.publish("a.1" if at % 2 else "b.1", b"%d" % at)
        publisher.flush()

    patterns = ("a.*", "rv:b.>", "--connect", publisher.endpoint, "--filtering", filtering)
    ended = record(*patterns, beside=publish, count=3000, number=number)
    assert (ended.code, ended.stdout) == (0, b"")
    # A busy machine may also report a publisher that has not answered yet.
    assert ended.stderr.splitlines()[-2:] == [
        f"oz record: ready, connected to {publisher.endpoint}, recording in {recorded} from offset 0",
        "oz record: recorded 3000 messages, up to offset 3000; 0 known to be lost",
    ]
    assert payloads(recorded) == [b"%d" % at for at in range(3000)]


def test_missing_publisher_is_reported_and_recorded_once_it_starts(record, recorded, monkeypatch):
    endpoint, is_reported = lasting_endpoint(), Event()
    monkeypatch.setattr(RECORD, "SOCKET_READY_SECONDS", 0.05)
    original = RECORD.print_stderr
    monkeypatch.setattr(RECORD, "print_stderr", lambda ctx, text: (original(ctx, text), is_reported.set()))

    def publish():
        assert is_reported.wait(waiting.DEADLINE)
        with oz.Publisher(endpoint) as pub:
            pub.wait_for_subscribers(timeout=waiting.DEADLINE)
            pub.publish("a.1", b"1")
            waiting.until(lambda: end_of(recorded) == 1)

    ended = record("a.*", "--connect", endpoint, "--filtering", "publisher", beside=publish, count=1)
    assert ended.code == 0
    # The line that says "ready" is missing if the message is recorded first.
    assert ended.stderr.splitlines()[0].endswith("; recording the messages that arrive")
    assert payloads(recorded) == [b"1"]


def test_options_reach_the_writer(oz_run, publisher, recorded, signal_when):
    def has_removed_records():
        for _ in range(50):
            publisher.publish("a.1", os.urandom(500))
        return end_of(recorded) and Journal(recorded).first_offset > 0

    signal_when(has_removed_records)
    options = ("--sync", "none", "--segment-bytes", "10K", "--retain-bytes", "40k")
    times = ("--segment-seconds", "9", "--retain-seconds", "9")
    place = ("--journal", str(recorded), "--connect", publisher.endpoint)
    assert oz_run("record", "a.*", *place, *options, *times).code == 0


def test_full_disk_is_reported_and_the_exit_code_is_1(publisher, recorded, oz_run, signal_when, monkeypatch):
    attempts = []

    def append(writer, rows):
        attempts.append(rows)
        raise JournalFull(str(recorded), 0, "No space left on device")

    def has_retried():
        publisher.wait_for_subscribers(timeout=waiting.DEADLINE)
        publisher.publish("a.1", b"1")
        return waiting.until(lambda: len(attempts) > 3)

    monkeypatch.setattr(Writer, "append", append)
    signal_when(has_retried)
    ended = oz_run("record", "a.*", "--journal", str(recorded), "--connect", publisher.endpoint)
    assert ended.code == 1
    *lines, summary, error = ended.stderr.splitlines()
    assert sum("free space" in line for line in lines) == 1
    assert "; 1 could not be recorded" in summary
    assert "No space left on device" in error


def test_terminal_shows_progress(publisher, record, monkeypatch):
    shown = []

    @contextmanager
    def progress_bar(text, total):
        yield lambda done, text: shown.append((done, text))

    def publish():
        publisher.wait_for_subscribers(timeout=waiting.DEADLINE)
        publisher.publish("a.1", b"x")
        # A display follows after `SHOWN_INTERVAL`.
        waiting.until(lambda: publisher.publish("a.1", b"x") or len(shown) > 1)

    monkeypatch.setattr(RECORD, "progress_bar", progress_bar)
    monkeypatch.setattr(RECORD, "SHOWN_INTERVAL", 0.01)
    record("a.*", "--connect", publisher.endpoint, beside=publish, count=2)
    done, text = shown[-1]
    assert re.fullmatch(rf"{done} messages  [\d,]+/s  \d+ pending  0 lost", text)
