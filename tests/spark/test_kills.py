"""A stream whose driver is killed: each message is delivered once.

Without OZ_SOAK it is 10,000 records and 2 kills, with it a million records and 20 kills.
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
pytestmark = [pytest.mark.sized, pytest.mark.timeout(7200 if SOAK else 3000)]


class Killable:
    """A query in a process group of its own; its standard error goes to a file."""

    def __init__(self, log, *arguments):
        self._log, self._arguments = log, [str(each) for each in arguments]
        self.start()

    def start(self):
        with self._log.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("kill_driver.py")), *self._arguments],
                stdout=subprocess.DEVNULL,
                stderr=file,
                env=ENVIRONMENT,
                start_new_session=True,
            )

    @property
    def has_ended(self):
        return self._process.poll() is not None

    def kill(self, what):
        """Kill the driver and its JVM, or only the JVM."""
        if what == "jvm":
            for pid, command in family_of(self._process.pid).items():
                if "SparkSubmit" in command:
                    end(pid)
        self.close()

    def finish(self):
        """Wait for the end; a query that ended with an error, such as after a kill, starts again."""
        for _ in range(5):
            self._process.wait(SECONDS)
            if self._process.returncode == 0:
                return
            self.start()
        raise AssertionError(self._log.read_text()[-5000:])

    def close(self):
        for pid in family_of(self._process.pid):
            end(pid)
        end(self._process.pid)
        self._process.wait(SECONDS)


def family_of(process):
    """Return the descendants of a process, and their command lines."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rsplit(")", 1)[1].split()[1])
    found = {process}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    commands = {}
    for child in found - {process}:
        with suppress(OSError):
            commands[child] = Path(f"/proc/{child}/cmdline").read_text()
    return commands


def end(process):
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def seeded():
    seed = int(os.environ.get("OZ_SEED", random.randrange(1 << 32)))
    print(f"OZ_SEED={seed}")
    return random.Random(seed)


def append(writer, first, end):
    writer.append([(f"number.{at % 97}", b"%d" % at) for at in range(first, min(first + APPEND, end))])


@pytest.mark.heavy
def test_each_message_is_delivered_once(tmp_path):
    chance, killed, began = seeded(), Counter(), time.monotonic()
    with Writer(tmp_path / "journal") as writer:
        for first in range(0, ROWS, APPEND):
            append(writer, first, ROWS)
    with Listening("number.*", dedupe=True) as sub:
        query = Killable(tmp_path / "log", "local[2,4]", tmp_path / "journal", tmp_path, sub.endpoint, BATCH)
        try:
            for left in range(KILLS, 0, -1):
                before = len(sub.messages)
                enough = before + chance.randrange(1, max(2, 2 * (ROWS - before) // (left + 1)))
                until(lambda: query.has_ended or len(sub.messages) >= enough, SECONDS)  # noqa: B023
                time.sleep(chance.random() / 2)  # not always while it publishes
                if query.has_ended:
                    break
                what = chance.choice(["driver", "jvm"])
                killed[what] += 1
                query.kill(what)
                query.start()
            query.finish()
        finally:
            query.close()
        sub.received(ROWS, SECONDS)
    took = time.monotonic() - began
    print(f"{ROWS:,} messages, killed {dict(killed)}, {took:.0f} s")
    numbers = Counter(int(message.payload) for message in sub.messages)
    assert [number for number, times in numbers.items() if times > 1] == []
    assert set(range(ROWS)) - numbers.keys() == set()
