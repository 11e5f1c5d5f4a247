"""A group of workers: one worker receives each job, also after one of them has left."""

from collections import Counter
from queue import SimpleQueue

import oz

BUS = "workers-example"
done: SimpleQueue[tuple[str, int]] = SimpleQueue()


def start(name: str) -> oz.Node:
    """Start a worker. It could be another process, on this host or another."""
    node = oz.Node(name, bus=BUS)
    node.subscribe(
        "job.*", group="workers", handler=lambda message: done.put((name, message.payload["number"]))
    )
    return node


with oz.Node("boss", bus=BUS) as boss:
    workers = [start(name) for name in ("ann", "bob", "cho")]
    for worker in workers:
        worker.wait_ready("boss", timeout=15)

    for number in range(12):
        boss.publish("job.paint", {"number": number})
    finished = [done.get(timeout=15) for _ in range(12)]
    shares = Counter(name for name, _ in finished)
    print("shares", *sorted(shares.items()))
    print("each job once", sorted(number for _, number in finished) == list(range(12)))

    # The worker finishes its jobs and leaves the bus.
    workers.pop().close()
    for number in range(12):
        boss.publish("job.paint", {"number": number})
    finished = [done.get(timeout=15) for _ in range(12)]
    print("without cho", sorted({name for name, _ in finished}))
    print("each job once", sorted(number for _, number in finished) == list(range(12)))
    for worker in workers:
        worker.close()
