"""The demo's processes."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import oz
from oz.demo.run import END
from support import scripts, waiting
from support.sizes import in_suite


def children(pid):
    with suppress(FileNotFoundError):
        return [int(item) for item in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
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
    for item in started:
        waiting.until(lambda item=item: not Path(f"/proc/{item}").exists())


def test_the_publisher_process_ends_in_order_while_its_parent_lives():
    with scripts.started("-m", "oz.demo.run", "1") as process:
        with oz.Subscriber(process.stdout.readline().strip(), codec="msgpack") as subscriber:
            subscriber.subscribe(END)
            assert subscriber.receive(timeout=2 * waiting.DEADLINE).subject == END
        assert (process.wait(2 * waiting.DEADLINE), process.stderr.read()) == (0, "")
