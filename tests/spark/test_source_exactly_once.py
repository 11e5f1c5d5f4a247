"""Numbered messages into Parquet, while driver and executors are killed: each is there once.

The suite kills an executor of the driver that the tests of clusters share. OZ_SOAK=1 makes it a million
messages and 10 kills, some of them of the driver, which is a process of its own.
"""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from oz.journal import Writer
from spark import cluster_jobs as jobs
from spark.cluster import LOCAL_CLUSTER, driver_port, executors_of
from support.scripts import ENVIRONMENT
from support.sizes import SOAK
from support.waiting import Thread, until

SECONDS = 1_000.0
GROUP = 500


class Running:
    """The query, with its executors; what it complains of goes to a file."""

    def __init__(self, directory, log, batch):
        program = Path(__file__).with_name("source_kill_driver.py")
        arguments = [LOCAL_CLUSTER, directory / "journal", directory, batch]
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, program, *map(str, arguments)],
                stdout=subprocess.DEVNULL,
                stderr=file,
                env=ENVIRONMENT,
                start_new_session=True,
            )

    @property
    def has_ended(self):
        return self.process.poll() is not None

    def kill(self):
        family = family_of(self.process.pid)
        end(self.process.pid)
        for child in family:
            end(child)
        self.process.wait(SECONDS)


def family_of(process):
    """All processes that one started, and what they run."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rsplit(")", 1)[1].split()
            parents[int(path.parent.name)] = int(fields[1])
    found = {process}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {child: command_of(child) for child in found}


def executors_below(process):
    return [child for child, runs in family_of(process).items() if "CoarseGrainedExecutorBackend" in runs]


def command_of(process):
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_text()
    return ""


def end(process):
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


class Writing:
    """Appends numbered messages to a journal, no further than what the test waits for."""

    def __init__(self, directory, rows, enough):
        self.enough = enough
        self._directory, self._rows = directory, rows
        self._thread = Thread(self._write)
        until((directory / "acknowledged").exists, SECONDS)

    def _write(self):
        with Writer(self._directory, segment_bytes=1_000_000) as writer:
            for first in range(0, self._rows, GROUP):
                until(lambda: writer.end_offset <= self.enough, SECONDS)
                writer.append(
                    [(f"number.{number % 97}", b"%d" % number) for number in range(first, first + GROUP)]
                )

    def finish(self):
        self.enough = self._rows
        self._thread.outcome(SECONDS)


def batches(directory):
    commits = directory / "checkpoint" / "commits"
    return len(list(commits.glob("[0-9]*"))) if commits.is_dir() else 0


def await_work(directory, has_ended):
    before = batches(directory)
    until(lambda: has_ended() or batches(directory) > before, SECONDS)


def assert_each_once(found, rows):
    assert found == (rows, rows, rows, rows - 1, 0)


def seeded():
    seed = int(os.environ.get("OZ_SEED", random.randrange(1 << 32)))
    print(f"OZ_SEED={seed}")
    return random.Random(seed)


@pytest.mark.timeout(3600)
def test_each_message_is_in_parquet_once_though_an_executor_is_killed(engine, tmp_path):
    rows, batch, chance = 10_000, 2_500, seeded()
    port = engine.run(driver_port)
    writing = Writing(tmp_path / "journal", rows, rows // 3)
    following = Thread(
        lambda: engine.run(jobs.follow, str(tmp_path / "journal"), str(tmp_path), batch, timeout=SECONDS)
    )
    await_work(tmp_path, lambda: not following.is_alive())
    time.sleep(chance.random())  # not always between batches
    end(chance.choice(until(lambda: executors_of(port), SECONDS)))
    writing.enough = 2 * rows // 3
    writing.finish()
    (tmp_path / "written").touch()
    following.outcome(SECONDS)
    assert_each_once(engine.run(jobs.numbers_found, str(tmp_path / "rows")), rows)


@pytest.mark.heavy
@pytest.mark.timeout(7200)
def test_each_message_is_in_parquet_once_though_driver_and_executors_are_killed(spark, tmp_path):
    rows, batch, kills = (1_000_000, 50_000, 10) if SOAK else (10_000, 2_500, 2)
    chance, began = seeded(), time.monotonic()
    log, killed = tmp_path / "log", {"driver": 0, "executor": 0}
    writing = Writing(tmp_path / "journal", rows, rows // (kills + 2))
    running = Running(tmp_path, log, batch)
    try:
        for at in range(kills):
            await_work(tmp_path, lambda: running.has_ended)  # noqa: B023
            time.sleep(chance.random())  # not always between batches
            what = chance.choice(["driver", "executor"])
            killed[what] += 1
            if what == "driver":
                running.kill()
            elif executors := executors_below(running.process.pid):
                end(chance.choice(executors))
            writing.enough = rows * (at + 2) // (kills + 2)
            if running.has_ended:
                running = Running(tmp_path, log, batch)
        writing.finish()
        (tmp_path / "written").touch()
        for _ in range(5):
            running.process.wait(SECONDS)
            if running.process.returncode == 0:
                break
            running = Running(tmp_path, log, batch)
    finally:
        running.kill()
    assert running.process.returncode == 0, log.read_text()[-5000:]
    took = time.monotonic() - began
    print(f"{rows:,} messages, killed {killed}, {batches(tmp_path)} batches, {took:.0f} s")
    assert_each_once(jobs.numbers_found(spark, str(tmp_path / "rows")), rows)
