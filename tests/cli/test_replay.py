"""`oz replay`. The subscriber is in a thread of the test."""

import os
import pty
import select
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

import oz
from oz.journal import GAP, Writer
from support import waiting
from support.ports import lasting_port
from support.urls import fetch
from support.waiting import DEADLINE, Thread

SECOND = 10**9


def row(subject, payload, time_ns, **columns):
    return {"subject": subject, "payload": payload, "time_ns": time_ns, **columns}


@pytest.fixture
def journal(tmp_path):
    """Six messages, a tenth of a second apart, and a loss."""
    where = tmp_path / "recorded"
    with Writer(where) as writer:
        for at in range(6):
            writer.append([row(f"{'ab'[at % 2]}.{at}", b"%d" % at, SECOND + at * SECOND // 10)])
        writer.append([row("nats:a.>", b"", 2 * SECOND, kind=GAP, lost=7)])
    return str(where)


@pytest.fixture
def long_journal(tmp_path):
    """10,000 messages, a hundredth of a second apart."""
    with Writer(tmp_path / "long") as writer:
        writer.append([row("a", b"%d" % at, SECOND + at * SECOND // 100) for at in range(10_000)])
    return str(tmp_path / "long")


@pytest.fixture
def replay(oz_run, journal, endpoint):
    """Function that runs `oz replay`, and returns its end and the messages of a subscriber."""

    def run(*options, count, way="--bind"):
        def receive():
            place = {"connect" if way == "--bind" else "bind": endpoint}
            with oz.Subscriber(**place) as sub:
                sub.subscribe(">")
                return [sub.receive(timeout=DEADLINE) for _ in range(count)]

        receiving = Thread(receive)
        ended = oz_run("replay", journal, way, endpoint, "--wait", "60", *options)
        return ended, receiving.outcome()

    return run


@pytest.mark.parametrize("way", ["--bind", "--connect"])
def test_it_waits_for_a_subscriber_and_publishes_in_order(replay, way):
    ended, messages = replay("--speed", "max", count=6, way=way)
    assert [message.payload for message in messages] == [b"%d" % at for at in range(6)]
    assert (ended.code, ended.stdout) == (0, b"")
    assert ended.stderr.splitlines()[-1] == (
        "oz replay: published 6 messages; passed 1 gaps, of 7 messages or more"
    )


@pytest.mark.parametrize(
    ("options", "payloads"),
    [
        (("--pattern", "b?3", "--dialect", "redis"), [b"3"]),
        (("--start", "1970-01-01T00:00:01.35Z", "--end", "5"), [b"4"]),
    ],
)
def test_it_selects_by_pattern_and_range(replay, options, payloads):
    ended, messages = replay("--speed", "max", *options, count=len(payloads))
    assert [message.payload for message in messages] == payloads
    assert f"published {len(payloads)} messages" in ended.stderr


def test_it_replays_on_a_bus(oz_run, journal, directory):
    with oz.Node("listener", bus="replayed", codec=None) as node:
        got = node.subscribe("a.>")
        ended = oz_run("replay", journal, "--bus", "replayed", "--speed", "max", "--wait", "60")
        messages = [got.receive(timeout=DEADLINE) for _ in range(3)]
    assert [message.payload for message in messages] == [b"0", b"2", b"4"]
    assert [message.headers["oz-offset"] for message in messages] == [0, 2, 4]
    assert (ended.code, ended.stdout) == (0, b"")
    assert ended.stderr.splitlines()[-1].startswith("oz replay: published 6 messages")


def test_it_serves_metrics_while_it_waits_for_a_subscriber(oz_run, journal, endpoint):
    address = f"127.0.0.1:{lasting_port()}"

    def receive():
        waiting.until(lambda: fetch(f"http://{address}/healthz")[0] == 200)
        assert "oz_replay_published_total 0\n" in fetch(f"http://{address}/metrics")[1]
        with oz.Subscriber(endpoint) as sub:
            sub.subscribe(">")
            return sub.receive(timeout=DEADLINE).payload

    receiving = Thread(receive)
    options = ("--bind", endpoint, "--speed", "max", "--wait", "60", "--metrics", address)
    ended = oz_run("replay", journal, *options)
    assert receiving.outcome() == b"0"
    assert ended.code == 0
    assert ended.stderr.count("metrics at") == 1


def test_without_a_subscriber_it_exits_3(oz_run, journal, endpoint):
    ended = oz_run("replay", journal, "--bind", endpoint, "--wait", "0.05")
    assert ended.code == 3
    assert "no subscriber within 0.05 s" in ended.stderr


def here(sub, timeout):
    """Receive messages until none arrives within a timeout."""
    taken = []
    with suppress(oz.Timeout):
        while True:
            taken.append(sub.receive(timeout=timeout))
    return taken


def test_sigusr1_pauses_and_resumes_with_a_bar_on_a_terminal(long_journal, endpoint):
    controller, terminal = pty.openpty()
    command = ("replay", long_journal, "--bind", endpoint, "--wait", "60")
    with subprocess.Popen([sys.executable, "-m", "oz", *command], stderr=terminal) as process:
        os.close(terminal)
        seen = b""

        def shows(text):
            nonlocal seen
            if select.select([controller], [], [], 0.05)[0]:
                seen += os.read(controller, 4096)
            return text in seen

        with oz.Subscriber(endpoint) as sub:
            sub.subscribe("a")
            sub.receive(timeout=DEADLINE)
            waiting.until(lambda: shows(b"messages"))
            process.send_signal(signal.SIGUSR1)
            waiting.until(lambda: shows(b"paused"))
            waiting.until(lambda: not here(sub, 0.3))
            seen = b""
            process.send_signal(signal.SIGUSR1)
            waiting.until(lambda: shows(b"replaying"))
            for _ in range(10):
                sub.receive(timeout=DEADLINE)
            # Repeated signals do not disturb the end.
            waiting.until(lambda: process.terminate() or shows(b"published"))
            waiting.until(lambda: process.terminate() or process.poll() is not None)
        assert process.returncode == 143
    os.close(controller)
