"""`oz bench`: it runs, counts each message and ends. Rates are not checked."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from support.scripts import started
from support.waiting import DEADLINE, until

FIGURES = ["p50_us", "p90_us", "p99_us", "max_us"]


def test_each_message_is_counted_for_both_filterings(oz_run):
    ended = oz_run("bench", "--match", "0.1", "--size", "50", "--seconds", "0.4", "--json")
    assert ended.code == 0, ended.stderr
    by_prefix, by_publisher = json.loads(ended.stdout)["results"]
    assert (by_prefix["filtering"], by_publisher["filtering"]) == ("prefix", "publisher")
    for result in (by_prefix, by_publisher):
        assert abs(result["delivered"] - 0.1 * result["published"]) <= 100
        assert result["lost"] == 0
        assert result["published_per_second"] > 0
        assert result["delivered_per_second"] > 0
        for phase in ("lone", "loaded"):
            figures = [result[f"latency_{phase}"][name] for name in FIGURES]
            assert figures == sorted(figures)
            assert figures[0] > 0
    assert by_prefix["received"] == by_prefix["published"]
    assert by_publisher["received"] == by_publisher["delivered"]


def test_the_table_has_a_column_for_each_filtering_and_a_loss_exits_1(oz, monkeypatch):
    names = ("published", "delivered", "received", "published_per_second", "delivered_per_second")

    def measure(filtering, *_):
        latencies = {"latency_lone": {"p50_us": 5.0}, "latency_loaded": {}}
        return {"filtering": filtering, "lost": 1, **dict.fromkeys(names, 1000), **latencies}

    monkeypatch.setattr("oz.cli.bench_run.measure", measure)
    ended = oz("bench")
    assert ended.exit_code == 1
    assert "oz bench: 2 messages were lost, although" in ended.stderr
    heading, *rows = (re.split(r"\s{2,}", line) for line in ended.stdout.splitlines())
    assert heading == ["filtering", "prefix", "publisher"]
    assert ["published", "1,000", "1,000"] in rows
    assert ["latency, lone, p50, µs", "5", "5"] in rows
    assert rows[-1] == ["latency, loaded, max, µs", "-", "-"]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
def test_ctrl_c_and_a_killed_subscriber_leave_no_process():
    with started("-m", "oz", "bench", "--seconds", "60") as process:
        os.kill(subscriber_of(process), signal.SIGKILL)
        _, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 1
    assert err.splitlines()[-1].startswith("oz bench: the subscriber process ended with status -9")

    with started("-m", "oz", "bench", "--seconds", "60") as process:
        subscriber = subscriber_of(process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, len(err.splitlines())) == (130, 1)
    until(lambda: not Path(f"/proc/{subscriber}").exists())


def subscriber_of(process):
    """Wait for a subscriber that has connected, and return its process id."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return int(until(lambda: children.read_text().split())[0])
