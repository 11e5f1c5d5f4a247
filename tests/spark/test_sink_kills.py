"""From a journal through Spark to a subscriber, killed again and again: each message is delivered once."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from oz.journal import Writer
from spark.sink_driver import publish
from spark.sink_listening import Listening
from support.scripts import ENVIRONMENT
from support.sizes import SOAK, size
from support.waiting import until

DRIVER = Path(__file__).with_name("sink_driver.py")
ROWS, BATCH, KILLS = size((10_000, 2_000, 1), (1_000_000, 50_000, 12))
SECONDS = 1_000.0


def record(directory, rows):
    with Writer(directory) as writer:
        for first in range(0, rows, 10_000):
            numbers = range(first, min(first + 10_000, rows))
            writer.append((f"number.{number % 97}", b"%d" % number) for number in numbers)


class Driver:
    """The query, with its JVM in a process group of its own; what it complains of goes to a file."""

    def __init__(self, log, *arguments):
        self._log = log
        with open(log, "ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, DRIVER, *map(str, arguments)],
                stdout=subprocess.DEVNULL,
                stderr=file,
                env=ENVIRONMENT,
                start_new_session=True,
            )

    @property
    def has_ended(self):
        return self._process.poll() is not None

    def kill(self, only_jvm):
        """Kill it without a warning: the driver and its JVM, or the JVM alone."""
        if only_jvm:
            for child in self._children():
                os.kill(child, signal.SIGKILL)
        self.close()

    def _children(self):
        try:
            found = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        except FileNotFoundError:
            return []
        return [int(child) for child in found.split()]

    def finish(self):
        self._process.wait(SECONDS)
        assert self._process.returncode == 0, self._log.read_text()[-5000:]

    def close(self):
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(SECONDS)


@pytest.mark.heavy
@pytest.mark.timeout(7200 if SOAK else 3600)
def test_each_message_is_delivered_once_though_the_driver_is_killed(spark, tmp_path):
    seed = int(os.environ.get("OZ_SEED", random.randrange(1 << 32)))
    chance = random.Random(seed)
    print(f"OZ_SEED={seed}")
    record(tmp_path / "journal", ROWS)
    with Listening("number.*", filtering="publisher", dedupe=True) as sub:
        arguments = (tmp_path / "log", tmp_path / "journal", tmp_path / "checkpoint", sub.endpoint, BATCH)
        for kills_left in range(KILLS, 0, -1):
            before = len(sub.messages)
            enough = before + chance.randrange(1, max(2, 2 * (ROWS - before) // (kills_left + 1)))
            driver = Driver(*arguments)
            try:
                until(lambda: driver.has_ended or len(sub.messages) >= enough, SECONDS)  # noqa: B023
                # Not always while it publishes.
                time.sleep(chance.random() / 2)
                if driver.has_ended:  # it was done before
                    driver.finish()
                    break
                driver.kill(only_jvm=chance.random() < 0.5)
            finally:
                driver.close()
        # What is left, in a Spark that nobody kills.
        publish(spark, *map(str, arguments[1:]))
        sub.received(ROWS, SECONDS)
    # Closed: whatever else had arrived is among them.
    numbers = Counter(int(message.payload) for message in sub.messages)
    assert [number for number, times in numbers.items() if times > 1] == []
    assert set(range(ROWS)) - numbers.keys() == set()
    assert sum(numbers.values()) == ROWS
