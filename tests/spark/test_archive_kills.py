"""Killed with -9 in earnest, driver or executors, while readers look on: each record is in the lake once.

OZ_SOAK=1 kills a driver 20 times, at other moments each time. `test_archive_publishing` kills whoever
publishes in each call that it makes, without Spark.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from spark import archive_lakes
from support import scripts

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from oz.journal import Journal
from oz.spark import lake_files
from oz.spark.jobs.archiving import manifest
from spark import archive_jobs as jobs
from support.sizes import size

ROUNDS = size(1, 20)
ROWS, STEP = 12_000, 4_000
DEADLINE = 240.0
LIMIT = 3_600


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    """Numbered messages and some losses."""
    directory = tmp_path_factory.mktemp("kills") / "journal"
    batches = [
        archive_lakes.numbered(at, at + 998) + archive_lakes.with_gaps(at) for at in range(0, ROWS, 1000)
    ]
    return archive_lakes.write_journal(directory, batches, segment_bytes=40_000)


class Looking:
    """Reads a lake again and again in a thread, and remembers what was wrong."""

    def __init__(self, lake):
        self._lake, self._end = lake, threading.Event()
        self.wrong, self.looks, self._seen = [], 0, set()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join(60)

    def _run(self):
        while not self._end.wait(0.1):
            if any(self._lake.glob("day=*/*/*.parquet")):
                self._look()

    def _look(self):
        try:
            found = archive_lakes.offsets(self._lake)
        except FileNotFoundError:  # listed before an exchange, and opened after it
            return
        except Exception as error:
            self.wrong.append(repr(error))
            return
        if len(found) != len(set(found)):
            self.wrong.append(f"{len(found) - len(set(found))} records twice")
        if not self._seen <= set(found):
            self.wrong.append(f"{len(self._seen - set(found))} records have left")
        self._seen = set(found)
        self.looks += 1


def run_and_kill(journal, lake, chance):
    """Start the job and kill it at some moment; gives whether it had ended before."""
    command = [sys.executable, str(Path(jobs.__file__)), str(journal), str(lake), str(STEP)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, env=scripts.ENVIRONMENT, start_new_session=True, **options) as process:
        try:
            for _ in range(chance.randrange(1, 4)):
                if (line := process.stdout.readline()) in ("", "ended\n"):
                    assert line, f"it failed, with exit code {process.wait(DEADLINE)}"
                    return True
            with suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0, 4))  # the moment: somewhere in the step that has begun
        finally:
            if chance.random() < 0.5:
                process.kill()  # the driver alone: what Java does on its own must do no harm
            else:
                with suppress(ProcessLookupError):  # it has ended by itself
                    os.killpg(process.pid, signal.SIGKILL)
    return False


@pytest.mark.heavy
@pytest.mark.timeout(LIMIT + 200 * ROUNDS)
def test_a_driver_that_is_killed_again_and_again_archives_each_record_once(spark, journal, tmp_path):
    lake = tmp_path / "lake"
    chance = random.Random(os.environ.get("OZ_SEED", "1"))
    with Looking(lake) as looking:
        ended = sum(run_and_kill(journal, lake, chance) for _ in range(ROUNDS))
        jobs.archive(spark, journal, lake, compact=True)
    assert looking.wrong == []
    assert ended < ROUNDS
    archive_lakes.assert_same(journal, lake)
    known = manifest.load(lake)
    assert (known.end_offset, known.pending) == (ROWS, None)
    assert sorted(lake_files(lake)) == sorted(str(lake / path) for path in archive_lakes.files(lake))


@pytest.mark.heavy
@pytest.mark.timeout(LIMIT)
def test_executors_of_a_cluster_that_are_killed_leave_each_record_once(engine, journal, tmp_path):
    journal, lake = shutil.copytree(journal, tmp_path / "journal"), tmp_path / "lake"
    with Looking(lake) as looking:
        rows = engine.run(jobs.archive_while_an_executor_is_killed, journal, lake, STEP, timeout=LIMIT / 2)
        assert rows == Journal(journal).end_offset
        _, merged = engine.run(jobs.archive, journal, lake, True, timeout=LIMIT / 2)
    assert merged > 0
    assert looking.wrong == []
    archive_lakes.assert_same(journal, lake)
