"""`oz bench`: it runs, counts each message and ends. Rates are not checked."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

import oz as library
from support.waiting import DEADLINE, Thread, until

FIGURES = ["p50_us", "p90_us", "p99_us", "p99.9_us", "max_us"]


def test_each_message_is_counted_for_both_filterings(oz_run):
    options = ("--match", "0.1", "--subscribers", "2", "--size", "50", "--seconds", "0.4", "--json")
    ended = oz_run("bench", *options)
    assert ended.code == 0, ended.stderr
    data = json.loads(ended.stdout)
    assert (data["size"], data["subjects"], data["matching_subjects"], data["subscribers"]) == (
        50,
        1000,
        100,
        2,
    )
    by_prefix, by_publisher = data["results"]
    assert (by_prefix["filtering"], by_publisher["filtering"]) == ("prefix", "publisher")
    for result in data["results"]:
        assert abs(result["delivered"] - 0.2 * result["published"]) <= 200
        assert result["lost"] == 0
        assert result["published_per_second"] > 0
        assert result["delivered_per_second"] > 0
        for phase in ("lone", "loaded"):
            figures = [result[f"latency_{phase}"][name] for name in FIGURES]
            assert figures == sorted(figures)
            assert figures[0] > 0
    assert by_prefix["received"] == 2 * by_prefix["published"]
    assert by_publisher["received"] == by_publisher["delivered"]


def test_the_table_has_a_column_for_each_filtering_and_a_loss_exits_1(oz, monkeypatch):
    numbers = dict.fromkeys(("published", "delivered", "received"), 1000)
    rates = {f"{item}{unit}_per_second": 2.5 for item in ("published", "delivered") for unit in ("", "_mb")}

    def measure(plan):
        return {
            "filtering": plan.filtering,
            **numbers,
            **rates,
            "lost": 1,
            "latency_lone": {"p50_us": 5.0},
            "latency_loaded": {},
        }

    monkeypatch.setattr("oz.cli.bench_run.measure", measure)
    ended = oz("bench")
    assert ended.exit_code == 1
    assert ended.stderr.endswith("oz bench: 2 messages were lost\n")
    heading, *rows = (re.split(r"\s{2,}", line) for line in ended.stdout.splitlines())
    assert heading == ["filtering", "prefix", "publisher"]
    assert all(len(row) == 3 for row in rows)
    assert ["published", "1,000", "1,000"] in rows
    assert ["latency, lone, p50, µs", "5", "5"] in rows
    assert rows[-1] == ["latency, loaded, max, µs", "-", "-"]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
def test_ctrl_c_and_a_killed_subscriber_leave_no_process(oz_start):
    running = oz_start("bench", "--seconds", "60")
    os.kill(subscriber_of(running), signal.SIGKILL)
    ended = running.end()
    assert ended.code == 1
    assert ended.stderr.splitlines()[-1].startswith("oz bench: a subscriber process ended with status -9")

    running = oz_start("bench", "--seconds", "60")
    subscriber = subscriber_of(running)
    running.interrupt()
    ended = running.end()
    assert (ended.code, len(ended.stderr.splitlines())) == (130, 1)
    until(lambda: not Path(f"/proc/{subscriber}").exists())


def subscriber_of(running):
    """Wait for a subscriber that has connected, and return its process id."""
    children = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children")
    return int(until(lambda: children.read_text().split())[0])


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_connect_measures_a_running_publisher(oz_run, tmp_path, filtering):
    endpoint = f"ipc://{tmp_path}/feed"
    with library.Publisher(endpoint) as publisher:
        measuring = Thread(
            lambda: oz_run(
                "bench",
                "--connect",
                endpoint,
                "--pattern",
                "a.*",
                "--filtering",
                filtering,
                "--seconds",
                "1",
                "--json",
            )
        )
        publisher.wait_for_subscribers("a.b", timeout=DEADLINE)
        for number in range(10):
            publisher.publish("a.b", b"%d" % number)
            publisher.publish("c", b"")
        ended = measuring.outcome()
    assert ended.code == 0, ended.stderr
    data = json.loads(ended.stdout)
    assert (data["messages"], data["bytes"], data["messages_per_second"]) == (10, 10, 10.0)
    assert data["lost"] == (0 if filtering == "publisher" else None)


def test_connect_without_a_publisher_exits_1(oz, tmp_path):
    result = oz("bench", "--connect", f"ipc://{tmp_path}/nobody", "--seconds", "0.1")
    assert result.exit_code == 1
    assert "no message from" in result.stderr
