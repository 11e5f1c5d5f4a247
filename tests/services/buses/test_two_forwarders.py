"""Jobs of a queue group cross two forwarders to three workers. Forwarders and workers are processes of their own.

The oracle is the number of each job: a worker writes number and mark of each job that it handles to a file.
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
name, directory, path, policy, ack = sys.argv[1:]
done = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def handle(message):
    os.write(done, f"{message.payload} {message.subject} {message.redelivered:d}\\n".encode())
delivery = oz.Delivery(redeliver=ack == "handled", policy=policy)
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

    def __init__(self, stack, near, directory, policy, ack):
        self.near, self.published = near, 0
        self._stack, self._directory, self._options = stack, directory, (policy, ack)
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
        where = f"{self._directory}/shared", f"{self._directory}/{name}"
        self.workers.append(self._start(WORKER, name, *where, *self._options)[1])

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

    def handled(self):
        """Return the jobs that each worker has handled: number, subject, mark."""
        found = []
        for number in range(len(self.workers)):
            path = Path(f"{self._directory}/worker{number}")
            lines = path.read_text().splitlines() if path.exists() else []
            found.append([(int(job), subject, mark == "1") for job, subject, mark in map(str.split, lines)])
        return found

    def jobs(self):
        """Return how often each job was handled, and how often with a mark."""
        handled = [item for worker in self.handled() for item in worker]
        return Counter(job for job, _, _ in handled), Counter(job for job, _, marked in handled if marked)

    def wait_for_all(self):
        until(lambda: len(self.jobs()[0]) >= self.published, timeout=2 * DEADLINE)


@pytest.fixture
def pair(make, directory):
    with ExitStack() as stack:
        near = make("near", bus="lan", near="shared", lost_after=2.0)
        yield lambda policy="round_robin", ack="handled": Pair(stack, near, directory, policy, ack)


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
    times, _ = jobs.jobs()
    assert times == dict.fromkeys(range(jobs.published), 1)


@pytest.mark.heavy
def test_a_job_is_done_twice_only_with_a_mark_though_workers_are_killed_too(pair):
    jobs = pair()
    for number in range(3):
        jobs.publish()
        jobs.workers[number].kill()
        jobs.add_worker()
        jobs.publish()
        jobs.end(signal.SIGTERM if number % 2 else signal.SIGKILL, is_leader=True)
    jobs.publish()
    jobs.wait_for_all()
    times, marks = jobs.jobs()
    assert sorted(times) == list(range(jobs.published))
    assert not [item for item, count in times.items() if count - marks[item] > 1]


@pytest.mark.parametrize("policy", in_suite(["sticky"], ["round_robin", "failover"]))
def test_a_worker_handles_each_subject_in_order(pair, policy):
    jobs = pair(policy)
    for _ in range(10):
        jobs.publish()
    jobs.wait_for_all()
    owners = {}
    for number, handled in enumerate(jobs.handled()):
        assert [item for item, _, _ in handled] == sorted(item for item, _, _ in handled)
        for _, subject, _ in handled:
            owners.setdefault(subject, set()).add(number)
    maximum = {"round_robin": 3, "sticky": 1, "failover": 1}[policy]
    assert {len(owner) for owner in owners.values()} == {maximum}
