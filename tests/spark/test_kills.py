"""A stream whose driver is killed: each message is delivered once.

Without OZ_SOAK it is 10,000 messages and 2 kills, with it a million messages and 20 kills.
"""

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
from spark.sink_listening import Listening
from support.scripts import ENVIRONMENT
from support.sizes import SOAK, size
from support.waiting import until

ROWS, BATCH, KILLS = size((10_000, 2_500, 2), (1_000_000, 50_000, 20))
SECONDS = 1_500.0
APPEND = 500
DRIVER = Path(__file__).with_name("kill_driver.py")


class Killable:
    """A driver and its Java in a process group of their own; the standard error goes to a file."""

    def __init__(self, log, *arguments):
        self._log, self._arguments = log, [str(each) for each in arguments]
        self.start()

    def start(self):
        with self._log.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, DRIVER, *self._arguments],
                stdout=subprocess.DEVNULL,
                stderr=file,
                env=ENVIRONMENT,
                start_new_session=True,
            )

    @property
    def has_ended(self):
        return self._process.poll() is not None

    def kill(self):
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(SECONDS)

    def finish(self):
        """Wait for the end; a query that ended with an error, such as after a kill, starts again."""
        for _ in range(5):
            if self._process.wait(SECONDS) == 0:
                return
            self.start()
        raise AssertionError(self._log.read_text()[-5000:])


@pytest.mark.sized
@pytest.mark.heavy
@pytest.mark.timeout(7200 if SOAK else 3000)
def test_each_message_is_delivered_once(tmp_path):
    seed = int(os.environ.get("OZ_SEED", random.randrange(1 << 32)))
    print(f"OZ_SEED={seed}")
    chance, kills = random.Random(seed), 0
    with Writer(tmp_path / "journal") as writer:
        for first in range(0, ROWS, APPEND):
            writer.append([(f"number.{at % 97}", b"%d" % at) for at in range(first, first + APPEND)])
    with Listening("number.*", dedupe=True) as sub:
        arguments = "local[2,4]", tmp_path / "journal", tmp_path, sub.endpoint, BATCH
        query = Killable(tmp_path / "log", *arguments)
        try:
            for left in range(KILLS, 0, -1):
                before = len(sub.messages)
                enough = before + chance.randrange(1, max(2, 2 * (ROWS - before) // (left + 1)))
                until(lambda: query.has_ended or len(sub.messages) >= enough, SECONDS)  # noqa: B023
                time.sleep(chance.random() / 2)  # not always while it publishes
                if query.has_ended:
                    break
                query.kill()
                kills += 1
                query.start()
            query.finish()
        finally:
            query.kill()
        sub.received(ROWS, SECONDS)
    print(f"{ROWS:,} messages, {kills} kills")
    numbers = Counter(int(message.payload) for message in sub.messages)
    assert [number for number, times in numbers.items() if times > 1] == []
    assert set(range(ROWS)) - numbers.keys() == set()
