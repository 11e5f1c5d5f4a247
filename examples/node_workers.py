"""A group of workers: each job goes to one of them, also when one of them leaves in between."""

from collections import Counter
from queue import SimpleQueue

import oz

BUS = "workers-example"
done: SimpleQueue[tuple[str, int]] = SimpleQueue()


def start(name: str) -> oz.Node:
    """Start a worker. It could as well be a process of its own, on this host or another."""
    node = oz.Node(name, bus=BUS)
    node.subscribe(
        "job.*", group="workers", handler=lambda message: done.put((name, message.payload["number"]))
    )
    return node


with oz.Node("boss", bus=BUS) as boss:
    workers = [start(name) for name in ("ann", "bob", "cho")]
    boss.wait_for_peers(["ann", "bob", "cho"], timeout=15)
    for worker in workers:
        worker.wait_ready(timeout=15)

    for number in range(12):
        boss.publish("job.paint", {"number": number})
    finished = [done.get(timeout=15) for _ in range(12)]
    shares = Counter(name for name, _ in finished)
    print("shares", *sorted(shares.items()))
    print("each job once", sorted(number for _, number in finished) == list(range(12)))

    # It says goodbye, finishes what it has, and gets nothing more.
    workers.pop().close()
    for number in range(12):
        boss.publish("job.paint", {"number": number})
    finished = [done.get(timeout=15) for _ in range(12)]
    print("without cho", sorted({name for name, _ in finished}))
    print("each job once", sorted(number for _, number in finished) == list(range(12)))
    for worker in workers:
        worker.close()
