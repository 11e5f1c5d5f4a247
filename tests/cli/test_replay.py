import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import zmq

import oz
from oz.journal import GAP, Writer
from support import waiting
from support.routed import here

SECOND = 10**9


def row(subject, payload, time_ns, **columns):
    return {"subject": subject, "payload": payload, "time_ns": time_ns, **columns}


@pytest.fixture
def directory(tmp_path):
    """Six messages, a tenth of a second apart, and a loss."""
    where = tmp_path / "recorded"
    with Writer(where) as writer:
        for at in range(6):
            writer.append([row(f"{'ab'[at % 2]}.{at}", b"%d" % at, SECOND + at * SECOND // 10)])
        writer.append([row("nats:a.>", b"", 2 * SECOND, kind=GAP, lost=7)])
    return where


def bound_to(running):
    return running.ready_line().split("bound to ")[1].split(",")[0]


def listen(endpoint, pattern=">", **options):
    sub = oz.Subscriber(endpoint, **options)
    sub.subscribe(pattern)
    return sub


def is_silent(sub):
    try:
        sub.receive(timeout=0.5)
    except oz.Timeout:
        return True


def replay_for_long(oz_start, directory):
    """Replay 10,000 messages, 100 a second."""
    with Writer(directory) as writer:
        writer.append([row("a", b"%d" % at, SECOND + at * SECOND // 100) for at in range(10_000)])
    return oz_start("replay", str(directory), "--bind", "tcp://127.0.0.1:*", "--wait", "60")


def test_it_waits_for_a_subscriber_and_publishes_in_order(oz_start, directory):
    running = oz_start(
        "replay", str(directory), "--bind", "tcp://127.0.0.1:*", "--speed", "max", "--wait", "60"
    )
    with listen(bound_to(running)) as sub:
        payloads = [sub.receive(timeout=waiting.DEADLINE).payload for _ in range(6)]
        assert payloads == [b"%d" % at for at in range(6)]
        ended = running.end()
    assert (ended.code, ended.stdout) == (0, b"")
    [line] = ended.stderr.splitlines()
    assert line == "oz replay: published 6 messages; passed 1 gaps, of 7 messages or more"


def test_original_times_come_as_headers_and_the_pace_is_kept(oz_start, directory):
    running = oz_start("replay", str(directory), "--bind", "tcp://127.0.0.1:*", "--wait", "60")
    endpoint, began = bound_to(running), time.time_ns()
    with listen(endpoint, filtering="publisher") as sub:
        messages = [sub.receive(timeout=waiting.DEADLINE) for _ in range(6)]
        assert running.end().code == 0
    assert [one.headers["oz-time-ns"] for one in messages] == [SECOND + at * SECOND // 10 for at in range(6)]
    assert messages[5].time_ns - began > 0.4 * SECOND


@pytest.mark.parametrize(
    ("options", "payloads"),
    [
        (("--subject", "a.*"), [b"0", b"2", b"4"]),
        (("--subject", "b?4", "--dialect", "redis"), []),
        (("--from", "2", "--until", "4"), [b"2", b"3"]),
        (("--from", "1970-01-01T00:00:01.35Z"), [b"4", b"5"]),
    ],
)
def test_it_takes_a_subject_and_a_range(oz_start, directory, options, payloads):
    running = oz_start(
        "replay", str(directory), "--bind", "tcp://127.0.0.1:*", "--speed", "max", "--wait", "60", *options
    )
    with listen(bound_to(running), filtering="publisher") as sub:
        got = [sub.receive(timeout=waiting.DEADLINE).payload for _ in payloads]
        ended = running.end()
    assert got == payloads
    assert f"published {len(payloads)} messages" in ended.stderr


def test_it_replays_on_a_bus(oz_start, directory, short_directory):
    options = oz.NodeOptions(directory=short_directory)
    with oz.Node("listener", bus="replayed", codec=None, options=options) as node:
        got = node.subscribe("a.>")
        running = oz_start(
            "replay", str(directory), "--bus", "replayed", "--directory", short_directory,
            "--speed", "max", "--wait", "60",
        )  # fmt: skip
        assert "on bus replayed" in running.ready_line()
        messages = [got.receive(timeout=waiting.DEADLINE) for _ in range(3)]
        ended = running.end()
    assert [one.payload for one in messages] == [b"0", b"2", b"4"]
    assert [one.headers["oz-offset"] for one in messages] == [0, 2, 4]
    assert (ended.code, ended.stdout) == (0, b"")
    assert ended.stderr.splitlines()[-1].startswith("oz replay: published 6 messages")


def test_it_connects_to_a_subscriber_that_binds(oz_start, directory):
    with oz.Subscriber(bind="tcp://127.0.0.1:*") as sub:
        sub.subscribe(">")
        running = oz_start(
            "replay", str(directory), "--connect", sub.endpoint, "--speed", "max", "--wait", "60"
        )
        assert sub.receive(timeout=waiting.DEADLINE).payload == b"0"
        assert running.end().code == 0


def test_without_a_subscriber_it_says_so_and_exits_3(oz_run, directory):
    ended = oz_run("replay", str(directory), "--bind", "tcp://127.0.0.1:*", "--wait", "0.05")
    assert ended.code == 3
    assert "no subscriber within 0.05 s" in ended.stderr


def test_sigusr1_pauses_it_and_lets_it_go_on(oz_start, tmp_path):
    running = replay_for_long(oz_start, tmp_path / "recorded")
    with listen(bound_to(running)) as sub:
        sub.receive(timeout=waiting.DEADLINE)
        running.process.send_signal(signal.SIGUSR1)
        # One that has not arrived yet when the second is sent would be the same as that.
        waiting.until(lambda: not is_pending(signal.SIGUSR1, running) and is_silent(sub))
        paused = time.monotonic()
        running.process.send_signal(signal.SIGUSR1)
        for _ in range(10):
            sub.receive(timeout=waiting.DEADLINE)
        assert time.monotonic() - paused < waiting.DEADLINE
        running.interrupt()
        ended = running.end()
    assert ended.code == 130
    assert "published" in ended.stderr


def is_pending(number, running):
    status = Path(f"/proc/{running.process.pid}/status")
    if not status.exists():
        return False
    masks = [
        line.split()[1] for line in status.read_text().splitlines() if line[:7] in ("SigPnd:", "ShdPnd:")
    ]
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="sees by Linux's /proc when it is stuck")
def test_a_signal_ends_it_while_a_subscriber_holds_it_up(oz_start, tmp_path):
    with Writer(tmp_path / "recorded") as writer:
        # More than ZeroMQ holds, and TCP beside it.
        writer.append([("a", bytes(300))] * 250_000)
    with zmq.Context() as context, context.socket(zmq.SUB) as sub:
        sub.set_hwm(1)
        # Otherwise the system takes up to 32 MiB.
        sub.setsockopt(zmq.RCVBUF, 65_536)
        sub.setsockopt(zmq.SUBSCRIBE, b"")
        sub.setsockopt(zmq.LINGER, 0)
        port = sub.bind_to_random_port("tcp://127.0.0.1")
        endpoint = f"tcp://127.0.0.1:{port}"
        directory = str(tmp_path / "recorded")
        running = oz_start("replay", directory, "--connect", endpoint, "--speed", "max", "--wait", "60")
        running.ready_line()
        assert sub.poll(1000 * waiting.DEADLINE)
        counts = Path(f"/proc/{running.process.pid}/io")
        seen = [None] * 200

        def reads_no_more():
            seen[:] = [*seen[1:], counts.read_text()]
            return len(set(seen)) == 1

        waiting.until(reads_no_more)
        running.interrupt()
        ended = running.end()
    assert ended.code == 130
    assert "published" in ended.stderr


def test_ctrl_z_and_fg_put_off_the_rest(oz_start, tmp_path):
    running = replay_for_long(oz_start, tmp_path / "recorded")
    with listen(bound_to(running)) as sub:
        sub.receive(timeout=waiting.DEADLINE)
        running.process.send_signal(signal.SIGSTOP)
        time.sleep(2.5)  # not to wait for anything: for as long it is suspended
        on_their_way = here(sub, 0.2)
        went_on = time.monotonic()
        running.process.send_signal(signal.SIGCONT)
        numbers = [int(sub.receive(timeout=waiting.DEADLINE).payload) for _ in range(150)]
        took = time.monotonic() - went_on
    assert took > 1.0, "100 a second were recorded, and 250 were due when it went on"
    assert numbers == list(range(numbers[0], numbers[0] + 150))
    assert all(int(message.payload) < numbers[0] for message in on_their_way)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--speed", "0"), "max"),
        (("--speed", "fast"), "max"),
        (("--speed", "nan"), "max"),
        (("--subject", "a..b"), "a..b"),
        (("--from", "yesterday"), "2026-03-01"),
        (("--bind", "nowhere"), "nowhere"),
        (("--to", "tcp://127.0.0.1:1"), "--bind tcp://127.0.0.1:1 or --connect tcp://127.0.0.1:1"),
    ],
)
def test_wrong_usage_exits_2(oz, directory, options, word):
    result = oz("replay", str(directory), *options)
    assert result.exit_code == 2
    assert word in result.stderr


def test_a_directory_without_a_journal_is_said_in_one_line(oz, tmp_path):
    result = oz("replay", str(tmp_path / "none"))
    assert result.exit_code == 1
    [line] = result.stderr.splitlines()
    assert "there is no journal here" in line


def test_on_a_terminal_it_shows_a_bar(tmp_path):
    with Writer(tmp_path / "recorded") as writer:
        writer.append([row("a", b"%d" % at, SECOND + at * SECOND // 100) for at in range(10_000)])
    controller, terminal = pty.openpty()
    with oz.Subscriber(bind="tcp://127.0.0.1:*") as sub:
        sub.subscribe("a")
        command = ("replay", tmp_path / "recorded", "--connect", sub.endpoint, "--wait", "60")
        with subprocess.Popen([sys.executable, "-m", "oz", *command], stderr=terminal) as process:
            os.close(terminal)
            seen = b""

            def shows(text):
                nonlocal seen
                if select.select([controller], [], [], 0.05)[0]:
                    seen += os.read(controller, 4096)
                return text in seen

            sub.receive(timeout=waiting.DEADLINE)
            waiting.until(lambda: shows(b"messages"))
            process.send_signal(signal.SIGUSR1)
            waiting.until(lambda: shows(b"paused"))
            seen = b""
            process.send_signal(signal.SIGUSR1)
            waiting.until(lambda: shows(b"replaying"))
            process.send_signal(signal.SIGINT)
            waiting.until(lambda: shows(b"published"))
            assert process.wait(60) == 130
    os.close(controller)
