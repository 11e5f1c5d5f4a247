"""Jobs of a queue group cross two forwarders to three workers. Forwarders and workers are processes of their own.

The oracle is the number of each job: a worker writes the number of each job that it handles to a file.
"""

import signal
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from services.buses.test_bridge import members
from support.scripts import started
from support.sizes import in_suite
from support.waiting import DEADLINE, until

FORWARDER = """
import signal, sys
from oz.services.bridge import Forwarder
legs = [{"bus": one, "directory": sys.argv[1], "lost_after": 2.0} for one in ("lan", "wan")]
with Forwarder(legs) as forwarder:
    signal.signal(signal.SIGTERM, lambda *_: forwarder.stop())
    print(forwarder._engine.id.hex(), flush=True)
    forwarder.run()
"""
WORKER = """
import os, sys, oz
name, directory, path, ack = sys.argv[1:]
done = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def handle(message):
    os.write(done, b"%d\\n" % message.payload)
delivery = oz.Delivery(redeliver=ack == "handled")
with oz.Node(name, bus="wan", options=oz.NodeOptions(directory=directory, lost_after=2.0)) as node:
    node.subscribe("job.*", handle, group="workers", ack=ack, delivery=delivery)
    node.wait_ready()
    print("ready", flush=True)
    sys.stdin.read()
"""
JOBS = 100
"""Jobs before each fault, and after the last one."""


class Pair:
    """Two forwarders, three workers, and a node that publishes jobs."""

    def __init__(self, stack, near, directory, ack):
        self.near, self.published = near, 0
        self._stack, self._directory, self._ack = stack, directory, ack
        self.forwarders, self.workers = {}, []
        self.add_forwarder()
        self.add_forwarder()
        for _ in range(3):
            self.add_worker()
        self.wait()

    def _start(self, *arguments):
        process = self._stack.enter_context(started("-c", *arguments))
        line = process.stdout.readline()
        assert line, process.stderr.read()
        return line.strip(), process

    def add_forwarder(self):
        own, process = self._start(FORWARDER, f"{self._directory}/shared")
        self.forwarders[own] = process

    def add_worker(self):
        name = f"worker{len(self.workers)}"
        where = f"{self._directory}/shared", f"{self._directory}/done{name}"
        self.workers.append(self._start(WORKER, name, *where, self._ack)[1])

    def wait(self):
        """Wait until the publisher knows which forwarder stands by."""
        until(
            lambda: (
                members(self.near, "workers")
                == {forwarder: forwarder != min(self.forwarders) for forwarder in self.forwarders}
            )
        )

    def publish(self):
        for _ in range(JOBS):
            self.near.publish(f"job.{self.published % 7}", self.published)
            self.published += 1

    def end(self, number, *, is_leader):
        """Send a signal to a forwarder while jobs are published, and start another one."""
        own = (min if is_leader else max)(self.forwarders)
        process = self.forwarders.pop(own)
        process.send_signal(number)
        self.publish()
        process.wait(DEADLINE)
        self.add_forwarder()
        self.wait()

    def jobs(self):
        """Return how often each job was handled."""
        paths = Path(self._directory).glob("done*")
        return Counter(int(line) for path in paths for line in path.read_text().splitlines())

    def wait_for_all(self):
        until(lambda: len(self.jobs()) >= self.published, timeout=2 * DEADLINE)


@pytest.fixture
def pair(make, directory):
    with ExitStack() as stack:
        near = make("near", bus="lan", near="shared", lost_after=2.0)
        yield lambda ack: Pair(stack, near, directory, ack)


@pytest.mark.parametrize("ack", in_suite(["handled"], ["received"]))
def test_each_job_is_done_once_though_forwarders_end_in_turn(pair, ack):
    jobs = pair(ack=ack)
    for number, is_leader in (
        (signal.SIGTERM, True),
        (signal.SIGKILL, True),
        (signal.SIGTERM, False),
        (signal.SIGKILL, False),
    ):
        jobs.publish()
        jobs.end(number, is_leader=is_leader)
    jobs.publish()
    jobs.wait_for_all()
    assert jobs.jobs() == dict.fromkeys(range(jobs.published), 1)
