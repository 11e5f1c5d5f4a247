"""Numbered messages into Parquet, while driver and executors are killed: each is there once.

OZ_SOAK=1 makes it a million messages and 10 kills, some of them of the driver. The suite kills an executor;
its tests of the archive and the sink kill drivers.
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

from pyspark.sql import functions as F

from oz.journal import Writer
from support.scripts import ENVIRONMENT
from support.sizes import SOAK, size
from support.waiting import Thread, until

ROWS, BATCH, KILLS = size((10_000, 2_500, 1), (1_000_000, 50_000, 10))
MASTER = size("local-cluster[1,1,1024]", "local-cluster[2,1,1024]")
SECONDS = 1_500.0
GROUP = 500


class Running:
    """The query, with its executors; what it complains of goes to a file."""

    def __init__(self, directory, log):
        program = Path(__file__).with_name("source_kill_driver.py")
        arguments = [MASTER, directory / "journal", directory, BATCH]
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

    def family(self):
        """All processes that it started, and what they run."""
        parents = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = path.read_text().rsplit(")", 1)[1].split()
                parents[int(path.parent.name)] = int(fields[1])
        found = {self.process.pid}
        while more := {child for child, parent in parents.items() if parent in found} - found:
            found |= more
        return {child: command_of(child) for child in found}

    def kill_an_executor(self, chance):
        executors = [child for child, runs in self.family().items() if "CoarseGrainedExecutorBackend" in runs]
        if executors:
            end(chance.choice(executors))

    def kill(self):
        family = self.family()
        end(self.process.pid)
        for child in family:
            end(child)
        self.process.wait(SECONDS)


def command_of(process):
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_text()
    return ""


def end(process):
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def write(directory, enough):
    """Append all messages, no further than what the test waits for."""
    with Writer(directory, segment_bytes=1_000_000) as writer:
        for first in range(0, ROWS, GROUP):
            until(lambda: writer.end_offset <= enough[0], SECONDS)
            writer.append(
                [(f"number.{number % 97}", b"%d" % number) for number in range(first, first + GROUP)]
            )


def batches(directory):
    commits = directory / "checkpoint" / "commits"
    return len(list(commits.glob("[0-9]*"))) if commits.is_dir() else 0


def await_work(directory, running):
    before = batches(directory)
    until(lambda: running.has_ended or batches(directory) > before, SECONDS)


@pytest.mark.sized
@pytest.mark.timeout(7200 if SOAK else 3600)
def test_each_message_is_in_parquet_once_though_driver_and_executors_are_killed(spark, tmp_path):
    seed = int(os.environ.get("OZ_SEED", random.randrange(1 << 32)))
    chance, began = random.Random(seed), time.monotonic()
    print(f"OZ_SEED={seed}")
    log, killed = tmp_path / "log", {"driver": 0, "executor": 0}
    enough = [ROWS // (KILLS + 2)]
    writing = Thread(lambda: write(tmp_path / "journal", enough))
    until(lambda: (tmp_path / "journal" / "acknowledged").exists(), SECONDS)
    running = Running(tmp_path, log)
    try:
        for at in range(KILLS):
            await_work(tmp_path, running)
            time.sleep(chance.random())  # not always between batches
            what = chance.choice(["driver", "executor"]) if SOAK else "executor"
            killed[what] += 1
            if what == "executor":
                running.kill_an_executor(chance)
            else:
                running.kill()
            enough[0] = ROWS * (at + 2) // (KILLS + 2)
            if running.has_ended:
                running = Running(tmp_path, log)
        enough[0] = ROWS
        writing.outcome(SECONDS)
        (tmp_path / "written").touch()
        for _ in range(5):
            running.process.wait(SECONDS)
            if running.process.returncode == 0:
                break
            running = Running(tmp_path, log)
    finally:
        running.kill()
    assert running.process.returncode == 0, log.read_text()[-5000:]
    rows = spark.read.parquet(str(tmp_path / "rows"))
    number = F.col("payload").cast("string").cast("long")
    found = rows.agg(
        F.count("*"), F.count_distinct("offset"), F.count_distinct(number), F.max(number)
    ).first()
    print(
        f"{ROWS:,} messages, killed {killed}, {batches(tmp_path)} batches, {time.monotonic() - began:.0f} s"
    )
    assert tuple(found) == (ROWS, ROWS, ROWS, ROWS - 1)
    assert rows.where(number != F.col("offset")).count() == 0
