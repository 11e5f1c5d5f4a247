"""The demo's processes."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from support import scripts, waiting
from support.sizes import in_suite


def children(pid):
    with suppress(FileNotFoundError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks into /proc")
@pytest.mark.parametrize("number", in_suite([signal.SIGKILL], [signal.SIGTERM]))
def test_the_publisher_ends_with_the_demo_however_that_ends(number):
    with subprocess.Popen(
        [sys.executable, "-m", "oz", "demo"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as demo:
        waiting.until(lambda: children(demo.pid) or demo.poll() is not None)
        started = children(demo.pid)
        os.kill(demo.pid, number)
        demo.wait(waiting.DEADLINE)
    for one in started:
        waiting.until(lambda one=one: not Path(f"/proc/{one}").exists())


@pytest.mark.parametrize(
    "words",
    [
        ["-m", "oz.demo.run", "0"],  # it waits for no subscriber
        ["-c", "from oz.cli.measuring.plan import end_with_parent; end_with_parent()"],
    ],
    ids=["demo", "bench"],
)
def test_a_process_that_waits_for_the_end_of_its_parent_ends_well_before_it(words):
    with scripts.started(*words, fresh=True) as process:
        assert (process.wait(2 * waiting.DEADLINE), process.stderr.read()) == (0, "")
