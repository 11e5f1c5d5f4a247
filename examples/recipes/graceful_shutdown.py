"""A worker that stops on SIGTERM: it finishes its jobs, and the other worker gets the next ones."""

import os
import signal
import threading
from queue import SimpleQueue

import oz

BUS = "shutdown"
done: SimpleQueue[tuple[str, int]] = SimpleQueue()
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())  # A signal handler only sets a flag.


def work(node: oz.Node) -> oz.Subscription:
    return node.subscribe("job", group="workers", handler=lambda m: done.put((node.name, m.payload)))


with (
    oz.Node("boss", bus=BUS) as boss,
    oz.Node("first", bus=BUS) as first,
    oz.Node("second", bus=BUS) as second,
):
    leaving, _ = work(first), work(second)
    boss.wait_for_subscribers("job", count=2)
    for number in range(10):
        boss.publish("job", number)

    os.kill(os.getpid(), signal.SIGTERM)
    stop.wait()
    leaving.drain(timeout=5)  # no new jobs; the last ones are finished
    first.close()

    for number in range(10, 20):
        boss.publish("job", number)
    jobs = [done.get(timeout=10) for _ in range(20)]
    print("each job once:", sorted(number for _, number in jobs) == list(range(20)))
    print("after the shutdown:", {name for name, number in jobs if number >= 10})
