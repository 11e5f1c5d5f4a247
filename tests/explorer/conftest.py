"""Bus with an explorer: a feed, a subscriber whose handler does not end, and a group of two workers."""

import tempfile
import threading
from contextlib import ExitStack

import pytest

import oz

PAYLOADS = {
    "md.fx.EURUSD": {"bid": 1.0871, "ask": 1.0873, "venues": ["x", "y"]},
    "md.fx.GBPUSD": {"bid": 1.27},
    "md.equity.ACME": "12.5",
    "job.resize": {"file": "a.png"},
}
SLOW_PENDING = 40


class Scene:
    """Nodes of one bus. `feed` publishes MessagePack."""

    def __init__(self, stack, directory):
        self.ended = threading.Event()
        options = oz.NodeOptions(directory=directory)

        def node(name, **more):
            return stack.enter_context(oz.Node(name, bus="trading", options=options, **more))

        self.explorer = node("explorer", codec=None)
        self.feed, self.slow = node("prices"), node("dashboard")
        self.workers = [node(f"worker-{number}") for number in (1, 2)]
        stack.callback(self.ended.set)
        self.slow.subscribe("md.>", lambda message: self.ended.wait())
        for worker in self.workers:
            worker.subscribe("job.>", lambda message: None, group="workers")

    def wait_ready(self):
        for node in (self.feed, self.slow, self.explorer, *self.workers):
            node.wait_ready(count=4, timeout=60)

    def publish(self):
        """Publish the payloads once, and `SLOW_PENDING` messages that the slow subscriber does not handle."""
        for subject, payload in PAYLOADS.items():
            self.feed.publish(subject, payload)
        for number in range(SLOW_PENDING):
            self.feed.publish(f"md.index.I{number % 8}", number)
        self.feed.flush()


@pytest.fixture
def scene():
    made = tempfile.TemporaryDirectory(prefix="oz", dir="/tmp", ignore_cleanup_errors=True)
    with made as directory, ExitStack() as stack:
        yield Scene(stack, directory)
